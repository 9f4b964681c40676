//! The sentences for events.

use dogwatch_core::record::event::{EndingKind, Event, WaitWhy};
use dogwatch_core::record::words::{ASLEEP, DRIFTED, MAX_SENTENCE, Style, Weight, ending, sentence, wait};
use dogwatch_core::run::caller::Source;

fn event(fields: &str) -> Event {
    let place = r#""v":1,"seq":1,"at":"2026-01-05T00:00:00.000Z","awake_ms":0,"boot_ms":0"#;
    let json = format!("{{{place},\"node\":\"api\",\"iteration\":3,{fields}}}");
    dogwatch_codec::read(json.as_bytes()).unwrap_or_else(|e| panic!("{json}: {e}")).event
}

/// Events with their sentence on the screen of `run` and in a list.
#[test]
fn every_display_gets_its_sentence_from_here() {
    let table: &[(&str, &str, &str)] = &[
        (
            r#""event":"node_transition","from":"running","to":"done","reason":"converged""#,
            "done (converged)",
            "running → done (converged)",
        ),
        (
            r#""event":"iteration_started","cause":"check_failed""#,
            "iteration 3",
            "iteration 3 started (check failed)",
        ),
        (
            r#""event":"command_finished","name":"tests","exit_code":1,"timed_out":false,"duration_s":2.1,"bytes":9"#,
            "command tests exit 1 (2.1s)",
            "=",
        ),
        (r#""event":"prompt_assembled","bytes":3210,"sha256":"x""#, "prompt 3.2 kB", "="),
        (
            r#""event":"session_started","pid":7,"argv":["claude","-p"]"#,
            "session started (pid 7): claude -p",
            "=",
        ),
        (
            r#""event":"observed","channel":"stdout","first_ms":1,"last_ms":2,"count":1,"max_gap_ms":0"#,
            "progress on stdout, 1 time",
            "=",
        ),
        (
            r#""event":"fact","fact":"tool_started","id":"1","name":"Bash","subject":"make test","call":"00ff""#,
            "→ Bash: make test",
            "=",
        ),
        (
            r#""event":"fact","fact":"tool_started","id":"1","name":"mcp__github__search","call":"00ff""#,
            "→ github.search",
            "=",
        ),
        (
            r#""event":"fact","fact":"tool_ended","id":"1","ok":false,"result":"00ff","error":"exit 1""#,
            "a tool failed: exit 1",
            "=",
        ),
        (
            r#""event":"fact","fact":"sampled","children":1,"cpu_ms":1500"#,
            "1 child process, 1.5s of CPU time",
            "=",
        ),
        (r#""event":"needs_human","what":"may I?","until":null"#, "needs human input: may I?", "="),
        (
            r#""event":"needs_human_ended","by":"progress""#,
            "the agent continues; input is no longer needed",
            "=",
        ),
        (
            r#""event":"agent_retrying","status":529,"delay_s":30"#,
            "retrying a request (HTTP 529), next attempt in 30s",
            "=",
        ),
        (r#""event":"agent_drifted""#, DRIFTED, "="),
        (r#""event":"used","tokens":1"#, "used so far: 1 token, cost unknown", "="),
        (
            r#""event":"watchdog_continue","deferred_by":"workspace","evidence_summary":[],"active_channel":null"#,
            "idle timeout deferred by activity on workspace",
            "=",
        ),
        (r#""event":"suspended","for_s":3"#, "suspended for 3s (not counted)", "="),
        (
            r#""event":"marker_seen","state":"idle","attrs":[["reason","no_pending_tasks"]]"#,
            "agent state: idle reason=no_pending_tasks",
            "=",
        ),
        (
            r#""event":"hard_stop","reason":"NO_OUTPUT_DEADLINE","message":"no output for 5m","evidence_summary":[],"active_channel":null,"recoverable":true"#,
            "stopped by the watchdog: no output for 5m [NO_OUTPUT_DEADLINE]",
            "=",
        ),
        (
            r#""event":"session_signalled","step":"interrupt","ended_by":"operator""#,
            "interrupting the agent; Ctrl-C again kills it",
            "interrupting the agent (operator)",
        ),
        (
            r#""event":"agent_reported","kind":"progress","text":"half way","done":1,"total":2"#,
            "progress: half way (1/2)",
            "=",
        ),
        (
            r#""event":"session_ended","exit_code":1,"signal":null,"ended_by":"result_grace","duration_s":5,"messages":1,"tools":2,"said":"bye","stdout_bytes":0,"stderr_bytes":0,"stragglers":1,"leftovers":["git maintenance run"]"#,
            "session ended after 5.0s (exit code 1, ended by result grace): \"bye\"; 1 message, 2 tools; killed 1 leftover process: git maintenance run",
            "=",
        ),
        (
            r#""event":"snapshot_taken","ref":"refs/dogwatch/x","files":1"#,
            "snapshot taken: refs/dogwatch/x",
            "=",
        ),
        (r#""event":"worktree_ready","path":"/w","branch":"b""#, "working in /w on branch b", "="),
        (
            r#""event":"worktree_ready","path":"/w","branch":"b","merged":["ui","db"]"#,
            "working in /w on branch b, with the work of ui, db",
            "=",
        ),
        (
            r#""event":"merge_conflicted","from":"db","files":["a","b"],"policy":"agent""#,
            "merging db conflicts in a, b (the agent resolves it)",
            "=",
        ),
        (
            r#""event":"setup_finished","cmd":"npm ci","rc":1,"duration_s":2"#,
            "setup: npm ci failed (exit code 1) (2.0s)",
            "=",
        ),
        (
            r#""event":"work_committed","branch":"b","commit":"0123456789abcdef","files":2,"skipped":1"#,
            "committed 2 files to branch b (0123456789); left out 1 file (private or too large)",
            "=",
        ),
        (r#""event":"checks_pinned","files":[{"path":"a"}]"#, "pinned 1 file of the checks", "="),
        (r#""event":"checks_started""#, "running checks", "="),
        (
            r#""event":"check_tampered","files":["t.py"],"policy":"warn""#,
            "pinned files changed: t.py (the checks run anyway)",
            "=",
        ),
        (
            r#""event":"node_attempt","duration_s":1,"converged":false,"results":[{"cmd":"make","rc":2,"duration_s":1}]"#,
            "1 of 1 check failed: make",
            "=",
        ),
        (
            r#""event":"iteration_completed","duration_s":46.2,"because":"exit code 0""#,
            "completed in 46.2s",
            "iteration 3 completed in 46.2s (exit code 0)",
        ),
        (
            r#""event":"iteration_idle","duration_s":1,"because":"b","reason":"at_capacity","consecutive":2,"spell_s":1,"skipped":false"#,
            "idle after 1.0s",
            "iteration 3 idle (2nd in a row, at_capacity)",
        ),
        (
            r#""event":"iteration_timed_out","duration_s":5,"because":"ended by the watchdog""#,
            "timed out after 5.0s (watchdog)",
            "iteration 3 timed out after 5.0s (watchdog)",
        ),
        (
            r#""event":"iteration_auth_failed","duration_s":5,"because":"401""#,
            "not logged in after 5.0s (401)",
            "iteration 3 not logged in after 5.0s (401)",
        ),
        (
            r#""event":"recovery_planned","class":"stuck","action":"retry","because":"silent","used":1,"budget":3"#,
            "recovery: retrying with a prompt that explains the failure, 1 of 3",
            "recovery: retrying with a prompt that explains the failure, 1 of 3; cause: silent",
        ),
        (r#""event":"partial_kept","file":"partial.md""#, "partial result kept in partial.md", "="),
        (
            r#""event":"wait_started","why":"delay","delay_s":4,"until":null"#,
            "waiting 4s between iterations",
            "=",
        ),
        (
            r#""event":"wait_started","why":"rate_limit","delay_s":300,"until":null"#,
            "waiting 5m 00s (rate limited)",
            "=",
        ),
        (
            r#""event":"wait_started","why":"asleep","delay_s":null,"until":null"#,
            ASLEEP,
            "asleep until `dogwatch wake`",
        ),
        (r#""event":"wait_ended","by":"api""#, "woken (api)", "="),
        (r#""event":"wait_ended","by":"budget""#, "wait ended (budget)", "="),
        (
            r#""event":"run_slept","reason":"no_pending_tasks","consecutive":8,"spell_s":1,"after":"exit""#,
            "no pending tasks; entering sleep mode after 8 idle iterations",
            "=",
        ),
        (
            r#""event":"wake_remembered","by":"path""#,
            "woken (path) during a session; the next wait will be skipped",
            "=",
        ),
        (r#""event":"paused""#, "pause requested", "="),
        (r#""event":"unpaused""#, "pause ended", "="),
        (r#""event":"told","text":"use tabs""#, "operator message: use tabs", "="),
        (
            r#""event":"told","text":"use tabs","from":"agent""#,
            "message from an agent of another run: use tabs",
            "=",
        ),
        (r#""event":"notice","kind":"stopping","message":"stopping""#, "stopping", "stopping [stopping]"),
        (r#""event":"trouble","kind":"notify","detail":"refused""#, "trouble: refused [notify]", "="),
        (
            r#""event":"notified","key":"ended:1","how":"webhook","ok":false,"detail":"HTTP 500""#,
            "notification failed by webhook: ended:1 (HTTP 500)",
            "=",
        ),
        (
            r#""event":"run_ended","outcome":"clean","reason":"all done","verified":false,"iterations":1,"completed":1,"failed":0,"idle":0,"nodes":{"done":1,"failed":0,"blocked":0},"flake_retries":0,"total_duration_s":1,"exit_code":0"#,
            "clean: all done (no checks, so not verified)",
            "run ended: clean: all done (no checks, so not verified); exit code 0",
        ),
        (r#""event":"from_the_future""#, "an event of a later version of dogwatch", "="),
    ];
    for (fields, line, full) in table {
        let event = event(fields);
        let full = if *full == "=" { line } else { full };
        assert_eq!(
            (sentence(&event, Style::Line).text, sentence(&event, Style::Full).text),
            (line.to_string(), full.to_string())
        );
    }
}

// promise: 8
#[test]
fn a_sentence_is_one_clean_line_of_bounded_length() {
    let told = |text: &str| {
        sentence(&Event::MessageReceived { text: text.to_owned(), from: Source::Operator }, Style::Full).text
    };
    assert_eq!(told("a\u{1b}[2Jb\nc\td\u{7}\u{202e}"), "operator message: ab c d\u{fffd}\u{fffd}");
    let long = told(&"é".repeat(MAX_SENTENCE));
    assert!(long.len() <= MAX_SENTENCE && long.ends_with('…'), "{}", long.len());
}

#[test]
fn the_screen_of_a_run_shows_no_mere_progress_and_a_list_shows_details() {
    let weight = |fields: &str| sentence(&event(fields), Style::Line).weight;
    assert_eq!(weight(r#""event":"wait_ended","by":"timer""#), Weight::Progress);
    assert_eq!(weight(r#""event":"wait_ended","by":"path""#), Weight::Main);
    assert_eq!(weight(r#""event":"session_started","pid":7,"argv":[]"#), Weight::Detail);
    let slept = r#""event":"run_slept","reason":"r","consecutive":8,"spell_s":1,"after":"#;
    assert_eq!(weight(&format!("{slept}\"exit\"")), Weight::Detail);
    assert_eq!(weight(&format!("{slept}\"watch\"")), Weight::Main);
}

#[test]
fn an_event_names_its_node_its_iteration_and_its_ending() {
    let timed_out = event(r#""event":"iteration_timed_out","duration_s":5,"because":"b""#);
    assert_eq!(timed_out.node().map(|n| n.as_str()), Some("api"));
    assert_eq!(timed_out.iteration().map(|n| n.0), Some(3));
    assert_eq!(timed_out.ending().map(|(kind, _)| kind), Some(EndingKind::TimedOut));
    let waiting = event(r#""event":"wait_started","why":"delay","delay_s":4,"until":null"#);
    assert_eq!((waiting.node().map(|n| n.as_str()), waiting.iteration()), (Some("api"), None));
    let told = Event::MessageReceived { text: String::new(), from: Source::Operator };
    assert_eq!((told.node(), told.iteration(), told.ending()), (None, None, None));
}

/// The dashboard has the words for states in its own script.
#[test]
fn the_dashboard_uses_the_same_words_for_waits_and_endings() {
    let script = include_str!("../../web/assets/app/words.js");
    for why in WaitWhy::ALL {
        assert!(script.contains(&format!("{why}: \"{}\"", wait(*why))), "{why}");
    }
    for kind in EndingKind::ALL {
        let (_, word) = ending(*kind);
        let (_, rest) = script.split_once(&format!("iteration_{kind}: [")).expect("a row");
        let row = rest.split(']').next().unwrap_or_default();
        assert!(row.ends_with(&format!("\"{word}\"")), "{kind}: {row}");
    }
}
