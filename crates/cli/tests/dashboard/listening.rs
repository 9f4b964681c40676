//! Processes that listen in place of the server, or between it and the page. They must learn nothing that they can use.

use crate::Serve;
use crate::browser::Page;
use crate::kit::{Project, TIMEOUT};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

const IDLING: &str = "idle: {delay: 1h, max_delay: 1h, stop_after: 50}";
const END: &str = "\r\n\r\n";

/// Cuts one request from the bytes of a connection, if it is complete.
fn cut_request(bytes: &mut String) -> Option<String> {
    let head = bytes.find(END)? + END.len();
    let length = bytes[..head].lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let end = head + length.unwrap_or(0);
    (bytes.len() >= end).then(|| bytes.drain(..end).collect())
}

/// Passes on what a client sends, one request at a time.
fn each_request(mut client: TcpStream, mut take: impl FnMut(String) -> bool) {
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while let Ok(n @ 1..) = client.read(&mut piece) {
        text.push_str(&String::from_utf8_lossy(&piece[..n]));
        while let Some(request) = cut_request(&mut text) {
            if !take(request) {
                return;
            }
        }
    }
}

/// Sends a recorded request again and returns the response.
fn replay(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server is up");
    stream.set_read_timeout(Some(TIMEOUT)).expect("sets");
    let request = request.replace("Connection: keep-alive", "Connection: close");
    stream.write_all(request.as_bytes()).expect("it fits into the socket");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server closes");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Asserts that the server refuses every recorded request to the API. Returns how many there were.
fn assert_worthless(address: &str, recorded: &[String]) -> usize {
    let api = recorded.iter().filter(|request| request.contains(" /v1/"));
    api.inspect(|request| {
        let answer = replay(address, request);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{request}\n{answer}");
    })
    .count()
}

/// Answers every request with nonsense and records it. The answer has the form of a proof and a challenge, so only their
/// content is wrong.
fn answer_nonsense(listener: TcpListener, record: Sender<String>) {
    for stream in listener.incoming().flatten() {
        let record = record.clone();
        std::thread::spawn(move || {
            let mut back = stream.try_clone().expect("a descriptor");
            each_request(stream, |request| {
                let body = format!("{} {}", "0".repeat(64), "1".repeat(64));
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 129";
                record.send(request).is_ok() && write!(back, "{head}{END}{body}").is_ok()
            });
        });
    }
}

/// Forwards all bytes in both directions and records the requests.
fn relay(listener: TcpListener, to: String, record: Sender<String>) {
    for client in listener.incoming().flatten() {
        let (record, server) = (record.clone(), TcpStream::connect(&to).expect("the server is up"));
        let (mut down, mut back) =
            (server.try_clone().expect("a descriptor"), client.try_clone().expect("a descriptor"));
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut down, &mut back);
            let _ = back.shutdown(Shutdown::Both);
        });
        std::thread::spawn(move || {
            let mut server = server;
            each_request(client, |request| {
                let passed = server.write_all(request.as_bytes()).is_ok();
                passed && record.send(request).is_ok()
            });
            let _ = server.shutdown(Shutdown::Both);
        });
    }
}

/// Returns what was recorded, up to the first request that contains `last`.
fn record_until(heard: &Receiver<String>, last: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    while !all.last().is_some_and(|request| request.contains(last)) {
        all.push(heard.recv_timeout(TIMEOUT).unwrap_or_else(|e| panic!("{last}: {e}: {all:#?}")));
    }
    all
}

// promise: 14
#[test]
fn a_process_that_takes_the_port_learns_no_token_and_records_nothing_that_a_server_accepts() {
    let project = Project::acting_with(IDLING, "say nothing; marker idle no_pending_tasks");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let serve = Serve::start(&project);
    let (address, url) = (serve.address().to_owned(), serve.url.clone());
    let (_, token) = url.split_once("#token=").expect("the address holds it");
    let mut page = serve.open(&project);
    page.wait("document.querySelector('.run')", "a row");
    page.key("ArrowDown");
    // This page has no open connection, so it does not notice that another process takes the port.
    serve.running.kill();
    let impostor = TcpListener::bind(&address).expect("the port is free");
    let (record, heard) = channel();
    std::thread::spawn(move || answer_nonsense(impostor, record));
    let mut recorded = record_until(&heard, "GET /v1/runs");
    page.key("w");
    recorded.extend(record_until(&heard, "/app/proof?nonce="));
    page.wait_for_text("the server does not know this token");
    recorded.extend(heard.try_iter());
    assert!(recorded.iter().any(|request| request.contains("Dogwatch-Proof ")), "{recorded:#?}");
    assert!(recorded.iter().all(|request| !request.contains(token)), "the impostor has the token");
    // A request that steers is never sent to it, not even signed.
    assert!(recorded.iter().all(|request| !request.starts_with("POST")), "{recorded:#?}");
    let next = Serve::start(&project);
    let renamed: Vec<String> = recorded.iter().map(|r| r.replace(&address, next.address())).collect();
    assert!(assert_worthless(next.address(), &renamed) > 0);
}

// promise: 14
#[test]
fn what_a_relay_records_between_page_and_server_is_not_accepted_again() {
    let project = Project::acting_with(IDLING, "say nothing; marker idle no_pending_tasks");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let serve = Serve::start(&project);
    let (_, token) = serve.url.split_once("#token=").expect("the address holds it");
    let port = serve.address().rsplit(':').next().expect("a port");
    let between = TcpListener::bind("127.0.0.1:0").expect("a port");
    let rules = format!("MAP localhost:{port} {}", between.local_addr().expect("has an address"));
    let (record, heard) = channel();
    let to = serve.address().to_owned();
    std::thread::spawn(move || relay(between, to, record));
    let mut page = Page::open_with(&project, &rules);
    page.go(&serve.url.replace("127.0.0.1", "localhost"));
    page.wait("document.querySelector('.run')", "a row");
    page.key("ArrowDown");
    page.key("w");
    let recorded = record_until(&heard, "POST /v1/runs/");
    // The run was woken once, through the relay.
    assert_eq!(run.wait_for("wait_ended")["by"], "api");
    run.wait_for("wait_started");
    assert!(recorded.iter().all(|request| !request.contains(token)), "the relay has the token");
    assert!(assert_worthless(serve.address(), &recorded) > 1);
}
