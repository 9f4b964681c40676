//! The driver's inbox: a bounded queue that other threads post to, with an eventfd that the driver polls.

use dogwatch_core::drive::shell;
use dogwatch_core::record::event::WaitEndedBy;
use dogwatch_core::record::view::View;
use dogwatch_core::run::agent_channel::AgentResponse;
use dogwatch_core::run::input::{Input, NodeInput};
use dogwatch_core::watch::Fact;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most messages that may wait. Beyond this the driver is far behind, and observations are dropped.
pub const MAX_MAIL: usize = 10_000;
/// The number of waiting messages at which pumps leave the agents' output in the pipes until the driver has taken the
/// messages. It also limits those that are never dropped: a pump adds at most one read or one flush to them.
pub const FULL_MAIL: usize = 1_000;

/// The callback that receives an answer. The driver calls it, so it must not block.
pub struct Reply(Box<dyn FnOnce(Result<AgentResponse, ChannelError>) + Send>);

impl Reply {
    /// Wraps a callback.
    pub fn new(send: impl FnOnce(Result<AgentResponse, ChannelError>) + Send + 'static) -> Reply {
        Reply(Box::new(send))
    }

    /// Delivers the answer.
    pub fn send(self, answer: Result<AgentResponse, ChannelError>) {
        (self.0)(answer);
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

pub use dogwatch_core::drive::shell::ChannelError;

/// A message from a pump, the path watcher or the API.
pub type Mail = shell::Mail<Reply, SyncSender<View>>;

/// A handle to the driver's inbox. Clones share one queue.
#[derive(Clone, Debug)]
pub struct Inbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bell: OwnedFd,
    /// Readable unless [`FULL_MAIL`] messages wait. Changed only while `mail` is locked.
    room: OwnedFd,
    mail: Mutex<VecDeque<Mail>>,
}

impl Inbox {
    /// Creates an empty inbox.
    pub fn new() -> io::Result<Inbox> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (bell, room) = (eventfd(0, flags)?, eventfd(1, flags)?);
        Ok(Inbox(Arc::new(Shared { bell, room, mail: Mutex::new(VecDeque::new()) })))
    }

    /// Posts a message. Returns false if the inbox is full. A message that comes at most once until the driver has
    /// handled it is always accepted, such as the end of a job or a change that a watcher reports.
    pub fn post(&self, mail: Mail) -> bool {
        let mut queue = self.lock();
        // Dropping these would leave a tool that seems to run forever, a node that waits forever for its pins, a
        // watcher that waits forever to be rearmed, or a run that does not know that its leash is gone.
        let must = matches!(
            mail,
            Mail::PipesClosed { .. }
                | Mail::Input(Input::Node(..))
                | Mail::WorkTreeChanged { .. }
                | Mail::Input(
                    Input::Notified { .. } | Input::WakeAsked(WaitEndedBy::Path) | Input::LeashClosed
                )
                | Mail::FromSession { input: Input::Job(_, NodeInput::Noted(Fact::ToolEnded { .. })), .. }
        );
        let taken = must || queue.len() < MAX_MAIL;
        if taken {
            queue.push_back(mail);
            if queue.len() == FULL_MAIL {
                let _ = rustix::io::read(&self.0.room, &mut [0u8; 8]);
            }
        }
        drop(queue);
        // The write fails only when the counter is full. Then the driver is woken anyway.
        let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes());
        taken
    }

    /// Takes all waiting messages and resets the eventfd.
    pub fn take(&self) -> VecDeque<Mail> {
        let _ = rustix::io::read(&self.0.bell, &mut [0u8; 8]);
        let mut queue = self.lock();
        if queue.len() >= FULL_MAIL {
            let _ = rustix::io::write(&self.0.room, &1u64.to_ne_bytes());
        }
        std::mem::take(&mut *queue)
    }

    /// Returns `None` if fewer than [`FULL_MAIL`] messages wait, and otherwise a descriptor that becomes readable when
    /// the driver takes them.
    pub fn full(&self) -> Option<BorrowedFd<'_>> {
        (self.lock().len() >= FULL_MAIL).then(|| self.0.room.as_fd())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Mail>> {
        self.0.mail.lock().unwrap_or_else(PoisonError::into_inner)
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
    use crate::process::pump::Sink as _;
    use crate::process::sinks::{JobSink, SessionSink};
    use dogwatch_core::record::event::Observation;
    use dogwatch_core::record::ids::{Iteration, NodeIx};
    use dogwatch_core::run::job::{Job, JobKind};
    use dogwatch_core::settings::ReaderName;
    use dogwatch_core::time::moment::Awake;
    use dogwatch_core::watch::Channel;

    const JOB: Job = Job { node: NodeIx(0), iteration: Iteration(1), kind: JobKind::Session };

    fn observed() -> Mail {
        let seen = Observation {
            channel: Channel::Stdout,
            first_ms: Awake(0),
            last_ms: Awake(0),
            count: 1,
            messages: 1,
            max_gap_ms: 0,
            digest: None,
        };
        Mail::FromSession { job: JOB, input: Input::Job(JOB, NodeInput::Observed(seen)) }
    }

    // promise: 4
    #[test]
    fn a_flood_of_observations_is_bounded_and_never_pushes_out_an_ending() {
        let inbox = Inbox::new().expect("an eventfd");
        for _ in 0..MAX_MAIL {
            assert!(inbox.post(observed()));
        }
        assert!(!inbox.post(observed()));
        // Each of these comes once: the watchers wait until they are rearmed.
        let endings = [
            Mail::WorkTreeChanged { node: None, digest: None },
            Mail::Input(Input::WakeAsked(WaitEndedBy::Path)),
            Mail::Input(Input::LeashClosed),
            Mail::PipesClosed { job: JOB },
        ];
        for ending in endings {
            assert!(inbox.post(ending));
        }
        assert!(!inbox.post(observed()));
        let mail = inbox.take();
        assert_eq!(mail.len(), MAX_MAIL + 4);
        assert!(matches!(mail.back(), Some(Mail::PipesClosed { .. })));
        assert!(inbox.take().is_empty());
    }

    // promise: 4
    #[test]
    fn a_session_is_not_read_while_the_driver_is_behind() {
        let inbox = Inbox::new().expect("an eventfd");
        let dir = tempfile::tempdir().expect("a directory");
        let session = SessionSink::new(JOB, ReaderName::Claude, dir.path(), 1 << 20, inbox.clone());
        let sink = JobSink::Session(Box::new(session));
        let readable = |fd: &OwnedFd| rustix::io::read(fd, &mut [0u8; 8]).is_ok();
        for round in 0..2 {
            for _ in 1..FULL_MAIL {
                assert!(inbox.post(observed()));
            }
            assert!(sink.full().is_none(), "round {round}");
            inbox.post(observed());
            assert!(sink.full().is_some(), "round {round}");
            inbox.post(observed());
            assert!(!readable(&inbox.0.room), "round {round}");
            assert_eq!(inbox.take().len(), FULL_MAIL + 1);
            assert!(sink.full().is_none(), "round {round}");
        }
        assert!(readable(&inbox.0.room), "the pump is woken");
    }
}
