//! A separate project for each test: a work directory, a home, locks, FIFOs, and the dogwatch that runs there. Every
//! wait has a limit. Dropping the project kills all processes that the test started, even if it failed.
#![allow(dead_code, reason = "each test file uses its own part")]

mod dogwatch;
mod fifo;
pub mod nats;
mod others;
#[path = "../../../host/tests/support/skip.rs"]
pub mod skip;

pub use dogwatch::{Done, Running};
pub use fifo::{Fifo, Gate};

use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

/// A generous limit for every wait, even on a machine with many other processes. Only a failing test waits this long.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The variable that marks every process of a test. Its value is the test's directory.
pub const MARK: &str = "DOGWATCH_TEST";

/// Short graces, so that agents that ignore signals cost little time.
pub const GRACES: &str = "watchdog: {grace: 200ms, leak: 300ms}";

/// The directories of a test.
pub struct Project {
    dir: TempDir,
}

impl Project {
    /// Creates an empty project.
    pub fn new() -> Project {
        let dir = TempDir::new().expect("a directory for the test");
        for name in ["work/loop", "home", "state"] {
            std::fs::create_dir_all(dir.path().join(name)).expect("a directory");
        }
        Project { dir }
    }

    /// Creates a loop with short graces whose agent plays this script.
    pub fn acting(script: &str) -> Project {
        Project::acting_with(GRACES, script)
    }

    /// Creates a loop with these lines of frontmatter whose agent plays this script.
    pub fn acting_with(front: &str, script: &str) -> Project {
        let project = Project::new();
        project.act(front, script);
        project
    }

    /// Creates a loop with a run that was killed in its first session, as if this long after its start. The agent worked
    /// without a word.
    pub fn with_lost_run(supervised: Dur) -> Project {
        let project = Project::acting("ready there; hang");
        let there = project.fifo("there");
        let mut run = project.start_run(&[]);
        run.wait_for("session_started");
        there.pid();
        run.kill();
        project.wait_until_no_process_left();
        let started = project.journal()[0]["at"].as_str().and_then(Wall::from_rfc3339).expect("a time");
        let lost = UNIX_EPOCH + Duration::from_millis(started.plus(supervised).0.unsigned_abs());
        // The keeper noted the loss as the time of the lock.
        for lock in std::fs::read_dir(project.outside("state/dogwatch/locks")).expect("locks").flatten() {
            let lock = File::options().write(true).open(lock.path()).expect("opens");
            lock.set_modified(lost).expect("sets the time");
        }
        project
    }

    /// Creates a loop whose agent is a shell command.
    pub fn shell(agent: &str) -> Project {
        let project = Project::new();
        project.ralph(&format!("agent: {}\n{GRACES}", Value::from(format!("sh -c '{agent}'"))), "Go on.");
        project
    }

    /// Writes a loop file whose agent plays this script.
    pub fn act(&self, front: &str, script: &str) {
        self.act_on(front, script, "Go on.");
    }

    /// Writes a loop file with this body whose agent plays this script.
    pub fn act_on(&self, front: &str, script: &str, body: &str) {
        self.file("script", script);
        self.ralph(&format!("agent: {}\n{front}", Value::from(self.actor("script"))), body);
    }

    /// Returns the command line of an actor that plays a file of the work directory.
    pub fn actor(&self, script: &str) -> String {
        format!("'{}' actor {script}", env!("CARGO_BIN_EXE_dogwatch"))
    }

    /// Writes the loop file.
    pub fn ralph(&self, front: &str, body: &str) {
        self.file("loop/RALPH.md", &format!("---\n{front}\n---\n{body}\n"));
    }

