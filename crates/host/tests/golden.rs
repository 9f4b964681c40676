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

/// The journals, each recorded by the version that its name starts with.
const JOURNALS: [&str; 5] = ["v1", "v1-checks", "v1-idle", "v1-merging", "v1-recovery"];

/// The events that no golden journal has yet.
const NOT_RECORDED: [&str; 9] = [
    "needs_human",
    "needs_human_ended",
    "agent_drifted",
    "windows_used",
    "limit_set",
    "verdict_labeled",
    "agent_reported",
    "partial_kept",
    "idle_learned",
];

// promise: 7
#[test]
fn a_journal_of_version_1_folds_as_it_always_did() {
    for name in JOURNALS {
        let dir = golden(name);
        let loaded = load(&dir).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(loaded.chain.broken(), None, "{name}: the chain is unbroken");
        assert!(loaded.torn.is_empty(), "{name}: and the last line whole");
        let status = serde_json::to_value(Status::of(&View::fold(&loaded.events), None)).expect("JSON");
        let text = std::fs::read_to_string(dir.join("expected.json")).expect("reads");
        let expected: Value = serde_json::from_str(&text).expect("JSON");
        assert_holds(&status, &expected, name);
    }
}

/// Only events that are in a golden journal are covered by the test above.
#[test]
fn the_golden_journals_cover_all_kinds_of_events_but_a_few() {
    let mut names = BTreeSet::new();
    for name in JOURNALS {
        let text = std::fs::read_to_string(golden(name).join("events.jsonl")).expect("reads");
        let events = text.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
        names.extend(events.filter_map(|e| e["event"].as_str().map(str::to_owned)));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/events.md");
    let page = std::fs::read_to_string(page).expect("reads");
    let all = page.lines().filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`'));
    let missing: Vec<&str> = all.filter(|name| !names.contains(*name)).collect();
    assert_eq!(missing, NOT_RECORDED);
}
