//! Records as the CLIs write them, shortened.

use super::*;
use serde_json::{Value, json};

/// Returns the meaning and the signs of each record.
fn read(format: Format, records: &[Value]) -> Vec<(Record, Vec<Sign>)> {
    let mut transcript = Transcript::new(format);
    let mut all = Vec::new();
    for record in records {
        let mut signs = Vec::new();
        let (_, record) = transcript.read(record.to_string().as_bytes(), &mut signs);
        all.push((record, signs));
    }
    all
}

fn words(format: Format, records: &[Value]) -> Vec<String> {
    let sign = |sign: &Sign| match sign {
        Sign::Message => "message".to_owned(),
        Sign::Text => "text".to_owned(),
        Sign::Keepalive => "alive".to_owned(),
        Sign::ToolStarted(tool) => {
            format!("start {} {}{}", tool.id, tool.name, if tool.delegates { "*" } else { "" })
        }
        Sign::ToolEnded { id, ok, .. } => format!("end {id} {ok}"),
        Sign::SubagentStarted { id } => format!("sub {id}"),
        Sign::SubagentProgress { id } => format!("work {id}"),
        Sign::SubagentEnded { id } => format!("over {id}"),
        other @ (Sign::SessionId { .. }
        | Sign::Agent { .. }
        | Sign::Retrying { .. }
        | Sign::Error { .. }
        | Sign::Limit(_)
        | Sign::AuthFailed { .. }
        | Sign::NeedsHuman { .. }
        | Sign::BackgroundWork { .. }
        | Sign::Usage { .. }
        | Sign::Counts(_)
        | Sign::Windows { .. }
        | Sign::Result(_)
        | Sign::Repeated
        | Sign::Unknown
        | Sign::Drift) => format!("{other:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
    };
    read(format, records)
        .iter()
        .map(|(record, signs)| match record {
            Record::Agent => signs.iter().map(sign).collect::<Vec<_>>().join(", "),
            Record::Prompt => "PROMPT".to_owned(),
            Record::Withdrawn => "WITHDRAWN".to_owned(),
            Record::Nothing => "-".to_owned(),
            Record::Unknown(kind) => format!("? {kind}"),
        })
        .collect()
}

fn outcome(format: Format, records: &[Value], followed: bool) -> Option<&'static str> {
    let mut transcript = Transcript::new(format);
    for record in records {
        transcript.read(record.to_string().as_bytes(), &mut Vec::new());
    }
    transcript.outcome(followed)
}

fn claude(kind: &str, content: Value) -> Value {
    json!({"parentUuid": null, "isSidechain": false, "sessionId": "s", "type": kind, "uuid": "u",
           "message": {"role": kind, "content": content}, "timestamp": "2026-11-15T20:15:33.007Z"})
}

fn with(mut record: Value, key: &str, value: Value) -> Value {
    record[key] = value;
    record
}

fn call(id: &str, name: &str) -> Value {
    claude("assistant", json!([{"type": "tool_use", "id": id, "name": name, "input": {}}]))
}

fn result(id: &str, is_error: bool) -> Value {
    claude("user", json!([{"type": "tool_result", "tool_use_id": id, "is_error": is_error, "content": "x"}]))
}

fn said(text: &str) -> Value {
    claude("assistant", json!([{"type": "text", "text": text}]))
}

fn rollout(kind: &str, payload: Value) -> Value {
    json!({"timestamp": "2026-11-15T20:15:33.007Z", "type": kind, "payload": payload})
}

fn event(kind: &str) -> Value {
    rollout("event_msg", json!({"type": kind, "message": "go"}))
}

fn function(id: &str, name: &str, args: &Value) -> Value {
    rollout(
        "response_item",
        json!({"type": "function_call", "call_id": id, "name": name, "arguments": args.to_string()}),
    )
}

fn output(id: &str, output: Value) -> Value {
    rollout("response_item", json!({"type": "function_call_output", "call_id": id, "output": output}))
}

