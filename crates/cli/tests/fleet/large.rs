//! Large fleets, three servers, and a power failure. With `DOGWATCH_FULL=1` the sizes are those of the promise.

use crate::faults::start_two;
use crate::harbor::{ACCOUNT, Harbor, full, id, name};
use crate::kit::skip::skip;
use dogwatch_core::lease::{JobState, Times};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_fleet::names;
use dogwatch_fleet::operator::Operator;
use dogwatch_fleet::worker::{self, Settings};
use dogwatch_fleet::{JoinLine, submit};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn thousands_of_queued_jobs_are_listed_and_run_in_their_order() {
    let count = if full() { 10_000 } else { 300 };
    let mut harbor = Harbor::new(8);
    let job = harbor.job("s5");
    harbor.block_on(|client| async move {
        for number in 0..count {
            let id = id(&format!("j{number:05}"));
            submit::job(&client, &id, &job, Wall(0)).await.expect("queued");
        }
    });
    assert_eq!(harbor.queued(), count);
    let operator = Operator::connect(&harbor.join("operator")).expect("connected");
    let fleet = operator.fleet().expect("the fleet");
    assert_eq!((fleet.jobs.len() as u64, fleet.queues[0].queued), (count, count));
    harbor.start_worker("anna");
    for number in 0..3 {
        let job = format!("j{number:05}");
        harbor.until_state(&job, JobState::Done);
        harbor.assert_once(&job);
    }
    let fleet = operator.fleet().expect("the fleet");
    let started: Vec<String> =
        fleet.jobs.iter().filter(|(_, record)| record.epoch > 0).map(|(id, _)| id.job.to_string()).collect();
    let expected: Vec<String> = (0..started.len()).map(|number| format!("j{number:05}")).collect();
    assert_eq!(started, expected, "the oldest jobs are the first");
}

// promise: 20
#[test]
fn many_workers_in_one_process_run_every_job_once() {
    let (workers, jobs) = if full() { (200, 40) } else { (24, 6) };
    let harbor = Harbor::new(64);
    let settings = |number: usize| Settings {
        join: JoinLine { user: name(&format!("w{number}")), ..harbor.join("x") },
        slots: 1,
        labels: Vec::new(),
        repositories: vec!["*".to_owned()],
        allow: Arc::new(|_, _| Ok(())),
        dir: harbor.dir.path().join(format!("w{number}")),
        program: env!("CARGO_BIN_EXE_dogwatch").into(),
        version: "0.1.0".to_owned(),
        times: Times::with_lease(Dur::from_secs(30)),
    };
    let all: Vec<Settings> = (0..workers).map(settings).collect();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let working = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let work = |settings| tokio::spawn(worker::work(settings, Arc::new(|_| {}), stopped.clone()));
            let tasks: Vec<_> = all.into_iter().map(work).collect();
            for task in tasks {
                task.await.expect("no panic").expect("no error");
            }
        });
    });
    for number in 0..workers {
        harbor.until_presence(&format!("w{number}"), "it is present", |_| true);
    }
    let job = |number: usize| format!("j{number}");
    (0..jobs).for_each(|number| harbor.submit(&job(number), "s5"));
    let mut owners = Vec::new();
    for number in 0..jobs {
        owners.push(harbor.until_state(&job(number), JobState::Done).owner);
        harbor.assert_once(&job(number));
    }
    owners.sort();
    owners.dedup();
    assert!(owners.len() > jobs / 2, "the jobs spread over the workers: {owners:?}");
    stop.send_replace(true);
    working.join().expect("every worker is drained");
}

/// Starts three servers, two workers and a job of twenty seconds. Reports a skip if slow tests do not run.
fn cluster() -> Option<Harbor> {
    if !full() {
        skip("three servers: runs with scripts/test --full");
        return None;
    }
    let mut harbor = Harbor::with(3, 24, 8);
    harbor.start_worker("anna");
    harbor.start_worker("otto");
    harbor.submit("one", "s200");
    harbor.until_works("one", 3);
    Some(harbor)
}

// promise: 20
#[test]
fn the_death_of_the_leading_server_interrupts_no_run() {
    let Some(mut harbor) = cluster() else { return };
    harbor.kill_server_at(harbor.leader());
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.epoch, harbor.ticks("one").len()), (1, 1), "{}", harbor.logs());
    harbor.assert_once("one");
}

// promise: 20
#[test]
fn a_leading_server_that_is_stopped_never_makes_two_agents_work_at_once() {
    let Some(harbor) = cluster() else { return };
    let leader = harbor.leader();
    harbor.signal_server_at(leader, Signal::STOP);
    harbor.until_state("one", JobState::Done);
    harbor.assert_once("one");
    harbor.signal_server_at(leader, Signal::CONT);
}

