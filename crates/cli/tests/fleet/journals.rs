//! Journals that workers copy to the server.

use crate::events::Growing;
use crate::harbor::{Harbor, id};
use dogwatch_core::lease::JobState;
use std::path::PathBuf;
use std::time::Duration;

fn journal_of(harbor: &Harbor, worker: &str, job: &str) -> PathBuf {
    let work = harbor.dir.path().join(worker).join("state/dogwatch/work").join(worker);
    let runs = work.join("jobs").join(id(job).to_string()).join("tree/.dogwatch/runs");
    let run = harbor.until_record(job, "names its run", |record| record.run.is_some()).run.expect("a run");
    runs.join(run.as_str()).join("events.jsonl")
}

#[test]
fn a_run_that_waits_costs_its_worker_no_look_at_its_journal() {
    let mut harbor = Harbor::with(1, 60, 8);
    harbor.add_script("waits", "delay: 1h", "exit 0\n");
    harbor.start_worker("anna");
    let mut job = harbor.job("waits");
    job.iterations = Some(2);
    harbor.submit_job(&id("one"), &job);
    harbor.until_journal("one", "a wait", |text| text.contains("\"event\":\"wait_started\""));
    let opened = Growing::opened(&journal_of(&harbor, "anna", "one"));
    let (quiet, limit) = (Duration::from_secs(3), Duration::from_secs(20));
    assert!(opened.wait_for_silence(quiet, limit), "the worker opens the journal again and again");
    // A new line is copied nevertheless.
    harbor.succeed(&["fleet", "wake", "acme.one"]);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "clean", "{}", harbor.logs());
}