#[test]
fn the_format_is_detected_from_conversation_records() {
    let of = |record: &Value| Format::of(record.to_string().as_bytes());
    assert_eq!(of(&said("hi")), Some(Format::Claude));
    assert_eq!(of(&event("token_count")), Some(Format::Codex));
    assert_eq!(of(&json!({"type": "summary", "summary": "x", "leafUuid": "u"})), None);
    // Lines of the stream have no timestamp.
    assert_eq!(of(&json!({"type": "assistant", "session_id": "s", "message": {"content": []}})), None);
    assert_eq!(of(&json!({"type": "thread.started", "thread_id": "t"})), None);
    assert_eq!(Format::of(b"plain text"), None);
}

#[test]
fn the_time_of_a_record_is_read() {
    let (at, _) = Transcript::new(Format::Claude).read(said("hi").to_string().as_bytes(), &mut Vec::new());
    assert_eq!(at, Some(Wall(1_794_773_733_007)));
    let (at, _) = Transcript::new(Format::Codex).read(event("error").to_string().as_bytes(), &mut Vec::new());
    assert_eq!(at, Some(Wall(1_794_773_733_007)));
}

#[test]
fn a_claude_transcript_produces_the_signs_of_the_stream() {
    let records = [
        json!({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}),
        claude("user", json!("do it")),
        claude("assistant", json!([{"type": "thinking", "thinking": "hm"}])),
        said("I will."),
        call("t1", "Bash"),
        result("t1", true),
        json!({"type": "brand-new", "timestamp": "2026-11-15T20:15:33.007Z"}),
        json!({"type": "system", "subtype": "api_error", "timestamp": "2026-11-15T20:15:33.007Z"}),
    ];
    assert_eq!(
        words(Format::Claude, &records),
        ["-", "PROMPT", "text", "message", "start t1 Bash", "end t1 false", "? brand-new", "Retrying"]
    );
}

#[test]
fn not_every_user_record_of_claude_is_a_prompt() {
    let records = [
        with(claude("user", json!("Caveat: ignore")), "isMeta", json!(true)),
        claude("user", json!("<command-name>/model</command-name>")),
        claude("user", json!("<local-command-stdout>Set model</local-command-stdout>")),
        claude("user", json!("<bash-input>ls</bash-input>")),
        claude("user", json!([{"type": "text", "text": "go"}])),
        with(claude("user", json!("This session is being continued")), "isCompactSummary", json!(true)),
        claude("user", json!("<task-notification>done</task-notification>")),
        said("done"),
        claude("user", json!("<task-notification>done</task-notification>")),
        claude("user", json!([{"type": "text", "text": "[Request interrupted by user]"}])),
    ];
    assert_eq!(
        words(Format::Claude, &records),
        ["-", "PROMPT", "WITHDRAWN", "-", "PROMPT", "-", "-", "message", "PROMPT", ""]
    );
    assert_eq!(outcome(Format::Claude, &records, false), Some("interrupted"));
}

#[test]
fn a_side_chain_is_the_work_of_a_subagent_and_ends_with_its_call() {
    let side = |record| with(record, "isSidechain", json!(true));
    let progress = json!({"type": "progress", "data": {"type": "agent_progress"}, "parentToolUseID": "t2"});
    let records = [
        claude("user", json!("do it")),
        call("t1", "Task"),
        side(claude("user", json!("list the files"))),
        side(said("I list.")),
        side(call("s1", "Bash")),
        result("t1", false),
        call("t2", "Agent"),
        progress,
        result("t2", false),
        side(said("too late")),
    ];
    assert_eq!(
        words(Format::Claude, &records),
        [
            "PROMPT",
            "start t1 Task*",
            "-",
            "sub t1, work t1",
            "work t1",
            "end t1 true, over t1",
            "start t2 Agent*",
            "sub t2, work t2",
            "end t2 true, over t2",
            "-"
        ]
    );
    // A subagent's own file is also a transcript.
    let own = [side(claude("user", json!("list the files"))), side(said("I list."))];
    assert_eq!(words(Format::Claude, &own), ["PROMPT", "message"]);
}

