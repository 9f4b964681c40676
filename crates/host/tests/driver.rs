//! The driver with real processes and several nodes. The settings have the form they have in the record, and the
//! agents are shells.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use dogwatch_core::Run;
use dogwatch_core::record::event::{Event, Recorded, RunStarted};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::view::View;
use dogwatch_core::settings::Plan;
use dogwatch_core::time::moment::{Moment, Wall};
use dogwatch_host::driver::{Driver, Reporter, Setup};
use dogwatch_host::sandbox::Ground;
use dogwatch_host::store::home::StateDir;
use dogwatch_host::store::journal::{self, Journal};
use dogwatch_host::store::lock::{Holder, Lock, Place};
use dogwatch_host::sys::{self, Waited};
use serde_json::json;

#[path = "keeper_rig.rs"]
mod rig;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|role| role.starts_with("__")) {
        return rig::play_or_test(&[]);
    }
    // Locks are in the user's state directory, so tests use a separate one.
    let Some(home) = std::env::var_os("DRIVER_TEST_HOME") else {
        let home = std::env::temp_dir().join(format!("dogwatch-driver-{}", std::process::id()));
        let me = std::env::current_exe().expect("proc is mounted");
        let mut again = Command::new(me);
        again.args(std::env::args_os().skip(1)).env("DRIVER_TEST_HOME", &home).env("XDG_STATE_HOME", home);
        panic!("cannot start again: {}", again.exec());
    };
    let code = rig::play_or_test(tests![
        two_nodes_run_at_the_same_time,
        a_lock_that_cannot_be_cleared_does_not_change_how_the_run_ended,
        a_lost_keeper_does_not_affect_other_nodes,
        many_nodes_share_a_few_keepers,
    ]);
    let _ = std::fs::remove_dir_all(home);
    code
}

/// A reporter that passes each event to a callback.
struct Listener<F: FnMut(&Event)>(F);

impl<F: FnMut(&Event)> Reporter for Listener<F> {
    fn show(&mut self, event: &Recorded, _: &View) {
        (self.0)(&event.event);
    }
    fn tick(&mut self, _: Moment, _: &View) {}
    fn ticks(&self) -> bool {
        false
    }
}

/// The most nodes that run at once.
const MAX_PARALLEL: usize = 100;

/// Returns a graph of nodes with one iteration each, whose agents are these shell commands.
fn plan(agents: &[(&str, &str)]) -> Plan {
    let settings = |agent: &str| {
        json!({
            "agent": ["sh", "-c", agent], "reader": "plain", "commands": [], "args": [], "credit": false,
            "delay": 0, "profile": "standard", "max_iterations": 1, "watchdog": {},
            "errors": {"max": 5, "window": 300}, "budget": {}, "wake_on": {"paths": [], "every": 60},
        })
    };
    let nodes = agents.iter().map(|(name, agent)| {
        let mut node = settings(agent);
        node["name"] = json!(name);
        node["prompt"] = json!({"text": format!("work on {name}")});
        node
    });
    let graph = json!({"max_parallel": agents.len().min(MAX_PARALLEL)});
    let plan = json!({"nodes": nodes.collect::<Vec<_>>(), "stop_on_error": false, "graph": graph});
    serde_json::from_value(plan).expect("valid settings")
}

fn take_lock(dir: &Path, loop_file: &Path, run: &RunId, nonce: &str) -> Lock {
    let holder = Holder {
        pid: std::process::id(),
        start_time: 0,
        boot_id: String::new(),
        run: run.clone(),
        since: Wall(0),
        nonce: nonce.to_owned(),
        earlier: Vec::new(),
    };
    let state_dir = StateDir::at(dir.join(".dogwatch"));
    let place = Place { work_dir: dir, loop_file, state_dir: &state_dir };
    Lock::take(place, &holder).expect("the lock is free").lock
}

/// Drives a run of these nodes in `dir` and returns the recorded events.
fn drive(dir: &Path, plan: &Plan, on_event: impl FnMut(&Event)) -> Vec<Event> {
    drive_under(None, dir, plan, on_event).1
}

