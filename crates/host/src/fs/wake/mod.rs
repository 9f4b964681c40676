//! Wake on paths: a thread that sleeps until a file named by the user changes.
//!
//! Writes (once the file is closed), new files, renames and deletions wake; reads, `chmod`, a touch and a rewrite
//! with the same content do not. `.git`, ignored files and dogwatch's own state do not count. A wake path can name
//! ignored files or `.git` explicitly: ignore rules do not apply to a glob whose fixed part is ignored. Directories
//! created later are watched too, and files created in them before the watch was set count. If a path does not
//! exist, the nearest existing directory above it is watched. Links are followed only where a wake path names them.
//!
//! After a wake the waker is quiet until [`PathWaker::rearm`]. A change in between is remembered and wakes at once
//! when rearmed. The driver starts one waker per run and passes the wakes to the core, which decides what they
//! mean.
//!
//! `tree` and `survey` decide about changes and use no thread; `globs` and `scope` define which files count,
//! `known` remembers contents, and `watches` wraps inotify.

mod bounds;
mod globs;
mod known;
mod scope;
mod survey;
mod watcher;
mod watches;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
pub use globs::{GlobError, MAX_GLOB_BYTES, MAX_GLOBS};
use scope::Scope;
use watcher::{Changes, TreeWatcher};

/// Validates wake paths before anything is started.
pub fn check(root: &Path, globs: &[String]) -> Result<(), GlobError> {
    Scope::new(root, globs, &[]).map(drop)
}

/// Watches paths until dropped.
#[derive(Debug)]
pub struct PathWaker {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

/// The longest time that [`PathWaker::start_held`] delays the first survey.
pub const MAX_HELD: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Control {
    bell: OwnedFd,
    /// The first survey is delayed, because a starting session needs the processor.
    held: AtomicBool,
    stop: AtomicBool,
    rearm: AtomicBool,
    /// The number of flushes requested. All up to `flushed` are done.
    flushes: AtomicU64,
    flushed: Mutex<u64>,
    has_flushed: Condvar,
    coverage: Mutex<Option<Coverage>>,
    covered: Condvar,
}

/// A requested flush.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    number: u64,
    /// Whether an earlier flush is not done yet. A thread that hangs on a dead file system costs one wait, not many.
    overdue: bool,
}

impl PathWaker {
    /// Starts watching the work tree `root` and returns at once. Changes from now on count.
    ///
    /// `globs` are relative to the root or absolute; `state_dirs` are dogwatch's own directories and never count.
    /// `on_wake` is called on the waker's thread with one changed path, relative to the root if it is inside. An
    /// error of kind `InvalidInput` contains a [`GlobError`].
    pub fn start(
        root: &Path,
        globs: &[String],
        state_dirs: &[PathBuf],
        on_wake: impl Fn(PathBuf) + Send + 'static,
    ) -> io::Result<PathWaker> {
        let on_wake = move |path, _| on_wake(path);
        PathWaker::start_within(Bounds::default(), root, globs, state_dirs, false, on_wake)
    }

    /// Watches a whole work tree, with a delayed first survey, and passes its digest with each change: a number that is
    /// equal for equal contents, or `None` while it is unknown.
    pub fn watch_tree(
        root: &Path,
        state_dirs: &[PathBuf],
        on_change: impl Fn(Option<u64>) + Send + 'static,
    ) -> io::Result<PathWaker> {
        let everything = ["**".to_owned()];
        let on_wake = move |_, digest| on_change(digest);
        PathWaker::start_within(Bounds::default(), root, &everything, state_dirs, true, on_wake)
    }

    /// Like [`PathWaker::start`], with other limits. With `held`, the first survey is delayed until
    /// [`PathWaker::let_go`], at most for [`MAX_HELD`]. Surveying tens of thousands of directories would keep a processor
    /// busy just when a session starts. Changes from now on count nevertheless.
    pub fn start_within(
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
            flushes: AtomicU64::new(0),
            flushed: Mutex::new(0),
            has_flushed: Condvar::new(),
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
        let tree = TreeWatcher::new(scope, bounds, gate);
        let thread = std::thread::Builder::new().name("wake".into()).spawn(move || run(tree))?;
        Ok(PathWaker { control, thread: Some(thread) })
    }

    /// Lets the first survey begin. Does nothing if it has begun.
    pub fn let_go(&self) {
        if self.control.held.swap(false, Ordering::AcqRel) {
            self.control.ring();
        }
    }

    /// Rearms the waker: the next change wakes again, and a change since the last wake does so at once.
    pub fn rearm(&self) {
        self.control.rearm.store(true, Ordering::Release);
        self.control.ring();
    }

