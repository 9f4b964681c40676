//! External agents, metrics, the OpenAPI document, and clients that do not read.

use crate::support;

use dogwatch_server::{Client, Response};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use support::machine::Machine;
use support::{PATIENCE, head, run_ended};

fn post(machine: &Machine, path: &str, body: &Value) -> Response {
    machine.client().post(path, body).expect("answers")
}

fn code(response: &Response) -> (u16, String) {
    let body: Value = response.json().expect("is JSON");
    (response.status, body["error"]["code"].as_str().unwrap_or("").to_owned())
}

fn refused(status: u16, word: &str) -> (u16, String) {
    (status, word.to_owned())
}

#[test]
fn an_external_agent_registers_reports_and_ends() {
    let machine = Machine::new();
    let get = |path: &str| -> Value { machine.client().get(path).expect("answers").json().expect("is JSON") };
    assert_eq!(get("/v1/agents"), json!({"agents": []}));
    assert_eq!(post(&machine, "/v1/agents", &json!({"id": "a b"})).status, 201);
    assert_eq!(code(&post(&machine, "/v1/agents", &json!({"id": "a b"}))), refused(409, "agent_taken"));
    assert_eq!(post(&machine, "/v1/agents/a%20b/activity", &json!({"messages": 12})).status, 202);
    let agents = get("/v1/agents");
    assert_eq!(agents["agents"][0]["id"], "a b");
    assert_eq!(agents["agents"][0]["state"], "working");
    assert_eq!(agents["agents"][0]["messages"], 12);
    assert_eq!(agents["agents"][0]["evidence_summary"].as_array().map(Vec::len), Some(4));
    // A whole number may be written as a float.
    assert_eq!(post(&machine, "/v1/agents/a%20b/activity", &json!({"messages": 13.0})).status, 202);
    assert_eq!(get("/v1/agents")["agents"][0]["messages"], 13);
    assert_eq!(get("/v1/agents/hung"), json!({"hung": []}));
    assert_eq!(post(&machine, "/v1/agents/a%20b/done", &json!({})).status, 202);
    assert_eq!(get("/v1/agents")["agents"][0]["state"], "ended");
    let late = post(&machine, "/v1/agents/a%20b/activity", &json!({"messages": 13}));
    assert_eq!(code(&late), refused(409, "agent_ended"));
    assert_eq!(code(&post(&machine, "/v1/agents/b/done", &json!({}))), refused(404, "no_such_agent"));
}

#[test]
fn an_agent_that_repeats_its_error_hangs_and_followers_are_notified_at_once() {
    let machine = Machine::new();
    post(&machine, "/v1/agents", &json!({"id": "looping", "profile": "deep"}));
    let mut stream = machine.client().stream("/v1/agents/hung").expect("streams");
    for _ in 0..5 {
        assert_eq!(post(&machine, "/v1/agents/looping/error", &json!({"text": "Invalid JSON"})).status, 202);
    }
    let event = stream.next().expect("an event").expect("reads");
    let body: Value = serde_json::from_str(&event.data).expect("is JSON");
    assert_eq!(
        (event.event.as_str(), &body["id"], &body["reason"]),
        ("hung", &json!("looping"), &json!("ERROR_LOOP"))
    );
    let hung: Value = machine.client().get("/v1/agents/hung").expect("answers").json().expect("is JSON");
    assert_eq!(hung["hung"][0]["message"], "Loop detected: 5 errors, last: Invalid JSON");
    let agents: Value = machine.client().get("/v1/agents").expect("answers").json().expect("is JSON");
    assert_eq!(agents["agents"][0]["state"], "hung");
}

