//! Timelines: the meaning of their lines, and the errors for invalid ones.

use crate::{Timeline, replay};
use serde_json::{Value, json};

fn lines(all: &[Value]) -> String {
    all.iter().map(|line| format!("{line}\n")).collect()
}

fn timeline(all: &[Value]) -> Timeline {
    Timeline::new(&lines(all))
}

/// Returns (second, verdict, reason or channel) of each line.
fn verdicts(lines: &[Value]) -> Vec<(f64, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = |line: &Value| text(&line["reason"]) + &text(&line["deferred_by"]);
    lines
        .iter()
        .map(|line| (line["at_s"].as_f64().expect("a time"), text(&line["verdict"]), about(line)))
        .collect()
}

fn shown(lines: &[Value]) -> Vec<String> {
    verdicts(lines)
        .into_iter()
        .map(|(at, verdict, about)| format!("{at} {verdict} {about}").trim().to_owned())
        .collect()
}

#[test]
fn watchdog_12_a_deferral_is_printed_with_its_evidence_before_the_end() {
    let t = timeline(&[
        json!({"t_ms": 1000, "input": "message"}),
        json!({"t_ms": 290_000, "input": "workspace", "path": "src/a.rs"}),
        json!({"t_ms": 3_600_000, "input": "end"}),
    ]);
    let (lines, summary) = t.replay_json(&["--agent", "claude", "--profile", "quick"]);
    assert_eq!(shown(&lines), ["301 continue workspace", "320 hard_stop NO_OUTPUT_DEADLINE"]);
    assert_eq!(
        lines[0]["evidence_summary"],
        json!([
            {"channel": "stdout", "last_at": 1.0, "age_seconds": 300.0, "counter": 1},
            {"channel": "mcp_tool", "last_at": null, "age_seconds": null, "counter": 0},
            {"channel": "subagent", "last_at": null, "age_seconds": null, "counter": 0},
            {"channel": "workspace", "last_at": 290.0, "age_seconds": 11.0, "counter": 1},
        ])
    );
    assert_eq!(lines[0]["active_channel"], "workspace");
    assert_eq!(
        summary,
        json!({"ended_at_s": 320.0, "verdict": "hard_stop", "reason": "NO_OUTPUT_DEADLINE", "messages": 1,
               "tools": 0, "errors": 0, "outcome": "timed_out"})
    );
}

#[test]
fn watchdog_7_a_suspend_moves_every_deadline_and_nothing_fires_within_it() {
    let t = timeline(&[
        json!({"t_ms": 10_000, "input": "message"}),
        json!({"t_ms": 1_900_000, "input": "suspended", "for_ms": 1_800_000}),
        json!({"t_ms": 3_600_000, "input": "end"}),
    ]);
    let (lines, _) = t.replay_json(&["--agent", "claude", "--profile", "quick"]);
    assert_eq!(shown(&lines), ["2110 hard_stop NO_OUTPUT_DEADLINE"]);
    assert_eq!(lines[0]["evidence_summary"][0]["age_seconds"], 300.0);
}

#[test]
fn watchdog_24_no_output_at_all_is_distinguished_from_silence() {
    let end = json!({"t_ms": 3_600_000, "input": "end"});
    let reason = |first: Value, agent: &str| {
        let (lines, _) = timeline(&[first, end.clone()]).replay_json(&["--agent", agent]);
        shown(&lines).join("; ")
    };
    let at_start = "360 hard_stop NO_OUTPUT_AT_START";
    let silence = "480 hard_stop NO_OUTPUT_DEADLINE";
    let plain = "660 hard_stop NO_OUTPUT_DEADLINE";
    assert_eq!(reason(json!({"t_ms": 0, "input": "heartbeat"}), "claude"), at_start);
    assert_eq!(reason(json!({"t_ms": 0, "input": "stderr", "bytes": 9}), "claude"), at_start);
    assert_eq!(reason(json!({"t_ms": 5000, "input": "stdout", "bytes": 9}), "claude"), silence);
    assert_eq!(reason(json!({"t_ms": 5000, "input": "keepalive"}), "claude"), silence);
    assert_eq!(reason(json!({"t_ms": 0, "input": "heartbeat"}), "plain"), plain);
    assert_eq!(reason(json!({"t_ms": 0, "input": "stdout", "bytes": 0}), "plain"), plain);
    assert_eq!(
        reason(json!({"t_ms": 5000, "input": "stderr", "bytes": 1}), "plain"),
        "665 hard_stop NO_OUTPUT_DEADLINE"
    );
}

