//! What servers say unasked: of a call's progress it is passed on to the agent that called, and to the run as
//! evidence. All else they say finds nobody.

use crate::bound::within;
use crate::limits::WRITE_LIMIT;
use crate::run_client::RunClient;
use dogwatch_core::side::{Phase, Said};
use rmcp::handler::client::ClientHandler;
use rmcp::model::{ClientConfig, Implementation, ProgressNotificationParam, ProgressToken};
use rmcp::service::{NotificationContext, Peer, RoleClient, RoleServer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Progress of one call is evidence at most this often.
const EVIDENCE_EVERY: Duration = Duration::from_secs(1);

/// Who called, and how they know the call.
#[derive(Clone)]
pub struct Caller {
    pub agent: Peer<RoleServer>,
    /// None: the agent does not want to hear of it; it is evidence all the same.
    pub token: Option<ProgressToken>,
    pub server: String,
    pub tool: String,
}

struct Entry {
    progress: Caller,
    last_evidence: Option<Instant>,
    lock: NotifyLock,
}

/// Whoever tells the agent of a call has it: first come, first served, and the answer comes last.
type NotifyLock = Arc<tokio::sync::Mutex<()>>;

/// One per server; the calls that are open, by the token that the server knows.
#[derive(Clone)]
pub struct Relay {
    run: Arc<RunClient>,
    open: Arc<Mutex<BTreeMap<String, Entry>>>,
    numbers: Arc<AtomicU64>,
}

/// Takes a call off the list when it is over.
pub struct OpenCall {
    relay: Relay,
    key: String,
    lock: NotifyLock,
}

impl Relay {
    pub fn new(run: Arc<RunClient>) -> Relay {
        Relay { run, open: Arc::default(), numbers: Arc::new(AtomicU64::new(1)) }
    }

    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub fn forward(&self, token: ProgressToken, progress: Caller) -> OpenCall {
        let key = format!("{:?}", token.0);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = NotifyLock::default();
        open.insert(key.clone(), Entry { progress, last_evidence: None, lock: Arc::clone(&lock) });
        OpenCall { relay: self.clone(), key, lock }
    }

    /// Who is to be last_evidence, and whether it is evidence too.
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
    /// Waits until what the server has last_evidence so far is passed on: progress after the answer finds nobody.
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
            self.run.note(Said::Call { server, tool, phase: Phase::Progress });
        }
        if let Some(token) = call.token {
            let mut passed = said;
            passed.progress_token = token;
            let Ok(_lock) = within(WRITE_LIMIT, lock.lock()).await else { return };
            let _ = within(WRITE_LIMIT, call.agent.notify_progress(passed)).await;
        }
    }
}