#[test]
fn malformed_reports_are_refused() {
    let machine = Machine::new();
    for body in [
        json!({}),
        json!({"id": 1}),
        json!({"id": ""}),
        json!({"id": "a\nb"}),
        json!({"id": "a", "x": 1}),
        json!({"id": "a", "profile": "slow"}),
        json!({"id": "x".repeat(201)}),
    ] {
        assert_eq!(code(&post(&machine, "/v1/agents", &body)), refused(400, "bad_body"), "{body}");
    }
    post(&machine, "/v1/agents", &json!({"id": "a"}));
    for body in [
        json!({"messages": -1}),
        json!({"messages": 1.5}),
        json!({"messages": 1e300}),
        json!({"messages": "1"}),
        json!([]),
        json!(1),
    ] {
        assert_eq!(code(&post(&machine, "/v1/agents/a/activity", &body)), refused(400, "bad_body"), "{body}");
    }
    let long = json!({"text": "x".repeat(16 * 1024 + 1)});
    assert_eq!(code(&post(&machine, "/v1/agents/a/error", &long)), refused(413, "too_large"));
    let most = json!({"text": "x".repeat(16 * 1024)});
    assert_eq!(post(&machine, "/v1/agents/a/error", &most).status, 202);
    let head = machine.head("POST /v1/agents");
    let answer = machine.send(&format!("{head}content-length: 10\r\n\r\n{{\"id\":\"b\"}}"));
    assert!(answer.starts_with("HTTP/1.1 415 "), "{answer}");
    let head = machine.head("POST /v1/agents/a/activity");
    let answer = machine.send(&format!("{head}content-length: 0\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
}

#[test]
fn an_agent_is_judged_by_the_limits_it_registered_with() {
    let machine = Machine::new();
    let get = |path: &str| -> Value { machine.client().get(path).expect("answers").json().expect("is JSON") };
    let body =
        json!({"id": "a", "idle_timeout_seconds": 600, "total_timeout_seconds": 1800.5, "max_errors": 2.0});
    assert_eq!(post(&machine, "/v1/agents", &body).status, 201);
    let agent = get("/v1/agents/a");
    assert_eq!(agent["idle_timeout_seconds"], 600.0);
    assert_eq!(agent["total_timeout_seconds"], 1800.5);
    assert_eq!((&agent["max_errors"], &agent["state"]), (&json!(2), &json!("working")));
    assert_eq!(agent["reason"], Value::Null);
    for _ in 0..2 {
        post(&machine, "/v1/agents/a/error", &json!({"error_message": "timeout"}));
    }
    let agent = get("/v1/agents/a");
    assert_eq!((&agent["state"], &agent["reason"]), (&json!("hung"), &json!("ERROR_LOOP")));
    // This agent exceeds its total limit at once.
    post(&machine, "/v1/agents", &json!({"id": "b", "total_timeout_seconds": 0.001}));
    let late = std::time::Instant::now() + PATIENCE;
    while get("/v1/agents/b")["state"] != "hung" {
        assert!(std::time::Instant::now() < late, "a millisecond passes");
    }
    assert_eq!(get("/v1/agents/b")["reason"], "SESSION_CEILING_EXCEEDED");
}

#[test]
fn invalid_limits_are_refused_with_the_name_of_the_field() {
    let machine = Machine::new();
    for (field, bad) in [
        ("idle_timeout_seconds", json!(0)),
        ("idle_timeout_seconds", json!(-1)),
        ("idle_timeout_seconds", json!("5m")),
        ("idle_timeout_seconds", json!(1e300)),
        ("total_timeout_seconds", json!(0.0001)),
        ("total_timeout_seconds", json!(true)),
        ("max_errors", json!(0)),
        ("max_errors", json!(1.5)),
        ("max_errors", json!(-3)),
        ("max_errors", json!("3")),
        ("max_errors", json!(4_294_967_296_u64)),
    ] {
        let answer = post(&machine, "/v1/agents", &json!({"id": "a", field: bad}));
        assert_eq!(code(&answer), refused(400, "bad_body"), "{field} {bad}");
        let said: Value = answer.json().expect("is JSON");
        let message = said["error"]["message"].as_str().expect("a message");
        assert!(message.starts_with(&format!("`{field}` must be")), "{message}");
    }
    assert_eq!(machine.client().get("/v1/agents/a").expect("answers").status, 404);
}

#[test]
fn errors_and_messages_are_counted_and_the_third_error_warns() {
    let machine = Machine::new();
    let get = |path: &str| -> Value { machine.client().get(path).expect("answers").json().expect("is JSON") };
    post(&machine, "/v1/agents", &json!({"id": "a"}));
    post(&machine, "/v1/agents/a/activity", &json!({"messages": 5}));
    post(&machine, "/v1/agents/a/activity", &json!({"message_count": 23}));
    let error = |text: &str| -> Value {
        post(&machine, "/v1/agents/a/error", &json!({"text": text})).json().expect("is JSON")
    };
    assert_eq!(error("one"), json!({"ok": true, "error_count": 1, "warning": null}));
    error("two");
    let third = error("\u{1b}[31mInvalid JSON at line 5\u{1b}[0m");
    assert_eq!(third["warning"], "3 errors, last: Invalid JSON at line 5");
    let agent = get("/v1/agents/a");
    assert_eq!((&agent["messages"], &agent["message_count"]), (&json!(23), &json!(23)));
    assert_eq!(agent["last_message_count"], 5);
    assert_eq!((&agent["error_count"], &agent["last_error"]), (&json!(3), &json!("Invalid JSON at line 5")));
    assert_eq!(agent["warning"], third["warning"]);
    assert_eq!(get("/v1/agents")["agents"][0]["last_error"], agent["last_error"]);
}

#[test]
fn the_reason_of_a_cleaned_up_agent_stays_readable() {
    let machine = Machine::new();
    let get = |path: &str| machine.client().get(path).expect("answers");
    post(&machine, "/v1/agents", &json!({"id": "a b", "max_errors": 1}));
    post(&machine, "/v1/agents/a%20b/error", &json!({"text": "no such file"}));
    let ended: Value = machine.client().delete("/v1/agents/a%20b").expect("answers").json().expect("is JSON");
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("ended"), &json!("ERROR_LOOP")));
    assert_eq!(ended["message"], "Loop detected: 1 error, last: no such file");
    let again: Value = get("/v1/agents/a%20b").json().expect("is JSON");
    assert_eq!(again, ended);
    assert_eq!(machine.client().delete("/v1/agents/a%20b").expect("answers").status, 200);
    let late = post(&machine, "/v1/agents/a%20b/activity", &json!({"messages": 1}));
    assert_eq!(code(&late), refused(409, "agent_ended"));
    assert_eq!(get("/v1/agents/hung").json::<Value>().expect("is JSON"), json!({"hung": []}));
    assert_eq!(code(&get("/v1/agents/nobody")), refused(404, "no_such_agent"));
    let unknown = machine.client().delete("/v1/agents/nobody").expect("answers");
    assert_eq!(code(&unknown), refused(404, "no_such_agent"));
}

