//! Faults: workers and servers that die, stop or are cut off.

use crate::harbor::{Harbor, LEASE, until};
use crate::proxy::Proxy;
use dogwatch_core::lease::JobState;
use rustix::process::Signal;

/// The fault that a killed worker's job moves on from, with two workers.
fn start_two(harbor: &mut Harbor) -> (String, String) {
    harbor.start_worker("anna");
    harbor.start_worker("otto");
    harbor.submit("one", "s60");
    let owner = harbor.until_works("one", 3);
    let other = if owner == "anna" { "otto" } else { "anna" };
    (owner, other.to_owned())
}

#[test]
fn the_job_of_a_killed_worker_is_continued_by_another() {
    let mut harbor = Harbor::new(8);
    let (owner, other) = start_two(&mut harbor);
    let run = harbor.record("one").run;
    harbor.signal(&owner, Signal::KILL);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner, record.epoch), (other, 2));
    assert!(run.is_some() && record.run == run, "{run:?} {:?}\n{}", record.run, harbor.logs());
    harbor.assert_once("one");
    assert_eq!(harbor.queued(), 0);
}

#[test]
fn the_leash_ends_the_agent_of_a_stopped_worker_before_another_continues() {
    let mut harbor = Harbor::new(8);
    let (owner, other) = start_two(&mut harbor);
    harbor.signal(&owner, Signal::STOP);
    until("another worker has taken the job", || harbor.record("one").owner == other);
    harbor.signal(&owner, Signal::CONT);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner, record.epoch), (other, 2), "{}", harbor.logs());
    harbor.assert_once("one");
}

#[test]
fn a_worker_that_is_cut_off_loses_its_job_only_after_its_agent_has_ended() {
    let mut harbor = Harbor::new(8);
    let proxy = Proxy::before(harbor.port());
    harbor.start_worker_at("anna", proxy.port, &[]);
    harbor.submit("one", "s60");
    harbor.until_works("one", 3);
    harbor.start_worker("otto");
    proxy.cut(true);
    until("another worker has taken the job", || harbor.record("one").owner == "otto");
    proxy.cut(false);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner.as_str(), record.epoch), ("otto", 2));
    harbor.assert_once("one");
}

#[test]
fn a_restart_of_the_server_interrupts_no_run() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    harbor.submit("one", "s60");
    harbor.until_works("one", 3);
    harbor.kill_server();
    harbor.start_server();
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.epoch, harbor.ticks("one").len()), (1, 1), "{}", harbor.logs());
    harbor.assert_once("one");
}

#[test]
fn a_run_ends_when_the_server_is_gone_for_longer_than_the_lease_and_continues_later() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    harbor.submit("one", "s60");
    harbor.until_works("one", 3);
    harbor.kill_server();
    // Longer than the lease: the leash has ended the agent.
    let before = std::time::Instant::now();
    let count = || harbor.ticks("one").values().map(|(count, ..)| *count).sum::<usize>();
    let mut last = (count(), std::time::Instant::now());
    until("the agent has ended", || {
        if count() != last.0 {
            last = (count(), std::time::Instant::now());
        }
        last.1.elapsed().as_secs() >= 2
    });
    assert!(before.elapsed().as_secs() <= LEASE + 10);
    harbor.start_server();
    harbor.until_state("one", JobState::Done);
    harbor.assert_once("one");
}
