//! Wake on paths: a thread that sleeps until a file changes that the user named.
//!
//! Writes (when the file is closed), new files, renames and deletions wake; reads, `chmod`, a touch and a rewrite
//! with the same content do not. `.git`, ignored files and dogwatch's own state do not count, unless (but for
//! the last) a wake path names them: a glob whose fixed part is ignored is meant as it stands. Directories made
//! later are watched too, and what came into them before the watch was set counts. A path that does not exist
//! is waited for in the nearest directory that does. Links are followed only where a wake path names them.
//!
//! After a wake it is quiet until [`PathWaker::rearm`]; a change in between is remembered and then wakes at
//! once. The driver starts one per run and passes the wakes on to the core, which decides what they mean.
//!
//! What decides about a change is in `tree` and `survey` and knows no thread; `globs` and `scope` say what
//! counts, `known` remembers contents, `watches` is inotify.

mod bounds;
mod globs;
mod known;
mod scope;
mod survey;
mod tree;
mod watches;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use dogwatch_core::time::moment::Awake;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::clock;
pub use bounds::{
    Bounds, CLOSED_WITHIN, Coverage, MAX_DOUBTED, MAX_FIRST_BYTES, MAX_KNOWN_BYTES, MAX_KNOWN_FILES,
    MAX_SURVEYED, MAX_UNFINISHED, MAX_WATCHES, SCAN_EVERY, Shortage,
};
pub use globs::{BadGlob, MAX_GLOB_BYTES, MAX_GLOBS};
use scope::Scope;
use tree::{Changes, Tree};

/// Finds fault with wake paths before anything is started.
pub fn check(root: &Path, globs: &[String]) -> Result<(), BadGlob> {
    Scope::new(root, globs, &[]).map(drop)
}

/// Watches for as long as it lives.
#[derive(Debug)]
pub struct PathWaker {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

/// Who waits to be let go waits no longer than this.
pub const MAX_HELD: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Control {
    bell: OwnedFd,
    /// Nothing is looked at yet: somebody needs the machine more.
    held: AtomicBool,
    stop: AtomicBool,
    rearm: AtomicBool,
    coverage: Mutex<Option<Coverage>>,
    covered: Condvar,
}

impl PathWaker {
    /// Starts watching the work tree `root` and returns at once; what changes from now on counts.
    ///
    /// `globs` are relative to the root or absolute; `state_dirs` are dogwatch's own and never count. `on_wake`
    /// is called on the waker's thread with one path that changed, relative to the root if it lies in it. An
    /// error of kind `InvalidInput` holds a [`BadGlob`].
    pub fn start(
        root: &Path,
        globs: &[String],
        state_dirs: &[PathBuf],
        on_wake: impl Fn(PathBuf) + Send + 'static,
    ) -> io::Result<PathWaker> {
        PathWaker::start_within(Bounds::default(), root, globs, state_dirs, on_wake)
    }

    /// As [`PathWaker::start`], but the first survey waits until [`PathWaker::let_go`], at most for [`MAX_HELD`]: tens of
    /// thousands of directories keep a processor busy just when a session is to start. What changes from now on counts
    /// all the same.
    pub fn start_held(
        root: &Path,
        globs: &[String],
        state_dirs: &[PathBuf],
        on_wake: impl Fn(PathBuf) + Send + 'static,
    ) -> io::Result<PathWaker> {
        PathWaker::begin(Bounds::default(), root, globs, state_dirs, true, move |path, _| on_wake(path))
    }

    /// Watches all of a work tree, as [`PathWaker::start_held`] does, and gives its state with each change: a number
    /// that is equal for equal contents. None while it is unknown.
    pub fn watch_tree(
        root: &Path,
        state_dirs: &[PathBuf],
        on_change: impl Fn(Option<u64>) + Send + 'static,
    ) -> io::Result<PathWaker> {
        let everything = ["**".to_owned()];
        let on_wake = move |_, digest| on_change(digest);
        PathWaker::begin(Bounds::default(), root, &everything, state_dirs, true, on_wake)
    }

    /// As [`PathWaker::start`], with other limits.
    pub fn start_within(
        bounds: Bounds,
        root: &Path,
        globs: &[String],
        state_dirs: &[PathBuf],
        on_wake: impl Fn(PathBuf) + Send + 'static,
    ) -> io::Result<PathWaker> {
        PathWaker::begin(bounds, root, globs, state_dirs, false, move |path, _| on_wake(path))
    }

    fn begin(
        bounds: Bounds,
        root: &Path,
        globs: &[String],
        state_dirs: &[PathBuf],
        held: bool,
        on_wake: impl Fn(PathBuf, Option<u64>) + Send + 'static,
    ) -> io::Result<PathWaker> {
        let scope = Scope::new(root, globs, state_dirs)
            .map_err(|bad| io::Error::new(io::ErrorKind::InvalidInput, bad))?;
        let control = Arc::new(Control {
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            held: AtomicBool::new(held),
            stop: AtomicBool::new(false),
            rearm: AtomicBool::new(false),
            coverage: Mutex::new(None),
            covered: Condvar::new(),
        });
        let gate = Gate {
            control: Arc::clone(&control),
            root: scope.root.clone(),
            armed: true,
            missed: None,
            digest: None,
            on_wake: Box::new(on_wake),
        };
        let tree = Tree::new(scope, bounds, gate);
        let thread = std::thread::Builder::new().name("wake".into()).spawn(move || run(tree))?;
        Ok(PathWaker { control, thread: Some(thread) })
    }