    /// Requests that every change up to now is reported, unless an earlier one still waits for a rearm. Pass the result
    /// to [`PathWaker::await_flush`].
    pub fn ask_flush(&self) -> Flush {
        let before = self.control.flushes.fetch_add(1, Ordering::AcqRel);
        self.control.ring();
        let done = *self.control.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        Flush { number: before + 1, overdue: done < before }
    }

    /// Waits for a requested flush, unless an earlier one is still pending. Returns whether it is done; `bound` limits
    /// the wait.
    pub fn await_flush(&self, flush: Flush, bound: Duration) -> bool {
        let bound = if flush.overdue { Duration::ZERO } else { bound };
        let flushed = self.control.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.control.has_flushed.wait_timeout_while(flushed, bound, |done| *done < flush.number);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Returns how the paths are covered, or `None` while the watches are being set.
    pub fn coverage(&self) -> Option<Coverage> {
        *self.control.coverage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the watches are set, at most for `bound`.
    pub fn ready(&self, bound: Duration) -> Option<Coverage> {
        let coverage = self.control.coverage.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.control.covered.wait_timeout_while(coverage, bound, |coverage| coverage.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Stops the thread and waits for it. No wake comes after this.
    pub fn stop(mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was already reported.
            let _ = thread.join();
        }
    }
}

impl Drop for PathWaker {
    /// Does not wait for the thread: its callback may need a lock that the dropping thread holds.
    fn drop(&mut self) {
        self.control.stop();
    }
}

impl Control {
    fn ring(&self) {
        // The write fails only when the counter is full. Then the thread is woken anyway.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    fn has_flushed(&self, flushes: u64) {
        *self.flushed.lock().unwrap_or_else(PoisonError::into_inner) = flushes;
        self.has_flushed.notify_all();
    }

    fn cover(&self, coverage: Coverage) {
        *self.coverage.lock().unwrap_or_else(PoisonError::into_inner) = Some(coverage);
        self.covered.notify_all();
    }
}

/// Passes on one change, then none until it is rearmed.
struct Gate {
    control: Arc<Control>,
    root: PathBuf,
    armed: bool,
    /// The first change since the last wake.
    missed: Option<PathBuf>,
    /// The digest of the tree, if known.
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
        let relative = path.strip_prefix(&self.root).unwrap_or(path).to_path_buf();
        if std::mem::replace(&mut self.armed, false) {
            (self.on_wake)(relative, self.digest);
        } else {
            self.missed.get_or_insert(relative);
        }
    }

    fn state(&mut self, digest: Option<u64>) {
        self.digest = digest;
    }

    fn is_saturated(&self) -> bool {
        self.missed.is_some()
    }

    fn stopped(&self) -> bool {
        self.control.stop.load(Ordering::Acquire)
    }
}

fn run(mut tree: TreeWatcher<Gate>) {
    let control = Arc::clone(&tree.changes.control);
    if control.held.load(Ordering::Acquire) {
        hold(&control);
    }
    loop {
        // Read the requests before the events, so that every earlier event is covered by the answer.
        // A flush is read first, so that it covers an earlier rearm.
        let flushes = control.flushes.load(Ordering::Acquire);
        let asked = control.rearm.swap(false, Ordering::AcqRel);
        tree.turn();
        if asked {
            tree.recheck();
            tree.changes.rearm();
            // A survey may have been waiting for this.
            tree.turn();
        }
        if tree.changes.stopped() {
            return;
        }
        control.cover(tree.coverage());
        control.has_flushed(flushes);
        wait(&control, &tree);
    }
}

/// Sleeps until the waker is released, rearmed or stopped, or until `MAX_HELD` has passed.
fn hold(control: &Control) {
    let patience: Timespec = MAX_HELD.try_into().expect("fits into a timespec");
    let mut fds = [PollFd::new(&control.bell, PollFlags::IN)];
    // An interruption also ends the delay. The bell is not reset, so the request is still seen later.
    let _ = poll(&mut fds, Some(&patience));
    control.held.store(false, Ordering::Release);
}

/// Sleeps until an event, a request, or the time of the next turn.
fn wait(control: &Control, tree: &TreeWatcher<Gate>) {
    let timeout = tree.due().map(|at| span(at, clock::awake()));
    let bell = PollFd::new(&control.bell, PollFlags::IN);
    // Without inotify, poll the bell twice.
    let events = tree.fd().unwrap_or(control.bell.as_fd());
    let mut fds = [bell, PollFd::from_borrowed_fd(events, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        // Out of memory for a moment: treat it as an empty turn.
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