#[test]
fn metrics_match_the_records() {
    let machine = Machine::new();
    let (mut ended, mut alive) = (machine.run(1), machine.run(2));
    ended.write(run_ended());
    alive.live();
    post(&machine, "/v1/agents", &json!({"id": "a"}));
    let answer = machine.client().get("/metrics").expect("answers");
    assert_eq!(answer.content_type, "text/plain; version=0.0.4; charset=utf-8");
    let text = String::from_utf8(answer.body).expect("is text");
    let project = machine.dir.path().join("project-0");
    let labels = format!("run=\"{}\",project=\"{}\"", alive.id, project.display());
    for line in [
        "dogwatch_runs{state=\"ended\"} 1",
        "dogwatch_runs{state=\"starting\"} 1",
        &format!("dogwatch_run_alive{{{labels}}} 1"),
        &format!("dogwatch_run_iterations_total{{{labels},ending=\"idle\"}} 0"),
        "dogwatch_agents{state=\"working\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let named = text.lines().filter(|l| !l.starts_with('#')).all(|l| {
        let name = l.split(['{', ' ']).next().expect("a name");
        text.contains(&format!("# TYPE {name} "))
    });
    assert!(named, "{text}");
}

#[test]
fn the_openapi_document_describes_the_existing_routes() {
    let machine = Machine::new();
    let document: Value = machine.client().get("/openapi.json").expect("answers").json().expect("is JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let run = machine.run(1);
    run.output("stdout", b"x");
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let path = path
            .replace("{run}", run.id.as_str())
            .replace("{node}", "loop")
            .replace("{iteration}", "1")
            .replace("{stream}", "stdout")
            .replace("{id}", "nobody");
        if methods.get("get").is_some() {
            let status = machine.client().get(&path).expect("answers").status;
            assert!(methods["get"]["responses"].get(status.to_string()).is_some(), "GET {path}: {status}");
        }
        if methods.get("delete").is_some() {
            let status = machine.client().delete(&path).expect("answers").status;
            assert!(
                methods["delete"]["responses"].get(status.to_string()).is_some(),
                "DELETE {path}: {status}"
            );
        }
        if methods.get("post").is_some() {
            let status = post(&machine, &path, &json!({})).status;
            assert!(methods["post"]["responses"].get(status.to_string()).is_some(), "POST {path}: {status}");
        }
    }
}