// promise: 20
#[test]
fn a_minority_of_servers_starts_nothing_and_the_job_continues_when_they_are_back() {
    let Some(mut harbor) = cluster() else { return };
    let leader = harbor.leader();
    harbor.kill_server_at(leader);
    harbor.kill_server_at((leader + 1) % 3);
    // Longer than the lease: the agent has ended, and no other has started.
    assert!(harbor.until_silence(Duration::from_secs(8), Duration::from_secs(60)), "{}", harbor.logs());
    assert_eq!(harbor.ticks("one").len(), 1);
    harbor.start_server();
    harbor.until_state("one", JobState::Done);
    harbor.assert_once("one");
}

/// A disk in a file. A power failure leaves the content of the file, without the caches of the kernel.
struct Disk<'a> {
    dir: &'a Path,
    mounts: usize,
}

impl Disk<'_> {
    fn run(command: &str, args: &[&str]) -> Result<(), String> {
        let out = Command::new(command).args(args).output().map_err(|error| format!("{command}: {error}"))?;
        if out.status.success() {
            Ok(())
        } else {
            Err(format!("{command}: {}", String::from_utf8_lossy(&out.stderr)))
        }
    }

    fn image(&self) -> String {
        self.dir.join(format!("disk{}", self.mounts)).display().to_string()
    }

    fn at(&self) -> String {
        self.dir.join(format!("mnt{}", self.mounts)).display().to_string()
    }

    fn mount(&self) -> Result<(), String> {
        std::fs::create_dir_all(self.at()).expect("a directory");
        // The default writes back after five seconds; the test must not depend on that.
        Disk::run("mount", &["-o", "loop,commit=300", &self.image(), &self.at()])
    }

    /// Cuts the power: continues with what the file holds at this moment.
    fn cut_power(&mut self) {
        let before = self.image();
        self.mounts += 1;
        std::fs::copy(before, self.image()).expect("copied");
        self.mount().expect("mounted");
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        for mounts in 0..=self.mounts {
            self.mounts = mounts;
            let _ = Disk::run("umount", &["-l", &self.at()]);
        }
    }
}

/// Returns how many of 200 confirmed jobs are left after a power failure of a server with this `sync_interval`.
fn jobs_after_a_power_failure(sync: &str) -> Result<(u64, usize), String> {
    let mut harbor = Harbor::new(8);
    harbor.kill_server();
    let dir = harbor.dir.path().to_owned();
    let mut disk = Disk { dir: &dir, mounts: 0 };
    Disk::run("truncate", &["-s", "96M", &disk.image()])?;
    Disk::run("mkfs.ext4", &["-q", &disk.image()])?;
    disk.mount()?;
    std::fs::rename(dir.join("store"), dir.join("old")).expect("renamed");
    Disk::run("cp", &["-r", &dir.join("old").display().to_string(), &format!("{}/store", disk.at())])?;
    Disk::run("sync", &["-f", &disk.at()])?;
    harbor.start_servers_in(&Path::new(&disk.at()).join("store"), sync);
    harbor.until_answers();
    for number in 0..200 {
        harbor.submit(&format!("j{number}"), "s5");
    }
    disk.cut_power();
    harbor.kill_server();
    harbor.start_servers_in(&Path::new(&disk.at()).join("store"), sync);
    harbor.until_answers();
    let records = harbor.block_on(|client| async move { client.keys(names::KV_JOBS, ">").await });
    let left = (harbor.queued(), records.expect("the bucket").len());
    harbor.kill_server();
    Ok(left)
}

// promise: 20
#[test]
fn a_server_that_syncs_always_loses_no_confirmed_job_in_a_power_failure() {
    if !full() {
        return skip("a disk in a file: runs with scripts/test --full");
    }
    match jobs_after_a_power_failure("always") {
        Err(why) => skip(&format!("no disk in a file here: {why}")),
        Ok(left) => {
            assert_eq!(left, (200, 200));
            // The same server without it loses jobs, so the failure is a real one.
            let lost = jobs_after_a_power_failure("\"2m\"").expect("a disk");
            assert!(lost.0 < 200, "{lost:?}");
        }
    }
}

// promise: 20
#[test]
fn a_fleet_survives_the_loss_of_a_worker_and_of_its_server_at_the_same_time() {
    let mut harbor = Harbor::new(8);
    let (owner, other) = start_two(&mut harbor);
    harbor.signal(&owner, Signal::KILL);
    harbor.kill_server();
    harbor.start_server();
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner, record.epoch), (other, 2), "{}", harbor.logs());
    harbor.assert_once("one");
    let line = harbor.succeed(&["fleet", "account", ACCOUNT]);
    assert!(line.contains("cap       8 jobs at once"), "{line}");
}
