//! What servers say unasked: of a call's progress it is passed on to the agent that called, and to the run as
//! evidence. All else they say finds nobody.

use crate::bound::within;
use crate::home::Home;
use crate::limits::WRITE_LIMIT;
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
pub struct Progress {
    pub agent: Peer<RoleServer>,
    /// None: the agent does not want to hear of it; it is evidence all the same.
    pub token: Option<ProgressToken>,
    pub server: String,
    pub tool: String,
}

struct Open {
    progress: Progress,
    told: Option<Instant>,
    turn: Turn,
}

/// Whoever tells the agent of a call has it: first come, first served, and the answer comes last.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// One per server; the calls that are open, by the token that the server knows.
#[derive(Clone)]
pub struct Relay {
    home: Arc<Home>,
    open: Arc<Mutex<BTreeMap<String, Open>>>,
    numbers: Arc<AtomicU64>,
}

/// Takes a call off the list when it is over.
pub struct Relayed {
    relay: Relay,
    key: String,
    turn: Turn,
}

impl Relay {
    pub fn new(home: Arc<Home>) -> Relay {
        Relay { home, open: Arc::default(), numbers: Arc::new(AtomicU64::new(1)) }
    }

    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub fn forward(&self, token: ProgressToken, progress: Progress) -> Relayed {
        let key = format!("{:?}", token.0);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = Turn::default();
        open.insert(key.clone(), Open { progress, told: None, turn: Arc::clone(&turn) });
        Relayed { relay: self.clone(), key, turn }
    }

    /// Who is to be told, and whether it is evidence too.
    fn find(&self, key: &str) -> Option<(Progress, bool, Turn)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let call = open.get_mut(key)?;
        let evidence = call.told.is_none_or(|at| at.elapsed() >= EVIDENCE_EVERY);
        if evidence {
            call.told = Some(Instant::now());
        }
        Some((call.progress.clone(), evidence, Arc::clone(&call.turn)))
    }
}

impl Relayed {
    /// Waits until what the server has told so far is passed on: progress after the answer finds nobody.
    pub async fn settled(&self) {
        let _ = within(WRITE_LIMIT, self.turn.lock()).await;
    }
}

impl Drop for Relayed {
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
        let Some((call, evidence, turn)) = self.find(&format!("{:?}", said.progress_token.0)) else { return };
        if evidence {
            let Progress { server, tool, .. } = call.clone();
            self.home.note(Said::Call { server, tool, phase: Phase::Progress });
        }
        if let Some(token) = call.token {
            let mut passed = said;
            passed.progress_token = token;
            let Ok(_turn) = within(WRITE_LIMIT, turn.lock()).await else { return };
            let _ = within(WRITE_LIMIT, call.agent.notify_progress(passed)).await;
        }
    }
}
