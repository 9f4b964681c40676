//! Transcripts of Claude Code and rollouts of Codex: each user turn is replayed alone.

use crate::{Timeline, replay};
use serde_json::{Value, json};

fn file(records: &[Value]) -> Timeline {
    Timeline::new(&records.iter().map(|record| format!("{record}\n")).collect::<String>())
}

/// Returns the timestamp of this second of the day.
fn at(second: u64) -> String {
    format!("2026-11-15T{:02}:{:02}:{:02}.000Z", second / 3600, second / 60 % 60, second % 60)
}

fn claude(second: u64, kind: &str, content: Value) -> Value {
    json!({"isSidechain": false, "sessionId": "s", "uuid": "u", "type": kind, "timestamp": at(second),
           "message": {"role": kind, "content": content}})
}

fn message(second: u64, text: &str) -> Value {
    let mut record = claude(second, "assistant", json!([{"type": "text", "text": text}]));
    record["message"]["stop_reason"] = json!("end_turn");
    record
}

fn call(second: u64, id: &str, args: Value) -> Value {
    claude(second, "assistant", json!([{"type": "tool_use", "id": id, "name": "Bash", "input": args}]))
}

fn answer(second: u64, id: &str) -> Value {
    claude(second, "user", json!([{"type": "tool_result", "tool_use_id": id, "content": "ok"}]))
}

fn codex(second: u64, kind: &str, payload: Value) -> Value {
    json!({"timestamp": at(second), "type": kind, "payload": payload})
}

/// Returns the lines and summaries as JSON, and the notes on stderr.
fn replay_with_notes(file: &Timeline, args: &[&str]) -> (Vec<Value>, String) {
    let out = replay(&[args, &["--json"]].concat(), &file.path());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("JSON is UTF-8");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect();
    (lines, String::from_utf8(out.stderr).expect("notes are UTF-8"))
}

#[test]
fn each_turn_of_a_claude_transcript_is_a_session_and_the_time_between_is_not_judged() {
    let t = file(&[
        json!({"type": "summary", "summary": "a title", "leafUuid": "u"}),
        claude(0, "user", json!("do it")),
        call(5, "t1", json!({"command": "make"})),
        answer(65, "t1"),
        message(70, "Done."),
        json!({"type": "system", "subtype": "turn_duration", "timestamp": at(71)}),
        claude(20_000, "user", json!("and now this")),
        message(20_010, "I begin."),
        call(20_011, "t2", json!({"command": "make", "timeout": 120_000})),
        claude(30_000, "user", json!("are you there?")),
        message(30_002, "Yes."),
        call(30_003, "t3", json!({"command": "ls"})),
    ]);
    let (lines, notes) = replay_with_notes(&t, &["--agent", "claude"]);
    assert_eq!(
        lines,
        [
            json!({"summary": {"turn": 1, "ended_at_s": 70.0, "verdict": "continue", "reason": null, "messages": 1,
                   "tools": 1, "errors": 0, "outcome": "completed"}}),
            json!({"summary": {"turn": 2, "ended_at_s": 11.0, "verdict": "continue", "reason": null, "messages": 1,
                   "tools": 1, "errors": 0, "outcome": null}}),
            json!({"summary": {"turn": 3, "ended_at_s": 3.0, "verdict": "continue", "reason": null, "messages": 1,
                   "tools": 1, "errors": 0, "outcome": null}}),
        ]
    );
    assert_eq!(notes, "");
    let table = replay(&[], &t.path());
    let table = String::from_utf8(table.stdout).expect("UTF-8");
    assert!(
        table.starts_with("turn 1\n 0:01:10.0  completed; 1 message, 1 tool, 0 errors\nturn 2\n"),
        "{table}"
    );
}

