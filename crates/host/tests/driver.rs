//! The driver with real processes, and more nodes than one. The settings are given as the record would have
//! them; the agents are shells.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::rc::Rc;

use dogwatch_core::Run;
use dogwatch_core::event::{Event, Recorded, RunStarted};
use dogwatch_core::ids::RunId;
use dogwatch_core::input::Input;
use dogwatch_core::moment::{Moment, Wall};
use dogwatch_core::settings::Plan;
use dogwatch_core::view::View;
use dogwatch_host::driver::{Driver, Front, Setup};
use dogwatch_host::inbox::{Inbox, Mail};
use dogwatch_host::journal::{self, Journal};
use dogwatch_host::lock::Lock;
use dogwatch_host::sys::{self, Waited};
use serde_json::json;

#[path = "keeper_rig.rs"]
mod rig;

fn main() -> ExitCode {
    // Locks lie in the user's state directory, and that of the tests must not be a person's.
    let own = std::env::temp_dir().join(format!("dogwatch-driver-{}", std::process::id()));
    if std::env::args().nth(1).is_none_or(|role| !role.starts_with("__"))
        && std::env::var_os("DRIVER_TEST_HOME").is_none()
    {
        let me = std::env::current_exe().expect("proc is mounted");
        let mut again = Command::new(me);
        again.args(std::env::args_os().skip(1)).env("DRIVER_TEST_HOME", "1").env("XDG_STATE_HOME", own);
        panic!("cannot start again: {}", again.exec());
    }
    let code = rig::play_or_test(tests![
        two_nodes_are_at_work_at_the_same_time,
        a_lost_keeper_takes_no_other_node_with_it,
        many_nodes_share_a_few_keepers,
    ]);
    if let Some(home) = std::env::var_os("XDG_STATE_HOME").filter(|_| std::env::args().len() > 1) {
        let _ = std::fs::remove_dir_all(home);
    }
    code
}

/// Shows nobody anything, but may answer.
struct Listener<F: FnMut(&Event, &Inbox)> {
    heard: F,
    inbox: Rc<OnceCell<Inbox>>,
}

impl<F: FnMut(&Event, &Inbox)> Front for Listener<F> {
    fn show(&mut self, event: &Recorded, _: &View) {
        (self.heard)(&event.event, self.inbox.get().expect("the driver is there"));
    }
    fn tick(&mut self, _: Moment, _: &View) {}
    fn ticks(&self) -> bool {
        false
    }
}

/// Nodes whose agents are these shell commands.
fn plan(agents: &[(&str, &str)], iterations: u64) -> Plan {
    let settings = |agent: &str| {
        json!({
            "agent": ["sh", "-c", agent], "reader": "plain", "commands": [], "args": [], "credit": false,
            "delay": 0, "profile": "standard", "max_iterations": iterations, "watchdog": {},
            "errors": {"max": 5, "window": 300}, "budget": {}, "wake_on": {"paths": [], "every": 60},
        })
    };
    let nodes = agents.iter().map(|(name, agent)| {
        let mut node = settings(agent);
        node["name"] = json!(name);
        node
    });
    let plan = json!({"nodes": nodes.collect::<Vec<_>>(), "stop_on_error": false});
    serde_json::from_value(plan).expect("these are settings")
}

/// Drives a run of these nodes in `dir`; gives what was recorded.
fn drive(dir: &Path, plan: &Plan, heard: impl FnMut(&Event, &Inbox)) -> Vec<Event> {
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
    };
    let setup = Setup {
        run: Run::new(started, plan.clone()),
        run_id,
        journal: Journal::create(&state_dir).expect("a journal"),
        run_dir: state_dir.clone(),
        lock: Lock::take(dir, &loop_file).expect("nobody has it").0,
        state_dir: state_dir.clone(),
        work_dir: dir.to_owned(),
        loop_file,
        loop_text,
        nonce: format!("driver-test-{}", std::process::id()),
    };
    let inbox = Rc::new(OnceCell::new());
    let mut front = Listener { heard, inbox: Rc::clone(&inbox) };
    let driver = Driver::new(setup, &mut front).expect("a driver");
    inbox.set(driver.inbox()).expect("it is set once");
    driver.drive(Vec::new()).expect("an end");
    let loaded = journal::load(&state_dir).expect("a record");
    loaded.events.into_iter().map(|recorded| recorded.event).collect()
}

fn fifo(path: &Path) -> File {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
    // Open for both, so that neither end waits for the other.
    File::options().read(true).write(true).open(path).expect("a fifo")
}

/// Each agent waits until the other has spoken, so neither could end alone.
fn two_nodes_are_at_work_at_the_same_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_a, _b) = (fifo(&dir.path().join("a")), fifo(&dir.path().join("b")));
    let plan = plan(&[("one", "echo x >a; read x <b"), ("two", "echo x >b; read x <a")], 1);
    let events = drive(dir.path(), &plan, |_, _| {});
    let is_start = |e: &Event| matches!(e, Event::SessionStarted { .. });
    let first_end = events.iter().position(|e| matches!(e, Event::SessionEnded(_))).expect("an end");
    assert_eq!(events[..first_end].iter().filter(|e| is_start(e)).count(), 2, "{events:#?}");
    for node in ["one", "two"] {
        assert!(dir.path().join(".dogwatch").join(node).join("000001/prompt.md").exists(), "{node}");
    }
}

/// One agent kills its keeper; the other ends only after that was told, and by itself.
fn a_lost_keeper_takes_no_other_node_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut gate = fifo(&dir.path().join("gate"));
    let plan = plan(&[("bad", "kill -9 $PPID; sleep 20"), ("good", "read x <gate; echo bye")], 9);
    let events = drive(dir.path(), &plan, |event, inbox| match event {
        // Enough for whatever is begun before the run has heard of the end.
        Event::Trouble { kind, .. } if kind == "keeper_lost" => {
            gate.write_all("go\n".repeat(9).as_bytes()).expect("it has room");
        }
        Event::SessionEnded(end) if end.node.as_str() == "good" => {
            inbox.post(Mail::Asked(Input::StopAsked));
        }
        _ => {}
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
    // What the keeper kept is dead and has become ours to bury, as it would be init's.
    while matches!(sys::wait_any(), Ok(Waited::Gone(_))) {}
}

/// More nodes than keepers that are kept: all are at work at once, and no process is left (the rig looks).
fn many_nodes_share_a_few_keepers() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut gate = fifo(&dir.path().join("gate"));
    let names: Vec<String> = (0..70).map(|n| format!("n{n}")).collect();
    let agents: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "read x <gate")).collect();
    let mut at_work = 0;
    let events = drive(dir.path(), &plan(&agents, 1), |event, _| {
        at_work += usize::from(matches!(event, Event::SessionStarted { .. }));
        if at_work == names.len() {
            at_work = 0;
            gate.write_all("go\n".repeat(names.len()).as_bytes()).expect("it has room");
        }
    });
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|e| wanted(e)).count();
    assert_eq!(count(|e| matches!(e, Event::SessionStarted { .. })), names.len());
    assert_eq!(count(|e| matches!(e, Event::Trouble { .. })), 0, "{events:#?}");
}
