//! The leash of a keeper: it ends the job's tree even if the supervisor is stopped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::clock;
use crate::sys::{Clock, Timer};

/// How long a supervisor that can run has to end the tree first. It knows more: it records why.
pub const SLACK: Duration = Duration::from_secs(1);

/// The time until which the tree may live, and the descriptor that must stay open.
#[derive(Debug)]
pub struct Leash {
    /// Counts suspended time, so that a tree does not outlive its time in a suspend.
    timer: Timer,
    until: Duration,
    watch: Option<OwnedFd>,
    closed: bool,
    ended: bool,
}

impl Leash {
    /// Creates a leash.
    pub fn new(until: Duration, watch: Option<OwnedFd>) -> io::Result<Leash> {
        let mut leash = Leash { timer: Timer::new(Clock::Boot)?, until, watch, closed: false, ended: false };
        leash.renew(until, None)?;
        Ok(leash)
    }

    /// Replaces the time. A leash that was closed or has ended stays so.
    pub fn renew(&mut self, until: Duration, watch: Option<OwnedFd>) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        self.until = until.saturating_add(SLACK);
        self.watch = watch.or(self.watch.take());
        self.timer.set_at(self.until)
    }

    /// Returns whether the tree may no longer live.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns what to poll for. A leash that has ended needs nothing more.
    pub fn fds(&self) -> Vec<PollFd<'_>> {
        if self.ended {
            return Vec::new();
        }
        let watch = self.watch.as_ref().map(|fd| PollFd::new(fd, PollFlags::empty()));
        std::iter::once(PollFd::from_borrowed_fd(self.timer.as_fd(), PollFlags::IN)).chain(watch).collect()
    }

    /// Returns whether the leash has ended just now. The end of the descriptor brings the time forward.
    pub fn ends(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let now = Duration::from_millis(clock::now().boot.0);
        if self.is_closed() {
            (self.watch, self.closed) = (None, true);
            let soon = now.saturating_add(SLACK);
            if soon < self.until {
                self.until = soon;
                // Without a timer the old time applies.
                let _ = self.timer.set_at(soon);
            }
        }
        self.ended = now >= self.until;
        self.ended
    }

    fn is_closed(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        let mut fds = [PollFd::new(watch, PollFlags::empty())];
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&none)).is_ok_and(|ready| ready > 0)
    }
}
