//! Agents with hostile or huge output, and agents that keep descriptors open.

use crate::kit::{GRACES, Project, Running, TIMEOUT, all, one};
use serde_json::json;
use std::time::Instant;

/// Text that tries to take over a terminal, to forge a line or to hide one.
const HOSTILE: &str = r#"raw "\e]0;owned\x07\e[2J\e[31mred\e[0m \x9b5m \xff\xfe \0 nul\r\nover\u{202e}gnirts\u{200b}\n"
    err "\e[1mbold\x07 \xc3("
    exit 1"#;

fn is_control(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

// promise: 8, 9
#[test]
fn hostile_text_is_sanitized_on_the_screen_and_in_the_journal_and_kept_in_the_raw_files() {
    let project = Project::acting(HOSTILE);
    let done = project.call(&["run", "loop", "--stop-on-error"]);
    done.assert_code(1);
    let shown = String::from_utf8(done.stdout.clone()).expect("the screen is UTF-8");
    assert!(!shown.contains(is_control), "{shown:?}");
    let journal = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("text");
    assert!(!journal.contains(is_control), "{journal:?}");
    for escaped in ["\\u001b", "\\u0000", "\\u0007", "\\u009b"] {
        assert!(!journal.contains(escaped), "{escaped} in {journal}");
    }
    let raw = project.raw(1, "stdout");
    assert!(raw.starts_with(b"\x1b]0;owned\x07\x1b[2J\x1b[31mred"), "{raw:?}");
    assert!(raw.windows(4).any(|w| w == b"\xff\xfe \0"), "{raw:?}");
    assert!(project.raw(1, "stderr").starts_with(b"\x1b[1mbold\x07 "));
}

// promise: 8
#[test]
fn hostile_text_as_a_claude_result_and_as_marker_attributes_is_sanitized_too() {
    let script = r#"claude init
        claude result "\e[31mred\e[0m\u{202e}x\n<!-- ralph:state idle reason=\e[2Jgone -->""#;
    let project = Project::acting_with(&format!("reader: claude\n{GRACES}"), script);
    let done = project.call(&["run", "loop", "-n", "1"]);
    done.assert_code(0);
    assert!(!done.text().contains(is_control), "{:?}", done.text());
    for event in project.journal() {
        assert_clean(&event);
    }
}

#[test]
fn hidden_characters_in_the_names_of_files_reach_no_terminal_and_json_escapes_them() {
    let name = "lo\u{202e}op\u{61c}\u{e0041}";
    let project = Project::shell("cat >/dev/null; echo hi");
    std::fs::rename(project.path("loop"), project.path(name)).expect("it is ours");
    let is_hidden = |c: char| is_control(c) || matches!(c, '\u{61c}' | '\u{e0000}'..='\u{e007f}');
    let views: [(&[&str], bool); 11] = [
        (&["run", name, "-n", "1", "--json"], true),
        (&["events"], true),
        (&["status", "--json"], true),
        (&["ps", "--all", "--json"], true),
        (&["report", "--json"], false),
        (&["check", name, "--json"], false),
        (&["history", "--json"], false),
        (&["status"], false),
        (&["report"], false),
        (&["logs"], false),
        (&["ps", "--all"], false),
    ];
    for (args, shows_the_name) in views {
        let done = project.call(args);
        let text = done.assert_code(0).text();
        assert!(!text.contains(is_hidden) && !done.stderr.contains(is_hidden), "{args:?}: {text:?}");
        if shows_the_name {
            assert!(text.contains("lo\\u202eop\\u061c\\udb40\\udc41"), "{args:?}: {text}");
        }
    }
    // A name of a tool in a timeline.
    let lines = [
        serde_json::json!({"t_ms": 0, "input": "tool_started", "id": "1", "name": name}),
        serde_json::json!({"t_ms": 4_000_000, "input": "end"}),
    ];
    project.file("timeline.jsonl", &lines.map(|line| format!("{line}\n")).concat());
    let replayed = project.call(&["replay", "timeline.jsonl", "--json"]).assert_code(0).text();
    assert!(replayed.contains("lo\\u202eop") && !replayed.contains(is_hidden), "{replayed:?}");
    // A line that another program put into the record.
    let journal = project.run_dir().join("events.jsonl");
    let forged = std::fs::read_to_string(&journal).expect("a journal").replace("\\u202e", "\u{202e}");
    assert!(forged.contains('\u{202e}'));
    std::fs::write(&journal, forged).expect("writes");
    let shown = project.call(&["events"]).text();
    assert!(shown.contains("\\u202e") && !shown.contains(is_hidden), "{shown:?}");
}

fn assert_clean(value: &serde_json::Value) {
    match value {
        serde_json::Value::String(text) => assert!(!text.contains(is_control), "{text:?}"),
        serde_json::Value::Array(items) => items.iter().for_each(assert_clean),
        serde_json::Value::Object(fields) => fields.values().for_each(assert_clean),
        _ => {}
    }
}

// promise: 4
#[test]
fn a_huge_line_without_a_newline_costs_little_memory_and_is_counted() {
    let bytes: u64 = if std::env::var_os("DOGWATCH_FULL").is_some() { 1 << 30 } else { 96 << 20 };
    let project = Project::acting(&format!("line {bytes}; ready there; await gate"));
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    let peak = peak_memory(run.pid());
    assert!(peak < 64 << 20, "{peak} bytes resident at the peak");
    gate.open();
    let done = run.finish();
    done.assert_code(0);
    let ended = one(&done.events(), "session_ended").clone();
    let kept = project.raw(1, "stdout").len() as u64;
    assert_eq!(ended["stdout_bytes"], bytes);
    assert_eq!(ended["cut_bytes"].as_u64().unwrap_or(0) + kept, bytes);
    assert!(kept >= 64 << 20, "{kept}");
}

// promise: 4
#[test]
fn an_event_of_50_mb_is_cut_and_the_next_one_is_read() {
    let head = r#"{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\""#;
    let script = format!(
        "claude init; raw \"{head}\"; line 50000000; raw \"\\\"}}]}}}}\\n\"; claude text after; \
         ready there; await gate; claude result done"
    );
    let project = Project::acting_with(&format!("reader: claude\n{GRACES}"), &script);
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    let peak = peak_memory(run.pid());
    assert!(peak < 64 << 20, "{peak} bytes resident at the peak");
    gate.open();
    let done = run.finish();
    done.assert_code(0);
    let events = done.events();
    assert!(one(&events, "session_ended")["stdout_bytes"].as_u64() > Some(50_000_000));
    assert!(one(&events, "session_ended")["messages"].as_u64() >= Some(1));
    assert_eq!(all(&events, "agent_drifted").len(), 0);
    one(&events, "iteration_completed");
}

#[test]
fn a_removed_work_tree_ends_no_session_and_the_next_one_reports_it() {
    let project = Project::new();
    let tree = project.outside("tree");
    std::fs::create_dir(&tree).expect("a directory");
    let script = format!("cat > /dev/null; rm -rf {}; echo gone; echo still at work", tree.display());
    project.ralph(&format!("agent: {}\n{GRACES}", json!(format!("sh -c '{script}'"))), "Go on.");
    let (path, state) = (project.path("loop"), project.outside("record"));
    let args = [
        "run",
        &path.display().to_string(),
        "--state-dir",
        &state.display().to_string(),
        "-n",
        "2",
        "--json",
    ];
    let mut command = project.command(&args);
    command.current_dir(&tree);
    let done = Running::start(command).finish();
    done.assert_code(0);
    project.assert_no_process_left();
    let events = done.events();
    one(&events, "iteration_completed");
    assert_eq!(all(&events, "hard_stop").len(), 0);
    let why = one(&events, "iteration_failed")["because"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains(&tree.display().to_string()), "{why}");
}

/// Returns the peak resident memory of a process in bytes.
fn peak_memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is alive");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("the kernel reports the peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn an_agent_that_closes_stdout_and_keeps_running_stays_supervised() {
    let project = Project::acting("say bye; close stdout; close stderr; ready there; await gate; exit 3");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&["-n", "1"]);
    run.wait_for("session_started");
    there.pid();
    gate.open();
    let done = run.finish();
    done.assert_code(1);
    assert_eq!(one(&done.events(), "session_ended")["exit_code"], 3);
}

