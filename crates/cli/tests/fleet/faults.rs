//! Faults: workers and servers that die, stop or are cut off.

use crate::harbor::{Harbor, LEASE, git, id};
use crate::kit::skip::skip;
use crate::network::Network;
use crate::proxy::Proxy;
use dogwatch_core::lease::JobState;
use dogwatch_fleet::FleetError;
use dogwatch_fleet::names;
use dogwatch_fleet::setup::{self, Setup};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// Starts two workers and a job. Returns the worker that runs it, and the other one.
pub fn start_two(harbor: &mut Harbor) -> (String, String) {
    harbor.start_worker("anna");
    harbor.start_worker("otto");
    harbor.submit("one", "s60");
    let owner = harbor.until_works("one", 3);
    let other = if owner == "anna" { "otto" } else { "anna" };
    (owner, other.to_owned())
}

// promise: 20
#[test]
fn the_job_of_a_killed_worker_is_continued_by_another() {
    let mut harbor = Harbor::new(8);
    let (owner, other) = start_two(&mut harbor);
    let run = harbor.record("one").run;
    harbor.signal(&owner, Signal::KILL);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner.as_str(), record.epoch), (other.as_str(), 2));
    assert!(run.is_some() && record.run == run, "{run:?} {:?}\n{}", record.run, harbor.logs());
    harbor.assert_once("one");
    harbor.drain(&other);
    assert_eq!(harbor.queued(), 0);
}

// promise: 20
#[test]
fn the_leash_ends_the_agent_of_a_stopped_worker_before_another_continues() {
    let mut harbor = Harbor::new(8);
    let (owner, other) = start_two(&mut harbor);
    harbor.signal(&owner, Signal::STOP);
    harbor.until_owner("one", &other);
    harbor.signal(&owner, Signal::CONT);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner, record.epoch), (other, 2), "{}", harbor.logs());
    harbor.assert_once("one");
}

// promise: 20
#[test]
fn a_worker_that_is_cut_off_loses_its_job_only_after_its_agent_has_ended() {
    let mut harbor = Harbor::new(8);
    let proxy = Proxy::before(harbor.port());
    harbor.start_worker_at("anna", proxy.port, &[]);
    harbor.submit("one", "s60");
    harbor.until_works("one", 3);
    harbor.start_worker("otto");
    proxy.cut(true);
    harbor.until_owner("one", "otto");
    proxy.cut(false);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner.as_str(), record.epoch), ("otto", 2));
    harbor.assert_once("one");
}

// promise: 20
#[test]
fn a_worker_whose_network_is_down_loses_its_job_only_after_its_agent_has_ended() {
    let mut harbor = Harbor::new(8);
    let network = match Network::new() {
        Ok(network) => network,
        Err(why) => return skip(&format!("cannot make a network namespace here: {why}")),
    };
    let outside = Proxy::between(&network.host, SocketAddr::from(([127, 0, 0, 1], harbor.port())));
    let host = network.host.parse().expect("an address");
    let inside = network.proxy(SocketAddr::new(host, outside.port));
    let line = harbor.line("anna", inside.port).to_string();
    let mut command = network.command(env!("CARGO_BIN_EXE_dogwatch"));
    harbor.start_worker_by("anna", &line, &[], &mut command);
    harbor.submit("one", "s60");
    assert_eq!(harbor.until_works("one", 3), "anna");
    harbor.start_worker("otto");
    network.cut(true);
    harbor.until_owner("one", "otto");
    network.cut(false);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner.as_str(), record.epoch), ("otto", 2), "{}", harbor.logs());
    harbor.assert_once("one");
}

// promise: 20
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

