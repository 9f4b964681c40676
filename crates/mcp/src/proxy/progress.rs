//! Forwards progress notifications from a server to the agent that made the call, and to the run as evidence. Other
//! notifications of servers are ignored.

use crate::rpc::message::{Id, Object};
use crate::rpc::server::Outbox;
use crate::run_client::RunClient;
use dogwatch_core::run::agent_channel::{Phase, RequestBody};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest interval between two evidence notes for one call.
const EVIDENCE_EVERY: Duration = Duration::from_secs(1);

/// Receives the progress of one call.
pub struct Progress {
    pub run: Arc<RunClient>,
    pub server: String,
    pub tool: String,
    pub agent: Outbox,
    /// `None` if the agent did not ask for progress; the progress is evidence anyway.
    pub token: Option<Id>,
    pub last_evidence: Mutex<Option<Instant>>,
}

impl Progress {
    /// Forwards a notification without waiting, so that it precedes the result.
    pub fn forward(&self, mut params: Object) {
        if self.is_evidence() {
            let (server, tool) = (self.server.clone(), self.tool.clone());
            self.run.note(RequestBody::Call { server, tool, phase: Phase::Progress });
        }
        if let Some(token) = &self.token {
            params.insert("progressToken".to_owned(), token.to_json());
            self.agent.notify("notifications/progress", params);
        }
    }

    fn is_evidence(&self) -> bool {
        let mut last = self.last_evidence.lock().unwrap_or_else(PoisonError::into_inner);
        let evidence = last.is_none_or(|at| at.elapsed() >= EVIDENCE_EVERY);
        if evidence {
            *last = Some(Instant::now());
        }
        evidence
    }
}
