//! Detects subagent activity that does not show on the agent's stdout, by following the files that its CLI writes.
//!
//! `dogwatch_agents::SubagentLog` knows where these files are and what a line means; this module watches
//! directories and reads files. Each session gets one thread, started when the stream has shown the session's id,
//! which sleeps in `poll` on inotify and an eventfd. A caller that is about to judge calls `Following::look` first,
//! so that a slow thread cannot hide written lines. A file counts as evidence only if it was created during the
//! session, and a shared log only from its end at the start of the session. Only regular files are opened, and
//! links are not followed. Errors are ignored: this evidence is optional.
//!
//! The file of the session itself is read as well, if its CLI writes there what its output does not contain: the
//! windows of the subscription.

mod follow;
mod log_file;

use dogwatch_agents::SubagentLog;
use dogwatch_core::settings::ReaderName;
use follow::Follower;
pub use follow::Found;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Returns the subagent log of an agent that we start, and that therefore has our environment.
pub fn of(name: ReaderName, work_dir: &Path) -> Option<SubagentLog> {
    SubagentLog::new(name, work_dir.to_str()?, |var| std::env::var(var).ok())
}

/// The callback. It receives what the files show, if they show anything new.
type OnActivity = Box<dyn Fn(Found) + Send + Sync>;

/// Follows a session's files until dropped.
pub struct Following(Arc<Shared>);

struct Shared {
    follower: Mutex<Follower>,
    /// A separate descriptor, so that the thread can poll it without the lock.
    inotify: OwnedFd,
    bell: OwnedFd,
    tell: OnActivity,
}

impl Following {
    /// Follows the log of the session with this id. `tell` is called from the thread and from `look`.
    pub fn start(
        mut log: SubagentLog,
        session: &str,
        tell: impl Fn(Found) + Send + Sync + 'static,
    ) -> Option<Following> {
        log.of_session(session);
        let follower = Follower::new(log).ok()?;
        let inotify = follower.as_fd().try_clone_to_owned().ok()?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let shared = Arc::new(Shared { follower: Mutex::new(follower), inotify, bell, tell: Box::new(tell) });
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name("trail".into()).spawn(move || theirs.run()).ok()?;
        Some(Following(shared))
    }

    /// Processes everything that has been written so far.
    pub fn look(&self) {
        self.0.look();
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // The write fails only when the counter is full. Then the thread is woken anyway.
        let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Follower> {
        // Ignore poisoning: the panic was already reported and the data is still valid.
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        // The lock is held until the callback has returned: a second caller must not return before the findings of the
        // first are reported.
        let mut follower = self.lock();
        let found = follower.look();
        if found.activity > 0 || !found.signs.is_empty() {
            (self.tell)(found);
        }
    }

    fn run(&self) {
        // The first look happens on this thread: a home directory may be on a slow disk, and the caller must keep
        // draining pipes.
        self.look();
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.inotify.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            if !fds[1].revents().is_empty() {
                return;
            }
            self.look();
        }
    }
}
