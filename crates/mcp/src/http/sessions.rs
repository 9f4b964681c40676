//! Who has greeted. A client that leaves without a word stays until somebody needs its place, or until it has been
//! silent for too long.

use crate::bound::within;
use crate::limits::TOOL_LIMIT;
use http::HeaderMap;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Where clients say who they are.
const HEADER: &str = "mcp-session-id";

pub struct Sessions {
    manager: Arc<LocalSessionManager>,
    max: usize,
    /// When each was last last_seen of.
    last_seen: Mutex<BTreeMap<String, Instant>>,
}

impl Sessions {
    pub fn new(manager: Arc<LocalSessionManager>, max: usize) -> Sessions {
        Sessions { manager, max, last_seen: Mutex::default() }
    }

    /// Somebody is spoken to, or speaks. An id that was never given is not kept: it meets no session.
    pub fn touch(&self, headers: &HeaderMap) {
        let Some(id) = headers.get(HEADER).and_then(|id| id.to_str().ok()) else { return };
        let mut last_seen = self.last_seen.lock().unwrap_or_else(PoisonError::into_inner);
        if last_seen.len() < 2 * self.max || last_seen.contains_key(id) {
            last_seen.insert(id.to_owned(), Instant::now());
        }
    }

    /// Makes room for one more: whoever has been silent longest goes.
    pub async fn make_room(&self) {
        let known = within(TOOL_LIMIT, self.manager.sessions.read()).await;
        let Ok(alive) = known.map(|all| all.keys().cloned().collect::<Vec<_>>()) else { return };
        let oldest = {
            let mut last_seen = self.last_seen.lock().unwrap_or_else(PoisonError::into_inner);
            last_seen.retain(|id, _| alive.iter().any(|alive| **alive == **id));
            let age = |id: &&Arc<str>| last_seen.get(&***id).copied();
            (alive.len() >= self.max).then(|| alive.iter().min_by_key(age).cloned()).flatten()
        };
        if let Some(id) = oldest {
            let _ = within(TOOL_LIMIT, self.manager.close_session(&id)).await;
        }
    }
}
