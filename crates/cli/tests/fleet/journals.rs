//! Journals that workers copy to the server.

use crate::events::Growing;
use crate::harbor::{Harbor, id};
use dogwatch_core::lease::JobState;
use dogwatch_fleet::client::From;
use dogwatch_fleet::worker::journal::Copier;
use dogwatch_fleet::{FleetError, names};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

fn journal_of(harbor: &Harbor, worker: &str, job: &str) -> PathBuf {
    let work = harbor.dir.path().join(worker).join("state/dogwatch/work").join(worker);
    let runs = work.join("jobs").join(id(job).to_string()).join("tree/.dogwatch/runs");
    let run = harbor.until_record(job, "names its run", |record| record.run.is_some()).run.expect("a run");
    runs.join(run.as_str()).join("events.jsonl")
}

#[test]
fn a_run_that_waits_costs_its_worker_no_look_at_its_journal() {
    let harbor = Harbor::with_waiting_run();
    let opened = Growing::opened(&journal_of(&harbor, "anna", "one"));
    let (quiet, limit) = (Duration::from_secs(3), Duration::from_secs(20));
    assert!(opened.wait_for_silence(quiet, limit), "the worker opens the journal again and again");
    // A new line is copied nevertheless.
    harbor.succeed(&["fleet", "wake", "acme.one"]);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "clean", "{}", harbor.logs());
}

#[test]
fn no_secret_of_a_worker_is_in_the_journal_on_the_server() {
    let mut harbor = Harbor::new(8);
    let script = "echo \"<!-- ralph:state blocked reason=$MY_API_KEY -->\"\n";
    harbor.add_script("leaks", "idle: {stop_after: 1}", script);
    let line = harbor.join("anna").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    command.env("MY_API_KEY", "k3y-of-the-worker");
    harbor.start_worker_by("anna", &line, &[], &mut command);
    harbor.submit("one", "leaks");
    harbor.until_state("one", JobState::Done);
    let subject = id("one").events_subject();
    let pieces = harbor.block_on(|client| async move {
        client.read(names::EVENTS, &subject, From::First).await.expect("the server answers")
    });
    let text: Vec<u8> = pieces.iter().flat_map(|piece| piece.payload.to_vec()).collect();
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("\"event\":\"marker_seen\"") && text.contains("\"event\":\"run_ended\""), "{text}");
    assert!(!text.contains("k3y-of-the-worker"), "{text}");
}

#[test]
fn a_claim_that_wakes_up_after_a_later_one_does_not_fence_it() {
    let harbor = Harbor::new(8);
    harbor.block_on(|client| async move {
        let id = id("one");
        let mut first = Copier::first(&client, &id);
        first.copy(b"1\n").await.expect("the first claim writes");
        let mut third = Copier::begin(&client, &id, 3).await.expect("the third claim begins");
        // The second claim was stopped between its record and its journal.
        let second = Copier::begin(&client, &id, 2).await;
        assert_eq!(second.err(), Some(FleetError::Conflict));
        third.copy(b"2\n").await.expect("the third claim still writes");
        // A claim that lost only the answer begins again.
        Copier::begin(&client, &id, 3).await.expect("the third claim begins again");
        Copier::begin(&client, &id, 4).await.expect("a later claim begins");
        assert!(first.copy(b"3\n").await.is_err() && third.copy(b"3\n").await.is_err());
    });
}
