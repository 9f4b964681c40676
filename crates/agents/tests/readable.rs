//! Renders the recordings of all agents, and text with control sequences.
use dogwatch_agents::readable::{MAX_EVENT, Renderer};
use dogwatch_core::record::event::Usage;
use dogwatch_core::settings::ReaderName;
use serde_json::Value;
use std::path::Path;

/// Renders a recording that is fed in chunks of the given size.
fn shown_in(reader: ReaderName, name: &str, chunk: usize) -> Vec<String> {
    let file = format!("../../fixtures/{reader}/{name}.jsonl");
    let recorded =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("is there");
    let line = |l: &str| serde_json::from_str::<Value>(l).expect("a line of a recording");
    let stdout: String =
        recorded.lines().map(|l| format!("{}\n", line(l)["line"].as_str().unwrap_or(""))).collect();
    let project = project();
    let mut renderer = Renderer::new(reader, &project);
    let mut lines = Vec::new();
    for piece in stdout.as_bytes().chunks(chunk) {
        lines.extend(renderer.feed(piece));
    }
    lines.extend(renderer.finish());
    lines.into_iter().map(|line| line.text.replace(&project, "PROJECT")).collect()
}

/// Returns the directory that all recordings name as their work directory.
fn project() -> String {
    ["", "home", "dev", "project"].join("/")
}

fn shown(reader: ReaderName, name: &str) -> Vec<String> {
    shown_in(reader, name, 64 * 1024)
}

fn rendered(reader: ReaderName, stream: &str) -> Vec<String> {
    let mut renderer = Renderer::new(reader, "/w");
    let mut lines = renderer.feed(stream.as_bytes());
    lines.extend(renderer.finish());
    lines.into_iter().map(|line| line.text).collect()
}

#[test]
fn claude_output_becomes_messages_tools_results_and_usage() {
    assert_eq!(
        shown(ReaderName::Claude, "work"),
        [
            "· model claude-sonnet-4-5",
            "I will write two files.",
            "→ Write: a.txt",
            "  ✓ File created successfully at: PROJECT/a.txt (file state is current in your context — no need to Read it back…",
            "→ Write: b.py",
            "  ✓ File created successfully at: PROJECT/b.py (file state is current in your context — no need to Read it back)",
            "Now run it, and list the files in parallel.",
            "→ Bash: python3 b.py",
            "→ Bash: ls -la; echo to-stderr >&2",
            "  ✓ (python3 b.py) beta 2",
            "  ✓ (ls -la; echo to-stderr >&2) total 36 (+7 lines)",
            "· All good.",
            "Both files exist and b.py printed its line.",
            "<!-- ralph:state idle -->",
            "= done: 5 turns, 0.5s, 86492 tokens, $0.26",
        ]
    );
}

#[test]
fn a_subagent_of_claude_is_indented() {
    let shown = shown(ReaderName::Claude, "subagent_foreground");
    assert_eq!(
        shown[1..7],
        [
            "I delegate.",
            "→ Agent: look at files",
            "    → Bash: ls -la; sleep 3",
            "      ✓ total 24 (+4 lines)",
            "    → Bash: echo from-the-subagent; sleep 3",
            "      ✓ from-the-subagent",
        ]
    );
}

#[test]
fn an_api_error_that_arrives_twice_is_shown_once() {
    let shown = shown(ReaderName::Claude, "overloaded_maxretries2");
    assert_eq!(
        shown[1..3],
        [
            "· API error 529 (overloaded), retry 1 of 2 in 0.6s",
            "· API error 529 (overloaded), retry 2 of 2 in 1.0s"
        ]
    );
    assert!(shown[3].starts_with("✗ API Error: 529 Overloaded."), "{shown:?}");
    assert_eq!(shown.len(), 4);
    assert_eq!(self::shown(ReaderName::Codex, "auth_error").iter().filter(|l| l.starts_with('✗')).count(), 1);
    assert_eq!(self::shown(ReaderName::Opencode, "auth_error"), ["✗ invalid api key"]);
    assert!(self::shown(ReaderName::Gemini, "auth_error")[1].starts_with("✗ [API Error: "));
}

#[test]
fn partial_messages_are_not_shown_twice() {
    assert_eq!(
        shown(ReaderName::Claude, "slow_partial")[1..3],
        ["Piece one. Piece two. Piece three.", "<!-- ralph:state idle -->"]
    );
}

