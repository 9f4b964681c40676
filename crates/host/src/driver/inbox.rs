//! Where threads leave word for the driver: a short queue and a bell it can poll.

use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::record::view::View;
use dogwatch_core::run::agent_channel::{AgentRequest, Answer};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;
use dogwatch_core::watch::Fact;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

/// More than this waits only if the driver is long dead to the world; observations are then dropped.
pub const MAX_MAIL: usize = 10_000;

/// Where an answer goes. It must not wait: the driver gives it.
pub struct Reply(Box<dyn FnOnce(Result<Answer, NotHeard>) + Send>);

impl Reply {
    pub fn new(send: impl FnOnce(Result<Answer, NotHeard>) + Send + 'static) -> Reply {
        Reply(Box::new(send))
    }

    pub fn send(self, answer: Result<Answer, NotHeard>) {
        (self.0)(answer);
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// Why nobody listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeard {
    /// That session does not run, or not any more.
    SessionOver,
    WrongToken,
}

/// A word from a pump, the path watcher or the API.
#[derive(Debug)]
pub enum Mail {
    /// News of a running session.
    FromSession {
        job: Job,
        input: Input,
    },
    /// Something in the work tree changed, or in that of one node alone.
    WorkTreeChanged {
        node: Option<NodeIx>,
        /// The state it is in now, if it is known.
        digest: Option<u64>,
    },
    PipesClosed {
        job: Job,
    },
    /// Somebody asks for something.
    Asked(Input),
    /// Somebody speaks for a session, through its side door.
    Said {
        token: String,
        letter: Box<AgentRequest>,
        reply: Reply,
    },
    /// Somebody wants to know how the run stands; a copy is made only then.
    ViewAsked(SyncSender<View>),
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

    /// Leaves a word. False if too many wait already; the end of a job is always taken.
    pub fn post(&self, mail: Mail) -> bool {
        let mut queue = self.0.mail.lock().unwrap_or_else(PoisonError::into_inner);
        // A tool whose end was dropped would seem to run for ever, and a node whose pins were would wait for ever.
        let must = matches!(
            mail,
            Mail::PipesClosed { .. }
                | Mail::Asked(Input::PinsHashed { .. })
                | Mail::Asked(Input::Notified { .. })
                | Mail::FromSession { input: Input::Noted { fact: Fact::ToolEnded { .. }, .. }, .. }
        );
        let taken = must || queue.len() < MAX_MAIL;
        if taken {
            queue.push_back(mail);
        }
        drop(queue);
        // Fails only when the counter is full, and then the bell is ringing anyway.
        let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes());
        taken
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
    use dogwatch_core::record::event::Observation;
    use dogwatch_core::record::ids::Iteration;
    use dogwatch_core::run::job::JobKind;
    use dogwatch_core::time::moment::Awake;
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
            digest: None,
        };
        for _ in 0..MAX_MAIL {
            assert!(inbox.post(Mail::FromSession { job, input: Input::Observed { job, seen } }));
        }
        assert!(!inbox.post(Mail::FromSession { job, input: Input::Observed { job, seen } }));
        assert!(inbox.post(Mail::PipesClosed { job }));
        let mail = inbox.take();
        assert_eq!(mail.len(), MAX_MAIL + 1);
        assert!(matches!(mail.back(), Some(Mail::PipesClosed { .. })));
        assert!(inbox.take().is_empty());
    }
}