// promise: 20
#[test]
fn a_run_ends_when_the_server_is_gone_for_longer_than_the_lease_and_continues_later() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    harbor.submit("one", "s60");
    harbor.until_works("one", 3);
    harbor.kill_server();
    // Longer than the lease: the leash has ended the agent.
    assert!(
        harbor.until_silence(Duration::from_secs(2), Duration::from_secs(LEASE + 10)),
        "the agent works on"
    );
    harbor.start_server();
    harbor.until_state("one", JobState::Done);
    harbor.assert_once("one");
}

// promise: 20
#[test]
fn a_partition_that_heals_before_the_deadline_interrupts_nothing() {
    let mut harbor = Harbor::with(1, 12, 8);
    let proxy = Proxy::before(harbor.port());
    harbor.start_worker_at("anna", proxy.port, &[]);
    harbor.submit("one", "s60");
    harbor.until_works("one", 3);
    let before = harbor.revision("one");
    proxy.cut(true);
    // The agent works on for three seconds, a quarter of the lease; a renewal is due every two.
    let count = || harbor.ticks("one").values().map(|(count, ..)| *count).sum::<usize>();
    let start = count();
    harbor.until_marks("the agent works on", || count() >= start + 30);
    assert_eq!(harbor.revision("one"), before, "no renewal passed");
    proxy.cut(false);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.epoch, harbor.ticks("one").len()), (1, 1), "{}", harbor.logs());
    harbor.assert_once("one");
}

#[test]
fn a_job_whose_journal_the_server_cannot_serve_waits_and_is_not_charged() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    harbor.submit("one", "s60");
    harbor.until_works("one", 3);
    harbor.signal("anna", Signal::KILL);
    // Requests are now refused, as by the servers of a cluster that have not elected a leader yet.
    let delete = format!("STREAM.DELETE.{}", names::EVENTS);
    harbor.block_on(|client| async move { client.api(&delete, &json!({})).await.expect("deleted") });
    harbor.start_worker("otto");
    harbor.until_says("otto", "acme.one: waits for its journal: no process answers");
    let setup = Setup { replicas: 1, ack_wait: Duration::from_secs(LEASE / 2) };
    harbor.block_on(|client| async move { setup::create(&client, setup).await.expect("created again") });
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner.as_str(), record.crashes), ("otto", 0), "{}", harbor.logs());
}

#[test]
fn a_job_whose_dogwatch_crashes_three_times_is_poisoned_and_never_runs_again() {
    let mut harbor = Harbor::new(8);
    // The agent kills the dogwatch that supervises it: the parent of its keeper.
    let script = format!(
        "cat >/dev/null\necho start acme.one $$ 1 >>'{}'\nkill -9 $(cut -d' ' -f4 /proc/$PPID/stat)\nsleep 30\n",
        harbor.marks_file().display()
    );
    harbor.add_script("crash", "", &script);
    harbor.start_worker("anna");
    harbor.submit("one", "crash");
    let record = harbor.until_state("one", JobState::Poisoned);
    assert_eq!((record.crashes, record.epoch), (3, 3), "{}", harbor.logs());
    let detail = record.result.expect("a result").detail.expect("a reason");
    assert!(detail.contains("killed by signal 9"), "{detail}");
    assert_eq!(harbor.ticks("one").len(), 3);
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains("acme.one  poisoned") && shown.contains("killed by signal 9"), "{shown}");
    harbor.drain("anna");
    assert_eq!(harbor.queued(), 0);
}

