//! The API on TCP: access control, the headers of every response, and resistance to overload.

use crate::support;

use dogwatch_host::store::token::digest;
use dogwatch_server::{Limits, MachineSetup};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::machine::Machine;
use support::{PATIENCE, run_ended};

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or("none")
}

// promise: 14
#[test]
fn without_the_token_no_request_is_answered_or_carried_out() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    run.live();
    let at = machine.at;
    let routes = [
        "/v1/runs",
        &run.path(""),
        &run.path("/events"),
        "/metrics",
        "/openapi.json",
        "/v1/agents",
        "/nowhere",
    ];
    for path in routes {
        let answer = machine.send(&format!("GET {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n"));
        assert_eq!(status(&answer), "401", "{answer}");
        assert!(answer.contains("\r\nwww-authenticate: Bearer\r\n"), "{answer}");
        assert!(!answer.contains(run.id.as_str()), "{answer}");
    }
    let token = machine.token.as_str();
    for stop in [run.path("/stop"), run.path(&format!("/stop?token={token}"))] {
        let answer = machine.send(&format!(
            "POST {stop} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        ));
        assert_eq!(status(&answer), "401", "{answer}");
    }
    let wrong = machine.head("GET /v1/runs").replace(token, &"0".repeat(64));
    assert_eq!(status(&machine.send(&format!("{wrong}\r\n"))), "401");
    assert!(run.handle.expect("it lives").asked.lock().expect("not poisoned").is_empty());
    assert_eq!(status(&machine.get("/v1/runs")), "200");
}

/// Asks for a challenge, and checks the server's proof as the page does.
fn challenge(machine: &Machine) -> String {
    let nonce = "n".repeat(32);
    let asked =
        format!("GET /app/proof?nonce={nonce} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", machine.at);
    let answer = machine.send(&asked);
    let (mac, challenge) = answer.lines().last().and_then(|line| line.split_once(' ')).expect("two words");
    assert_eq!(mac, machine.token.mac(format!("dogwatch server\n{nonce}\n{challenge}").as_bytes()));
    challenge.to_owned()
}

/// Returns a request that is signed as the page signs it.
fn signed(machine: &Machine, method: &str, path: &str, challenge: &str, body: &str) -> String {
    let hash = digest(body.as_bytes());
    let message = format!("dogwatch request\n{method}\n{path}\n{challenge}\n0\n{hash}");
    let (at, mac, length) = (machine.at, machine.token.mac(message.as_bytes()), body.len());
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\nauthorization: Dogwatch-Proof \
         {challenge}.0.{hash}.{mac}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

// promise: 14
#[test]
fn a_signed_request_is_carried_out_once_and_only_with_its_own_body() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    run.live();
    let tell = run.path("/tell");
    let asked = || run.handle.as_ref().expect("it lives").asked.lock().expect("not poisoned").len();
    let request = signed(&machine, "POST", &tell, &challenge(&machine), r#"{"text": "one"}"#);
    let first = machine.send(&request);
    assert_eq!((status(&first), asked()), ("202", 1), "{first}");
    let again = machine.send(&request);
    assert_eq!((status(&again), asked()), ("401", 1), "{again}");
    assert!(again.contains("stale_proof"), "{again}");
    let changed = signed(&machine, "POST", &tell, &challenge(&machine), r#"{"text": "one"}"#);
    let answer = machine.send(&changed.replace("one", "two"));
    assert_eq!((status(&answer), asked()), ("401", 1), "{answer}");
    // A refused body uses the number up, so the attempt cannot be repeated.
    assert_eq!((status(&machine.send(&changed)), asked()), ("401", 1));
    let read = signed(&machine, "GET", "/v1/runs?limit=5", &challenge(&machine), "");
    assert_eq!(status(&machine.send(&read.replace("limit=5", "limit=6"))), "401");
    assert_eq!(status(&machine.send(&read)), "200");
    // Another server accepts nothing that was signed for this one.
    let other = Machine::new();
    let moved = read.replace(&machine.at.to_string(), &other.at.to_string());
    assert_eq!(status(&other.send(&moved)), "401");
    for nonce in ["", &"n".repeat(31), &"n".repeat(129)] {
        let at = machine.at;
        let asked =
            format!("GET /app/proof?nonce={nonce} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
        assert_eq!(status(&machine.send(&asked)), "400", "{nonce}");
    }
}

// promise: 14
#[test]
fn a_foreign_host_or_page_is_refused_whatever_it_has() {
    let machine = Machine::new();
    let head = machine.head("GET /v1/runs");
    let rebound =
        head.replace(&format!("host: {}", machine.at), &format!("host: evil.example:{}", machine.at.port()));
    let answer = machine.send(&format!("{rebound}\r\n"));
    assert_eq!(status(&answer), "403", "{answer}");
    assert!(answer.contains("bad_host"), "{answer}");
    let answer = machine.send(&format!("{head}origin: http://evil.example\r\n\r\n"));
    assert_eq!(status(&answer), "403", "{answer}");
    assert!(answer.contains("bad_origin"), "{answer}");
    let own = machine.send(&format!("{head}origin: http://{}\r\n\r\n", machine.at));
    assert_eq!(status(&own), "200", "{own}");
    let asked = format!(
        "{}origin: http://evil.example\r\naccess-control-request-method: POST\r\n\r\n",
        machine.head("OPTIONS /v1/runs")
    );
    assert_eq!(status(&machine.send(&asked)), "403");
}

#[test]
fn every_response_forbids_caching_sniffing_and_other_origins() {
    let machine = Machine::new();
    let run = machine.run(1);
    run.output("stdout", b"<b>");
    for path in [
        "/v1/runs",
        &run.path("/events"),
        &run.path("/output/loop/1/stdout"),
        "/nowhere",
        "/v1/runs/x",
        "/metrics",
    ] {
        let answer = machine.get(path);
        for header in [
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "content-security-policy: default-src 'none'",
        ] {
            assert!(answer.contains(&format!("\r\n{header}")), "{path}: {header}: {answer}");
        }
        assert!(!answer.to_ascii_lowercase().contains("access-control-"), "{answer}");
        assert!(!answer.contains("text/html"), "{answer}");
    }
}

#[test]
fn the_dashboard_needs_no_token_and_has_a_strict_policy() {
    let machine = Machine::new();
    let at = machine.at;
    let get =
        |path: &str| machine.send(&format!("GET {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n"));
    let page = get("/");
    assert_eq!(status(&page), "200", "{page}");
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    assert!(page.contains(&format!("\r\ncontent-security-policy: {policy}\r\n")), "{page}");
    assert!(page.contains("\r\nx-content-type-options: nosniff\r\n"), "{page}");
    assert_eq!(status(&get("/app/api.js")), "200");
    assert_eq!(status(&get("/app/../Cargo.toml")), "404");
    assert_eq!(status(&get("/app/nothing.js")), "404");
}

// promise: 4
#[test]
fn a_gigabyte_of_body_is_refused_before_it_is_read() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    run.live();
    let head = machine.head(&format!("POST {}", run.path("/tell")));
    let declared =
        machine.send(&format!("{head}content-type: application/json\r\ncontent-length: 1073741824\r\n\r\n"));
    assert_eq!(status(&declared), "413", "{declared}");
    let mut stream = machine.tcp();
    stream
        .write_all(
            format!("{head}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes(),
        )
        .expect("writes");
    // Send until the server gives up. The sockets alone hold far more than the server may keep.
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let sent = (0..16 * 1024).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
    assert!(sent < 1024, "{sent} chunks of 64 KiB were taken");
    assert_eq!(status(&machine.get("/v1/runs")), "200");
}

// promise: 4
#[test]
fn fifty_times_too_many_idle_connections_are_few_and_the_owner_still_gets_in() {
    let limits = Limits { connections: 20, read: Duration::from_millis(200), ..MachineSetup::limits() };
    let machine = Machine::within(limits);
    let (mut kept, mut turned_away) = (Vec::new(), 0);
    let all = if std::env::var_os("DOGWATCH_FULL").is_some() { 10_000 } else { 1_000 };
    for n in 0..all {
        kept.push(machine.tcp());
        if n % 50 == 49 {
            // The oldest connection makes room for newer ones, so it is closed once the server has caught up. Without
            // this wait the queue of the listener overflows, and the system tries such a connection again a second later.
            kept[0].set_nonblocking(false).expect("sets");
            let _ = kept[0].peek(&mut [0]);
            let before = kept.len();
            kept.retain(|stream| !is_answered(stream));
            turned_away += before - kept.len();
        }
    }
    // The server may be busy with the last ones. All but the newest, which fill its places, are turned away.
    let _newest = kept.split_off(kept.len().saturating_sub(20));
    for stream in &kept {
        stream.set_nonblocking(false).expect("sets");
        let _ = stream.peek(&mut [0]);
    }
    turned_away += kept.iter().filter(|stream| is_answered(stream)).count();
    assert!(turned_away > all - 100, "{turned_away}");
    // Silent connections are closed after their timeout, and then there is room again.
    let room = |_| {
        let mut stream = machine.tcp();
        let _ = stream.write_all(format!("{}\r\n", machine.head("GET /v1/runs")).as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        status(&answer) == "200"
    };
    assert!((0..100_000).any(room));
}

fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("sets");
    !matches!(stream.peek(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn a_head_that_is_too_long_or_never_ends_is_rejected() {
    let limits = Limits { read: Duration::from_millis(100), ..MachineSetup::limits() };
    let machine = Machine::within(limits);
    let long = format!("{}x: {}\r\n\r\n", machine.head("GET /v1/runs"), "x".repeat(64 * 1024));
    assert_eq!(status(&machine.send(&long)), "431");
    let mut stream = machine.tcp();
    stream.write_all(b"GET /v1/runs HTTP/1.1\r\nhost: ").expect("writes");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the connection is closed");
}

#[test]
fn an_ended_run_is_followed_on_tcp_to_its_end() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    run.write(run_ended());
    let head = machine.head(&format!("GET {}", run.path("/events")));
    let answer = machine.send(&format!("{head}accept: text/event-stream\r\nlast-event-id: 1\r\n\r\n"));
    assert!(answer.contains("\r\ncontent-type: text/event-stream\r\n"), "{answer}");
    assert!(answer.contains("id: 2\nevent: run_ended\ndata: {"), "{answer}");
    assert!(!answer.contains("id: 1\n"), "{answer}");
}

#[test]
fn shutdown_is_bounded_while_clients_are_connected() {
    let mut machine = Machine::new();
    let mut run = machine.run(1);
    run.live();
    let head = machine.head(&format!("GET {}", run.path("/events")));
    let mut followers: Vec<TcpStream> = (0..20).map(|_| machine.tcp()).collect();
    for stream in &mut followers {
        stream.write_all(format!("{head}accept: text/event-stream\r\n\r\n").as_bytes()).expect("writes");
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("is answered");
    }
    let began = std::time::Instant::now();
    drop(machine.served.take());
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    for mut stream in followers {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(TcpStream::connect(machine.at).is_err());
}

// promise: 14
#[test]
fn idle_connections_without_a_token_make_room_for_the_owner_at_once() {
    // They may stay idle for an hour, so only making room helps.
    let limits = Limits { connections: 20, read: Duration::from_secs(3600), ..MachineSetup::limits() };
    let machine = Machine::within(limits);
    let idle: Vec<_> = (0..60).map(|_| machine.tcp()).collect();
    for _ in 0..5 {
        assert_eq!(status(&machine.get("/v1/runs")), "200");
    }
    drop(idle);
}
