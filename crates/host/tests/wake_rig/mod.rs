//! A work tree that is watched, for the tests of waking.

// Each test binary uses a part of it.
#![allow(dead_code)]

use dogwatch_host::fs::wake::{Bounds, Coverage, PathWaker};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// More than any test needs.
pub const AMPLE: Duration = Duration::from_secs(60);

pub struct Rig {
    pub dir: tempfile::TempDir,
    pub state: PathBuf,
    pub bounds: Bounds,
}

impl Rig {
    pub fn new() -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("w/.dogwatch");
        fs::create_dir_all(dir.path().join("w/inbox")).expect("made");
        // A new file counts when it is closed, in these tests at the earliest then.
        let bounds = Bounds { closed_within: AMPLE, ..Bounds::default() };
        Rig { dir, state, bounds }
    }

    pub fn git() -> Rig {
        let rig = Rig::new();
        rig.run_git(&["init", "-q"]);
        rig.write(".gitignore", "build/\n*.log\n");
        rig.commit();
        rig
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("w")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("written");
    }

    pub fn run_git(&self, args: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let done = Command::new("git").args(who).args(args).current_dir(self.root()).status();
        assert!(done.expect("git is there").success());
    }

    pub fn commit(&self) {
        self.run_git(&["add", "-A"]);
        self.run_git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    }

    pub fn watch(&self, globs: &[&str]) -> Watching {
        let (told, wakes) = channel();
        self.watch_with(globs, wakes, move |path| told.send(path).unwrap_or(()))
    }

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
            PathWaker::start_within(self.bounds, &self.root(), &globs, &state, on_wake).expect("started");
        let coverage = waker.ready(AMPLE).expect("ready");
        Watching { waker, wakes, coverage }
    }
}

/// What was written so far must be older than the watch, on the clock that stamps files: it goes in steps.
pub fn next_tick() {
    let now = clock_gettime(ClockId::Realtime);
    while clock_gettime(ClockId::RealtimeCoarse) <= now {
        std::hint::spin_loop();
    }
}

pub struct Watching {
    pub waker: PathWaker,
    pub wakes: Receiver<PathBuf>,
    pub coverage: Coverage,
}

impl Watching {
    #[track_caller]
    pub fn woken_by(&self, path: &str) {
        assert_eq!(self.wakes.recv_timeout(AMPLE).expect("a wake"), Path::new(path));
    }

    /// The next change wakes again.
    #[track_caller]
    pub fn again_by(&self, path: &str) {
        self.waker.rearm();
        self.woken_by(path);
    }
}
