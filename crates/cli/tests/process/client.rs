//! A third-party client of the agent channel: the Python SDK of MCP (client.py) drives `dogwatch mcp` in a real run.
//! `scripts/test` installs it.

use crate::kit::{Project, all, one};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Returns where `scripts/test` installs the SDK.
fn sdk() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python-mcp");
    let stamp = dir.join("stamp");
    assert!(stamp.exists(), "{} is not there: scripts/test installs the Python SDK of MCP", dir.display());
    dir
}

/// Calls to all of our tools and to some of another server: tool, arguments, kind of answer, expected text. The kinds
/// are `text` for an answer, `error` for a failed tool and `refused` for a protocol error.
fn calls() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let long = "x".repeat((1 << 20) + 1);
    vec![
        ("report_state", json!({"state": "done"}), "text", "Noted as a claim."),
        ("report_state", json!({}), "refused", "report_state: missing field `state`"),
        ("report_state", json!({"state": "two words"}), "error", "a state is one word"),
        ("report_progress", json!({"message": "half", "done": 1, "total": 2}), "text", "Noted."),
        ("report_progress", json!({"message": "half", "done": 1, "total": 2}), "text", "not new"),
        ("report_progress", json!({"message": 5}), "refused", "report_progress: invalid type"),
        ("heartbeat", json!({}), "text", "Alive."),
        ("heartbeat", json!({"more": 1}), "refused", "takes no arguments"),
        ("report_error", json!({"text": "no key"}), "text", "Noted."),
        ("report_error", json!({"text": " "}), "refused", "`text` is empty"),
        ("save_artifact", json!({"name": "plan.md", "content": "# the plan"}), "text", "Saved as"),
        ("save_artifact", json!({"name": "../plan.md", "content": "x"}), "refused", "not a path"),
        ("save_artifact", json!({"name": "long", "content": long}), "refused", "at most 1048576 bytes"),
        ("check_done", json!({"now": true}), "refused", "takes no arguments"),
        ("check_done", json!({}), "text", "1 of 2 checks fail."),
        ("check_done", json!({}), "error", "retry in"),
        ("what_failed", json!({}), "text", "Nothing has failed"),
        ("what_failed", json!({"x": 1}), "refused", "takes no arguments"),
        ("no_such_tool", json!({}), "refused", "unknown tool `no_such_tool`"),
        ("echo", json!({"text": "hello"}), "text", "hello"),
        ("files_heartbeat", json!({"text": "theirs"}), "text", "theirs"),
        ("refuse", json!({}), "error", "server `files`: not today"),
        ("hang", json!({}), "error", "server `files`: `hang` did not answer within its limit of 0.5 s"),
        ("die", json!({}), "error", "server `files` has exited"),
        ("echo", json!({"text": "back"}), "text", "back"),
    ]
}

#[test]
fn a_third_party_client_can_use_the_mcp_server() {
    let project = Project::new();
    project.file("client.py", include_str!("client.py"));
    project.file("server.py", include_str!("../../../mcp/tests/support/server.py"));
    let calls = calls();
    let asked: Vec<Value> = calls.iter().map(|(tool, arguments, ..)| json!([tool, arguments])).collect();
    project.file("calls", &json!(asked).to_string());
    let result = project.outside("result");
    let line = format!(
        "env BIN={} PYTHONPATH={} CALLS=calls RESULT={} python3 client.py",
        env!("CARGO_BIN_EXE_dogwatch"),
        sdk().display(),
        result.display()
    );
    let servers = "mcp: {servers: {files: {command: [python3, server.py, good], timeout: 500ms}}}";
    let front = "done_when: ['true', 'test -e done']\nmax_iterations: 1";
    project.ralph(&format!("agent: {}\n{front}\n{servers}", json!(line)), "go");
    let done = project.run(&[]);
    let ended = one(&done.events(), "session_ended")["exit_code"].clone();
    assert_eq!(ended, 0, "{}", String::from_utf8_lossy(&project.raw(1, "stderr")));
    let seen = std::fs::read_to_string(&result).expect("the client wrote its results");
    let seen: Value = serde_json::from_str(&seen).expect("JSON");
    assert_answers(&seen, &calls);
    assert_record(&project, &done.events());
}

fn assert_answers(seen: &Value, calls: &[(&str, Value, &str, &str)]) {
    assert_eq!(seen["hello"], json!({"name": "dogwatch", "protocol": "2025-11-25"}));
    assert!(seen["instructions"].as_str().is_some_and(|text| text.contains("check_done")));
    let tools = seen["tools"].as_object().expect("a list of tools");
    for tool in ["report_state", "save_artifact", "what_failed", "echo", "hang", "files_heartbeat"] {
        assert_eq!(tools[tool]["type"], "object", "{tool}");
    }
    let answers = seen["answers"].as_array().expect("answers");
    assert_eq!(answers.len(), calls.len());
    for ((tool, arguments, kind, wanted), answer) in calls.iter().zip(answers) {
        let got = answer[1][kind].as_str().unwrap_or_default();
        let arguments: String = arguments.to_string().chars().take(100).collect();
        assert!(got.contains(wanted), "{tool} {arguments}: {kind} {wanted:?} is not in {answer}");
    }
    assert_eq!(seen["progress"], json!([{"text": "done"}, [[1.0, 2.0, "half"]]]));
    let negotiated = &seen["negotiated"];
    assert_eq!(negotiated["answer"], json!({"text": "Noted."}), "{negotiated}");
    assert_eq!(negotiated["proxied"], json!({"text": "through"}), "{negotiated}");
}

fn assert_record(project: &Project, events: &[Value]) {
    let reports: Vec<(&str, &str)> = all(events, "agent_reported")
        .into_iter()
        .map(|e| (e["kind"].as_str().unwrap_or_default(), e["text"].as_str().unwrap_or_default()))
        .collect();
    for wanted in [
        ("state", "done"),
        ("progress", "half"),
        ("error", "no key"),
        ("artifact", "plan.md"),
        ("checks", "1 of 2 checks failed (run by the agent)"),
        ("server", "files: hang timed out"),
        ("progress", "once more"),
    ] {
        assert!(reports.contains(&wanted), "{wanted:?} is not in {reports:?}");
    }
    assert!(
        reports.iter().any(|(kind, text)| *kind == "server" && text.contains("has exited")),
        "{reports:?}"
    );
    assert_eq!(reports.iter().filter(|report| **report == ("progress", "half")).count(), 1, "{reports:?}");
    let journal = project.journal();
    let seen = |e: &&Value| e["event"] == "observed" && e["channel"] == "mcp_tool";
    let counted: u64 = journal.iter().filter(seen).filter_map(|e| e["count"].as_u64()).sum();
    // A new report counts once, and a forwarded call twice. Heartbeats and refused calls do not count.
    assert!((15..=40).contains(&counted), "{counted}");
    let kept = project.run_dir().join("loop/agent/artifacts/000001");
    assert_eq!(std::fs::read_to_string(kept.join("plan.md")).expect("it is saved"), "# the plan");
    assert_eq!(std::fs::read_dir(kept).expect("it exists").count(), 1, "no other file is saved");
    assert_eq!(one(events, "run_ended")["exit_code"], 1, "the claim changed nothing");
}
