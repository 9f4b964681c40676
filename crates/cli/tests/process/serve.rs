//! `dogwatch serve` from outside: one address, all runs, and a run that is killed while somebody looks.

use crate::kit::{GRACES, PATIENCE, Project, Running};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

/// A server and how to ask it.
struct Server {
    process: Running,
    at: String,
    token: String,
}

impl Server {
    fn start(project: &Project) -> Server {
        let mut process = project.start(&["serve", "--listen", "127.0.0.1:0"]);
        let line = process.wait_for_line("http://");
        let (at, token) = line.trim().split_once("/#token=").expect("the token is in the fragment");
        let at = at.strip_prefix("http://").expect("an address").to_owned();
        Server { process, at, token: token.to_owned() }
    }

    fn open(&self, request: &str, more: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.at).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        let (at, token) = (&self.at, &self.token);
        let head = format!("{request} HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer {token}\r\n{more}\r\n");
        stream.write_all(head.as_bytes()).expect("writes");
        stream
    }

    fn ask(&self, request: &str) -> (String, Value) {
        let mut answer = String::new();
        let mut stream = self.open(request, "connection: close\r\ncontent-length: 0\r\n");
        stream.read_to_string(&mut answer).expect("answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("has a body");
        (head[9..12].to_owned(), serde_json::from_str(body).expect("is JSON"))
    }
}

fn waiting() -> (Project, Running, String) {
    let project = Project::acting_with(&format!("{GRACES}\ndelay: 1h"), "say hi");
    let mut run = project.start_run(&[]);
    let id = run.wait_for("run_started")["run"].as_str().expect("an id").to_owned();
    run.wait_for("wait_started");
    (project, run, id)
}

#[test]
fn all_runs_are_served_steered_and_told_dead_when_they_die() {
    let (project, mut run, id) = waiting();
    let server = Server::start(&project);
    let (status, body) = server.ask("GET /v1/runs");
    assert_eq!((status.as_str(), &body["runs"][0]["run"]), ("200", &Value::from(id.as_str())));
    assert_eq!(body["runs"][0]["state"], "waiting");
    assert_eq!(server.ask(&format!("POST /v1/runs/{id}/wake")).0, "202");
    run.wait_for("wait_ended");
    run.wait_for("wait_started");
    let follow = server.open(&format!("GET /v1/runs/{id}/events"), "accept: text/event-stream\r\n");
    let mut lines = BufReader::new(follow).lines().map(|line| line.expect("reads"));
    assert!(lines.any(|line| line == "data: {\"alive\":true}"));
    run.kill();
    assert!(lines.any(|line| line == "data: {\"alive\":false}"));
    let (status, body) = server.ask(&format!("POST /v1/runs/{id}/wake"));
    assert_eq!(status, "409");
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(message.contains(&format!("dogwatch resume {id}")), "{message}");
    assert_eq!(server.ask(&format!("GET /v1/runs/{id}")).1["state"], "lost");
    server.process.signal(Signal::TERM);
    server.process.finish().assert_code(143);
}

// promise: 14
#[test]
fn the_token_lies_in_a_file_for_its_owner_alone_and_stays_the_same() {
    let project = Project::new();
    let first = Server::start(&project);
    let file = project.outside("state/dogwatch/token");
    assert_eq!(std::fs::metadata(&file).expect("is there").permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).expect("reads").trim(), first.token);
    let second = Server::start(&project);
    assert_eq!(second.token, first.token);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("is ours");
    let refused = project.call(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(refused.assert_code(2).stderr.contains("can be read by others"), "{}", refused.stderr);
}

#[test]
fn a_port_that_is_taken_or_not_loopback_is_a_clear_error() {
    let project = Project::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("has one").to_string();
    let refused = project.call(&["serve", "--listen", &at]);
    refused.assert_code(2);
    assert!(
        refused.stderr.contains(&format!("error: cannot listen on {at}: the address is in use")),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("help: pass `--listen 127.0.0.1:0`"), "{}", refused.stderr);
    for other in ["0.0.0.0:0", "[::]:0", "nowhere:1"] {
        project.call(&["serve", "--listen", other]).assert_code(2);
    }
}

#[test]
fn a_socket_needs_no_token_and_goes_with_its_server() {
    let (project, mut run, id) = waiting();
    let socket = project.path("all");
    let mut server = project.start(&["serve", "--socket", "all"]);
    server.wait_for_line("unix:all");
    let answer = dogwatch_server::Client::connect(&socket).and_then(|mut client| client.get("/v1/runs"));
    let body: Value = answer.expect("answers").json().expect("is JSON");
    assert_eq!(body["runs"][0]["run"], Value::from(id));
    server.signal(Signal::INT);
    server.finish().assert_code(130);
    assert!(!socket.exists());
    run.signal(Signal::TERM);
    run.wait_for("run_ended");
}