    /// Returns a path in the work directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// Returns a path outside the work directory.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file in the work directory.
    pub fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("writes a small file");
    }

    /// Reads a file in the work directory.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Returns the lines of a file in the work directory, or none if it does not exist.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Creates a FIFO in the work directory.
    pub fn fifo(&self, name: &str) -> Fifo {
        Fifo::new(&self.path(name))
    }

    /// Creates a gate in the work directory.
    pub fn gate(&self, name: &str) -> Gate {
        Gate::new(&self.path(name))
    }

    /// Returns a dogwatch command in the environment of this project, not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
        self.set_environment(&mut command);
        command.args(args);
        command
    }

    /// Sets up a command to run in the directory and environment of this project.
    pub fn set_environment(&self, command: &mut Command) {
        let ours = std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"DOGWATCH"));
        for (name, _) in ours {
            command.env_remove(name);
        }
        command
            .current_dir(self.path(""))
            .env(MARK, self.dir.path())
            .env("TZ", "UTC0")
            .env("HOME", self.outside("home"))
            .env("XDG_STATE_HOME", self.outside("state"))
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null());
    }

    /// Starts `dogwatch …`.
    pub fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    /// Starts `dogwatch run loop --json …`.
    pub fn start_run(&self, args: &[&str]) -> Running {
        self.start(&[&["run", "loop", "--json"], args].concat())
    }

    /// Runs `dogwatch run loop --json …` to its end and asserts that no process is left.
    pub fn run(&self, args: &[&str]) -> Done {
        let done = self.start_run(args).finish();
        self.assert_no_process_left();
        done
    }

    /// Runs `dogwatch …` to its end.
    pub fn call(&self, args: &[&str]) -> Done {
        self.start(args).finish()
    }

    /// Makes the directory a git repository, so that there are snapshots.
    pub fn init_git(&self) {
        let mut git = Command::new("git");
        self.set_environment(&mut git);
        let status = git.args(["init", "-q", "."]).status().expect("git is installed");
        assert!(status.success(), "git init");
    }

    /// Returns the directory of the latest run.
    pub fn run_dir(&self) -> PathBuf {
        let runs = std::fs::read_dir(self.path(".dogwatch/runs")).expect("a run was recorded");
        let made = |path: &PathBuf| {
            path.metadata().and_then(|m| m.created()).expect("the file system records the creation time")
        };
        runs.flatten().map(|e| e.path()).max_by_key(made).expect("at least one run")
    }

    /// Returns a file of an iteration of the latest run.
    pub fn raw(&self, iteration: u64, name: &str) -> Vec<u8> {
        let path = self.run_dir().join("loop").join(format!("{iteration:06}")).join(name);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Returns the saved prompt of an iteration.
    pub fn prompt(&self, iteration: u64) -> String {
        String::from_utf8(self.raw(iteration, "prompt.md")).expect("a prompt is text")
    }

    /// Returns the events of the latest run's journal, which must be complete.
    pub fn journal(&self) -> Vec<Value> {
        journal(&self.run_dir())
    }

    /// Asserts that no process of the test is alive right now.
    pub fn assert_no_process_left(&self) {
        let left = others::of(self.dir.path());
        assert!(left.is_empty(), "left behind: {}", others::describe(&left));
    }

    /// Waits until no process of the test is alive, for processes that end by themselves after dogwatch was killed.
    pub fn wait_until_no_process_left(&self) {
        others::wait_for_all(self.dir.path());
    }

    /// Returns the keeper of the dogwatch that is running.
    pub fn keeper(&self) -> i32 {
        self.find_keeper().expect("a keeper is there")
    }

    /// Returns the keeper of the dogwatch that is running, if it has one at this moment.
    pub fn find_keeper(&self) -> Option<i32> {
        others::named(self.dir.path(), "dogwatch-keeper")
    }

    /// Sends a signal to the keeper.
    pub fn signal_keeper(&self, signal: Signal) {
        let keeper = Pid::from_raw(self.keeper()).expect("a pid");
        kill_process(keeper, signal).expect("the keeper is ours");
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        others::kill_all(self.dir.path());
    }
}

/// Returns the events of a journal and asserts that it has no torn line, no gap and an unbroken chain.
pub fn journal(run_dir: &Path) -> Vec<Value> {
    let loaded = dogwatch_host::store::journal::load(run_dir).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(loaded.chain.broken(), None, "the chain is unbroken");
    assert!(loaded.torn.is_empty(), "no torn line: {:?}", String::from_utf8_lossy(&loaded.torn));
    let text = std::fs::read_to_string(run_dir.join("events.jsonl")).expect("the journal is text");
    text.lines().map(|l| serde_json::from_str(l).expect("checked above")).collect()
}

/// Returns the names of events, in order.
pub fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|e| e["event"].as_str().expect("an event has a name")).collect()
}

/// Returns the events of this name.
pub fn all<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["event"] == name).collect()
}

/// Returns the only event of this name.
pub fn one<'a>(events: &'a [Value], name: &str) -> &'a Value {
    match all(events, name)[..] {
        [event] => event,
        ref found => panic!("{} × {name} in {:?}", found.len(), names(events)),
    }
}

/// Returns the troubles and notices of this kind.
pub fn kinds<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["kind"] == kind).collect()
}