/// Like `drive`, with this lock. Also returns the exit code.
fn drive_under(
    lock: Option<Lock>,
    dir: &Path,
    plan: &Plan,
    on_event: impl FnMut(&Event),
) -> (u8, Vec<Event>) {
    let run_id = RunId::new(Wall(1_794_773_733_007), [0, 1, 2, 3]);
    let state_dir = dir.join(".dogwatch");
    std::fs::create_dir(&state_dir).expect("a directory");
    let loop_file = dir.join("RALPH.md");
    let loop_text = "---\nagent: x\n---\nwork\n".to_owned();
    std::fs::write(&loop_file, &loop_text).expect("a file");
    let started = RunStarted {
        run: run_id.clone(),
        path: loop_file.display().to_string(),
        work_dir: dir.display().to_string(),
        nodes: plan.nodes.iter().map(|n| n.name.clone()).collect(),
        agent: String::new(),
        settings: plan.redacted(),
        boot_id: String::new(),
        pid: std::process::id(),
        dogwatch: String::new(),
        seed: 0,
        settings_sha256: String::new(),
        flags: Vec::new(),
    };
    let nonce = format!("driver-test-{}", std::process::id());
    let lock = lock.unwrap_or_else(|| take_lock(dir, &loop_file, &run_id, &nonce));
    let setup = Setup {
        run: Run::new(started, plan.clone()),
        run_id,
        journal: Journal::create(&state_dir).expect("a journal"),
        run_dir: state_dir.clone(),
        lock,
        state_dir: state_dir.clone(),
        work_dir: dir.to_owned(),
        ground: Ground::around(dir, &loop_file),
        loop_file,
        loop_text,
        nonce,
        leash: None,
        pristine: None,
        prices: Default::default(),
    };
    let mut reporter = Listener(on_event);
    let driver = Driver::new(setup, &mut reporter).expect("a driver");
    let code = driver.drive(Vec::new()).expect("an end");
    let loaded = journal::load(&state_dir).expect("a record");
    (code, loaded.events.into_iter().map(|recorded| recorded.event).collect())
}

/// The descriptor is read-only, so the lock cannot be cleared. That is reported, but the run does not fail.
fn a_lock_that_cannot_be_cleared_does_not_change_how_the_run_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let lock = Lock::of_files(vec![File::open("/proc/self/stat").expect("readable")]);
    let plan = plan(&[("one", "true")]);
    let (code, events) = drive_under(Some(lock), dir.path(), &plan, |_| {});
    assert_eq!(code, 0);
    assert!(matches!(events.last(), Some(Event::RunEnded(end)) if end.exit_code == 0), "{events:#?}");
}

fn fifo(path: &Path) -> File {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
    // Open for reading and writing, so that neither end blocks.
    File::options().read(true).write(true).open(path).expect("a fifo")
}

/// Each agent waits for a line from the other, so neither could finish alone.
fn two_nodes_run_at_the_same_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_a, _b) = (fifo(&dir.path().join("a")), fifo(&dir.path().join("b")));
    let plan = plan(&[("one", "echo x >a; read x <b"), ("two", "echo x >b; read x <a")]);
    let events = drive(dir.path(), &plan, |_| {});
    let completed = events.iter().filter(|e| matches!(e, Event::IterationCompleted(_))).count();
    assert_eq!(completed, 2, "{events:#?}");
    for node in ["one", "two"] {
        let prompt = dir.path().join(".dogwatch").join(node).join("000001/prompt.md");
        assert_eq!(std::fs::read_to_string(prompt).expect("a prompt"), format!("work on {node}"));
    }
}

/// One agent kills its keeper. The other finishes only after that was reported, and by itself.
fn a_lost_keeper_does_not_affect_other_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut gate = fifo(&dir.path().join("gate"));
    let plan = plan(&[("bad", "kill -9 $PPID; sleep 20"), ("good", "read x <gate; echo bye")]);
    let events = drive(dir.path(), &plan, |event| {
        if matches!(event, Event::Trouble { kind, .. } if kind == "keeper_lost") {
            gate.write_all(b"go\n").expect("the pipe has room");
        }
    });
    let ended = |name: &str| {
        let mut ends = events.iter().filter_map(|e| match e {
            Event::SessionEnded(end) if end.node.as_str() == name => Some((end.exit_code, end.signal)),
            _ => None,
        });
        ends.next()
    };
    assert_eq!(ended("bad"), Some((None, Some(9))), "{events:#?}");
    assert_eq!(ended("good"), Some((Some(0), None)), "{events:#?}");
    // The keeper's processes are dead and are now children of this process, so reap them.
    while matches!(sys::wait_any(), Ok(Waited::Reaped(_))) {}
}

/// More nodes than idle keepers are kept: all run at once, and no process is left (the rig checks).
fn many_nodes_share_a_few_keepers() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut gate = fifo(&dir.path().join("gate"));
    let names: Vec<String> = (0..70).map(|n| format!("n{n}")).collect();
    let agents: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "read x <gate")).collect();
    let mut running = 0;
    let events = drive(dir.path(), &plan(&agents), |event| {
        running += usize::from(matches!(event, Event::SessionStarted { .. }));
        if running == names.len() {
            running = 0;
            gate.write_all("go\n".repeat(names.len()).as_bytes()).expect("the pipe has room");
        }
    });
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|e| wanted(e)).count();
    assert_eq!(count(|e| matches!(e, Event::SessionStarted { .. })), names.len());
    assert_eq!(count(|e| matches!(e, Event::SessionEnded(_))), names.len());
    assert_eq!(count(|e| matches!(e, Event::IterationCompleted(_))), names.len());
    assert_eq!(count(|e| matches!(e, Event::Trouble { .. })), 0, "{events:#?}");
}
