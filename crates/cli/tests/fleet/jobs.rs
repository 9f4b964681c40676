//! Jobs that nothing happens to, and those that end in a particular way.

use crate::harbor::{Harbor, git, id};
use dogwatch_core::lease::JobState;
use dogwatch_fleet::names;
use dogwatch_fleet::record::Control;
use rustix::process::Signal;

// promise: 20
#[test]
fn a_job_runs_on_a_worker_and_its_result_is_a_branch() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    harbor.submit("one", "s5");
    let record = harbor.until_state("one", JobState::Done);
    let result = record.result.expect("a result");
    assert_eq!((result.outcome.as_str(), result.exit_code), ("clean", Some(0)), "{}", harbor.logs());
    assert_eq!(result.branch.as_deref(), Some("refs/heads/dogwatch/one/1"));
    let text = git(&harbor.repository(), &["show", "dogwatch/one/1:result.txt"]);
    assert_eq!(text, "done\n");
    harbor.assert_once("one");
    assert_eq!(harbor.queued(), 0);
    // The journal on the server names the same run.
    let first = harbor.block_on(|client| async move {
        client.read(names::EVENTS, &id("one").events_subject(), dogwatch_fleet::client::From::First).await
    });
    let text: String = first
        .expect("pieces")
        .iter()
        .map(|piece| String::from_utf8_lossy(&piece.payload).into_owned())
        .collect();
    assert!(text.contains(record.run.expect("a run").as_str()) && text.contains("run_ended"), "{text}");
}

// promise: 20
#[test]
fn a_refused_push_leaves_a_bundle_and_the_job_still_ends() {
    let mut harbor = Harbor::new(8);
    harbor.refuse_pushes(true);
    harbor.start_worker("anna");
    harbor.submit("one", "s5");
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "clean");
    assert_eq!((result.branch, result.bundle.as_deref()), (None, Some("anna/acme.one/1/result.bundle")));
}

// promise: 20
#[test]
fn a_drained_worker_gives_its_job_back_and_another_continues_the_same_run() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    harbor.submit("one", "s60");
    harbor.until_works("one", 3);
    let run = harbor.record("one").run;
    harbor.start_worker("otto");
    harbor.signal("anna", Signal::TERM);
    assert!(harbor.wait("anna").success(), "{}", harbor.logs());
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner.as_str(), record.epoch, record.crashes), ("otto", 2, 0));
    assert!(run.is_some() && record.run == run, "{run:?} {:?}", record.run);
    harbor.assert_once("one");
}

// promise: 20
#[test]
fn a_second_message_of_a_job_starts_nothing() {
    let mut harbor = Harbor::new(8);
    harbor.submit("one", "s5");
    let body = serde_json::to_vec(&harbor.job("s5")).expect("JSON");
    harbor.block_on(|client| async move {
        client.publish(&id("one").queue_subject(), &[], body, None).await.expect("a second message");
    });
    harbor.start_worker("anna");
    harbor.until_state("one", JobState::Done);
    harbor.until_says("anna", "is the message of this job");
    harbor.drain("anna");
    assert_eq!(harbor.queued(), 0);
    harbor.assert_once("one");
}

#[test]
fn a_job_that_needs_a_label_waits_for_a_worker_that_has_it() {
    let mut harbor = Harbor::new(8);
    let mut job = harbor.job("s5");
    job.needs = vec!["gpu".to_owned()];
    harbor.submit_job(&id("one"), &job);
    harbor.start_worker("anna");
    harbor.start_worker_at("otto", harbor.port(), &["--label", "gpu"]);
    assert_eq!(harbor.until_state("one", JobState::Done).owner, "otto");
}

#[test]
fn the_operator_stops_a_run_through_its_worker() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    let mut job = harbor.job("s5");
    job.iterations = None;
    harbor.submit_job(&id("one"), &job);
    harbor.until_works("one", 2);
    let body = serde_json::to_vec(&Control::Stop).expect("JSON");
    let answer =
        harbor.block_on(|client| async move { client.request(&id("one").control_subject(), body).await });
    let answer = answer.expect("the worker answers");
    assert!(String::from_utf8_lossy(&answer).contains("true"), "{}", String::from_utf8_lossy(&answer));
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "stopped", "{}", harbor.logs());
}
