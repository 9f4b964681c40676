//! All runs of a machine: the list, one run, its events, the output of its agents, and control requests.

use crate::support;

use dogwatch_core::record::event::{Event, Outcome};
use dogwatch_core::record::status::Status;
use dogwatch_core::run::caller::Source;
use dogwatch_server::{Request, Response};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use support::machine::Machine;
use support::{PATIENCE, notice, observed, run_ended};

fn value(response: &Response) -> Value {
    response.json().expect("is JSON")
}

fn code(response: &Response) -> (u16, String) {
    let error = value(response)["error"].take();
    assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()));
    (response.status, error["code"].as_str().unwrap_or("").to_owned())
}

#[test]
fn runs_are_listed_newest_first_including_dead_and_ended_ones() {
    let machine = Machine::new();
    assert_eq!(value(&machine.client().get("/v1/runs").expect("answers")), json!({"runs": []}));
    let (mut ended, _lost, mut alive) = (machine.run(1), machine.run(2), machine.run(3));
    ended.write(run_ended());
    alive.live();
    let body = value(&machine.client().get("/v1/runs").expect("answers"));
    let runs = body["runs"].as_array().expect("a list");
    let said: Vec<_> = runs.iter().map(|r| (r["alive"].as_bool(), r["state"].as_str())).collect();
    let expected =
        [(Some(true), Some("starting")), (Some(false), Some("lost")), (Some(false), Some("ended"))];
    assert_eq!(said, expected);
    assert_eq!(runs[0]["run"], json!(alive.id));
    let project = machine.dir.path().join("project-1");
    assert_eq!(runs[0]["project"], json!(project));
    assert_eq!(runs[0]["path"], json!(project.join("loop/RALPH.md")));
    assert_eq!(runs[0]["status"]["run"], json!(alive.id));
    assert_eq!((&runs[0]["pid"], &runs[1]["pid"]), (&json!(7), &Value::Null));
}

#[test]
fn the_list_can_be_limited_to_a_project_and_a_length() {
    let machine = Machine::new();
    let runs: Vec<_> = (1..=5).map(|n| machine.run(n)).collect();
    let ids = |query: &str| {
        let body = value(&machine.client().get(&format!("/v1/runs{query}")).expect("answers"));
        let all = body["runs"].as_array().expect("a list");
        all.iter().map(|r| r["run"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    let expected = |numbers: &[usize]| numbers.iter().map(|n| runs[n - 1].id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(""), expected(&[5, 4, 3, 2, 1]));
    assert_eq!(ids("?limit=2"), expected(&[5, 4]));
    let project = machine.dir.path().join("project-0").to_string_lossy().replace('/', "%2F");
    assert_eq!(ids(&format!("?project={project}")), expected(&[4, 2]));
    assert_eq!(ids(&format!("?project={project}&limit=1")), expected(&[4]));
    assert_eq!(ids("?project=nowhere"), expected(&[]));
    for bad in ["?limit=0", "?limit=1001", "?limit=x", "?limit=-1", "?other=1"] {
        let refused = machine.client().get(&format!("/v1/runs{bad}")).expect("answers");
        assert_eq!(code(&refused), (400, "bad_query".to_owned()), "{bad}");
    }
}

#[test]
fn a_run_whose_record_cannot_be_read_is_listed_with_the_reason() {
    let machine = Machine::new();
    let (good, bad) = (machine.run(1), machine.run(2));
    std::fs::write(bad.run_dir.join("events.jsonl"), "{\"v\":1}\n").expect("writes");
    let body = value(&machine.client().get("/v1/runs").expect("answers"));
    assert_eq!(body["runs"][0]["status"], Value::Null);
    let error = body["runs"][0]["error"].as_str().expect("a reason");
    assert!(error.contains("not an event"), "{error}");
    assert_eq!(body["runs"][1]["run"], json!(good.id));
    assert_eq!(body["runs"][1]["error"], Value::Null);
    let refused = machine.client().get(&bad.path("")).expect("answers");
    assert_eq!(code(&refused), (500, "no_record".to_owned()));
}

#[test]
fn the_status_of_a_run_matches_its_own_socket_and_follows_its_record() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    let status =
        |path: &str| -> Status { machine.client().get(path).expect("answers").json().expect("is a status") };
    let first = status(&run.path(""));
    assert_eq!((first.live, first.last_event.map(|e| e.seq)), (false, Some(1)));
    run.live();
    run.write(Event::Trouble { kind: "test".into(), detail: "some".into() });
    let second = status(&run.path(""));
    assert_eq!((second.live, second.troubles.count, second.last_event.map(|e| e.seq)), (true, 1, Some(2)));
    run.die();
    assert!(!status(&run.path("")).live);
    let orchestrator = value(&machine.client().get(&run.path("/orchestrator")).expect("answers"));
    assert_eq!(orchestrator["running"], json!(false));
    assert_eq!(orchestrator["config"]["enableTelemetry"], json!(true));
}

// promise: 14
#[test]
fn an_invalid_run_name_is_refused_before_any_lookup() {
    let machine = Machine::new();
    let run = machine.run(1);
    let status = |path: &str| code(&machine.client().get(path).expect("answers"));
    for bad in ["..", "..%2F..%2Fetc", "%2e%2e", "x", "20261115-201533-k3f", "20261115-201533-k3f9%00", "%ff"]
    {
        for rest in ["", "/events", "/orchestrator", "/output/loop/1/stdout"] {
            let path = format!("/v1/runs/{bad}{rest}");
            assert_eq!(status(&path), (400, "bad_path".to_owned()), "{path}");
        }
    }
    assert_eq!(status("/v1/runs/20261115-201533-k3f9"), (404, "no_such_run".to_owned()));
    run.output("stdout", b"x");
    std::fs::write(run.run_dir.join("loop/secret"), "x").expect("writes");
    for bad in [
        "loop/..%2F1/stdout",
        "..%2Floop/1/stdout",
        "loop/1/..%2Fsecret",
        "loop/1/..",
        "loop/0/stdout",
        "%2e%2e/1/stdout",
    ] {
        assert_eq!(status(&run.path(&format!("/output/{bad}"))).0, 400, "{bad}");
    }
    for missing in ["loop/2/stdout", "other/1/stdout", "loop/1/stderr", "loop/2"] {
        let path = run.path(&format!("/output/{missing}"));
        assert_eq!(status(&path), (404, "no_such_output".to_owned()), "{missing}");
    }
}

#[test]
fn events_of_any_run_are_the_journal_lines_after_a_sequence_number() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    run.write(notice("two"));
    run.write(observed());
    run.write(notice("four"));
    let journal = std::fs::read_to_string(run.run_dir.join("events.jsonl")).expect("reads");
    let lines: Vec<&str> = journal.lines().collect();
    let body = |query: &str| {
        let response = machine.client().get(&run.path(&format!("/events{query}"))).expect("answers");
        assert_eq!((response.status, response.content_type.as_str()), (200, "application/x-ndjson"));
        String::from_utf8(response.body).expect("is text")
    };
    assert_eq!(body("").lines().collect::<Vec<_>>(), [lines[0], lines[1], lines[3]]);
    assert_eq!(body("?after=2&observed=true").lines().collect::<Vec<_>>(), [lines[2], lines[3]]);
    let refused = machine.client().get(&run.path("/events?after=x")).expect("answers");
    assert_eq!(code(&refused), (400, "bad_query".to_owned()));
}

/// Follows the events of a run, frame by frame.
struct Following(BufReader<UnixStream>);

impl Following {
    fn start(machine: &Machine, path: &str) -> Following {
        let mut stream = UnixStream::connect(&machine.socket).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("writes");
        Following(BufReader::new(stream))
    }

    /// Reads until a line starts with `start`.
    fn until(&mut self, start: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).expect("reads"), 0, "no `{start}` in {seen:?}");
            let line = line.trim_end().to_owned();
            if line.starts_with(start) {
                seen.push(line);
                return seen;
            }
            seen.push(line);
        }
    }
}

