//! What subagents do where their agent's stdout says nothing of it: the files that its CLI writes are followed.
//!
//! Where these files are and what a line means, `dogwatch_agents::SubagentLog` knows; here directories are watched and files
//! read. One thread per session, begun when the stream has told the session's id, sleeps in `poll` on inotify and a
//! bell; whoever is about to judge looks himself first (`Following::look`), so that nothing that is written by then
//! is missed because a thread was slow. A file is taken for evidence only from the moment of its creation on, a shared
//! log only from where it ended when the session began. Nothing but regular files is opened, no link is followed.
//! What goes wrong is no trouble: the evidence is welcome, not needed.

mod follow;
mod tail;

use dogwatch_agents::SubagentLog;
use dogwatch_core::settings::ReaderName;
use follow::Follower;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The trail of an agent that is started by us, so in our environment.
pub fn of(name: ReaderName, work_dir: &Path) -> Option<SubagentLog> {
    SubagentLog::new(name, work_dir.to_str()?, |var| std::env::var(var).ok())
}

/// What is told: so many signs that a subagent did something.
type Tell = Box<dyn Fn(u64) + Send + Sync>;

/// A session's files, followed until this is dropped.
pub struct Following(Arc<Shared>);

struct Shared {
    follower: Mutex<Follower>,
    /// Of its own, so that the thread can sleep on it without the lock.
    inotify: OwnedFd,
    bell: OwnedFd,
    tell: Tell,
}

impl Following {
    /// Follows the trail of the session with this id. `tell` is called from the thread, and from `look`.
    pub fn start(
        mut trail: SubagentLog,
        session: &str,
        tell: impl Fn(u64) + Send + Sync + 'static,
    ) -> Option<Following> {
        trail.of_session(session);
        let follower = Follower::new(trail).ok()?;
        let inotify = follower.as_fd().try_clone_to_owned().ok()?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let shared = Arc::new(Shared { follower: Mutex::new(follower), inotify, bell, tell: Box::new(tell) });
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name("trail".into()).spawn(move || theirs.run()).ok()?;
        Some(Following(shared))
    }

    /// Takes in all that is written by now.
    pub fn look(&self) {
        self.0.look();
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // Fails only when the counter is full: then it is ringing already.
        let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Follower> {
        // Who panicked with it has told; what was seen before is still right.
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        let seen = self.lock().look();
        if seen > 0 {
            (self.tell)(seen);
        }
    }

    fn run(&self) {
        // Here and not where it is started: a home may lie on a slow disk, and pipes must be drained meanwhile.
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