// promise: 20
#[test]
fn writes_of_a_former_owner_are_refused_and_its_push_changes_no_result() {
    let mut harbor = Harbor::new(8);
    let (owner, other) = start_two(&mut harbor);
    let (revision, piece) = (harbor.revision("one"), harbor.last_piece("one"));
    let before = harbor.record("one");
    harbor.signal(&owner, Signal::KILL);
    harbor.until_owner("one", &other);
    harbor.until_marks("the next agent works", || harbor.ticks("one").len() == 2);
    // A former owner that wakes up now would write this.
    let stale = harbor.block_on(|client| async move {
        let id = id("one");
        let record = client.put(names::KV_JOBS, &id.to_string(), &before, Some(revision)).await;
        let headers = [(names::H_EPOCH, "1"), (names::H_OFFSET, "0")];
        let piece = client.publish(&id.events_subject(), &headers, b"{}\n".to_vec(), Some(piece)).await;
        (record, piece)
    });
    assert_eq!(stale, (Err(FleetError::Conflict), Err(FleetError::Conflict)));
    git(
        &harbor.dir.path().join("tree"),
        &["push", "--quiet", "../repo.git", "main:refs/heads/dogwatch/one/1"],
    );
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.branch.as_deref(), Some("refs/heads/dogwatch/one/2"));
    assert_eq!(git(&harbor.repository(), &["show", "dogwatch/one/2:result.txt"]), "done\n");
    harbor.assert_once("one");
}

/// Returns a process and all its descendants, parents first.
fn tree(root: Pid) -> Vec<Pid> {
    let mut all = vec![root];
    let mut at = 0;
    while let Some(parent) = all.get(at) {
        let tasks = format!("/proc/{0}/task", parent.as_raw_nonzero());
        for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
        }
        at += 1;
    }
    all
}

// promise: 20
#[test]
fn the_agent_of_a_suspended_machine_ends_as_soon_as_the_machine_wakes() {
    let mut harbor = Harbor::new(8);
    let (owner, other) = start_two(&mut harbor);
    let first = *harbor.ticks("one").keys().next().expect("an agent");
    let all = tree(harbor.pid(&owner));
    assert!(all.len() > 3, "worker, dogwatch, keeper and agent: {all:?}");
    for pid in &all {
        // A short-lived process may be gone.
        let _ = kill_process(*pid, Signal::STOP);
    }
    harbor.until_owner("one", &other);
    let ticks = || harbor.ticks("one").get(&first).map_or(0, |(count, ..)| *count);
    let before = ticks();
    for pid in all.iter().rev() {
        let _ = kill_process(*pid, Signal::CONT);
    }
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner, record.epoch), (other, 2), "{}", harbor.logs());
    // The first agent may make a step or two before its leash ends it.
    assert!(ticks() <= before + 2, "{before} {}\n{}", ticks(), harbor.logs());
    let ends = harbor.ticks("one").values().filter(|(.., ended)| *ended).count();
    assert_eq!(ends, 1);
}

// promise: 20
#[test]
fn a_worker_whose_boot_clock_is_off_by_an_hour_loses_its_job_like_any_other() {
    let mut harbor = Harbor::new(8);
    let other_clock = ["--fork", "--kill-child", "--time", "--boottime", "3600", "--"];
    let uptime =
        Command::new("unshare").args(other_clock).args(["cut", "-d.", "-f1", "/proc/uptime"]).output();
    let read = |text: &[u8]| String::from_utf8_lossy(text).trim().parse::<u64>().ok();
    let theirs = uptime.ok().and_then(|out| read(&out.stdout));
    let ours = std::fs::read_to_string("/proc/uptime").expect("an uptime");
    let ours = ours.split('.').next().and_then(|text| text.parse::<u64>().ok()).expect("a time");
    if theirs.is_none_or(|theirs| theirs < ours + 3_500) {
        return skip("cannot make a time namespace here");
    }
    let line = harbor.join("anna").to_string();
    let mut command = Command::new("unshare");
    harbor.start_worker_by("anna", &line, &[], command.args(other_clock).arg(env!("CARGO_BIN_EXE_dogwatch")));
    harbor.submit("one", "s60");
    assert_eq!(harbor.until_works("one", 3), "anna");
    harbor.start_worker("otto");
    let run = harbor.record("one").run;
    harbor.signal("anna", Signal::KILL);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner.as_str(), record.epoch), ("otto", 2), "{}", harbor.logs());
    assert!(run.is_some() && record.run == run);
    assert_eq!(record.result.expect("a result").outcome, "clean");
    harbor.assert_once("one");
}