#[test]
fn the_last_record_decides_how_a_claude_turn_ends() {
    let stopped = |reason: &str| {
        let mut record = said("done");
        record["message"]["stop_reason"] = json!(reason);
        record
    };
    let prompt = || claude("user", json!("do it"));
    let of = |records: &[Value], followed| outcome(Format::Claude, records, followed);
    assert_eq!(of(&[prompt(), stopped("end_turn")], false), Some("completed"));
    assert_eq!(of(&[prompt(), said("done")], false), None, "older versions do not say");
    assert_eq!(of(&[prompt(), said("done")], true), Some("completed"));
    assert_eq!(of(&[prompt(), stopped("tool_use"), call("t", "Bash")], true), None);
    assert_eq!(of(&[prompt(), stopped("end_turn"), call("t", "Bash")], true), None);
    assert_eq!(of(&[prompt()], true), None);
    let refused = |text: &str| with(said(text), "isApiErrorMessage", json!(true));
    assert_eq!(of(&[prompt(), refused("API Error: socket hang up")], true), Some("failed"));
    assert_eq!(
        of(&[prompt(), refused("Claude AI usage limit reached|1762952400")], true),
        Some("rate_limited")
    );
}

#[test]
fn a_codex_rollout_produces_the_signs_of_the_stream() {
    let message = |role: &str| {
        rollout(
            "response_item",
            json!({"type": "message", "role": role, "content": [{"type": "output_text", "text": "hi"}]}),
        )
    };
    let records = [
        rollout("session_meta", json!({"id": "t"})),
        message("user"),
        event("task_started"),
        event("user_message"),
        rollout("turn_context", json!({"cwd": "/"})),
        rollout("response_item", json!({"type": "reasoning", "summary": [], "encrypted_content": "x"})),
        rollout(
            "response_item",
            json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}),
        ),
        message("assistant"),
        event("agent_message"),
        function("c1", "shell", &json!({"command": ["ls"]})),
        output("c1", json!("{\"output\":\"no\",\"metadata\":{\"exit_code\":1,\"duration_seconds\":0.2}}")),
        function("c2", "update_plan", &json!({"plan": []})),
        output("c2", json!("Plan updated")),
        function("c3", "spawn_agent", &json!({"message": "x"})),
        output("c3", json!({"content": "x", "success": false})),
        rollout(
            "response_item",
            json!({"type": "web_search_call", "status": "completed", "action": {"query": "q"}}),
        ),
        rollout("response_item", json!({"type": "holograms"})),
        event("user_message"),
        event("task_complete"),
    ];
    assert_eq!(
        words(Format::Codex, &records),
        [
            "-",
            "-",
            "PROMPT",
            "-",
            "-",
            "alive",
            "text",
            "message",
            "-",
            "start c1 shell",
            "end c1 false",
            "alive",
            "alive",
            "start c3 collab:spawn_agent*",
            "end c3 false",
            "start unnamed-1 web_search, end unnamed-1 true",
            "? response_item/holograms",
            "-",
            ""
        ]
    );
    assert_eq!(outcome(Format::Codex, &records, false), Some("completed"));
    assert_eq!(outcome(Format::Codex, &records[..9], false), None);
    assert_eq!(
        outcome(Format::Codex, &[event("user_message"), event("turn_aborted")], true),
        Some("interrupted")
    );
}

#[test]
fn older_codex_turns_begin_with_the_users_message() {
    let records = [event("user_message"), event("agent_message"), event("user_message")];
    assert_eq!(words(Format::Codex, &records), ["PROMPT", "-", "PROMPT"]);
}

#[test]
fn the_last_event_decides_how_a_codex_turn_ends() {
    let of = |last: Value, followed| outcome(Format::Codex, &[event("user_message"), last], followed);
    let said = || rollout("response_item", json!({"type": "message", "role": "assistant", "content": []}));
    assert_eq!(of(said(), true), Some("completed"), "older versions do not write the end");
    assert_eq!(of(said(), false), None);
    assert_eq!(of(function("c", "shell", &json!({})), true), None);
    let complete = |error: Value| {
        rollout("event_msg", json!({"type": "task_complete", "last_agent_message": null, "error": error}))
    };
    assert_eq!(of(complete(Value::Null), false), Some("completed"));
    assert_eq!(of(complete(json!({"message": "stream disconnected"})), false), Some("failed"));
}

