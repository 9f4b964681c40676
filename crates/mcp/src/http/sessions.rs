//! The open MCP sessions. A session that its client abandoned stays open until it reaches the idle limit, or until
//! its slot is needed.

use crate::bound::within;
use crate::limits::TOOL_LIMIT;
use http::HeaderMap;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The header that identifies a session.
const HEADER: &str = "mcp-session-id";

/// The open sessions with the time of their last request.
pub struct Sessions {
    manager: Arc<LocalSessionManager>,
    max: usize,
    /// The time of each session's last request or response.
    last_seen: Mutex<BTreeMap<String, Instant>>,
}

impl Sessions {
    /// Creates an empty list with room for `max` sessions.
    pub fn new(manager: Arc<LocalSessionManager>, max: usize) -> Sessions {
        Sessions { manager, max, last_seen: Mutex::default() }
    }

    /// Records a request or response of a session. Unknown ids are dropped with the next `make_room`.
    pub fn touch(&self, headers: &HeaderMap) {
        let Some(id) = headers.get(HEADER).and_then(|id| id.to_str().ok()) else { return };
        let mut last_seen = self.last_seen.lock().unwrap_or_else(PoisonError::into_inner);
        if last_seen.len() < 2 * self.max || last_seen.contains_key(id) {
            last_seen.insert(id.to_owned(), Instant::now());
        }
    }

    /// Makes room for one more session: closes the one that has been idle longest.
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
