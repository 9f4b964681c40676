//! The data for the watchdog, the budgets and the waits, read from the output of real CLIs.

use dogwatch_agents::{Reader, tools};
use dogwatch_core::record::windows::{Percent, Window, WindowName};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::sign::{LimitKind, ResetsAt, Sign, Totals};
use dogwatch_core::watch::{Channel, Fact, ToolStarted};
use std::collections::BTreeMap;

fn read(name: ReaderName, lines: &[&str]) -> Vec<Sign> {
    let mut reader = Reader::for_name(name);
    let mut signs = Vec::new();
    lines.iter().for_each(|line| reader.read(line.as_bytes(), &mut signs));
    reader.finish(&mut signs);
    signs
}

fn recorded(agent: &str, capture: &str) -> Vec<String> {
    let path = format!("{}/../../fixtures/{agent}/{capture}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the fixtures are part of the repository");
    let line = |record| {
        let record: serde_json::Value = serde_json::from_str(record).expect("recordings are JSON lines");
        record["line"].as_str().expect("every record holds a line").to_owned()
    };
    text.lines().map(line).collect()
}

fn replayed(name: ReaderName, capture: &str) -> Vec<Sign> {
    let lines = recorded(name.as_str(), capture);
    read(name, &lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn totals(signs: &[Sign]) -> Totals {
    let mut totals = Totals::default();
    signs.iter().for_each(|sign| totals.add(sign));
    totals
}

fn starts(signs: &[Sign]) -> Vec<&ToolStarted> {
    signs
        .iter()
        .filter_map(|sign| if let Sign::ToolStarted(tool) = sign { Some(tool) } else { None })
        .collect()
}

fn ends<'a>(signs: &'a [Sign]) -> Vec<(bool, u64, &'a str)> {
    let end = |sign: &'a Sign| match sign {
        Sign::ToolEnded { ok, result, error, .. } => Some((*ok, *result, error.as_str())),
        _ => None,
    };
    signs.iter().filter_map(end).collect()
}

fn claude_call(name: &str, input: &str) -> ToolStarted {
    let line = format!(
        r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"1","name":"{name}","input":{input}}}]}}}}"#
    );
    starts(&read(ReaderName::Claude, &[&line]))[0].clone()
}

#[test]
fn watchdog_32_calls_compare_nested_arguments_but_not_order_and_white_space() {
    let hash = |args: &str| claude_call("X", args).call;
    let one = hash(r#"{"a":1,"b":{"c":[1,2],"d":"e"}}"#);
    assert_eq!(one, hash(r#"{ "b" : { "d" : "e", "c" : [ 1 , 2 ] } , "a" : 1 }"#));
    assert_eq!(
        one,
        tools::call("X", r#"{"a":1,"b":{"c":[1,2],"d":"e"}}"#),
        "equal whether given as JSON or read from the stream"
    );
    for other in [
        r#"{"a":1,"b":{"c":[2,1],"d":"e"}}"#,
        r#"{"a":1,"b":{"c":[1,2],"d":"f"}}"#,
        r#"{"a":1,"b":{"c":[1,2]}}"#,
        r#"{"a":1,"b":{"d":[1,2],"c":"e"}}"#,
        r#"{"b":1,"a":{"c":[1,2],"d":"e"}}"#,
        r#"{"a":1}"#,
        r#"{}"#,
    ] {
        assert_ne!(one, hash(other), "{other}");
    }
    assert_ne!(one, claude_call("Y", r#"{"a":1,"b":{"c":[1,2],"d":"e"}}"#).call, "the name counts");
    assert_ne!(tools::call("X", r#"{"a":[]}"#), tools::call("X", r#"{"a":{}}"#));
}

#[test]
fn watchdog_33_a_placeholder_is_a_different_call_and_streamed_input_starts_none() {
    assert_ne!(tools::call("Bash", "{}"), tools::call("Bash", r#"{"command":"ls"}"#));
    let partial = replayed(ReaderName::Claude, "quiet_tool_partial");
    let starts = starts(&partial);
    assert_eq!(starts.len(), 1, "the placeholder in the stream does not start a call");
    assert_ne!(starts[0].call, tools::call("Bash", "{}"));
}

#[test]
fn watchdog_27_results_are_compared_without_volatile_parts() {
    let result = |text: &str| {
        let line = format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"1","content":"{text}"}}]}}}}"#
        );
        ends(&read(ReaderName::Claude, &[&line]))[0].1
    };
    let one = result(r"12 passed\n20:15:33 done in /tmp/x1/log (id 7f3c2b1a)");
    assert_eq!(one, result(r"12 passed\n20:15:34 done in /tmp/y/log (id 8a3c2b1a)"));
    assert_ne!(one, result(r"13 passed\n20:15:34 done in /tmp/y/log (id 8a3c2b1a)"), "short numbers count");
    assert_eq!(result("plain"), tools::result("\"plain\""), "as it is written");
}

#[test]
fn a_repeated_failing_command_has_equal_calls_and_results() {
    for name in [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini] {
        let signs = replayed(name, "tool_errors");
        let (starts, ends) = (starts(&signs), ends(&signs));
        assert!(starts.len() >= 4, "{name}");
        assert!(starts.iter().all(|tool| tool.call == starts[0].call), "{name}");
        assert!(ends.iter().all(|end| end == &ends[0]), "{name}: {ends:?}");
        if name != ReaderName::Gemini {
            assert!(ends[0].2.contains("No such file or directory"), "{name}: {ends:?}");
        }
    }
}

#[test]
fn different_work_is_different_calls() {
    for name in [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini] {
        let signs = replayed(name, "work");
        let mut calls: Vec<u64> = starts(&signs).iter().map(|tool| tool.call).collect();
        let all = calls.len();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), all, "{name}");
    }
}