#[test]
fn a_codex_command_stays_in_flight_until_its_process_ends() {
    let poll = |id: &str| function(id, "write_stdin", &json!({"session_id": 7, "chars": ""}));
    let running = "Chunk ID: a1\nWall time: 10.0 seconds\nProcess running with session ID 7\nOutput:\n...";
    let exited = "Chunk ID: a2\nWall time: 3.1 seconds\nProcess exited with code 0\nOutput:\nok";
    let records = [
        event("task_started"),
        function("c1", "exec_command", &json!({"cmd": "make"})),
        output("c1", json!(running)),
        poll("c2"),
        output("c2", json!(running)),
        poll("c3"),
        output("c3", json!(exited)),
        poll("c4"),
        output("c4", json!("write_stdin failed: unknown session")),
    ];
    assert_eq!(
        words(Format::Codex, &records),
        [
            "PROMPT",
            "start c1 exec_command",
            "alive",
            "alive",
            "alive",
            "alive",
            "end c1 true",
            "start c4 write_stdin",
            "end c4 false"
        ]
    );
}

#[test]
fn codex_results_are_compared_without_their_times() {
    let result = |text: &str| match &read(Format::Codex, &[output("c", json!(text))])[0].1[0] {
        Sign::ToolEnded { ok, result, .. } => (*ok, *result),
        other @ (Sign::SessionId { .. }
        | Sign::Agent { .. }
        | Sign::Message
        | Sign::Text
        | Sign::ToolStarted(_)
        | Sign::SubagentStarted { .. }
        | Sign::SubagentProgress { .. }
        | Sign::SubagentEnded { .. }
        | Sign::Retrying { .. }
        | Sign::Error { .. }
        | Sign::Limit(_)
        | Sign::AuthFailed { .. }
        | Sign::NeedsHuman { .. }
        | Sign::BackgroundWork { .. }
        | Sign::Usage { .. }
        | Sign::Counts(_)
        | Sign::Windows { .. }
        | Sign::Result(_)
        | Sign::Repeated
        | Sign::Keepalive
        | Sign::Unknown
        | Sign::Drift) => panic!("{other:?}"),
    };
    let of = |time: &str, code: i32, body: &str| {
        format!("Exit code: {code}\nWall time: {time} seconds\nOutput:\n{body}")
    };
    assert_eq!(result(&of("0.1", 1, "no")), result(&of("2.75", 1, "no")));
    assert_ne!(result(&of("0.1", 1, "no")), result(&of("0.1", 2, "no")));
    assert!(result(&of("0.1", 0, "no")).0 && !result(&of("0.1", 1, "no")).0);
    assert_ne!(result(&of("0.1", 0, "a")).1, result(&of("0.1", 0, "b")).1);
    let json = |time: f64| {
        json!({"output": "no", "metadata": {"exit_code": 0, "duration_seconds": time}}).to_string()
    };
    assert_eq!(result(&json(0.1)), result(&json(3.5)));
}

#[test]
fn a_transcript_says_where_and_with_which_model_the_agent_worked() {
    let about = |format, records: &[Value]| {
        let mut transcript = Transcript::new(format);
        for record in records {
            transcript.read(record.to_string().as_bytes(), &mut Vec::new());
        }
        let About { session, dir, version, model } = transcript.about().clone();
        [session, dir, version, model].map(Option::unwrap_or_default)
    };
    let said = |model: &str, cwd: &str| json!({"type": "assistant", "sessionId": "s", "cwd": cwd, "version": "2.1", "message": {"model": model}});
    let asked = json!({"type": "user", "sessionId": "s", "cwd": "/b", "message": {"content": "go on"}});
    let records = [said("claude-1", "/a"), asked, said("<synthetic>", "/b")];
    assert_eq!(about(Format::Claude, &records), ["s", "/b", "2.1", "claude-1"]);
    let meta = json!({"type": "session_meta", "payload": {"id": "t", "cwd": "/a", "cli_version": "0.166.0"}});
    let context = json!({"type": "turn_context", "payload": {"cwd": "/b", "model": "gpt-5"}});
    assert_eq!(about(Format::Codex, &[meta, context]), ["t", "/b", "0.166.0", "gpt-5"]);
    assert_eq!(about(Format::Codex, &[]), ["", "", "", ""]);
}
