//! Journals of earlier versions fold as before: fields may be added to a status, never changed.

use dogwatch_core::record::status::Status;
use dogwatch_core::record::view::View;
use dogwatch_host::store::journal::load;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

/// Asserts that `found` contains all of `expected`. It may contain more.
fn assert_holds(found: &Value, expected: &Value, at: &str) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (key, expected) in expected {
                let at = format!("{at}.{key}");
                assert_holds(found.get(key).unwrap_or_else(|| panic!("{at} is gone")), expected, &at);
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{at}");
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert_holds(found, expected, &format!("{at}[{i}]"));
            }
        }
        (Value::Number(found), Value::Number(expected)) => {
            assert_eq!(found.as_f64(), expected.as_f64(), "{at}");
        }
        (found, expected) => assert_eq!(found, expected, "{at}"),
    }
}

// promise: 7
#[test]
fn a_journal_of_version_1_folds_as_it_always_did() {
    let dir = golden("v1");
    let loaded = load(&dir).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(loaded.broken_chain, None, "the chain is unbroken");
    assert!(loaded.torn.is_empty(), "and the last line whole");
    let status = serde_json::to_value(Status::of(&View::fold(&loaded.events), None)).expect("JSON");
    let text = std::fs::read_to_string(dir.join("expected.json")).expect("reads");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    assert_holds(&status, &expected, "status");
}

/// Only events that are in the golden journal are covered by the test above.
#[test]
fn the_journal_of_version_1_covers_all_kinds_of_events() {
    let text = std::fs::read_to_string(golden("v1").join("events.jsonl")).expect("reads");
    let events: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let names: BTreeSet<&str> = events.iter().filter_map(|e| e["event"].as_str()).collect();
    let wanted = [
        "run_started",
        "run_resumed",
        "node_transition",
        "iteration_started",
        "command_finished",
        "prompt_assembled",
        "session_started",
        "observed",
        "notice",
        "marker_seen",
        "hard_stop",
        "session_signalled",
        "session_ended",
        "snapshot_taken",
        "iteration_completed",
        "iteration_idle",
        "iteration_failed",
        "iteration_timed_out",
        "iteration_interrupted",
        "wait_started",
        "wait_ended",
        "wake_remembered",
        "paused",
        "unpaused",
        "told",
        "trouble",
        "run_ended",
    ];
    let missing: Vec<_> = wanted.iter().filter(|name| !names.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} in {names:?}");
}