#[test]
fn a_follower_that_falls_far_behind_must_resync_and_the_others_miss_nothing() {
    let machine = Machine::new();
    let mut run = machine.run(1);
    let request = format!(
        "GET {} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nconnection: close\r\n\r\n",
        run.path("/events")
    );
    let mut slow = UnixStream::connect(&machine.socket).expect("connects");
    slow.set_read_timeout(Some(PATIENCE)).expect("sets");
    slow.write_all(request.as_bytes()).expect("writes");
    head(&slow);
    let mut quick = machine.client().stream(&run.path("/events")).expect("streams");
    assert_eq!(quick.next().expect("an event").expect("reads").id, Some(1));
    assert_eq!(quick.next().expect("an event").expect("reads").event, "alive");
    // Both are up to date. Then more events arrive than the sockets and one queued piece can hold. The quick client
    // reads them in time.
    for _ in 0..400 {
        run.write_notices(1, 20_000);
        assert_eq!(quick.next().expect("an event").expect("reads").event, "notice");
    }
    run.write(run_ended());
    assert_eq!(quick.map(|e| e.expect("reads").event).collect::<Vec<_>>(), ["run_ended"]);
    let mut late = String::new();
    slow.read_to_string(&mut late).expect("has an end");
    assert!(late.contains("\nevent: resync\ndata: {"), "{}", &late[late.len().saturating_sub(300)..]);
    assert!(!late.contains("event: run_ended"));
    // A client that reconnects with the last event id gets the rest.
    let last =
        late.lines().filter_map(|l| l.strip_prefix("id: ")?.parse::<u64>().ok()).next_back().expect("some");
    let rest = machine.client().stream(&run.path(&format!("/events?after={last}"))).expect("streams");
    let ids: Vec<u64> = rest.filter_map(|e| e.expect("reads").id).collect();
    assert_eq!(ids, (last + 1..=402).collect::<Vec<_>>());
}

#[test]
fn followers_leave_room_for_other_requests() {
    let limits = dogwatch_server::Limits { streams: 3, ..dogwatch_server::MachineSetup::limits() };
    let machine = Machine::within(limits);
    let mut run = machine.run(1);
    run.live();
    let follow = || Client::connect(&machine.socket).expect("connects").stream(&run.path("/events"));
    let following: Vec<_> = (0..3).map(|_| follow().expect("there is room")).collect();
    assert_eq!(
        follow().err().expect("all streams are in use").to_string(),
        "too many clients follow the events"
    );
    assert_eq!(machine.client().get("/v1/runs").expect("answers").status, 200);
    drop(following);
    assert!((0..10_000).any(|_| follow().is_ok()), "stream permits are released");
}