    /// The survey may begin. Costs nothing when it has.
    pub fn let_go(&self) {
        if self.control.held.swap(false, Ordering::AcqRel) {
            self.control.ring();
        }
    }

    /// The next change wakes again; one since the last wake does at once.
    pub fn rearm(&self) {
        self.control.rearm.store(true, Ordering::Release);
        self.control.ring();
    }

    /// How the paths are looked after; None while the watches are being set.
    pub fn coverage(&self) -> Option<Coverage> {
        *self.control.coverage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the watches are set, at most for `bound`.
    pub fn ready(&self, bound: Duration) -> Option<Coverage> {
        let coverage = self.control.coverage.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.control.covered.wait_timeout_while(coverage, bound, |coverage| coverage.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends the thread and waits for it: no wake comes after this.
    pub fn stop(mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            // It has told what it had to tell; a panic in it was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for PathWaker {
    /// Does not wait: the callback may be about to need what the dropping thread holds.
    fn drop(&mut self) {
        self.control.stop();
    }
}

impl Control {
    fn ring(&self) {
        // Fails only when the counter is full: then it is ringing already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    fn cover(&self, coverage: Coverage) {
        *self.coverage.lock().unwrap_or_else(PoisonError::into_inner) = Some(coverage);
        self.covered.notify_all();
    }
}

/// Lets one change through, then none until it is armed again.
struct Gate {
    control: Arc<Control>,
    root: PathBuf,
    armed: bool,
    /// The first change since the last wake.
    missed: Option<PathBuf>,
    /// The state of the tree, if it is known.
    digest: Option<u64>,
    on_wake: Box<dyn Fn(PathBuf, Option<u64>) + Send>,
}

impl Gate {
    fn rearm(&mut self) {
        match self.missed.take() {
            Some(path) => (self.on_wake)(path, self.digest),
            None => self.armed = true,
        }
    }
}

impl Changes for Gate {
    fn changed(&mut self, path: &Path) {
        let told = path.strip_prefix(&self.root).unwrap_or(path).to_path_buf();
        if std::mem::replace(&mut self.armed, false) {
            (self.on_wake)(told, self.digest);
        } else {
            self.missed.get_or_insert(told);
        }
    }

    fn state(&mut self, digest: Option<u64>) {
        self.digest = digest;
    }

    fn sated(&self) -> bool {
        self.missed.is_some()
    }

    fn stopped(&self) -> bool {
        self.control.stop.load(Ordering::Acquire)
    }
}

fn run(mut tree: Tree<Gate>) {
    let control = Arc::clone(&tree.changes.control);
    if control.held.load(Ordering::Acquire) {
        hold(&control);
    }
    loop {
        // What came before the question is part of the answer: asked first, then taken in.
        let asked = control.rearm.swap(false, Ordering::AcqRel);
        tree.turn();
        if asked {
            tree.recheck();
            tree.changes.rearm();
            // A survey may have waited for it.
            tree.turn();
        }
        if tree.changes.stopped() {
            return;
        }
        control.cover(tree.coverage());
        wait(&control, &tree);
    }
}

/// Sleeps until somebody lets go, wants something or ends it all, or enough is enough.
fn hold(control: &Control) {
    let patience: Timespec = MAX_HELD.try_into().expect("it is far less than 2^63 seconds");
    let mut fds = [PollFd::new(&control.bell, PollFlags::IN)];
    // What interrupts it lets go, too. The bell stays rung for whoever rang it.
    let _ = poll(&mut fds, Some(&patience));
    control.held.store(false, Ordering::Release);
}

/// Sleeps until something happens, somebody rings, or a turn is due.
fn wait(control: &Control, tree: &Tree<Gate>) {
    let timeout = tree.due().map(|at| span(at, clock::awake()));
    let bell = PollFd::new(&control.bell, PollFlags::IN);
    // Without inotify the bell stands in its place.
    let events = tree.fd().unwrap_or(control.bell.as_fd());
    let mut fds = [bell, PollFd::from_borrowed_fd(events, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        // Out of memory for a moment: taken as an empty turn.
        Err(_) => std::thread::yield_now(),
    }
    let mut count = [0_u8; 8];
    let _ = rustix::io::read(&control.bell, &mut count);
}

fn span(at: Awake, now: Awake) -> Timespec {
    let ms = at.0.saturating_sub(now.0);
    Timespec {
        tv_sec: i64::try_from(ms / 1_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1_000 * 1_000_000).unwrap_or(0),
    }
}