#[test]
fn codex_shows_commands_without_the_shell_around_them() {
    assert_eq!(
        shown(ReaderName::Codex, "work"),
        [
            "I will write two files.",
            "→ files: a.txt",
            "  ✓",
            "→ files: b.py",
            "  ✓",
            "Now run it, and list the files in parallel.",
            "→ shell: ls -la; echo to-stderr >&2",
            "  ✓ total 36 (+7 lines)",
            "→ shell: python3 b.py",
            "  ✓ beta 2",
            "· All good.",
            "Both files exist and b.py printed its line.",
            "<!-- ralph:state idle -->",
            "= done: 39339 tokens",
        ]
    );
    assert_eq!(
        shown(ReaderName::Codex, "mcp")[1..3],
        ["→ probe.heartbeat: working on it", "  ✓ heartbeat accepted: working on it"]
    );
}

#[test]
fn a_failed_command_is_marked_if_the_agent_gives_its_exit_code() {
    for reader in [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode] {
        let shown = shown(reader, "tool_errors");
        let failed = shown.iter().filter(|l| l.starts_with("  ✗ ")).count();
        assert_eq!(failed, 6, "{reader}: {shown:#?}");
    }
    for (reader, line) in [(ReaderName::Claude, 3), (ReaderName::Codex, 2), (ReaderName::Opencode, 2)] {
        let wanted = "  ✗ exit 3: cat: /nonexistent/file: No such file or directory";
        assert_eq!(shown(reader, "tool_errors")[line], wanted, "{reader}");
    }
}

#[test]
fn the_usage_of_opencode_is_summed_over_its_steps() {
    let shown = shown(ReaderName::Opencode, "work");
    assert_eq!(shown[1..3], ["→ write: a.txt", "  ✓ Wrote file successfully."]);
    assert_eq!(shown.last().map(String::as_str), Some("= done: 31587 tokens, $0.10"));
}

#[test]
fn the_pieces_of_gemini_messages_are_joined() {
    assert_eq!(
        shown(ReaderName::Gemini, "plain"),
        [
            "· model gemini-2.5-pro",
            "Hello. There is nothing left to do.",
            "<!-- ralph:state idle -->",
            "= done: 12237 tokens"
        ]
    );
    let work = shown(ReaderName::Gemini, "work");
    assert_eq!(work[6], "Now run it, and list the files in parallel.");
    assert_eq!(work[9], "  ✓ (python3 b.py) beta 2");
}

#[test]
fn chunk_sizes_do_not_change_the_result() {
    for reader in [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini] {
        assert_eq!(shown_in(reader, "work", 7), shown(reader, "work"));
    }
}