#[test]
fn watchdog_26_errors_are_counted_and_end_the_session() {
    let mut all: Vec<Value> = (1..=9)
        .map(|n| json!({"t_ms": n * 10_000, "input": "error", "text": format!("[20:15:0{n}] no route")}))
        .collect();
    all.push(json!({"t_ms": 100_000, "input": "exited", "code": 0}));
    let (lines, summary) = timeline(&all).replay_json(&[]);
    assert_eq!(shown(&lines), ["30 notice", "40 continue", "50 hard_stop ERROR_LOOP"]);
    assert_eq!(lines[2]["message"], "Loop detected: 5 errors, last: [<time>] no route");
    assert_eq!((&summary["errors"], &summary["outcome"]), (&json!(5), &json!("timed_out")));
}

#[test]
fn watchdog_20_tools_extend_silence_up_to_their_cap_and_delegation_is_waiting() {
    let start = |more: Value| {
        let mut line = json!({"t_ms": 10_000, "input": "tool_started", "id": "t", "name": "Bash"});
        line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let (lines, _) = timeline(&[line, json!({"t_ms": 7_200_000, "input": "end"})]).replay_json(&[]);
        shown(&lines).join("; ")
    };
    assert_eq!(start(json!({})), "910 hard_stop TOOL_CEILING_EXCEEDED");
    assert_eq!(start(json!({"timeout_s": 120})), "190 hard_stop TOOL_CEILING_EXCEEDED");
    assert_eq!(start(json!({"delegates": true})), "670 hard_stop NO_OUTPUT_DEADLINE");
}

#[test]
fn watchdog_19_a_heartbeat_of_a_subagent_is_not_progress_but_counts_it_as_a_child() {
    let beats = |what: &str| {
        let mut all = vec![json!({"t_ms": 1000, "input": "message"})];
        all.extend(
            (1..=360).map(|n| json!({"t_ms": n * 10_000, "input": "subagent", "id": "s", "what": what})),
        );
        let (lines, _) = timeline(&all).replay_json(&[
            "--set",
            "watchdog.idle=off",
            "--set",
            "watchdog.children=10m",
            "--set",
            "watchdog.session=off",
        ]);
        shown(&lines).join("; ")
    };
    assert_eq!(beats("progress"), "");
    assert_eq!(beats("heartbeat"), "631 hard_stop CHILDREN_PERSIST_TOO_LONG");
}

/// Models a turn in which a subagent takes quick and then slower steps while its parent is blocked.
#[test]
fn a_subagent_working_behind_a_delegating_call_is_not_silence() {
    let mut all = vec![
        json!({"t_ms": 1000, "input": "message"}),
        json!({"t_ms": 9000, "input": "tool_started", "id": "d", "name": "Task"}),
    ];
    let steps = (1..=60).map(|n| n * 10).chain([670, 740, 810, 880]);
    all.extend(
        steps.map(|s| json!({"t_ms": 10_000 + s * 1000, "input": "subagent", "id": "s", "what": "tool"})),
    );
    all.push(json!({"t_ms": 3_600_000, "input": "end"}));
    let verdicts_of =
        |profile| shown(&timeline(&all).replay_json(&["--agent", "claude", "--profile", profile]).0);
    let last = |profile| verdicts_of(profile).pop().expect("it ends");
    assert_eq!(last("standard"), "1370 hard_stop NO_OUTPUT_DEADLINE", "8 minutes after its last step");
    assert_eq!(last("quick"), "900 hard_stop SESSION_CEILING_EXCEEDED");
}

