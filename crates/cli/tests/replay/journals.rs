//! Replays of journals: each session alone. The policy of the run reproduces its verdicts.

use crate::{replay, replay_json};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a loop with this agent and returns its journal.
fn journal_of(dir: &Path, front: &str, script: &str) -> PathBuf {
    std::fs::create_dir_all(dir.join("loop")).expect("a directory");
    std::fs::write(dir.join("script"), script).expect("writes");
    let agent = format!("'{}' actor script", env!("CARGO_BIN_EXE_dogwatch"));
    let text = format!("---\nagent: {}\n{front}\n---\nGo on.\n", Value::from(agent));
    std::fs::write(dir.join("loop/RALPH.md"), text).expect("writes");
    let mut run = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    run.args(["run", "loop", "-n", "1", "--json"]).current_dir(dir);
    run.env("HOME", dir).env("XDG_STATE_HOME", dir.join("state")).env("XDG_RUNTIME_DIR", dir.join("state"));
    let out = run.output().expect("dogwatch runs");
    let first = out.stdout.split(|b| *b == b'\n').next().expect("it prints");
    let started: Value = serde_json::from_slice(first).expect("the first event");
    dir.join(".dogwatch/runs").join(started["run"].as_str().expect("an id"))
}

#[test]
fn the_policy_of_a_run_reproduces_its_verdicts_and_another_changes_them() {
    let dir = tempfile::TempDir::new().expect("a directory for the test");
    let front = "watchdog: {idle: 700ms, grace: 100ms, leak: 300ms}";
    let run = journal_of(dir.path(), front, "print one\nsleep 60s\n");
    let journal = std::fs::read_to_string(run.join("events.jsonl")).expect("the journal");
    let events: Vec<Value> = journal.lines().map(|l| serde_json::from_str(l).expect("an event")).collect();
    let find = |name: &str| {
        events.iter().find(|e| e["event"] == name).unwrap_or_else(|| panic!("{name}\n{journal}"))
    };
    let (start, stop) = (find("session_started"), find("hard_stop"));

    let (lines, summary) = replay_json(&[], &run);
    let last = lines.last().expect("a verdict");
    assert_eq!((&last["verdict"], &last["reason"]), (&"hard_stop".into(), &stop["reason"]));
    assert_eq!(last["message"], stop["message"]);
    assert_eq!(last["evidence_summary"], stop["evidence_summary"]);
    let after = stop["awake_ms"].as_u64().expect("ms") - start["awake_ms"].as_u64().expect("ms");
    assert_eq!(last["at_s"].as_f64(), Some(after as f64 / 1000.0), "at exactly this time");
    assert_eq!((&last["node"], &last["iteration"]), (&start["node"], &start["iteration"]));
    assert_eq!((&summary["node"], &summary["outcome"]), (&start["node"], &"timed_out".into()));
    assert_eq!(replay(&[], &run).stderr, b"note: the replayed verdicts match the record\n");

    let (spared, summary) = replay_json(&["--set", "watchdog.idle=1h"], &run.join("events.jsonl"));
    assert!(spared.is_empty(), "{spared:?}");
    assert_eq!(summary["outcome"], Value::Null, "the end of the session is unknown");
    let (sooner, _) = replay_json(&["--set", "watchdog.session=300ms"], &run);
    assert_eq!((&sooner[0]["reason"], &sooner[0]["at_s"]), (&"SESSION_CEILING_EXCEEDED".into(), &0.3.into()));

    for (set, difference) in [
        ("watchdog.idle=1h", "by NO_OUTPUT_DEADLINE; would have continued"),
        ("watchdog.session=300ms", "; would have been after 0.3s by SESSION_CEILING_EXCEEDED"),
        ("watchdog.tool=1h", "would have stopped the same sessions, for the same reasons"),
    ] {
        let notes = String::from_utf8(replay(&["--set", set], &run).stderr).expect("text");
        assert!(notes.contains(difference), "{set}: {notes}");
    }
}

#[test]
fn a_node_that_the_run_does_not_have_is_an_error() {
    let dir = tempfile::TempDir::new().expect("a directory for the test");
    let run = journal_of(dir.path(), "watchdog: {grace: 100ms, leak: 300ms}", "print one\n");
    assert!(replay(&["--node", "loop"], &run).status.success());
    let wrong = replay(&["--node", "build"], &run);
    assert_eq!((wrong.status.code(), &wrong.stdout[..]), (Some(2), &b""[..]));
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert!(error.contains(" has no node `build`\nhelp: its nodes: loop\n"), "{error}");
}

#[test]
fn a_selection_that_matches_no_session_is_an_error() {
    let dir = tempfile::TempDir::new().expect("a directory for the test");
    let run = journal_of(dir.path(), "watchdog: {grace: 100ms, leak: 300ms}", "print one\n");
    assert!(replay(&["-i", "1"], &run).status.success());
    let wrong = replay(&["--node", "loop", "-i", "2"], &run);
    assert_eq!((wrong.status.code(), &wrong.stdout[..]), (Some(2), &b""[..]));
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert!(error.contains("the run has no session of node `loop` in iteration 2\n"), "{error}");

    let timeline = dir.path().join("timeline.jsonl");
    std::fs::write(&timeline, "{\"t_ms\": 0, \"line\": \"one\"}\n").expect("writes");
    assert!(replay(&[], &timeline).status.success());
    for flags in [&["--node", "loop"], &["--iteration", "1"]] {
        let wrong = replay(flags, &timeline);
        assert_eq!((wrong.status.code(), &wrong.stdout[..]), (Some(2), &b""[..]));
        let error = String::from_utf8_lossy(&wrong.stderr);
        assert!(error.contains(&format!("{} selects sessions of a run, and ", flags[0])), "{error}");
    }
}

#[test]
fn a_torn_last_line_is_skipped_and_an_invalid_line_is_an_error() {
    let dir = tempfile::TempDir::new().expect("a directory for the test");
    let run = journal_of(dir.path(), "watchdog: {grace: 100ms, leak: 300ms}", "print one\n");
    let path = run.join("events.jsonl");
    let journal = std::fs::read_to_string(&path).expect("the journal");
    let (_, whole) = replay_json(&[], &path);
    assert_eq!(whole["outcome"], "completed");
    std::fs::write(&path, format!("{journal}{{\"v\":1,\"se")).expect("writes");
    let torn = replay(&["--json"], &path);
    assert!(torn.status.success());
    assert!(String::from_utf8_lossy(&torn.stderr).contains("skipped a torn last line"));
    std::fs::write(&path, format!("{journal}{{\"v\":1,\"se\n")).expect("writes");
    let wrong = replay(&["--json"], &path);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("not an event"));
}