// promise: 8
#[test]
fn no_agent_gets_a_control_character_onto_the_screen() {
    // The escaped JSON is harmless. The decoded text would control the terminal.
    let evil = r"\u001b]0;title\u0007\u001b[2Jwiped\u009b31m\r\u202egnp.exe\u0000";
    let streams = [
        (ReaderName::Plain, "a\u{1b}[2Jb\u{7}\u{9b}31m\u{202e}c\n".to_owned()),
        (ReaderName::Claude, format!(r#"{{"type":"system","subtype":"init","model":"{evil}"}}"#)),
        (
            ReaderName::Claude,
            format!(
                r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{evil}\n{evil}"}},{{"type":"tool_use","id":"1","name":"{evil}","input":{{"command":"{evil}"}}}},{{"type":"thinking","thinking":"{evil}"}}]}}}}
{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"1","is_error":true,"content":"{evil}"}}]}}}}
{{"type":"result","is_error":true,"result":"{evil}"}}"#
            ),
        ),
        (ReaderName::Codex, format!(r#"{{"type":"error","message":"{evil}"}}"#)),
        (
            ReaderName::Codex,
            format!(
                r#"{{"type":"item.completed","item":{{"id":"{evil}","type":"mcp_tool_call","server":"{evil}","tool":"{evil}","arguments":{{"{evil}":["{evil}"]}},"error":{{"message":"{evil}"}},"status":"failed"}}}}"#
            ),
        ),
        (ReaderName::Opencode, format!(r#"{{"type":"text","part":{{"text":"{evil}"}}}}"#)),
        (
            ReaderName::Gemini,
            r#"{"type":"message","role":"assistant","content":"x\u001b"}
{"type":"message","role":"assistant","content":"[2Jy\u001b]0;"}
{"type":"message","role":"assistant","content":"title\u0007z"}"#
                .to_owned(),
        ),
    ];
    for (reader, stream) in streams {
        let lines = rendered(reader, &stream);
        assert!(!lines.is_empty(), "{reader}");
        for line in lines {
            assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{reader}: {line:?}");
        }
    }
    assert_eq!(
        rendered(
            ReaderName::Gemini,
            "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"x\\u001b\"}\n\
             {\"type\":\"message\",\"role\":\"assistant\",\"content\":\"[2Jy\"}\n"
        ),
        ["xy"],
        "an escape sequence in two pieces is removed as one"
    );
}

#[test]
fn unreadable_lines_are_skipped() {
    for reader in [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini] {
        let deep = "[".repeat(100_000);
        let rubbish = format!(
            "not json\n{{\n\n[1,2]\n\"text\"\nnull\n{{\"type\":7}}\n{{\"type\":\"later\"}}\n\
             {{\"type\":\"assistant\"}}\n{{\"type\":\"item.completed\"}}\n{deep}\n\u{fffd}\n"
        );
        assert_eq!(rendered(reader, &rubbish), [""; 0], "{reader}");
    }
}

// promise: 4
#[test]
fn lines_are_clipped_and_a_line_over_the_limit_becomes_a_note() {
    let long = "x".repeat(100_000);
    let plain = rendered(ReaderName::Plain, &format!("{long}\nnext"));
    assert_eq!((plain[0].len(), plain[1].as_str()), (4_000 + "…".len(), "next"));
    let said = |text: &str| format!(r#"{{"type":"text","part":{{"text":"{text}"}}}}"#);
    assert_eq!(rendered(ReaderName::Opencode, &said(&long))[0].len(), 4_000 + "…".len());
    let monster = said(&"x".repeat(2 * MAX_EVENT));
    let shown = rendered(ReaderName::Opencode, &format!("{monster}\n{}", said("after")));
    assert_eq!(shown, ["· a line longer than 1 MiB is not shown; --raw shows its start", "after"]);
}

#[test]
fn a_progress_bar_shows_only_its_last_state() {
    assert_eq!(rendered(ReaderName::Plain, "10%\r50%\r100%\r\nok\r\n\n  in\n"), ["100%", "ok", "", "  in"]);
}

#[test]
fn a_call_is_shown_whatever_its_arguments_are() {
    let call = |input: &str| {
        let event = format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"1","name":"X","input":{input}}}]}}}}"#
        );
        rendered(ReaderName::Claude, &event).join("|")
    };
    assert_eq!(call("{}"), "→ X");
    assert_eq!(call("null"), "→ X");
    assert_eq!(call(r#"{"n":3}"#), r#"→ X: {"n":3}"#);
    assert_eq!(call(r#"{"n":3,"thing":"it"}"#), "→ X: it");
    assert_eq!(call(r#"{"file_path":"/w/src/a.rs"}"#), "→ X: src/a.rs");
    assert_eq!(call(r#"{"command":"make\nmake install"}"#), "→ X: make");
}

#[test]
fn a_resumed_session_shows_only_its_own_usage() {
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s","total_cost_usd":0.75,"usage":{"input_tokens":3000,"output_tokens":150}}"#;
    let charged = Usage { tokens: Some(1_050), cost_usd: Some(0.25), ..Usage::default() };
    for (session, done) in [("s", "= done: 2100 tokens, $0.50"), ("other", "= done: 3150 tokens, $0.75")] {
        let mut renderer =
            Renderer::for_session(ReaderName::Claude, "/w", Some((session.to_owned(), charged)));
        let lines = renderer.feed(format!("{result}\n").as_bytes());
        assert_eq!(lines.last().map(|line| line.text.as_str()), Some(done), "{session}");
    }
}

#[test]
fn notes_of_claude_about_itself_are_not_shown() {
    for name in ["sigint", "hang_sigint"] {
        let lines = shown(ReaderName::Claude, name);
        assert!(!lines.iter().any(|line| line.contains("diagnostic")), "{lines:?}");
        assert_eq!(lines.last().map(String::as_str), Some("✗ error during execution"), "{lines:?}");
    }
}
