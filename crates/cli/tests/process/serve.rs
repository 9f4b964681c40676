//! `dogwatch serve` from outside: one address, all runs, and a run that is killed while a client watches it.

use crate::kit::{GRACES, Project, Running, TIMEOUT, all, one};
use dogwatch_core::time::dur::Dur;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

/// A running server and a client for it.
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
        stream.set_read_timeout(Some(TIMEOUT)).expect("sets");
        let (at, token) = (&self.at, &self.token);
        let head = format!("{request} HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer {token}\r\n{more}\r\n");
        stream.write_all(head.as_bytes()).expect("writes");
        stream
    }

    fn ask(&self, request: &str) -> (String, Value) {
        let (status, body) = self.ask_for_text(request);
        (status, serde_json::from_str(&body).expect("is JSON"))
    }

    fn ask_for_text(&self, request: &str) -> (String, String) {
        let mut answer = String::new();
        let mut stream = self.open(request, "connection: close\r\ncontent-length: 0\r\n");
        stream.read_to_string(&mut answer).expect("answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("has a body");
        (head[9..12].to_owned(), body.to_owned())
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
fn a_lost_run_is_served_with_the_time_until_its_loss() {
    let project = Project::with_lost_run(Dur::from_millis(65_300));
    let server = Server::start(&project);
    let is_right = |seconds: f64| (65.2..65.4).contains(&seconds);
    let status = &server.ask("GET /v1/runs").1["runs"][0]["status"];
    assert_eq!((&status["state"], &status["unfinished"]), (&Value::from("lost"), &Value::from(1)));
    assert!(status["supervised_s"].as_f64().is_some_and(is_right), "{status}");
    let metrics = server.ask_for_text("GET /metrics").1;
    let line = metrics.lines().find(|line| line.starts_with("dogwatch_run_supervised_seconds{"));
    let seconds = line.and_then(|line| line.rsplit(' ').next()).and_then(|n| n.parse().ok());
    assert!(seconds.is_some_and(is_right), "{metrics}");
}

#[test]
fn all_runs_are_served_and_steered_and_dead_ones_are_reported() {
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
fn the_token_is_in_a_private_file_and_is_new_for_each_server() {
    let project = Project::new();
    let first = Server::start(&project);
    let file = project.outside("state/dogwatch/token");
    assert_eq!(std::fs::metadata(&file).expect("it exists").permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).expect("reads").trim(), first.token);
    let second = Server::start(&project);
    assert_ne!(second.token, first.token);
    assert_eq!(std::fs::read_to_string(&file).expect("reads").trim(), second.token);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("we own the file");
    let refused = project.call(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(refused.assert_code(2).stderr.contains("can be read by others"), "{}", refused.stderr);
}

#[test]
fn a_busy_port_or_a_public_address_is_a_clear_error() {
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
    // Another server that has the address keeps its token.
    let first = Server::start(&project);
    project.call(&["serve", "--listen", &first.at]).assert_code(2);
    let kept = std::fs::read_to_string(project.outside("state/dogwatch/token")).expect("reads");
    assert_eq!(kept.trim(), first.token);
    for other in ["0.0.0.0:0", "[::]:0", "nowhere:1"] {
        project.call(&["serve", "--listen", other]).assert_code(2);
    }
}

#[test]
fn a_socket_needs_no_token_and_is_removed_with_its_server() {
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

/// Creates a loop that has gone to sleep. After a wake its agent waits at a gate.
fn asleep() -> (Project, String) {
    let project = Project::acting_with(
        &format!("idle: {{delay: 10ms, stop_after: 1}}\n{GRACES}"),
        "counter ../count; on 1 { marker idle no_pending_tasks } else { ready up; hang }",
    );
    let done = project.run(&[]);
    assert_eq!(done.assert_code(0).end()["outcome"], "idle");
    let id = one(&done.events(), "run_started")["run"].as_str().expect("an id").to_owned();
    (project, id)
}

/// Returns the parent and the session of a process.
fn parent_and_session(pid: i32) -> (i32, i32) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is alive");
    let behind: Vec<i32> =
        stat.rsplit(')').next().expect("a name").split_whitespace().filter_map(|n| n.parse().ok()).collect();
    (behind[0], behind[2])
}

#[test]
fn a_run_woken_over_http_outlives_the_server() {
    let (project, id) = asleep();
    let up = project.fifo("up");
    let server = Server::start(&project);
    let (status, body) = server.ask(&format!("POST /v1/runs/{id}/wake"));
    assert_eq!((status.as_str(), &body["continued"]), ("202", &Value::from(true)), "{body}");
    up.pid();
    let (_, entry) = server.ask("GET /v1/runs");
    let pid = i32::try_from(entry["runs"][0]["pid"].as_i64().expect("a pid")).expect("small");
    let (parent, session) = parent_and_session(pid);
    assert_ne!(parent, server.process.pid(), "the run is not a child of the server");
    assert_eq!(session, pid, "and leads a session of its own");
    // A second wake finds the run live.
    let (status, body) = server.ask(&format!("POST /v1/runs/{id}/wake"));
    assert_eq!((status.as_str(), &body["continued"]), ("202", &Value::Null), "{body}");
    server.process.kill();
    assert_eq!(parent_and_session(pid).1, pid, "the run outlives the server");
    let events = project.journal();
    assert_eq!(all(&events, "run_resumed").len(), 1);
    assert_eq!(all(&events, "iteration_started")[1]["cause"], "wake");
    project.call(&["stop", &id]).assert_code(0);
    let run = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(run, Signal::TERM).expect("the process is alive");
    project.wait_until_no_process_left();
}

#[test]
fn waking_a_run_that_cannot_continue_fails_with_the_reason() {
    let (project, id) = asleep();
    let server = Server::start(&project);
    std::fs::remove_file(project.path("loop/RALPH.md")).expect("it exists");
    let (status, body) = server.ask(&format!("POST /v1/runs/{id}/wake"));
    assert_eq!((status.as_str(), &body["error"]["code"]), ("409", &Value::from("cannot_continue")), "{body}");
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(message.contains("RALPH.md"), "{message}");
    // A sleeping run cannot be paused, and the request starts nothing.
    assert_eq!(server.ask(&format!("POST /v1/runs/{id}/pause")).0, "409");
    server.process.kill();
    project.wait_until_no_process_left();
}

#[test]
fn a_wake_over_http_without_the_token_starts_nothing() {
    let (project, id) = asleep();
    let server = Server { token: "0".repeat(64), ..Server::start(&project) };
    assert_eq!(server.ask(&format!("POST /v1/runs/{id}/wake")).0, "401");
    assert_eq!(all(&project.journal(), "run_resumed").len(), 0);
}
