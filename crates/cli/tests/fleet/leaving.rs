//! Workers that end, and what they leave: saved work, checkouts, and runs that only a worker may continue.

use crate::harbor::{Harbor, git, id};
use dogwatch_core::lease::JobState;
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::Duration;

/// The time without a mark after which an agent has ended: it makes one every tenth of a second.
const SILENT: Duration = Duration::from_secs(2);
/// How long the end of an agent may take.
const SOON: Duration = Duration::from_secs(30);

/// Returns the directory of a job's checkout at a worker.
fn checkout(harbor: &Harbor, worker: &str, job: &str) -> PathBuf {
    let state = harbor.dir.path().join(worker).join("state/dogwatch");
    state.join("work").join(worker).join("jobs").join(id(job).to_string())
}

#[test]
fn a_job_stopped_while_its_worker_drains_ends_with_its_saved_work_as_a_branch() {
    let mut harbor = Harbor::new(8);
    let script = format!(
        "echo half >half.txt\nwhile :; do echo tick acme.one $$ >>'{}'; sleep 0.1; done\n",
        harbor.marks_file().display()
    );
    harbor.add_script("half", "", &script);
    harbor.start_worker("anna");
    harbor.submit("one", "half");
    harbor.until_works("one", 1);
    harbor.succeed(&["fleet", "stop", "acme.one"]);
    harbor.drain("anna");
    assert_eq!(harbor.until_state("one", JobState::Released).result, None, "{}", harbor.logs());
    harbor.start_worker("otto");
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "stopped", "{}", harbor.logs());
    let branch = result.branch.expect("a branch");
    assert_eq!(branch, "refs/heads/dogwatch/one/2");
    assert_eq!(git(&harbor.repository(), &["show", &format!("{branch}:half.txt")]), "half\n");
    assert_eq!(harbor.ticks("one").len(), 1, "no second agent started");
}

#[test]
fn a_run_of_a_job_that_another_worker_took_is_not_resumed_and_its_checkout_is_removed() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    let first = harbor.until_presence("anna", "is there", |_| true).since;
    harbor.submit("one", "s60");
    harbor.until_works("one", 1);
    let run = harbor.until_record("one", "a run", |record| record.run.is_some()).run.expect("a run");
    harbor.signal("anna", Signal::KILL);
    harbor.wait("anna");
    assert!(harbor.until_silence(SILENT, SOON), "the leash ends the agent");
    let (code, text) = harbor.call_as("anna", &["resume", run.as_str()]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("belongs to job acme.one of a fleet"), "{text}");
    assert!(text.contains("help: ") && text.contains("dogwatch fleet wake acme.one"), "{text}");
    let (code, text) = harbor.call_as("anna", &["resume", run.as_str(), "--adopt"]);
    assert_eq!(code, Some(2), "{text}");
    let (_, text) = harbor.call_as("anna", &["ps", "--all"]);
    assert!(text.contains("belongs to job acme.one of a fleet"), "{text}");
    assert!(!text.contains("dogwatch resume"), "{text}");
    harbor.start_worker("otto");
    harbor.until_state("one", JobState::Done);
    harbor.assert_once("one");
    let left = checkout(&harbor, "anna", "one");
    assert!(left.exists(), "the killed worker left {}", left.display());
    harbor.start_worker("anna");
    // The presence of the killed worker is still there.
    harbor.until_presence("anna", "is back", |here| here.since != first);
    assert!(!left.exists(), "{}", harbor.logs());
}

#[test]
fn a_second_signal_ends_a_worker_that_cannot_give_its_job_back() {
    let mut harbor = Harbor::with(1, 60, 8);
    harbor.start_worker("anna");
    harbor.submit("one", "s200");
    harbor.until_works("one", 1);
    harbor.kill_server();
    harbor.signal("anna", Signal::INT);
    harbor.until_says("anna", "draining");
    harbor.signal("anna", Signal::INT);
    assert_eq!(harbor.wait("anna").code(), Some(130), "{}", harbor.logs());
    assert!(harbor.until_silence(SILENT, SOON), "no agent is left");
}