/// Models a turn in which one call of a parallel batch fails and the CLI cancels the others.
#[test]
fn canceled_siblings_of_a_failed_call_are_not_a_loop() {
    let call = |n: u64, result: &str| {
        let (id, at) = (format!("t{n}"), 10_000 + n * 1500);
        [
            json!({"t_ms": at, "input": "tool_started", "id": id, "name": "Edit", "args": {"n": n}}),
            json!({"t_ms": at + 1, "input": "tool_ended", "id": id, "ok": false, "result": result}),
        ]
    };
    let batch = |sibling: &str| {
        let mut all: Vec<Value> = call(0, "String to replace not found in file").into();
        all.extend((1..9).flat_map(|n| call(n, sibling)));
        all.push(json!({"t_ms": 60_000, "input": "exited", "code": 0}));
        let (lines, summary) = timeline(&all).replay_json(&["--agent", "claude"]);
        (shown(&lines), summary["errors"].as_u64())
    };
    for sibling in [
        "<tool_use_error>Sibling tool call errored</tool_use_error>",
        "<tool_use_error>Cancelled: parallel tool call Bash(make) errored</tool_use_error>",
    ] {
        assert_eq!(batch(sibling), (vec![], Some(1)), "{sibling}");
    }
    let same = batch("String to replace not found in file").0;
    assert_eq!(same.last().map(String::as_str), Some("16.001 hard_stop ERROR_LOOP"));
}

#[test]
fn calls_that_overlap_fail_as_one() {
    let mut all: Vec<Value> = (0..8)
        .map(|n| json!({"t_ms": 1000 + n, "input": "tool_started", "id": n.to_string(), "name": "Read", "args": {"n": n}}))
        .collect();
    all.extend((0..8).map(
        |n| json!({"t_ms": 2000 + n, "input": "tool_ended", "id": n.to_string(), "ok": false, "result": "no such file"}),
    ));
    all.push(json!({"t_ms": 60_000, "input": "exited", "code": 0}));
    assert_eq!(timeline(&all).replay_json(&["--agent", "codex"]).0, Vec::<Value>::new());
}

#[test]
fn a_constant_line_counts_after_work_and_not_by_itself() {
    let session = |work: &dyn Fn(u64) -> Option<Value>| {
        let mut all = Vec::new();
        for minute in 0..50u64 {
            all.extend(work(minute * 60_000));
            all.push(json!({"t_ms": minute * 60_000 + 30_000, "line": "step done"}));
        }
        all.push(json!({"t_ms": 3_200_000, "input": "end"}));
        let (lines, _) = timeline(&all).replay_json(&["--set", "watchdog.evidence_ttl=0"]);
        shown(&lines).pop()
    };
    assert_eq!(session(&|_| None).as_deref(), Some("690 hard_stop NO_OUTPUT_DEADLINE"));
    let writes = |at| Some(json!({"t_ms": at, "input": "workspace", "path": "a", "digest": at}));
    assert_eq!(session(&writes), None);
    let burns = |at: u64| Some(json!({"t_ms": at, "input": "children", "live": 0, "cpu_ms": at / 10}));
    assert_eq!(session(&burns), None);
    let sleeps = |at: u64| Some(json!({"t_ms": at, "input": "children", "live": 0, "cpu_ms": at / 100}));
    assert_eq!(session(&sleeps).as_deref(), Some("690 hard_stop NO_OUTPUT_DEADLINE"));
}

#[test]
fn a_count_of_messages_is_progress_only_when_it_grows() {
    let t = timeline(&[
        json!({"t_ms": 1000, "input": "message", "count": 5}),
        json!({"t_ms": 200_000, "input": "message", "count": 5}),
        json!({"t_ms": 250_000, "input": "message", "count": 7}),
        json!({"t_ms": 260_000, "input": "message", "count": 3}),
        json!({"t_ms": 3_600_000, "input": "end"}),
    ]);
    let (lines, summary) = t.replay_json(&["--profile", "quick"]);
    assert_eq!(shown(&lines), ["550 hard_stop NO_OUTPUT_DEADLINE"]);
    assert_eq!(summary["messages"], 7);
}