#[test]
fn watchdog_20_only_shell_calls_may_declare_a_timeout() {
    let timeout = |name: &str, input: &str| claude_call(name, input).timeout;
    assert_eq!(timeout("Bash", r#"{"command":"x","timeout":300000}"#), Some(Dur::from_mins(5)));
    assert_eq!(timeout("Bash", r#"{"command":"x"}"#), None);
    assert_eq!(timeout("Bash", r#"{"command":"x","timeout":"soon"}"#), None);
    assert_eq!(timeout("mcp__db__query", r#"{"timeout":300}"#), None, "the unit is unknown");
    let line = r#"{"type":"tool_use","part":{"tool":"bash","callID":"c","state":{"status":"completed","input":{"command":"x","timeout":60000},"output":""}}}"#;
    assert_eq!(starts(&read(ReaderName::Opencode, &[line]))[0].timeout, Some(Dur::from_mins(1)));
}

#[test]
fn watchdog_16_mcp_calls_are_marked_for_all_four_agents() {
    for name in [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini] {
        let signs = replayed(name, "mcp");
        assert!(starts(&signs).iter().any(|tool| tool.mcp && tool.name.contains("heartbeat")), "{name}");
        let plain = replayed(name, "work");
        assert!(!starts(&plain).iter().any(|tool| tool.mcp), "{name}");
    }
}

#[test]
fn subagents_start_and_end_for_all_four_agents() {
    for (name, capture) in [
        (ReaderName::Claude, "subagent"),
        (ReaderName::Claude, "subagent_foreground"),
        (ReaderName::Codex, "subagent"),
        (ReaderName::Opencode, "subagent"),
        (ReaderName::Gemini, "subagent"),
    ] {
        let signs = replayed(name, capture);
        let facts: Vec<Fact> = signs.iter().cloned().filter_map(Sign::into_fact).collect();
        let began = facts.iter().filter(|fact| matches!(fact, Fact::SubagentStarted { .. })).count();
        let ended = facts.iter().filter(|fact| matches!(fact, Fact::SubagentEnded { .. })).count();
        assert_eq!((began, ended), (1, 1), "{name}/{capture}");
        assert!(signs.iter().any(|s| matches!(s, Sign::SubagentProgress { .. })), "{name}/{capture}");
        assert!(starts(&signs).iter().any(|tool| tool.delegates), "{name}/{capture}");
    }
}

#[test]
fn watchdog_19_a_live_subagent_without_new_usage_is_not_progress() {
    let began = r#"{"type":"system","subtype":"task_started","task_id":"a1","task_type":"local_agent"}"#;
    let at = |tokens: u32| {
        format!(
            r#"{{"type":"system","subtype":"task_progress","task_id":"a1","usage":{{"total_tokens":{tokens},"tool_uses":1}}}}"#
        )
    };
    let signs = read(ReaderName::Claude, &[began, &at(5), &at(5), &at(9)]);
    let progress: Vec<Option<Channel>> = signs.iter().map(Sign::progress).collect();
    let subagent = Some(Channel::Subagent);
    assert_eq!(progress, [subagent, subagent, None, subagent], "{signs:?}");
}

#[test]
fn a_subagent_of_an_older_claude_ends_with_its_call() {
    let inner = r#"{"type":"assistant","parent_tool_use_id":"t1","message":{"content":[{"type":"text","text":"hi"}]}}"#;
    let over = r#"{"type":"user","parent_tool_use_id":null,"message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"x"}]}}"#;
    let signs = read(ReaderName::Claude, &[inner, inner, over]);
    let id = || "t1".to_owned();
    assert_eq!(signs[0], Sign::SubagentStarted { id: id() });
    assert_eq!(signs[1..3], [Sign::SubagentProgress { id: id() }, Sign::SubagentProgress { id: id() }]);
    assert_eq!(signs.last(), Some(&Sign::SubagentEnded { id: id() }));
}

#[test]
fn codex_abandons_its_subagents_when_the_turn_is_over() {
    let mut lines = recorded("codex", "subagent");
    lines.retain(|line| !line.contains(r#""tool":"wait""#));
    let signs = read(ReaderName::Codex, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let ended = signs.iter().position(|s| matches!(s, Sign::SubagentEnded { .. })).expect("it is gone");
    let result = signs.iter().position(|s| matches!(s, Sign::Result(_))).expect("the turn completed");
    assert!(ended < result);
}

#[test]
fn watchdog_39_background_work_continues_after_the_result_and_its_end_is_reported() {
    for capture in ["bash_timeout_bg", "claude_bg_tool", "subagent"] {
        let signs = replayed(ReaderName::Claude, capture);
        let open: Vec<u32> = signs
            .iter()
            .filter_map(|s| if let Sign::BackgroundWork { open } = s { Some(*open) } else { None })
            .collect();
        assert_eq!(open, [1, 0], "{capture}");
    }
    let signs = replayed(ReaderName::Claude, "bash_timeout_bg");
    let first = signs.iter().position(|s| matches!(s, Sign::Result(_))).expect("it has two");
    assert_eq!(totals(&signs[..=first]).background, 1, "the first result is not the end");
    assert_eq!(totals(&replayed(ReaderName::Claude, "claude_bg_server")).background, 1, "it was killed");
}

#[test]
fn the_session_id_is_reported_once() {
    for (name, id) in [
        (ReaderName::Claude, "e1200e6f-e704-4c74-8b8f-12b2763b98b2"),
        (ReaderName::Codex, "01a1e062-d0e9-7392-8f4d-32bc2597db10"),
        (ReaderName::Opencode, "ses_e1f6f8eeeffe3ZYuTHJk41Rz8s"),
        (ReaderName::Gemini, "920f1e68-4b9b-4a0c-8161-6e80b1c8ffa8"),
    ] {
        let signs = replayed(name, "subagent");
        assert_eq!(totals(&signs).session_id.as_deref(), Some(id));
        let found = signs.iter().filter(|s| matches!(s, Sign::SessionId { .. })).count();
        assert_eq!(found, 1, "{name}: reported once per session, however often it is printed");
    }
}

#[test]
fn the_version_and_the_model_are_reported_once_where_the_stream_has_them() {
    for (name, version, model) in [
        (ReaderName::Claude, true, true),
        (ReaderName::Codex, false, false),
        (ReaderName::Opencode, false, false),
        (ReaderName::Gemini, false, true),
    ] {
        let signs = replayed(name, "subagent");
        let totals = totals(&signs);
        assert_eq!((totals.agent_version.is_some(), totals.model.is_some()), (version, model), "{name}");
        let found = signs.iter().filter(|s| matches!(s, Sign::Agent { .. })).count();
        assert_eq!(found, usize::from(version || model), "{name}");
    }
}

#[test]
fn retries_are_reported_with_their_details_and_are_neither_progress_nor_errors() {
    let retries = |name, capture| -> Vec<Sign> {
        let signs = replayed(name, capture);
        signs.into_iter().filter(|s| matches!(s, Sign::Retrying { .. })).collect()
    };
    let twice = Sign::Retrying { status: Some(429), delay: Some(Dur::from_secs(5)) };
    assert_eq!(retries(ReaderName::Claude, "rate_limit"), [twice.clone(), twice]);
    assert_eq!(
        retries(ReaderName::Codex, "rate_limit"),
        vec![Sign::Retrying { status: Some(429), delay: None }; 2]
    );
    assert_eq!(retries(ReaderName::Codex, "overloaded").len(), 5);
    for (name, capture) in [(ReaderName::Claude, "auth_error"), (ReaderName::Codex, "dead_server")] {
        let signs = replayed(name, capture);
        assert!(
            signs.iter().all(|s| s.progress().is_none() && s.clone().into_fact().is_none()),
            "{name}/{capture}"
        );
    }
}

#[test]
fn a_limit_that_was_waited_out_does_not_stop_the_session() {
    for name in [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini] {
        let totals = totals(&replayed(name, "rate_limit"));
        assert_eq!((totals.limit, totals.auth_failed), (None, None), "{name}");
    }
}

#[test]
fn claude_reports_the_windows_of_its_subscription_with_every_answer() {
    let both = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":1788465600,"rateLimitType":"five_hour","overageStatus":"allowed","isUsingOverage":false,"unifiedWindows":{"five_hour":{"utilization":0.24,"resetsAt":1788465600},"seven_day":{"utilization":1,"resetsAt":1789005600},"of_tomorrow":{"utilization":0.5}}}}"#;
    let window = |window, percent, resets_s: i64| Window {
        window,
        used_percent: Percent::new(percent).expect("a percentage"),
        resets_at: Some(Wall(resets_s * 1_000)),
    };
    let windows = vec![
        window(WindowName::FiveHour, 24.0, 1_788_465_600),
        window(WindowName::SevenDay, 100.0, 1_789_005_600),
    ];
    assert_eq!(read(ReaderName::Claude, &[both]), [Sign::Windows { seen_at: None, windows }]);
    // Older versions report one window, and only near its end.
    let one = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","rateLimitType":"seven_day","utilization":0.905,"resetsAt":1789005600}}"#;
    let windows = vec![window(WindowName::SevenDay, 90.5, 1_789_005_600)];
    assert_eq!(read(ReaderName::Claude, &[one]), [Sign::Windows { seen_at: None, windows }]);
    for unknown in [
        r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","unifiedWindows":{"five_hour":{"utilization":null}}}}"#,
        r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","unifiedWindows":{"five_hour":{"utilization":-1}}}}"#,
        r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","unifiedWindows":[1]}}"#,
    ] {
        assert_eq!(read(ReaderName::Claude, &[unknown]), [Sign::Keepalive], "{unknown}");
    }
}

#[test]
fn watchdog_46_a_limit_has_a_reset_time() {
    let result = |text: &str| {
        format!(
            r#"{{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"{text}"}}"#
        )
    };
    let rejected = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794772800,"rateLimitType":"five_hour"}}"#;
    let limit = |lines: &[&str]| totals(&read(ReaderName::Claude, lines)).limit.expect("a limit");
    let found = limit(&[rejected, &result("You've hit your session limit · resets 9pm")]);
    assert_eq!(
        (found.kind, found.resets_at),
        (LimitKind::RateLimit, Some(ResetsAt::At(Wall(1_794_772_800_000))))
    );
    let clock = limit(&[&result("5-hour limit reached ∙ resets 3pm")]);
    assert!(matches!(clock.resets_at, Some(ResetsAt::Clock(clock)) if clock.hour == 15));
    let never = limit(&[&result("API Error: 429 rate limited")]);
    assert_eq!((never.kind, never.resets_at), (LimitKind::Overload, None));
    let allowed = rejected.replace("rejected", "allowed_warning");
    assert_eq!(read(ReaderName::Claude, &[&allowed]), [Sign::Keepalive]);

    let failed = r#"{"type":"turn.failed","error":{"message":"You've hit your usage limit. Upgrade to Pro or try again in 3 hours 2 minutes."}}"#;
    let codex = totals(&read(ReaderName::Codex, &[failed])).limit.expect("a limit");
    assert_eq!(codex.resets_at, Some(ResetsAt::In("3h2m".parse().expect("a duration"))));
    let error = r#"{"type":"error","error":{"name":"APIError","data":{"message":"Too Many Requests","statusCode":429,"responseHeaders":{"retry-after":"3600"}}}}"#;
    let opencode = totals(&read(ReaderName::Opencode, &[error])).limit.expect("a limit");
    assert_eq!(
        (opencode.kind, opencode.resets_at),
        (LimitKind::RateLimit, Some(ResetsAt::In(Dur::from_hours(1))))
    );
    let gemini = r#"{"type":"result","status":"error","error":{"message":"[API Error: {\"error\":{\"code\":429,\"message\":\"Please retry in 34.1s.\",\"status\":\"RESOURCE_EXHAUSTED\"}}]"}}"#;
    let gemini = totals(&read(ReaderName::Gemini, &[gemini])).limit.expect("a limit");
    assert_eq!(gemini.resets_at, Some(ResetsAt::In(Dur::from_millis(34_100))));
}

#[test]
fn text_about_limits_and_keys_is_not_a_refusal() {
    let text = "usage limit reached|1762952400, invalid api key, HTTP 529";
    for (name, line) in [
        (
            ReaderName::Claude,
            format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#),
        ),
        (
            ReaderName::Claude,
            format!(r#"{{"type":"result","subtype":"success","is_error":false,"result":"{text}"}}"#),
        ),
        (
            ReaderName::Codex,
            format!(
                r#"{{"type":"item.completed","item":{{"id":"1","type":"agent_message","text":"{text}"}}}}"#
            ),
        ),
        (ReaderName::Opencode, format!(r#"{{"type":"text","part":{{"text":"{text}"}}}}"#)),
        (
            ReaderName::Gemini,
            format!(r#"{{"type":"tool_result","tool_id":"1","status":"error","output":"{text}"}}"#),
        ),
    ] {
        let found = read(name, &[&line]);
        assert!(
            !found.iter().any(|s| matches!(s, Sign::Limit(_) | Sign::AuthFailed { .. })),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn watchdog_49_a_missing_login_is_read_from_stderr_before_any_output() {
    let line = b"When using Gemini API, you must specify the GEMINI_API_KEY environment variable.";
    let (mut reader, mut signs) = (Reader::for_name(ReaderName::Gemini), Vec::new());
    reader.read_stderr(line, &mut signs);
    reader.read(br#"{"type":"init"}"#, &mut signs);
    reader.read_stderr(line, &mut signs);
    assert!(matches!(&signs[..], [Sign::AuthFailed { .. }, Sign::Keepalive, Sign::Keepalive]), "{signs:?}");
}

#[test]
fn permission_requests_are_reported() {
    let totals = totals(&replayed(ReaderName::Claude, "no_bypass"));
    assert_eq!(totals.needs_human.as_deref(), Some("This command requires approval"));
    let (mut reader, mut signs) = (Reader::for_name(ReaderName::Opencode), Vec::new());
    reader.read_stderr(b"! permission requested: bash (ls); auto-rejecting", &mut signs);
    assert!(matches!(&signs[..], [Sign::NeedsHuman { .. }]), "{signs:?}");
}

#[test]
fn the_tokens_of_a_codex_thread_are_a_total() {
    let line =
        |n: u32| format!(r#"{{"type":"turn.completed","usage":{{"input_tokens":{n},"output_tokens":1}}}}"#);
    assert_eq!(totals(&read(ReaderName::Codex, &[&line(10), &line(25)])).tokens, Some(26));
}

#[test]
fn an_unknown_format_is_reported_once_and_then_read_as_text() {
    for name in ReaderName::ALL.iter().copied().filter(|name| name.is_structured()) {
        let lines: Vec<String> = (0..40).map(|n| format!(r#"{{"kind":"v9","n":"step {n}"}}"#)).collect();
        let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.extend([lines[39], "not even JSON", "", "[20:15:33] waiting", "[20:15:34] waiting"]);
        let signs = read(name, &lines);
        assert_eq!(signs.iter().filter(|s| **s == Sign::Drift).count(), 1, "{name}");
        assert!(totals(&signs).drifted);
        // After the drift: 20 lines except the repeated one, one that is not JSON, and one of two that are equal.
        assert_eq!(signs.iter().filter(|s| **s == Sign::Text).count(), 20 + 1 + 1, "{name}");
    }
}

#[test]
fn a_plain_agent_that_repeats_itself_makes_no_progress() {
    let lines = ["start", "[20:15:33] waiting", "[20:15:34] waiting", "  ", "[20:15:35] waiting", "done"];
    let signs = read(ReaderName::Plain, &lines);
    let progress: Vec<bool> = signs.iter().map(|s| s.progress().is_some()).collect();
    assert_eq!(progress, [true, true, false, false, true, true], "{signs:?}");
}

/// Recordings of agents that really loop, or give up after repeated refusals.
const LOOPS: [(&str, &str); 4] = [
    ("claude", "tool_errors"),
    ("codex", "tool_errors"),
    ("opencode", "tool_errors"),
    ("opencode", "bad_request"),
];

#[test]
fn watchdog_26_no_recording_but_the_loops_shows_one_error_three_times() {
    for row in include_str!("expected.tsv").lines().skip(1) {
        let mut cells = row.split('\t');
        let (agent, capture) = (cells.next().expect("an agent"), cells.next().expect("a capture"));
        let name = ReaderName::named(agent).expect("a known agent");
        let mut errors: BTreeMap<String, u32> = BTreeMap::new();
        for fact in replayed(name, capture).into_iter().filter_map(Sign::into_fact) {
            match fact {
                Fact::Error { fingerprint } => *errors.entry(fingerprint).or_default() += 1,
                Fact::ToolEnded { ok: false, error, .. } => *errors.entry(error).or_default() += 1,
                _ => {}
            }
        }
        let most = errors.values().max().copied().unwrap_or(0);
        assert_eq!(most >= 3, LOOPS.contains(&(agent, capture)), "{agent}/{capture}: {errors:?}");
        assert!(!errors.contains_key(""), "{agent}/{capture}: an error without a message");
    }
}

#[test]
fn claude_marks_calls_that_it_canceled_because_a_parallel_call_failed() {
    let canceled = |is_error: bool, content: &str| {
        let line = format!(
            r#"{{"type":"user","message":{{"role":"user","content":[{{"type":"tool_result","content":{content},"is_error":{is_error},"tool_use_id":"toolu_2"}}]}}}}"#
        );
        match &read(ReaderName::Claude, &[&line])[..] {
            [Sign::ToolEnded { canceled, .. }] => *canceled,
            other => panic!("{other:?}"),
        }
    };
    let sibling = r#""<tool_use_error>Sibling tool call errored</tool_use_error>""#;
    assert!(canceled(true, sibling));
    assert!(canceled(true, &format!(r#"[{{"type":"text","text":{sibling}}}]"#)));
    assert!(canceled(
        true,
        r#""<tool_use_error>Cancelled: parallel tool call Bash(cargo test \u2026) errored</tool_use_error>""#
    ));
    assert!(!canceled(false, sibling), "a file that holds these words");
    assert!(!canceled(true, r#""grep: Sibling tool call errored""#));
    assert!(!canceled(true, r#""Exit code 1""#));
}
