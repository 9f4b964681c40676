//! Surprising behavior of real CLIs, each stated as a rule that must hold.

use dogwatch_agents::{Reader, last_marker, tools};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::sign::{AgentResult, Sign, Totals};

fn read(name: ReaderName, lines: &[&str]) -> Vec<Sign> {
    let mut reader = Reader::for_name(name);
    let mut signs = Vec::new();
    lines.iter().for_each(|line| reader.read(line.as_bytes(), &mut signs));
    reader.finish(&mut signs);
    signs
}

fn claude(lines: &[&str]) -> Vec<Sign> {
    read(ReaderName::Claude, lines)
}

fn totals(signs: Vec<Sign>) -> Totals {
    let mut totals = Totals::default();
    signs.iter().for_each(|sign| totals.add(sign));
    totals
}

fn result(name: ReaderName, lines: &[&str]) -> Option<AgentResult> {
    totals(read(name, lines)).result
}

/// Returns the lines of a recording.
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

const TEXT: &str = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"hello"}]}}"#;

#[test]
fn loop_53_lines_that_are_not_json_objects_are_ignored() {
    for name in ReaderName::ALL.iter().copied().filter(|name| name.is_structured()) {
        for line in
            ["", "   ", "not json", "[1,2]", "42", "\"text\"", "null", "true", "{", r#"{"type":"#, "\u{0}"]
        {
            assert_eq!(read(name, &[line]), [], "{name}: {line:?}");
        }
    }
}

#[test]
fn loop_53_an_unknown_event_is_not_an_error() {
    for name in ReaderName::ALL.iter().copied().filter(|name| name.is_structured()) {
        for line in ["{}", r#"{"type":"novelty"}"#, r#"{"type":7}"#, r#"{"type":null,"x":[]}"#] {
            assert_eq!(read(name, &[line]), [Sign::Unknown], "{name}: {line:?}");
        }
    }
}

#[test]
fn loop_54_the_last_result_wins() {
    let lines = [r#"{"type":"result","result":"first"}"#, TEXT, r#"{"result":"second","type":"result"}"#];
    assert_eq!(result(ReaderName::Claude, &lines).expect("there were two").text, "second");
}

#[test]
fn loop_54_a_result_that_is_not_a_string_is_ignored() {
    for other in ["42", "null", "{\"a\":\"b\"}", "[\"x\"]", "true"] {
        let second = format!(r#"{{"type":"result","result":{other}}}"#);
        let found = result(ReaderName::Claude, &[r#"{"type":"result","result":"first"}"#, &second]);
        assert_eq!(found.expect("the first result is valid").text, "first", "{other}");
        assert_eq!(result(ReaderName::Claude, &[&second]), None, "{other}");
    }
}

#[test]
fn loop_55_is_error_is_carried_with_any_result() {
    for rest in [
        r#""subtype":"success","result":"all done""#,
        r#""subtype":"error_max_turns","errors":["Reached maximum number of turns (2)"]"#,
        r#""result":42"#,
        r#""result":null,"errors":7"#,
    ] {
        let found = result(ReaderName::Claude, &[&format!(r#"{{"type":"result","is_error":true,{rest}}}"#)]);
        assert!(found.expect("a failure is a result").is_error, "{rest}");
    }
    let subtype_only = r#"{"type":"result","subtype":"error_during_execution"}"#;
    assert!(result(ReaderName::Claude, &[subtype_only]).expect("a failure is a result").is_error);
}

#[test]
fn loop_63_a_marker_in_a_tool_result_or_an_echoed_prompt_is_not_in_the_result() {
    let marker = "<!-- ralph:state idle -->";
    let gemini = [
        format!(r#"{{"type":"message","role":"user","content":"print {marker}"}}"#),
        r#"{"type":"tool_use","tool_name":"cat","tool_id":"1"}"#.to_owned(),
        format!(r#"{{"type":"tool_result","tool_id":"1","status":"success","output":"{marker}"}}"#),
        r#"{"type":"message","role":"assistant","content":"done","delta":true}"#.to_owned(),
        r#"{"type":"result","status":"success"}"#.to_owned(),
    ];
    let lines: Vec<&str> = gemini.iter().map(String::as_str).collect();
    assert_eq!(result(ReaderName::Gemini, &lines), Some(AgentResult::new("done", false)));
    let claude = format!(
        r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"1","content":"{marker}"}}]}}}}"#
    );
    assert_eq!(result(ReaderName::Claude, &[&claude]), None);
}

#[test]
fn success_with_is_error_is_a_failure_with_the_api_status() {
    let totals = totals(replayed(ReaderName::Claude, "overloaded_maxretries2"));
    let result = totals.result.expect("the session has a result");
    assert!(result.is_error);
    assert_eq!(result.api_status, Some(529));
    assert_eq!((totals.messages, totals.errors), (0, 1), "a failed request is not a message");
}

#[test]
fn a_result_is_not_the_end_and_usage_is_the_last_sum() {
    let signs = replayed(ReaderName::Claude, "bash_timeout_bg");
    let results: Vec<usize> =
        signs.iter().enumerate().filter(|(_, s)| matches!(s, Sign::Result(_))).map(|(at, _)| at).collect();
    assert_eq!(results.len(), 2);
    assert!(signs[results[0]..results[1]].contains(&Sign::Message), "the agent continued after its result");
    let totals = totals(signs);
    assert_eq!(totals.tokens, Some(64984 + 41));
    assert_eq!(totals.cost_usd, Some(0.195567));
}

#[test]
fn usage_is_summed_over_results_where_the_cli_does_not() {
    let line = r#"{"type":"result","result":"x","usage":{"input_tokens":10,"output_tokens":1,"cache_read_input_tokens":5}}"#;
    assert_eq!(totals(claude(&[line, line])).tokens, Some(32));
    assert_eq!(totals(claude(&[TEXT])).tokens, None, "unknown is not zero");
}

#[test]
fn a_stream_that_ends_after_sigint_is_an_error_despite_exit_code_0() {
    let result = totals(replayed(ReaderName::Claude, "sigint")).result.expect("this version prints a result");
    assert!(result.is_error);
}

#[test]
fn a_stream_cut_by_a_signal_has_no_result() {
    for (name, capture) in [
        (ReaderName::Claude, "sigterm"),
        (ReaderName::Codex, "sigint"),
        (ReaderName::Codex, "stdout_closed"),
        (ReaderName::Opencode, "sigterm"),
        (ReaderName::Gemini, "sigterm_group"),
        (ReaderName::Gemini, "hang_sigint_group"),
    ] {
        assert_eq!(totals(replayed(name, capture)).result, None, "{name}/{capture}");
    }
}

#[test]
fn codex_may_start_a_tool_and_never_end_it() {
    let signs = replayed(ReaderName::Codex, "stdout_closed");
    assert!(signs.iter().any(|sign| matches!(sign, Sign::ToolStarted { .. })));
    assert!(!signs.iter().any(|sign| matches!(sign, Sign::ToolEnded { .. })));
}

#[test]
fn an_unknown_codex_item_is_not_a_tool() {
    let line = r#"{"type":"item.completed","item":{"id":"item_1","type":"novelty","text":"x"}}"#;
    assert_eq!(read(ReaderName::Codex, &[line]), [Sign::Unknown]);
}

#[test]
fn codex_may_end_a_tool_that_it_never_started() {
    let line = r#"{"type":"item.completed","item":{"id":"item_1","type":"web_search","query":"x"}}"#;
    let signs = read(ReaderName::Codex, &[line]);
    let [Sign::ToolStarted(tool), Sign::ToolEnded { id, ok: true, .. }] = &signs[..] else {
        panic!("{signs:?}");
    };
    assert_eq!((tool.id.as_str(), tool.name.as_str(), id.as_str()), ("item_1", "web_search", "item_1"));
}

#[test]
fn a_failed_command_is_a_tool_that_failed() {
    for (name, fails) in [(ReaderName::Claude, 6), (ReaderName::Codex, 6), (ReaderName::Opencode, 6)] {
        let signs = replayed(name, "tool_errors");
        let failed = signs.iter().filter(|sign| matches!(sign, Sign::ToolEnded { ok: false, .. })).count();
        assert_eq!(failed, fails, "{name}");
    }
}

#[test]
fn deltas_that_split_a_marker_are_joined() {
    let signs = replayed(ReaderName::Gemini, "subagent");
    assert_eq!(
        signs.iter().filter(|sign| **sign == Sign::Text).count(),
        1,
        "the second piece is not a message"
    );
    let text = totals(signs).result.expect("the session has a result").text;
    assert_eq!(text, "The subagent has reported. Done.\n<!-- ralph:state idle -->");
    assert_eq!(last_marker(&text, true, "").expect("the text has a marker").state, "idle");
}

#[test]
fn deltas_that_split_a_character_between_escapes_are_joined() {
    let delta =
        |half: &str| format!(r#"{{"type":"message","role":"assistant","content":"{half}","delta":true}}"#);
    let lines = [delta(r"\ud83d"), delta(r"\ude00"), r#"{"type":"result","status":"success"}"#.to_owned()];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(result(ReaderName::Gemini, &lines).expect("the session has a result").text, "😀");
}

#[test]
fn heartbeats_and_lifecycle_lines_are_keepalives() {
    for (name, line) in [
        (ReaderName::Claude, r#"{"type":"tool_progress","heartbeat":true,"parent_tool_use_id":"toolu_1"}"#),
        (ReaderName::Claude, r#"{"type":"system","subtype":"init"}"#),
        (ReaderName::Claude, r#"{"type":"system","subtype":"task_progress","subagent_type":"x"}"#),
        (ReaderName::Claude, r#"{"type":"user","message":{"content":"echo"},"isReplay":true}"#),
        (ReaderName::Codex, r#"{"type":"turn.started"}"#),
        (ReaderName::Opencode, r#"{"type":"step_start","part":{"type":"step-start"}}"#),
        (ReaderName::Opencode, r#"{"type":"text","part":{"text":"go on","synthetic":true}}"#),
        (ReaderName::Gemini, r#"{"type":"init"}"#),
        (ReaderName::Gemini, r#"{"type":"message","role":"user","content":"the prompt"}"#),
    ] {
        assert_eq!(read(name, &[line]), [Sign::Keepalive], "{name}: {line}");
    }
}

#[test]
fn codex_that_waits_forever_for_the_network_shows_no_progress_and_no_error() {
    let signs = replayed(ReaderName::Codex, "dead_server");
    assert_eq!(signs.len(), 15);
    assert!(signs.iter().cloned().all(|sign| (sign.progress(), sign.into_fact()) == (None, None)));
    assert!(signs.iter().filter(|sign| matches!(sign, Sign::Retrying { .. })).count() > 10);
}

#[test]
fn codex_that_gives_up_has_one_error_and_a_failed_result() {
    let totals = totals(replayed(ReaderName::Codex, "auth_error"));
    assert_eq!(totals.errors, 1, "retries are not errors");
    let result = totals.result.expect("the turn failed");
    assert_eq!((result.is_error, result.api_status), (true, Some(401)));
}

#[test]
fn opencode_that_loops_over_a_full_context_fails_at_its_last_error() {
    let totals = totals(replayed(ReaderName::Opencode, "bad_request"));
    assert!(totals.errors > 30);
    let lines = recorded("opencode", "bad_request");
    let error = lines.iter().position(|line| line.contains("ContextOverflowError")).expect("it has them");
    let until: Vec<&str> = lines[..=error].iter().map(String::as_str).collect();
    assert!(result(ReaderName::Opencode, &until).expect("an error is an end").is_error);
}

#[test]
fn opencode_that_ends_without_a_last_step_has_no_result() {
    let step = |reason: &str| {
        format!(
            r#"{{"type":"step_finish","part":{{"reason":"{reason}","cost":0.5,"tokens":{{"input":2,"output":1,"reasoning":0,"cache":{{"read":4,"write":0}}}}}}}}"#
        )
    };
    let text = r#"{"type":"text","part":{"text":"bye"}}"#;
    assert_eq!(result(ReaderName::Opencode, &[text, &step("tool-calls")]), None, "a refused permission");
    assert_eq!(result(ReaderName::Opencode, &[text]), None);
    let whole = totals(read(ReaderName::Opencode, &[&step("tool-calls"), text, &step("stop")]));
    assert_eq!(whole.result, Some(AgentResult::new("bye", false)));
    assert_eq!((whole.tokens, whole.cost_usd), (Some(14), Some(1.0)));
}

#[test]
fn gemini_stopped_by_its_loop_guard_succeeds_with_an_error() {
    let totals = totals(replayed(ReaderName::Gemini, "tool_errors"));
    assert_eq!(totals.errors, 1);
    assert_eq!(totals.last_error.as_deref(), Some("Loop detected, stopping execution"));
    assert!(!totals.result.expect("a result").is_error);
}

#[test]
fn gemini_reports_the_api_status_inside_a_text() {
    let result =
        totals(replayed(ReaderName::Gemini, "overloaded_long")).result.expect("the session has a result");
    assert_eq!((result.is_error, result.api_status), (true, Some(529)));
}

#[test]
fn a_claude_subagent_is_neither_a_message_nor_a_tool() {
    let signs = replayed(ReaderName::Claude, "subagent");
    let of = |wanted: fn(&Sign) -> bool| signs.iter().filter(|sign| wanted(sign)).count();
    assert_eq!(of(|s| matches!(s, Sign::SubagentStarted { id } if id == "a2f479a7f0d07fc83")), 1);
    // 2 texts, 2 calls, 2 results, and 2 increases of its usage.
    assert_eq!(of(|s| matches!(s, Sign::SubagentProgress { id } if id == "a2f479a7f0d07fc83")), 8);
    assert_eq!(of(|s| matches!(s, Sign::SubagentEnded { id } if id == "a2f479a7f0d07fc83")), 1);
    let totals = totals(signs);
    assert_eq!((totals.messages, totals.tools), (3, 1));
}

#[test]
fn a_parent_key_after_the_message_still_marks_a_subagent() {
    let line = r#"{"message":{"content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"1","name":"Bash"}]},"parent_tool_use_id":"toolu_1","type":"assistant"}"#;
    let id = || "toolu_1".to_owned();
    assert_eq!(claude(&[line]), [Sign::SubagentStarted { id: id() }, Sign::SubagentProgress { id: id() }]);
    let own = line.replace(r#""toolu_1""#, "null");
    let signs = claude(&[&own]);
    assert!(matches!(&signs[..], [Sign::Message, Sign::ToolStarted(tool)] if tool.id == "1"), "{signs:?}");
    let users = own.replace(r#""assistant""#, r#""user""#);
    assert_eq!(claude(&[&users]), [Sign::Keepalive], "the user's words are not the agent's");
}

#[test]
fn partial_messages_are_text_until_the_message_is_complete() {
    let signs = replayed(ReaderName::Claude, "slow_partial");
    assert_eq!(signs.iter().filter(|sign| **sign == Sign::Text).count(), 3);
    assert_eq!(totals(signs).messages, 1);
}

#[test]
fn an_empty_or_blank_text_is_not_a_message() {
    for text in ["", " ", r"\n\n", r" \t "] {
        let line =
            format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#);
        assert_eq!(claude(&[&line]), [Sign::Keepalive], "{text:?}");
        let line = format!(
            r#"{{"type":"item.completed","item":{{"id":"1","type":"agent_message","text":"{text}"}}}}"#
        );
        assert_eq!(read(ReaderName::Codex, &[&line]), [Sign::Keepalive], "{text:?}");
    }
}

#[test]
fn a_tool_whose_result_is_too_long_for_a_line_still_ends() {
    for (name, beginning, id) in [
        (
            ReaderName::Claude,
            r#"{"type":"user","message":{"content":[{"tool_use_id":"t1","type":"tool_result","content":[{"type":"image","data":"AAAA"#,
            "t1",
        ),
        (
            ReaderName::Codex,
            r#"{"type":"item.completed","item":{"id":"i1","type":"command_execution","aggregated_output":"AAAA"#,
            "i1",
        ),
        (
            ReaderName::Opencode,
            r#"{"type":"tool_use","part":{"tool":"read","callID":"c1","state":{"status":"completed","output":"AAAA"#,
            "c1",
        ),
        (
            ReaderName::Gemini,
            r#"{"type":"tool_result","tool_id":"g1","status":"success","output":"AAAA"#,
            "g1",
        ),
    ] {
        let (mut reader, mut signs) = (Reader::for_name(name), Vec::new());
        reader.read_line(dogwatch_agents::Line { bytes: beginning.as_bytes(), cut: true }, &mut signs);
        let ends = |sign: &Sign| matches!(sign, Sign::ToolEnded { id: of, ok: true, .. } if of == id);
        assert!(signs.last().is_some_and(ends), "{name}: {signs:?}");
        let mut nothing = Vec::new();
        reader.read(beginning.as_bytes(), &mut nothing);
        assert_eq!(nothing, [], "{name}: truncated by accident, not cut by the splitter");
    }
}

// promise: 4
#[test]
fn nesting_of_any_depth_is_read_without_a_stack() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let line = format!(
        r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"1","name":"X","input":{deep}}}]}}}}"#
    );
    assert!(matches!(&claude(&[&line])[..], [Sign::ToolStarted(tool)] if tool.name == "X"));
    let open = r#"{"type":"assistant","message":"#.to_owned() + &r#"{"content":["#.repeat(100_000);
    assert_eq!(claude(&[&open]), []);
}

// promise: 4
#[test]
fn the_content_of_a_sign_is_bounded() {
    let long = "x".repeat(3_000_000);
    let lines = [
        format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"{long}","name":"{long}"}}]}}}}"#
        ),
        format!(
            r#"{{"type":"assistant","error":"e","message":{{"content":[{{"type":"text","text":"{long}"}}]}}}}"#
        ),
        format!(r#"{{"type":"result","result":"{long}END"}}"#),
    ];
    for sign in lines.iter().flat_map(|line| claude(&[line])) {
        match sign {
            Sign::ToolStarted(tool) => assert_eq!((tool.id.len(), tool.name.len()), (256, 256)),
            Sign::Error { text, fingerprint } => assert!(text.len() <= 4096 && fingerprint.len() <= 400),
            Sign::Result(result) => {
                assert_eq!(result.text.len(), AgentResult::MAX_TEXT);
                assert!(result.text.ends_with("END"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_lines_of_a_plain_agent_are_messages_and_the_last_ones_its_result() {
    let signs = read(ReaderName::Plain, &["one", "", "  ", "two"]);
    assert_eq!(signs[..2], [Sign::Message, Sign::Message]);
    assert_eq!(signs[2], Sign::Result(AgentResult::new("one\n\n  \ntwo\n", false)));
    let many: Vec<String> = (0..50_000).map(|n| format!("line {n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let totals = totals(read(ReaderName::Plain, &many));
    assert_eq!(totals.messages, 50_000);
    let text = totals.result.expect("a plain agent always has one").text;
    assert!(text.len() <= AgentResult::MAX_TEXT && text.ends_with("line 49998\nline 49999\n"));
}

#[test]
fn stderr_is_progress_only_for_plain_agents() {
    let stderr = |name: ReaderName, line: &str| {
        let mut signs = Vec::new();
        Reader::for_name(name).read_stderr(line.as_bytes(), &mut signs);
        signs
    };
    assert_eq!(stderr(ReaderName::Plain, "warning: x"), [Sign::Message]);
    assert_eq!(stderr(ReaderName::Plain, "  "), []);
    assert_eq!(
        stderr(ReaderName::Gemini, "Attempt 1 failed: rate limit. Retrying after 5886ms..."),
        [Sign::Retrying { status: None, delay: None }]
    );
    assert_eq!(stderr(ReaderName::Codex, "Reading additional input from stdin..."), [Sign::Keepalive]);
    let refused = "2026-11-15T18:34:58Z ERROR codex_core::tools::router: error=patch rejected";
    assert_eq!(stderr(ReaderName::Codex, refused), [Sign::error(refused)]);
}

#[test]
fn delegating_calls_are_detected_by_name() {
    let codex = replayed(ReaderName::Codex, "subagent");
    let names = codex.iter().filter_map(|sign| match sign {
        Sign::ToolStarted(tool) => Some(tool.name.as_str()),
        _ => None,
    });
    assert!(
        names.clone().count() == 2 && names.into_iter().all(|name| tools::delegates(ReaderName::Codex, name))
    );
    assert!(tools::delegates(ReaderName::Claude, "Agent") && !tools::delegates(ReaderName::Claude, "Bash"));
    assert!(tools::is_mcp(ReaderName::Claude, "mcp__probe__heartbeat"));
    let mcp = replayed(ReaderName::Codex, "mcp");
    let heartbeat =
        |s: &Sign| matches!(s, Sign::ToolStarted(t) if t.mcp && t.name == "mcp__probe__heartbeat");
    assert!(mcp.iter().any(heartbeat));
}
