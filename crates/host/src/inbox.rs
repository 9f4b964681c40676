//! Where threads leave word for the driver: a short queue and a bell it can poll.

use dogwatch_core::event::Observation;
use dogwatch_core::job::Job;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// More than this waits only if the driver is long dead to the world; observations are then dropped.
pub const MAX_MAIL: usize = 10_000;

/// A word from a pump.
#[derive(Clone, Debug, PartialEq)]
pub enum Mail {
    Observed { job: Job, seen: Observation },
    PipesClosed { job: Job },
}

#[derive(Clone, Debug)]
pub struct Inbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bell: OwnedFd,
    mail: Mutex<VecDeque<Mail>>,
}

impl Inbox {
    pub fn new() -> io::Result<Inbox> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox(Arc::new(Shared { bell, mail: Mutex::new(VecDeque::new()) })))
    }

    pub fn post(&self, mail: Mail) {
        let mut queue = self.0.mail.lock().unwrap_or_else(PoisonError::into_inner);
        let droppable = matches!(mail, Mail::Observed { .. });
        if queue.len() < MAX_MAIL || !droppable {
            queue.push_back(mail);
        }
        drop(queue);
        // Fails only when the counter is full, and then the bell is ringing anyway.
        let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes());
    }

    pub fn take(&self) -> VecDeque<Mail> {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.0.bell, &mut count);
        std::mem::take(&mut *self.0.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::ids::{Iteration, NodeIx};
    use dogwatch_core::job::JobKind;
    use dogwatch_core::moment::Awake;
    use dogwatch_core::watch::Channel;

    // promise: 4
    #[test]
    fn a_flood_of_observations_is_bounded_and_never_pushes_out_an_ending() {
        let inbox = Inbox::new().expect("an eventfd");
        let job = Job { node: NodeIx(0), iteration: Iteration(1), kind: JobKind::Session };
        let seen = Observation {
            channel: Channel::Stdout,
            first_ms: Awake(0),
            last_ms: Awake(0),
            count: 1,
            messages: 1,
            max_gap_ms: 0,
        };
        for _ in 0..MAX_MAIL + 1 {
            inbox.post(Mail::Observed { job, seen });
        }
        inbox.post(Mail::PipesClosed { job });
        let mail = inbox.take();
        assert_eq!(mail.len(), MAX_MAIL + 1);
        assert_eq!(mail.back(), Some(&Mail::PipesClosed { job }));
        assert!(inbox.take().is_empty());
    }
}