#[test]
fn lines_are_parsed_for_the_named_agent() {
    let message =
        json!({"type": "assistant", "message": {"content": [{"type": "text", "text": "hello"}]}}).to_string();
    let result = json!({"type": "result", "subtype": "success", "is_error": false, "result": "<!-- ralph:state idle reason=at_capacity -->"});
    let all = |code: i32| {
        timeline(&[
            json!({"t_ms": 500, "line": message}),
            json!({"t_ms": 900, "line": result.to_string()}),
            json!({"t_ms": 1000, "input": "exited", "code": code}),
        ])
    };
    assert_eq!(all(0).replay_json(&["--agent", "claude"]).1["outcome"], "idle");
    assert_eq!(all(1).replay_json(&["--agent", "claude"]).1["outcome"], "failed");
    assert_eq!(all(0).replay_json(&[]).1["outcome"], "completed");
    let nothing = timeline(&[json!({"t_ms": 1000, "input": "exited", "code": 0})]);
    assert_eq!(nothing.replay_json(&["--agent", "claude"]).1["outcome"], "failed", "exit 0 without a result");
    assert_eq!(nothing.replay_json(&[]).1["outcome"], "completed");
}

#[test]
fn an_input_at_a_deadline_counts_and_the_end_of_the_timeline_is_judged() {
    let t = timeline(&[
        json!({"t_ms": 0, "input": "message"}),
        json!({"t_ms": 300_000, "input": "message"}),
        json!({"t_ms": 600_000, "input": "end"}),
    ]);
    let (lines, _) = t.replay_json(&["--profile", "quick"]);
    assert_eq!(
        shown(&lines),
        ["600 hard_stop NO_OUTPUT_DEADLINE"],
        "pipes are drained before silence is judged"
    );
    let short = timeline(&[json!({"t_ms": 0, "input": "message"}), json!({"t_ms": 299_999, "input": "end"})]);
    assert_eq!(short.replay_json(&["--profile", "quick"]).0, Vec::<Value>::new());
    let exits = timeline(&[
        json!({"t_ms": 0, "input": "message"}),
        json!({"t_ms": 300_000, "input": "exited", "code": 0}),
    ]);
    assert_eq!(exits.replay_json(&["--profile", "quick"]).1["outcome"], "completed");
}

#[test]
fn a_policy_comes_from_flags_or_from_a_file() {
    let t = timeline(&[json!({"t_ms": 0, "input": "message"}), json!({"t_ms": 36_000_000, "input": "end"})]);
    let at = |args: &[&str]| t.replay_json(args).1["ended_at_s"].as_f64();
    assert_eq!(at(&[]), Some(660.0), "a plain agent");
    assert_eq!(at(&["--agent", "codex"]), Some(480.0));
    assert_eq!(at(&["--agent", "codex", "--profile", "standard"]), Some(480.0));
    assert_eq!(at(&["--profile", "deep"]), Some(900.0));
    assert_eq!(at(&["--profile", "deep", "--set", "watchdog.idle=90s"]), Some(90.0));
    let file = t.dir.path().join("dogwatch.toml");
    std::fs::write(&file, "profile = \"quick\"\n[watchdog]\nidle = \"2m\"\n").expect("writes");
    let file = file.display().to_string();
    assert_eq!(at(&["--policy", &file]), Some(120.0));
    assert_eq!(at(&["--policy", &file, "--set", "watchdog.idle=off"]), Some(900.0), "quick's session");
    let wrong = t.refused(&["--set", "watchdog.idel=5m"]);
    assert!(
        wrong.contains("--set watchdog.idel=5m") && wrong.contains("did you mean `watchdog.idle`?"),
        "{wrong}"
    );
    let agent = t.refused(&["--agent", "cluade"]);
    assert!(agent.contains("did you mean `claude`?"), "{agent}");
}