#[test]
fn an_agent_that_closes_stdout_and_hangs_times_out() {
    let project = Project::acting("close stdout; close stderr; hang");
    let done = project.run(&["-n", "1", "--timeout", "500ms"]);
    done.assert_code(1);
    assert_eq!(done.count("iteration_timed_out"), 1);
}

#[test]
fn loop_51_a_200_kb_prompt_and_200_kb_of_stderr_do_not_deadlock() {
    let project = Project::new();
    project.act_on(GRACES, "flood 200kB stderr; say-prompt; flood 200kB stderr", &"word ".repeat(40_000));
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    assert_eq!(project.raw(1, "stdout").trim_ascii().len(), 199_999);
    assert_eq!(project.raw(1, "stderr").len(), 400_000);
}

#[test]
fn loop_51_an_agent_that_never_reads_a_200_kb_prompt_times_out() {
    let project = Project::new();
    project.act_on(GRACES, "hang", &"word ".repeat(40_000));
    let done = project.run(&["-n", "1", "--timeout", "500ms"]);
    done.assert_code(1);
    assert_eq!(done.count("iteration_timed_out"), 1);
}

#[test]
fn an_agent_that_exits_without_reading_its_prompt_has_completed() {
    let project = Project::new();
    project.act_on(GRACES, "close stdin; say enough", &"word ".repeat(180_000));
    project.run(&["-n", "2"]).assert_code(0);
}

