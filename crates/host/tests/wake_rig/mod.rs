//! A watched work tree, for the tests of waking.

// Each test binary uses only a part.
#![allow(dead_code)]

use dogwatch_host::fs::wake::{Bounds, Coverage, PathWaker};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// More time than any test needs.
pub const AMPLE: Duration = Duration::from_secs(60);

/// A temporary work tree with the limits for its watcher.
pub struct Rig {
    pub dir: tempfile::TempDir,
    pub state: PathBuf,
    pub bounds: Bounds,
}

impl Rig {
    /// Creates an empty work tree.
    pub fn new() -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("w/.dogwatch");
        fs::create_dir_all(dir.path().join("w/inbox")).expect("made");
        // In these tests a new file counts only when it is closed, never by timeout.
        let bounds = Bounds { closed_within: AMPLE, ..Bounds::default() };
        Rig { dir, state, bounds }
    }

    /// Creates a work tree in a git repository.
    pub fn git() -> Rig {
        let rig = Rig::new();
        rig.run_git(&["init", "-q"]);
        rig.write(".gitignore", "build/\n*.log\n");
        rig.commit();
        rig
    }

    /// Returns the root of the work tree.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("w")
    }

    /// Returns a path in the work tree.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file, with its directories.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("written");
    }

    /// Runs git in the work tree.
    pub fn run_git(&self, args: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let done = Command::new("git").args(who).args(args).current_dir(self.root()).status();
        assert!(done.expect("git is installed").success());
    }

    /// Commits everything.
    pub fn commit(&self) {
        self.run_git(&["add", "-A"]);
        self.run_git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    }

    /// Watches these globs and waits until the watches are set.
    pub fn watch(&self, globs: &[&str]) -> Watching {
        let (sender, wakes) = channel();
        self.watch_with(globs, wakes, move |path| sender.send(path).unwrap_or(()))
    }

    /// Like `watch`, with other options.
    pub fn watch_with(
        &self,
        globs: &[&str],
        wakes: Receiver<PathBuf>,
        on_wake: impl Fn(PathBuf) + Send + 'static,
    ) -> Watching {
        next_tick();
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let state = [self.state.clone()];
        let waker =
            PathWaker::start_within(self.bounds, &self.root(), &globs, &state, false, move |path, _| {
                on_wake(path)
            })
            .expect("started");
        let coverage = waker.ready(AMPLE).expect("ready");
        Watching { waker, wakes, coverage }
    }
}

/// Waits for the next step of the clock that stamps files, so that earlier writes are older than the watch.
pub fn next_tick() {
    let now = clock_gettime(ClockId::Realtime);
    while clock_gettime(ClockId::RealtimeCoarse) <= now {
        std::hint::spin_loop();
    }
}

/// A running waker and its wakes.
pub struct Watching {
    pub waker: PathWaker,
    pub wakes: Receiver<PathBuf>,
    pub coverage: Coverage,
}

impl Watching {
    /// Asserts that the next wake is for this path.
    #[track_caller]
    pub fn woken_by(&self, path: &str) {
        assert_eq!(self.wakes.recv_timeout(AMPLE).expect("a wake"), Path::new(path));
    }

    /// Rearms, and asserts that the next wake is for this path.
    #[track_caller]
    pub fn again_by(&self, path: &str) {
        self.waker.rearm();
        self.woken_by(path);
    }
}