#[test]
fn a_stream_carries_past_and_new_events_and_whether_the_run_is_alive() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    run.live();
    let mut stream = Following::start(&machine, &run.path("/events"));
    stream.until("id: 1");
    stream.until("data: {\"alive\":true}");
    run.write(notice("live"));
    assert!(stream.until("data: ").iter().any(|line| line == "id: 2"));
    run.die();
    stream.until("data: {\"alive\":false}");
    // A resumed run is reported on the same stream.
    run.live();
    run.write(notice("again"));
    let seen = stream.until("id: 3");
    assert!(
        seen.iter().any(|line| line == "data: {\"alive\":true}") || {
            stream.until("data: {\"alive\":true}");
            true
        }
    );
    run.write(run_ended());
    stream.until("event: run_ended");
    stream.until("0");
}

#[test]
fn the_stream_of_an_ended_run_is_complete_and_ends() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    run.write_notices(20, 10);
    run.write(run_ended());
    let events = machine.client().stream(&run.path("/events?after=2")).expect("streams");
    let ids: Vec<_> = events.map(|e| e.expect("reads").id.expect("has a number")).collect();
    assert_eq!(ids, (3..=22).collect::<Vec<_>>());
}

#[test]
fn requests_are_forwarded_to_the_run_and_its_refusals_returned() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    run.live();
    for what in ["wake", "pause", "resume", "stop"] {
        let said = machine.client().post(&run.path(&format!("/{what}")), &json!({})).expect("answers");
        assert_eq!((said.status, value(&said)), (202, json!({"ok": true})), "{what}");
    }
    let said = machine.client().post(&run.path("/tell"), &json!({"text": "hello"})).expect("answers");
    assert_eq!(said.status, 202);
    let handle = run.handle.as_ref().expect("it lives");
    let tell = Request::Message { text: "hello".into(), from: Source::Operator };
    let expected = [Request::Wake, Request::Pause, Request::Resume, Request::Stop { accept: false }, tell];
    assert_eq!(*handle.asked.lock().expect("not poisoned"), expected);
    handle.busy.store(true, std::sync::atomic::Ordering::SeqCst);
    let said = machine.client().post(&run.path("/wake"), &json!({})).expect("answers");
    assert_eq!(code(&said), (503, "busy".to_owned()));
    for (body, expected) in [(json!({"text": " "}), "empty_text"), (json!({"x": 1}), "bad_body")] {
        let said = machine.client().post(&run.path("/tell"), &body).expect("answers");
        assert_eq!(code(&said).1, expected);
    }
    let said = machine.client().get(&run.path("/wake")).expect("answers");
    assert_eq!(code(&said), (405, "method_not_allowed".to_owned()));
}