#[test]
fn an_invalid_line_is_reported_with_its_number_and_a_suggestion() {
    let ok = json!({"t_ms": 5, "input": "message"});
    for (bad, wanted) in [
        (r#"{"t_ms": 6, "input": "tool_start", "id": "1"}"#, "unknown input `tool_start`"),
        (r#"{"t_ms": 6, "input": "tool_started", "name": "x"}"#, "`tool_started` needs `id`"),
        (r#"{"t_ms": 6, "input": "mcp_call", "tool": "x", "phase": "begin"}"#, "unknown phase `begin`"),
        (r#"{"t_ms": 4, "input": "message"}"#, "t_ms 4 comes after 5"),
        (r#"{"t_ms": 6}"#, "has neither `line` nor `input`"),
        (r#"{"t_ms": 6, "line": "a", "input": "end"}"#, "has both `line` and `input`"),
        (r#"{"input": "message"}"#, "missing field `t_ms`"),
        (r#"{"t_ms": "6", "input": "message"}"#, "invalid type: string"),
        (r#"{"t_ms": 6, "input": "mess"#, "not JSON"),
        (
            r#"{"t_ms": 6, "input": "tool_started", "id": "1", "name": "x", "timeout_s": -1}"#,
            "`timeout_s` is not a valid duration",
        ),
        (&"[".repeat(100_000), "invalid type: sequence"),
    ] {
        let error = Timeline::new(&format!("{ok}\n\n{bad}\n{ok}\n")).refused(&[]);
        assert!(error.contains("timeline.jsonl, line 3: ") && error.contains(wanted), "{error}");
    }
    let error = Timeline::new("{\"t_ms\": 6, \"input\": \"tool_start\"}\n").refused(&[]);
    assert!(error.contains("did you mean `tool_started`?"), "{error}");
    let missing = replay(&[], std::path::Path::new("no-such-file.jsonl"));
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn an_empty_file_is_an_error() {
    let error = Timeline::new("").refused(&[]);
    assert!(error.contains("timeline.jsonl is empty") && error.contains("help: "), "{error}");
}

#[test]
fn without_json_a_table_is_printed() {
    let t = timeline(&[
        json!({"t_ms": 1000, "input": "message"}),
        json!({"t_ms": 470_000, "input": "workspace", "path": "a"}),
        json!({"t_ms": 3_600_000, "input": "end"}),
    ]);
    let out = replay(&["--agent", "claude"], &t.path());
    assert_eq!(
        String::from_utf8(out.stdout).expect("UTF-8"),
        " 0:08:01.0  continue   deferred by workspace, seen 11.0s ago\n\
         \x200:08:20.0  hard_stop  NO_OUTPUT_DEADLINE  Idle timeout: no progress for 499.0s (limit 480s, 1 message)\n\
         \x200:08:20.0  timed_out by NO_OUTPUT_DEADLINE; 1 message, 0 tools, 0 errors\n"
    );
}

#[test]
fn an_agent_that_needs_a_human_has_its_own_deadline() {
    let ask = |more: &[Value]| {
        let mut all = vec![
            json!({"t_ms": 0, "input": "message"}),
            json!({"t_ms": 10_000, "input": "tool_started", "id": "t", "name": "Bash"}),
            json!({"t_ms": 20_000, "input": "needs_human", "what": "may I run rm?"}),
        ];
        all.extend_from_slice(more);
        all.push(json!({"t_ms": 36_000_000, "input": "end"}));
        let args = [
            "--agent",
            "claude",
            "--profile",
            "quick",
            "--set",
            "watchdog.human=1h",
            "--set",
            "watchdog.session=off",
        ];
        timeline(&all).replay_json(&args).0
    };
    let lines = ask(&[]);
    assert_eq!(shown(&lines), ["3620 hard_stop HUMAN_DEADLINE_EXCEEDED"]);
    assert!(lines[0]["message"].as_str().is_some_and(|m| m.contains("may I run rm?")), "{lines:?}");
    let answered = ask(&[json!({"t_ms": 3_000_000, "input": "tool_ended", "id": "t", "ok": true})]);
    assert_eq!(shown(&answered), ["3300 hard_stop NO_OUTPUT_DEADLINE"]);
}

#[test]
fn a_line_of_stderr_is_handled_as_in_a_live_session() {
    let stderr = |n: u64, text: &str| json!({"t_ms": n * 1000, "input": "stderr", "line": text});
    let end = json!({"t_ms": 3_600_000, "input": "end"});
    let of = |agent: &str, mut all: Vec<Value>| {
        all.push(end.clone());
        let limits = ["--set", "watchdog.idle=10m", "--set", "watchdog.start=6m"];
        let (lines, summary) = timeline(&all).replay_json(&[&["--agent", agent], &limits[..]].concat());
        (shown(&lines).join("; "), summary["errors"].as_u64(), summary["messages"].as_u64())
    };
    // For a plain agent a new line is progress, and a repeated line is not.
    let plain = vec![stderr(100, "compiling a"), stderr(200, "compiling b"), stderr(300, "compiling b")];
    assert_eq!(of("plain", plain), ("800 hard_stop NO_OUTPUT_DEADLINE".to_owned(), Some(0), Some(2)));
    // For a structured agent a line on stderr is not output.
    let warning = vec![stderr(100, "warning: slow")];
    assert_eq!(of("claude", warning), ("360 hard_stop NO_OUTPUT_AT_START".to_owned(), Some(0), Some(0)));
    let refused = |n: u64| stderr(n, "2026-11-15T20:15:33Z ERROR codex_core::tools::router: error=no patch");
    let (stops, errors, _) = of("codex", (1..=9).map(refused).collect());
    assert_eq!(stops, "3 notice; 4 continue; 5 hard_stop ERROR_LOOP");
    assert_eq!(errors, Some(5));
    // The same format works for stdout.
    let line = json!({"t_ms": 5000, "input": "stdout", "line": "hello"});
    assert_eq!(of("plain", vec![line]).2, Some(1));
}

#[test]
fn a_timeout_in_the_arguments_is_derived_by_the_reader() {
    let stop = |agent: &str, more: Value| {
        let mut line = json!({"t_ms": 10_000, "input": "tool_started", "id": "t", "name": "Bash"});
        line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let t = timeline(&[line, json!({"t_ms": 7_200_000, "input": "end"})]);
        shown(&t.replay_json(&["--agent", agent]).0).join("; ")
    };
    let args = json!({"args": {"command": "make", "timeout": 120_000}});
    assert_eq!(stop("claude", args.clone()), "190 hard_stop TOOL_CEILING_EXCEEDED");
    assert_eq!(stop("codex", args.clone()), "910 hard_stop TOOL_CEILING_EXCEEDED", "its unit is not known");
    let both = json!({"args": {"timeout": 120_000}, "timeout_s": 60});
    assert_eq!(stop("claude", both), "130 hard_stop TOOL_CEILING_EXCEEDED", "timeout_s comes first");
}

#[test]
fn watchdog_17_repeated_content_of_a_path_is_not_progress() {
    let write = |t_ms: u64, path: &str, digest: Value| json!({"t_ms": t_ms, "input": "workspace", "path": path, "digest": digest});
    let ends = |digest: &dyn Fn(u64) -> Value| {
        let mut all = vec![json!({"t_ms": 1000, "input": "message"})];
        all.extend((1..=60).map(|n| write(n * 20_000, "src/a.rs", digest(n))));
        let (_, summary) = timeline(&all).replay_json(&["--agent", "claude", "--profile", "quick"]);
        summary["reason"].as_str().map(str::to_owned)
    };
    assert_eq!(ends(&|_| json!("same")).as_deref(), Some("NO_OUTPUT_DEADLINE"));
    assert_eq!(
        ends(&|n| json!(n % 2)).as_deref(),
        Some("SESSION_CEILING_EXCEEDED"),
        "back and forth is a change"
    );
    assert_eq!(
        ends(&|_| Value::Null).as_deref(),
        Some("SESSION_CEILING_EXCEEDED"),
        "unknown content is a change"
    );
    let (lines, _) = timeline(&[
        json!({"t_ms": 1000, "input": "message"}),
        write(2_000, "a", json!("d")),
        write(295_000, "b", json!("d")),
        write(296_000, "a", json!("d")),
        json!({"t_ms": 301_000, "input": "end"}),
    ])
    .replay_json(&["--agent", "claude", "--profile", "quick"]);
    assert_eq!(lines[0]["evidence_summary"][3]["counter"], 2, "the other path is a change of its own");
}

#[test]
fn watchdog_7_lines_within_a_suspension_are_judged_with_the_deadlines_moved() {
    let all = |inside: &[Value]| {
        let mut all = vec![json!({"t_ms": 10_000, "input": "message"})];
        all.extend_from_slice(inside);
        all.push(json!({"t_ms": 1_900_000, "input": "suspended", "for_ms": 1_800_000}));
        all.push(json!({"t_ms": 3_600_000, "input": "end"}));
        let (lines, summary) = timeline(&all).replay_json(&["--agent", "claude", "--profile", "quick"]);
        (shown(&lines), summary["messages"].clone())
    };
    // A keepalive moves no deadline: silence counts 300 s from the message, without the 1800 s of the suspension.
    let (alive, _) = all(&[json!({"t_ms": 1_500_000, "input": "keepalive"})]);
    assert_eq!(alive, ["2110 hard_stop NO_OUTPUT_DEADLINE"]);
    // A message during the suspension counts from the end of the suspension.
    let (verdicts, messages) = all(&[json!({"t_ms": 1_500_000, "input": "message"})]);
    assert_eq!((verdicts, messages), (vec!["2200 hard_stop NO_OUTPUT_DEADLINE".to_owned()], json!(2)));
    let errors: Vec<Value> =
        (0..5).map(|n| json!({"t_ms": 1_000_000 + n, "input": "error", "text": "no route"})).collect();
    let (looped, _) = all(&errors);
    assert_eq!(looped.last().map(String::as_str), Some("1000.004 hard_stop ERROR_LOOP"), "at its own time");
    // A deadline before the suspension still fires before it.
    let t = timeline(&[
        json!({"t_ms": 10_000, "input": "message"}),
        json!({"t_ms": 1_500_000, "input": "message"}),
        json!({"t_ms": 1_900_000, "input": "suspended", "for_ms": 1_000_000}),
    ]);
    assert_eq!(
        shown(&t.replay_json(&["--agent", "claude", "--profile", "quick"]).0),
        ["310 hard_stop NO_OUTPUT_DEADLINE"]
    );
}

#[test]
fn nothing_after_the_first_hard_stop_is_counted() {
    let errors = |summary: &Value| summary["errors"].as_u64();
    let t = timeline(&[
        json!({"t_ms": 0, "input": "message"}),
        json!({"t_ms": 400_000, "input": "error", "text": "too late"}),
        json!({"t_ms": 400_001, "input": "error", "text": "too late"}),
    ]);
    let (_, summary) = t.replay_json(&["--profile", "quick"]);
    assert_eq!((errors(&summary), &summary["ended_at_s"]), (Some(0), &json!(300.0)));
    let late = |more: Value| {
        let (_, summary) =
            timeline(&[json!({"t_ms": 0, "input": "message"}), more]).replay_json(&["--profile", "quick"]);
        (summary["messages"].as_u64(), summary["tools"].as_u64())
    };
    assert_eq!(late(json!({"t_ms": 400_000, "input": "message"})), (Some(1), Some(0)));
    let tool = json!({"t_ms": 400_000, "input": "tool_started", "id": "t", "name": "Bash"});
    assert_eq!(late(tool), (Some(1), Some(0)));
    // A line may hold several facts. Those after the one that ends the session do not count.
    let mut all: Vec<Value> = (1..=4)
        .map(|n| json!({"t_ms": n * 1000, "input": "tool_ended", "id": format!("a{n}"), "ok": false, "result": "no route"}))
        .collect();
    let fail = |id: &str, why: &str| json!({"type": "tool_result", "tool_use_id": id, "is_error": true, "content": why});
    let results = [fail("b1", "no route"), fail("b2", "another"), fail("b3", "a third")];
    let line = json!({"type": "user", "message": {"content": results}}).to_string();
    all.push(json!({"t_ms": 9000, "line": line}));
    let (_, summary) = timeline(&all).replay_json(&["--agent", "claude"]);
    assert_eq!((errors(&summary), &summary["reason"]), (Some(5), &json!("ERROR_LOOP")));
}
