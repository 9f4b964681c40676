//! Forwards progress notifications from a server to the agent that made the call, and to the run as evidence. Other
//! notifications of servers are ignored.

use crate::bound::within;
use crate::limits::WRITE_LIMIT;
use crate::run_client::RunClient;
use dogwatch_core::run::agent_channel::{Phase, RequestBody};
use rmcp::handler::client::ClientHandler;
use rmcp::model::{ClientConfig, Implementation, ProgressNotificationParam, ProgressToken};
use rmcp::service::{NotificationContext, Peer, RoleClient, RoleServer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest interval between two evidence notes for one call.
const EVIDENCE_EVERY: Duration = Duration::from_secs(1);

/// The agent that made a call, and how it identifies the call.
#[derive(Clone)]
pub struct Caller {
    pub agent: Peer<RoleServer>,
    /// `None` if the agent did not ask for progress; the progress is evidence anyway.
    pub token: Option<ProgressToken>,
    pub server: String,
    pub tool: String,
}

struct Entry {
    progress: Caller,
    last_evidence: Option<Instant>,
    lock: NotifyLock,
}

/// Held while a progress notification is sent, so that all notifications precede the result.
type NotifyLock = Arc<tokio::sync::Mutex<()>>;

/// The open calls by the progress token that the server knows.
#[derive(Clone)]
pub struct Relay {
    run: Arc<RunClient>,
    open: Arc<Mutex<BTreeMap<String, Entry>>>,
    numbers: Arc<AtomicU64>,
}

/// An open call. Dropping it removes the call from the relay.
pub struct OpenCall {
    relay: Relay,
    key: String,
    lock: NotifyLock,
}

impl Relay {
    /// Creates a relay without open calls.
    pub fn new(run: Arc<RunClient>) -> Relay {
        Relay { run, open: Arc::default(), numbers: Arc::new(AtomicU64::new(1)) }
    }

    /// Returns a number that identifies one start of a server.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Forwards the progress of a call to its caller until the returned value is dropped.
    pub fn forward(&self, token: ProgressToken, progress: Caller) -> OpenCall {
        let key = format!("{:?}", token.0);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = NotifyLock::default();
        open.insert(key.clone(), Entry { progress, last_evidence: None, lock: Arc::clone(&lock) });
        OpenCall { relay: self.clone(), key, lock }
    }

    /// Returns the caller to notify, whether the progress is also evidence, and the notification lock.
    fn find(&self, key: &str) -> Option<(Caller, bool, NotifyLock)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let call = open.get_mut(key)?;
        let evidence = call.last_evidence.is_none_or(|at| at.elapsed() >= EVIDENCE_EVERY);
        if evidence {
            call.last_evidence = Some(Instant::now());
        }
        Some((call.progress.clone(), evidence, Arc::clone(&call.lock)))
    }
}

impl OpenCall {
    /// Waits until the current notification is sent. Clients drop progress that arrives after the result.
    pub async fn settled(&self) {
        let _ = within(WRITE_LIMIT, self.lock.lock()).await;
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.relay.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl ClientHandler for Relay {
    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.client_info = Implementation::new("dogwatch", env!("CARGO_PKG_VERSION"));
        config
    }

    async fn on_progress(&self, said: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        let Some((call, evidence, lock)) = self.find(&format!("{:?}", said.progress_token.0)) else { return };
        if evidence {
            let Caller { server, tool, .. } = call.clone();
            self.run.note(RequestBody::Call { server, tool, phase: Phase::Progress });
        }
        if let Some(token) = call.token {
            let mut passed = said;
            passed.progress_token = token;
            let Ok(_lock) = within(WRITE_LIMIT, lock.lock()).await else { return };
            let _ = within(WRITE_LIMIT, call.agent.notify_progress(passed)).await;
        }
    }
}