#[test]
fn a_run_that_is_not_running_is_not_started_and_the_command_is_named() {
    let machine = Machine::new();
    let (lost, mut stopped, mut asleep) = (machine.run(1), machine.run(2), machine.run(3));
    stopped.write(run_ended());
    let mut end = run_ended();
    if let Event::RunEnded(end) = &mut end {
        end.outcome = Outcome::Idle;
    }
    asleep.write(end);
    let said = |path: String| {
        let said = machine.client().post(&path, &json!({})).expect("answers");
        assert_eq!(code(&said), (409, "not_running".to_owned()));
        said.message()
    };
    let expected = format!("type `dogwatch resume {}`", lost.id);
    assert!(said(lost.path("/wake")).contains(&expected));
    let expected = format!("type `dogwatch wake {}`", asleep.id);
    assert!(said(asleep.path("/resume")).contains(&expected));
    // The wake is attempted, but nothing can continue the run here.
    let woken = machine.client().post(&asleep.path("/wake"), &json!({})).expect("answers");
    assert_eq!(code(&woken), (409, "cannot_continue".to_owned()));
    assert!(woken.message().contains("stays asleep"), "{}", woken.message());
    assert!(said(stopped.path("/resume")).contains("type `dogwatch run "));
    assert!(said(stopped.path("/stop")).contains("has ended (stopped)"));
}

// promise: 8
#[test]
fn output_is_text_in_ranges_whatever_an_agent_printed() {
    let machine = Machine::new();
    let run = machine.run(1);
    let text = b"<script>alert(1)</script>\x1b[2J\xff end";
    run.output("stdout", text);
    run.output("prompt.md", b"Go on.");
    run.output("empty", b"");
    let files = value(&machine.client().get(&run.path("/output/loop/1")).expect("answers"));
    let expected = json!({"files": [
        {"name": "prompt.md", "bytes": 6}, {"name": "stdout", "bytes": text.len()},
    ]});
    assert_eq!(files, expected);
    let whole = machine.client().get(&run.path("/output/loop/1/stdout")).expect("answers");
    assert_eq!((whole.status, whole.content_type.as_str()), (200, "text/plain; charset=utf-8"));
    assert_eq!(whole.body, text);
    assert_eq!(machine.client().get(&run.path("/output/loop/1/prompt")).expect("answers").body, b"Go on.");
    let ranged = |range: &str| {
        let head = machine.head(&format!("GET {}", run.path("/output/loop/1/stdout")));
        machine.send(&format!("{head}range: {range}\r\n\r\n"))
    };
    let some = ranged("bytes=8-12");
    assert!(some.starts_with("HTTP/1.1 206 "), "{some}");
    assert!(some.contains(&format!("\r\ncontent-range: bytes 8-12/{}\r\n", text.len())), "{some}");
    assert!(some.contains("\r\nx-content-type-options: nosniff\r\n"), "{some}");
    assert!(some.ends_with("\r\n\r\nalert"), "{some}");
    let none = ranged("bytes=500-");
    assert!(none.starts_with("HTTP/1.1 416 "), "{none}");
    assert!(none.contains(&format!("\r\ncontent-range: bytes */{}\r\n", text.len())), "{none}");
}

// promise: 14
#[test]
fn a_link_or_a_fifo_in_place_of_output_is_not_opened() {
    let machine = Machine::new();
    let run = machine.run(1);
    run.output("stdout", b"x");
    let dir = run.run_dir.join("loop/000001");
    std::os::unix::fs::symlink(machine.dir.path().join("token"), dir.join("stderr")).expect("links");
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("fifo"), rustix::fs::Mode::RUSR).expect("a FIFO");
    std::fs::create_dir(dir.join("dir")).expect("makes it");
    for name in ["stderr", "fifo", "dir"] {
        let said = machine.client().get(&run.path(&format!("/output/loop/1/{name}"))).expect("answers");
        assert_eq!(code(&said), (404, "no_such_output".to_owned()), "{name}");
    }
}

#[test]
fn only_output_and_prompts_are_served_and_never_keys() {
    let machine = Machine::new();
    let run = machine.run(1);
    for name in ["stdout", "mcp.json", "gemini-settings.json", "key", "plan.json"] {
        run.output(name, b"x");
    }
    let files = value(&machine.client().get(&run.path("/output/loop/1")).expect("answers"));
    assert_eq!(files["files"], json!([{"name": "stdout", "bytes": 1}]));
    for name in ["mcp.json", "gemini-settings.json", "key", "plan.json"] {
        let said = machine.client().get(&run.path(&format!("/output/loop/1/{name}"))).expect("answers");
        assert_eq!(said.status, 404, "{name}");
    }
}
