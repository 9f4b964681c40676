//! The same MCP server over HTTP, for an agent or a program that accepts a URL instead of a command.
//!
//! `dogwatch mcp --http` runs in a separate process, listens only on the loopback address, and serves one session.
//! Every process on the machine can connect to the port, so each request must carry the session's token. The token
//! is checked before any of the body is read.
//!
//! ```text
//! guard.rs      authorization of requests (pure)    listener.rs      a bounded number of connections
//! handler.rs    handling of one request             timed_stream.rs  a connection with a write timeout
//! service.rs    MCP over HTTP                       session_end.rs   detects the end of the session
//! headers.rs    headers and lifecycles (pure)       sessions.rs      open MCP sessions
//! event_log.rs  events for one stream
//! ```

pub(crate) mod event_log;
mod guard;
mod handler;
mod headers;
mod listener;
mod service;
mod session_end;
mod sessions;
pub(crate) mod timed_stream;

use crate::bound::{until, within};
use crate::limits::{
    BODY_LIMIT, HEAD_LIMIT, MAX_CONNECTIONS, MAX_SESSIONS, RUN_LIMIT, SESSION_IDLE_LIMIT, START_LIMIT,
    TOOL_LIMIT, WRITE_LIMIT,
};
use crate::proxy::Proxy;
use crate::run_client::{self, RunClient};
use crate::serve::{AgentServer, check_limit, duration};
use dogwatch_core::settings::McpServer;
use dogwatch_core::time::dur::Dur;
use dogwatch_host::driver::mcp_setup::SessionFile;
use guard::Guard;
use handler::Handler;
use service::Service;
use session_end::SessionEnd;
use sessions::Sessions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use guard::PATH;

/// Limits for HTTP clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent connections.
    pub connections: usize,
    /// Open MCP sessions; for a further one, the session that has been idle longest is closed.
    pub sessions: usize,
    /// How long a client may take to send a request head, also between two requests.
    pub head: Duration,
    /// How long a client may take to send a request body.
    pub body: Duration,
    /// How long a client may take to accept what is written.
    pub write: Duration,
    /// How long a session may be idle before it is closed.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: MAX_CONNECTIONS,
            sessions: MAX_SESSIONS,
            head: HEAD_LIMIT,
            body: BODY_LIMIT,
            write: WRITE_LIMIT,
            silence: SESSION_IDLE_LIMIT,
        }
    }
}

/// Serves a session's agent over HTTP until the session is over or the agent's process exits.
///
/// The listener is on a loopback address. `file` is the session file, which is removed at the end of the session.
/// `agent` is the pidfd of the agent's process, if this server runs beside it.
pub fn serve_http(
    session: SessionFile,
    file: &Path,
    listener: std::net::TcpListener,
    agent: Option<OwnedFd>,
) -> io::Result<()> {
    let runtime = crate::runtime()?;
    // A client that waits for the result of a call is not idle.
    let silence = SESSION_IDLE_LIMIT.saturating_add(longest_call(&session));
    let limits = Limits { silence, ..Limits::default() };
    // unbounded: serves until the session ends
    let served = runtime.block_on(async {
        listener.set_nonblocking(true)?;
        // unbounded: see above
        serve_at(session, file, TcpListener::from_std(listener)?, limits, agent).await
    });
    runtime.shutdown_background();
    served
}

/// Like [`serve_http`], for a caller that already has a runtime.
pub async fn serve_at(
    session: SessionFile,
    file: &Path,
    listener: TcpListener,
    limits: Limits,
    agent: Option<OwnedFd>,
) -> io::Result<()> {
    let end = match SessionEnd::watch(file, agent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        end => end?,
    };
    let guard = Guard::new(&session.token, listener.local_addr()?);
    let (run, notes) = RunClient::new(session);
    let run = Arc::new(run);
    let forwarding = tokio::spawn(run_client::forward_notes(Arc::clone(&run), notes));
    let server = AgentServer { proxy: Arc::new(Proxy::new(Arc::clone(&run))), run: Arc::clone(&run) };
    let sessions = Arc::new(Sessions::new(limits.sessions, limits.silence));
    let service = Service { server: Arc::new(server), sessions: Arc::clone(&sessions) };
    let handler = Handler { guard, service, body: limits.body };
    let closing = CancellationToken::new();
    let ended = async {
        // unbounded: until the session ends
        until(run.session_over(), end.reached()).await;
        closing.cancel();
    };
    let connections = listener::accept_connections(listener, Arc::new(handler), limits, closing.clone());
    // unbounded: until the session ends; the shutdown has a limit
    tokio::join!(ended, connections);
    sessions.end_all();
    run.finish();
    let _ = within(RUN_LIMIT, forwarding).await;
    Ok(())
}

/// Returns the longest time that any call may take.
fn longest_call(session: &SessionFile) -> Duration {
    let longest =
        |server: &McpServer| server.tools.iter().map(|(_, limit)| *limit).fold(server.timeout, Dur::max);
    let servers = session.servers.iter().map(longest).map(duration).max().unwrap_or_default();
    check_limit(session).max(servers.saturating_add(4 * START_LIMIT)).saturating_add(2 * TOOL_LIMIT)
}
