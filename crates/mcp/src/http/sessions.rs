//! The open MCP sessions. A session that its client abandoned stays open until it reaches the idle limit, or until
//! its slot is needed.

use super::event_log::EventLog;
use crate::bound::within;
use crate::rpc::calls::Calls;
use dogwatch_host::driver::mcp_setup::random_token;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The session's own stream, for notifications that belong to no request.
const OWN_STREAM: u64 = 0;

/// An open session.
pub struct Session {
    pub id: String,
    pub calls: Calls,
    /// Canceled when the session is over.
    over: CancellationToken,
    streams: Mutex<Streams>,
    last_seen: Mutex<Instant>,
}

struct Streams {
    /// The streams whose calls are still running, by number.
    open: BTreeMap<u64, Arc<EventLog>>,
    next: u64,
}

impl Session {
    fn new(id: String) -> Session {
        let own = Arc::new(EventLog::in_session(OWN_STREAM));
        let streams = Streams { open: BTreeMap::from([(OWN_STREAM, own)]), next: OWN_STREAM + 1 };
        Session {
            id,
            calls: Calls::default(),
            over: CancellationToken::new(),
            streams: Mutex::new(streams),
            last_seen: Mutex::new(Instant::now()),
        }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream for a request, and returns it with its number.
    pub fn open_stream(&self) -> (u64, Arc<EventLog>) {
        let mut streams = self.streams();
        let number = streams.next;
        streams.next += 1;
        let log = Arc::new(EventLog::in_session(number));
        streams.open.insert(number, Arc::clone(&log));
        (number, log)
    }

    /// Closes the stream of a request.
    pub fn close_stream(&self, number: u64) {
        if let Some(log) = self.streams().open.remove(&number) {
            log.close();
        }
        self.touch();
    }

    /// Returns an open stream.
    pub fn stream(&self, number: u64) -> Option<Arc<EventLog>> {
        self.streams().open.get(&number).cloned()
    }

    /// Returns the stream for notifications that belong to no request.
    pub fn own_stream(&self) -> Option<Arc<EventLog>> {
        self.stream(OWN_STREAM)
    }

    fn touch(&self) {
        *self.last_seen.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last_seen(&self) -> Instant {
        *self.last_seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.over.cancel();
        self.calls.cancel_all();
        for log in std::mem::take(&mut self.streams().open).into_values() {
            log.close();
        }
    }
}

/// The open sessions.
pub struct Sessions {
    max: usize,
    /// How long a session may be idle.
    silence: Duration,
    open: Mutex<BTreeMap<String, Arc<Session>>>,
}

impl Sessions {
    /// Creates an empty list with room for `max` sessions.
    pub fn new(max: usize, silence: Duration) -> Sessions {
        Sessions { max, silence, open: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session. If the limit is reached, it replaces the one that has been idle longest.
    pub fn begin(self: &Arc<Self>) -> io::Result<Arc<Session>> {
        let session = Arc::new(Session::new(random_token()?));
        let oldest = {
            let mut open = self.all();
            let is_full = open.len() >= self.max;
            let oldest = open.values().min_by_key(|session| session.last_seen()).filter(|_| is_full);
            let oldest = oldest.map(|session| session.id.clone()).and_then(|id| open.remove(&id));
            open.insert(session.id.clone(), Arc::clone(&session));
            oldest
        };
        if let Some(oldest) = oldest {
            oldest.end();
        }
        tokio::spawn(Arc::clone(self).end_when_idle(Arc::clone(&session)));
        Ok(session)
    }

    async fn end_when_idle(self: Arc<Self>, session: Arc<Session>) {
        loop {
            let left = self.silence.saturating_sub(session.last_seen().elapsed());
            if left.is_zero() {
                self.end(&session.id);
                return;
            }
            if within(left, session.over.cancelled()).await.is_ok() {
                return;
            }
        }
    }

    /// Returns an open session, and records that its client is there.
    pub fn find(&self, id: &str) -> Option<Arc<Session>> {
        let session = self.all().get(id).cloned()?;
        session.touch();
        Some(session)
    }

    /// Ends a session.
    pub fn end(&self, id: &str) {
        let session = self.all().remove(id);
        if let Some(session) = session {
            session.end();
        }
    }

    /// Ends all sessions.
    pub fn end_all(&self) {
        let open = std::mem::take(&mut *self.all());
        for session in open.into_values() {
            session.end();
        }
    }
}