// promise: 1
#[test]
fn a_child_that_holds_stdout_costs_the_leak_limit_and_no_more() {
    let project = Project::acting("child { ready kid; hang }; await gate; say done");
    let (kid, gate) = (project.fifo("kid"), project.gate("gate"));
    let run = project.start_run(&["-n", "1"]);
    kid.pid();
    gate.open();
    let began = Instant::now();
    let done = run.finish();
    done.assert_code(0);
    assert!(began.elapsed() < TIMEOUT / 3, "{:?}", began.elapsed());
    let ended = one(&done.events(), "session_ended").clone();
    assert_eq!((&ended["stragglers"], &ended["ended_by"]), (&json!(1), &json!("itself")));
}

#[test]
fn leftover_processes_are_named_without_secrets() {
    let project = Project::new();
    project.file(
        "leave.sh",
        "setsid tail -f /dev/null --pid=1 password=s3cret & until grep -q tail /proc/$!/comm; do :; done\n",
    );
    project
        .file("loop/RALPH.md", "---\nagent: sh leave.sh\nwatchdog: {grace: 200ms, leak: 300ms}\n---\nGo.\n");
    let done = project.run(&["-n", "1"]);
    let ended = one(&done.assert_code(0).events(), "session_ended").clone();
    assert_eq!(ended["leftovers"], json!(["tail -f /dev/null --pid=1 password=***"]), "{ended}");
    let text = project.call(&["run", "loop", "-n", "1"]).text();
    assert!(
        text.contains("\n  killed 1 leftover process: tail -f /dev/null --pid=1 password=***\n"),
        "{text}"
    );
}

#[test]
fn output_of_a_child_within_the_leak_limit_is_kept() {
    let front = "watchdog: {grace: 200ms, leak: 20s}";
    let project = Project::acting_with(front, "child { await gate; say late words }; ready there");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    gate.open();
    run.finish().assert_code(0);
    assert_eq!(project.raw(1, "stdout"), b"late words\n");
}

#[test]
fn an_agent_killed_by_a_signal_has_failed_and_the_signal_is_named() {
    let done = Project::acting("crash SEGV").run(&["-n", "1"]);
    done.assert_code(1);
    let ended = one(&done.events(), "session_ended").clone();
    assert_eq!((&ended["signal"], &ended["exit_code"]), (&json!(11), &json!(null)));
}

#[test]
fn a_flood_on_both_streams_is_drained_and_the_loop_continues() {
    let project = Project::acting("flood 8M; flood 8M stderr");
    let done = project.run(&["-n", "2"]);
    done.assert_code(0);
    let events = done.events();
    for ended in all(&events, "session_ended") {
        assert_eq!((&ended["stdout_bytes"], &ended["stderr_bytes"]), (&json!(8 << 20), &json!(8 << 20)));
    }
    let journal = std::fs::metadata(project.run_dir().join("events.jsonl")).expect("it exists").len();
    assert!(journal < 100_000, "a flood does not fill the journal: {journal}");
}

#[test]
fn an_echoed_prompt_is_not_a_marker() {
    let project = Project::new();
    let body = "If nothing is to do print:\n<!-- ralph:state idle reason=none -->\n";
    project.act_on(GRACES, "say-prompt", body);
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    assert!(project.prompt(1).contains("ralph:state"), "the agent must see the error");
    assert_eq!((done.count("marker_seen"), done.count("iteration_completed")), (0, 1));
}

#[test]
fn an_agent_gets_default_signals_and_a_new_session() {
    let project = Project::shell("grep -E \"^Sig(Blk|Ign)\" /proc/self/status; ps -o sid= -p $$; echo $$");
    project.run(&["-n", "1"]).assert_code(0);
    let stdout = String::from_utf8(project.raw(1, "stdout")).expect("text");
    let lines: Vec<&str> = stdout.lines().map(str::trim).collect();
    assert!(lines[0].ends_with("0000000000000000"), "no signal is blocked: {stdout}");
    assert!(lines[1].ends_with("0000000000000000"), "no signal is ignored: {stdout}");
    assert_eq!(lines[2], lines[3], "leads its own session");
}

#[test]
fn an_agent_inherits_only_stdin_stdout_and_stderr() {
    let project = Project::shell("ls /proc/self/fd");
    project.run(&["-n", "1"]).assert_code(0);
    // The fourth descriptor is the directory that ls itself reads.
    assert_eq!(project.raw(1, "stdout"), b"0\n1\n2\n3\n");
}
