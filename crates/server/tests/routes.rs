//! Every route and every refusal.

use crate::support;

use dogwatch_core::record::status::Status;
use dogwatch_core::run::caller::Source;
use dogwatch_server::{Client, Limits, MAX_MESSAGE, Request};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Rig, notice, observed};

fn code(response: &dogwatch_server::Response) -> (u16, String) {
    assert_eq!(response.content_type, "application/json");
    let body: Value = response.json().expect("is JSON");
    assert!(body["error"]["message"].as_str().is_some_and(|m| !m.is_empty()));
    (response.status, body["error"]["code"].as_str().unwrap_or("").to_owned())
}

#[test]
fn status_is_the_view_in_the_native_format() {
    let rig = Rig::new();
    let response = rig.client().get("/v1/status").expect("answers");
    assert_eq!((response.status, response.content_type.as_str()), (200, "application/json"));
    let status: Status = response.json().expect("is a status");
    assert!(status.live);
    assert_eq!(status.path.as_deref(), Some("loop/RALPH.md"));
    assert_eq!(status.nodes.len(), 1);
}

#[test]
fn origin_3_the_status_document_has_exactly_its_keys() {
    let rig = Rig::new();
    let body: Value = rig.client().get("/v1/status/orchestrator").expect("answers").json().expect("is JSON");
    let keys = |v: &Value| v.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&body),
        [
            "running",
            "tickCount",
            "errorCount",
            "recentErrors",
            "consecutiveIdleTicks",
            "currentTickInterval",
            "lastIdleReason",
            "config"
        ]
    );
    assert_eq!(
        keys(&body["config"]),
        ["dryRun", "tickInterval", "maxIdleTicksBeforeStop", "maxErrors", "errorWindow", "enableTelemetry"]
    );
    assert_eq!(body["running"], json!(true));
}

#[test]
fn every_request_reaches_the_driver_in_order() {
    let rig = Rig::new();
    let mut client = rig.client();
    for route in ["wake", "pause", "resume", "stop"] {
        let response = client.post(&format!("/v1/{route}"), &json!({})).expect("answers");
        assert_eq!((response.status, response.json::<Value>().expect("JSON")), (202, json!({"ok": true})));
    }
    let response = client.post("/v1/tell", &json!({"text": "look at the tests"})).expect("answers");
    assert_eq!(response.status, 202);
    let tell = Request::Message { text: "look at the tests".into(), from: Source::Operator };
    assert_eq!(
        rig.asked(),
        [Request::Wake, Request::Pause, Request::Resume, Request::Stop { accept: false }, tell]
    );
}

