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
    /// When each was last heard of.
    heard: Mutex<BTreeMap<String, Instant>>,
}

impl Sessions {
    pub fn new(manager: Arc<LocalSessionManager>, max: usize) -> Sessions {
        Sessions { manager, max, heard: Mutex::default() }
    }

    /// Somebody is spoken to, or speaks. An id that was never given is not kept: it meets no session.
    pub fn heard(&self, headers: &HeaderMap) {
        let Some(id) = headers.get(HEADER).and_then(|id| id.to_str().ok()) else { return };
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.len() < 2 * self.max || heard.contains_key(id) {
            heard.insert(id.to_owned(), Instant::now());
        }
    }

    /// Makes room for one more: whoever has been silent longest goes.
    pub async fn make_room(&self) {
        let known = within(TOOL_LIMIT, self.manager.sessions.read()).await;
        let Ok(alive) = known.map(|all| all.keys().cloned().collect::<Vec<_>>()) else { return };
        let silent = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.retain(|id, _| alive.iter().any(|alive| **alive == **id));
            let oldest = |id: &&Arc<str>| heard.get(&***id).copied();
            (alive.len() >= self.max).then(|| alive.iter().min_by_key(oldest).cloned()).flatten()
        };
        if let Some(id) = silent {
            let _ = within(TOOL_LIMIT, self.manager.close_session(&id)).await;
        }
    }
}
