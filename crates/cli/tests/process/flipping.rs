//! Error loops in a work tree that changes: only content that was not seen before counts as progress.

use crate::kit::{GRACES, Project, all, one};
use serde_json::Value;

/// Returns the script of an agent that runs this step and then a failing call, again and again.
fn failing(before: &str) -> String {
    format!(
        "claude init; repeat 14 {{ {before}; sleep 150ms; claude tool Bash fail make 'no rule' }}; claude result done"
    )
}

fn run(script: &str) -> Vec<Value> {
    let project = Project::acting_with(&format!("{GRACES}\nreader: claude"), script);
    project.run(&["-n", "1"]);
    project.journal()
}

#[test]
fn flipping_a_file_between_two_contents_does_not_hide_a_loop() {
    let journal = run(&failing("write file b; sleep 150ms; write file a"));
    assert_eq!(one(&journal, "hard_stop")["reason"], "ERROR_LOOP");
    let digests: Vec<&Value> = all(&journal, "observed")
        .into_iter()
        .filter(|seen| seen["channel"] == "workspace")
        .map(|seen| &seen["digest"])
        .collect();
    let distinct: std::collections::BTreeSet<String> = digests.iter().map(ToString::to_string).collect();
    assert!(distinct.len() < digests.len(), "{digests:?}");
}

#[test]
fn new_content_between_equal_failures_is_progress() {
    let journal = run(&failing("append file more"));
    assert_eq!(all(&journal, "hard_stop").len(), 0, "{:?}", all(&journal, "hard_stop"));
}