#[test]
fn events_are_the_journal_lines_after_a_sequence_number() {
    let mut rig = Rig::new();
    rig.write(notice("two"));
    rig.write(observed());
    rig.write(notice("four"));
    let journal = std::fs::read_to_string(rig.dir.path().join("events.jsonl")).expect("reads");
    let lines: Vec<&str> = journal.lines().collect();
    let body = |path: &str| {
        let response = rig.client().get(path).expect("answers");
        assert_eq!((response.status, response.content_type.as_str()), (200, "application/x-ndjson"));
        String::from_utf8(response.body).expect("is text").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(body("/v1/events"), [lines[0], lines[1], lines[3]]);
    assert_eq!(body("/v1/events?after=1"), [lines[1], lines[3]]);
    assert_eq!(body("/v1/events?after=1&observed=true"), [lines[1], lines[2], lines[3]]);
    assert_eq!(body("/v1/events?after=4"), [""; 0]);
    assert_eq!(body("/v1/events?after=18446744073709551615"), [""; 0]);
}

#[test]
fn unknown_routes_are_refused_in_json() {
    let rig = Rig::new();
    for path in ["/", "/v1", "/v1/", "/v1/status/", "/v2/status", "/v1/../v1/status", "/v1/%2e%2e/socket"] {
        assert_eq!(code(&rig.client().get(path).expect("answers")), (404, "not_found".into()), "{path}");
    }
    for path in ["/v1/events/../../events.jsonl", "/../../../etc/passwd", "//etc/passwd", "/v1/events/1"] {
        assert_eq!(code(&rig.client().get(path).expect("answers")).0, 404, "{path}");
    }
}

// promise: 14
#[test]
fn nothing_changes_by_get_and_nothing_is_read_by_post() {
    let rig = Rig::new();
    for route in ["wake", "pause", "resume", "stop", "tell", "limit"] {
        let response = rig.client().get(&format!("/v1/{route}")).expect("answers");
        assert_eq!(code(&response), (405, "method_not_allowed".into()), "{route}");
    }
    for route in ["status", "status/orchestrator", "events"] {
        let response = rig.client().post(&format!("/v1/{route}"), &json!({})).expect("answers");
        assert_eq!(code(&response), (405, "method_not_allowed".into()), "{route}");
    }
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        let request = format!("{method} /v1/wake HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        assert!(rig.send(&request).starts_with("HTTP/1.1 405 "), "{method}");
    }
    assert_eq!(rig.asked(), []);
}

#[test]
fn an_invalid_query_is_refused() {
    let rig = Rig::new();
    for query in ["after=x", "after=-1", "after=18446744073709551616", "after=", "observed=maybe"] {
        let response = rig.client().get(&format!("/v1/events?{query}")).expect("answers");
        assert_eq!(code(&response), (400, "bad_query".into()), "{query}");
    }
    for headers in
        ["accept: text/event-stream\r\nlast-event-id: seven", "last-event-id: 18446744073709551616"]
    {
        let answer = rig
            .send(&format!("GET /v1/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("bad_last_event_id"), "{answer}");
    }
}

#[test]
fn tell_accepts_only_a_text() {
    let rig = Rig::new();
    let tell = |body: Value| code(&rig.client().post("/v1/tell", &body).expect("answers"));
    for body in [json!({}), json!([]), json!("x"), json!({"text": 1}), json!({"text": "x", "to": "y"})] {
        assert_eq!(tell(body.clone()), (400, "bad_body".into()), "{body}");
    }
    assert_eq!(tell(json!({"text": " \n\t "})), (422, "empty_text".into()));
    assert_eq!(tell(json!({"text": "x".repeat(MAX_MESSAGE + 1)})), (413, "too_large".into()));
    let form = "POST /v1/tell HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 14\r\n\
                content-type: application/x-www-form-urlencoded\r\n\r\n{\"text\": \"hi\"}";
    assert!(rig.send(form).starts_with("HTTP/1.1 415 "));
    assert_eq!(rig.asked(), []);
    let longest = "x".repeat(MAX_MESSAGE);
    let response = rig.client().post("/v1/tell", &json!({"text": longest.clone()})).expect("answers");
    assert_eq!(response.status, 202);
    assert_eq!(rig.asked(), [Request::Message { text: longest, from: Source::Operator }]);
}

#[test]
fn limit_accepts_only_a_time_that_is_near_enough() {
    let rig = Rig::new();
    let limit = |body: Value| code(&rig.client().post("/v1/limit", &body).expect("answers"));
    let soon = dogwatch_host::clock::now().wall.plus(dogwatch_core::time::dur::Dur::from_hours(1));
    for body in [
        json!({}),
        json!({"until": 5}),
        json!({"until": "tomorrow"}),
        json!({"until": soon, "who": "x"}),
        json!({"until": "2126-01-01T00:00:00Z"}),
        json!({"until": soon, "account": "x".repeat(201)}),
    ] {
        assert_eq!(limit(body.clone()), (400, "bad_body".into()), "{body}");
    }
    assert_eq!(rig.asked(), []);
    for account in [None, Some("claude".to_owned())] {
        let body = json!({"until": soon, "account": account});
        assert_eq!(rig.client().post("/v1/limit", &body).expect("answers").status, 202);
    }
    let asked = |account| Request::Limit { until: soon, account };
    assert_eq!(rig.asked(), [asked(None), asked(Some("claude".to_owned()))]);
}

// promise: 4
#[test]
fn a_body_is_taken_up_to_the_limit_and_not_a_byte_more() {
    let rig = Rig::new();
    let limit = Limits::default().body;
    let post = |length: usize, headers: &str, body: &str| {
        rig.send(&format!(
            "POST /v1/wake HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n{body}",
            headers = headers.replace("LEN", &length.to_string()),
        ))
    };
    for (length, status) in [(limit - 1, 202), (limit, 202), (limit + 1, 413)] {
        let answer = post(length, "content-length: LEN\r\n", &"x".repeat(length));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
        let chunk = format!("{length:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(length));
        let answer = post(length, "transfer-encoding: chunked\r\n", &chunk);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length} in chunks: {answer}");
    }
    // A client that announces a gigabyte is refused before it sends the body.
    let answer = post(1 << 30, "content-length: LEN\r\n", "");
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(rig.asked().len(), 4);
}

#[test]
fn an_endless_head_and_garbage_are_refused() {
    let rig = Rig::new();
    let many: String = (0..100).map(|n| format!("x-{n}: y\r\n")).collect();
    let long = format!("x-long: {}\r\n", "y".repeat(64 * 1024));
    for headers in [many, long] {
        let answer = rig.send(&format!("GET /v1/status HTTP/1.1\r\nhost: x\r\n{headers}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    assert!(rig.send("\x16\x03\x01 no http\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert_eq!(rig.client().get("/v1/status").expect("still answers").status, 200);
}

#[test]
fn an_incomplete_request_times_out() {
    let limits = Limits { read: Duration::from_millis(50), ..Limits::default() };
    let rig = Rig::within(limits);
    // An incomplete head, or a silent connection, is closed.
    for head in ["GET /v1/sta", ""] {
        let mut stream = rig.raw();
        stream.write_all(head.as_bytes()).expect("writes");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the connection is closed in time");
    }
    // An incomplete body gets an error response.
    let answer =
        rig.send("POST /v1/wake HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhal");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(rig.asked(), []);
}

#[test]
fn a_driver_that_does_not_answer_is_reported() {
    let rig = Rig::new();
    *rig.handle.view.lock().expect("not poisoned") = None;
    rig.handle.busy.store(true, Ordering::SeqCst);
    let mut client = rig.client();
    for path in ["/v1/status", "/v1/status/orchestrator"] {
        assert_eq!(code(&client.get(path).expect("answers")), (503, "no_answer".into()));
    }
    assert_eq!(code(&client.post("/v1/stop", &json!({})).expect("answers")), (503, "busy".into()));
}

#[test]
fn a_missing_journal_is_reported() {
    let rig = Rig::new();
    std::fs::remove_file(rig.dir.path().join("events.jsonl")).expect("removes");
    assert_eq!(code(&rig.client().get("/v1/events").expect("answers")), (500, "no_record".into()));
    let error = rig.client().stream("/v1/events").err().expect("refused");
    assert!(error.to_string().contains("cannot read"), "{error}");
}

// promise: 14
#[test]
fn the_api_answers_only_its_owner() {
    let rig = Rig::new();
    let mode = std::fs::metadata(&rig.socket).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_run_at_a_path_of_300_bytes_is_served() {
    let base = tempfile::tempdir().expect("a directory");
    let run_dir = base.path().join("d".repeat(140)).join("e".repeat(160));
    std::fs::create_dir_all(&run_dir).expect("makes it");
    let rig = Rig::new();
    let socket = dogwatch_server::socket_path(&run_dir);
    let served = dogwatch_server::serve(socket.clone(), run_dir, rig.handle.clone()).expect("serves");
    let response = Client::connect(&socket).expect("connects").get("/v1/status").expect("answers");
    assert_eq!(response.status, 200);
    served.shut_down();
    assert!(!socket.exists());
}

#[test]
fn a_path_that_would_smuggle_a_header_is_not_sent() {
    let rig = Rig::new();
    for path in ["/v1/status\r\nx: y", "v1/status", "/v1/a b", ""] {
        let error = rig.client().get(path).expect_err("refused");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{path:?}");
    }
}