#[test]
fn a_turn_of_a_transcript_is_judged_as_a_live_session_would_be() {
    let t = file(&[
        claude(0, "user", json!("do it")),
        call(10, "t1", json!({"command": "make", "timeout": 120_000})),
        answer(4_000, "t1"),
        message(4_001, "Done."),
        claude(5_000, "user", json!("again")),
        message(5_700, "Slow."),
    ]);
    let (lines, _) = replay_with_notes(&t, &["--set", "watchdog.session=off", "--set", "watchdog.idle=5m"]);
    let stops: Vec<_> = lines
        .iter()
        .filter(|line| line["verdict"] == "hard_stop")
        .map(|line| (line["turn"].as_u64(), line["at_s"].as_f64(), line["reason"].as_str()))
        .collect();
    assert_eq!(
        stops,
        [
            (Some(1), Some(190.0), Some("TOOL_CEILING_EXCEEDED")),
            (Some(2), Some(300.0), Some("NO_OUTPUT_DEADLINE"))
        ],
        "the declared timeout and a minute; then silence from the prompt on"
    );
    let summaries: Vec<&Value> = lines.iter().filter_map(|line| line.get("summary")).collect();
    assert_eq!(summaries[0]["outcome"], "timed_out");
    assert_eq!(summaries[1]["messages"], 0, "nothing after the stop counts");
}

#[test]
fn a_codex_rollout_is_replayed_turn_by_turn_and_unknown_records_are_counted() {
    let event = |second, kind: &str| codex(second, "event_msg", json!({"type": kind}));
    let item = |second, payload: Value| codex(second, "response_item", payload);
    let message =
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]});
    let t = file(&[
        codex(0, "session_meta", json!({"id": "t", "cwd": "/srv"})),
        event(1, "task_started"),
        event(1, "user_message"),
        item(
            5,
            json!({"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{\"command\":[\"ls\"]}"}),
        ),
        item(
            9,
            json!({"type": "function_call_output", "call_id": "c1", "output": "Exit code: 2\nWall time: 1 seconds\nOutput:\nno"}),
        ),
        codex(10, "holograms", json!({})),
        codex(11, "holograms", json!({})),
        item(21, message.clone()),
        event(21, "task_complete"),
        event(9_000, "task_started"),
        item(9_005, message),
        event(9_006, "turn_aborted"),
        event(9_500, "task_started"),
    ]);
    let (lines, notes) = replay_with_notes(&t, &[]);
    let summary = |n: usize| {
        let s = &lines[n]["summary"];
        (
            s["ended_at_s"].as_f64().expect("seconds"),
            s["tools"].as_u64(),
            s["errors"].as_u64(),
            s["outcome"].as_str(),
        )
    };
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(summary(0), (20.0, Some(1), Some(1), Some("completed")));
    assert_eq!(summary(1), (6.0, Some(0), Some(0), Some("interrupted")));
    assert_eq!(summary(2), (0.0, Some(0), Some(0), None), "it has no end");
    assert!(notes.contains("skipped 2 records of unknown types: holograms (2)"), "{notes}");
}

#[test]
fn an_unknown_format_and_a_mismatched_agent_are_refused() {
    let stream = json!({"type": "system", "subtype": "init", "session_id": "s"});
    for text in [format!("{stream}\n"), "plain text\n".to_owned(), "[1]\n".to_owned(), "{}\n".to_owned()] {
        let error = Timeline::new(&text).refused(&[]);
        assert!(
            error.contains("is not a journal, a timeline, a Claude Code transcript or a Codex rollout"),
            "{error}"
        );
    }
    let error = file(&[claude(0, "user", json!("do it"))]).refused(&["--agent", "codex"]);
    assert!(error.contains("is a Claude Code transcript; --agent codex cannot read it"), "{error}");
    assert!(error.contains("omit --agent, or pass --agent claude"), "{error}");
}

#[test]
fn a_torn_record_is_skipped_and_a_transcript_may_have_no_turn() {
    let whole = file(&[claude(0, "user", json!("do it")), message(5, "Done.")]);
    let text = std::fs::read_to_string(whole.path()).expect("the file");
    let (lines, notes) = replay_with_notes(&Timeline::new(&format!("{text}{{\"type\":\"assi")), &[]);
    assert_eq!(lines[0]["summary"]["outcome"], "completed");
    assert!(notes.contains("skipped 1 record of unknown types: not JSON (1)"), "{notes}");
    let (lines, notes) = replay_with_notes(&file(&[message(5, "Done.")]), &[]);
    assert!(lines.is_empty() && notes.contains("no user turn"), "{notes}");
}
