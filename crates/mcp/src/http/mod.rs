//! The same server over HTTP: for an agent, or a program of its own making, that takes a URL and no command.
//!
//! `dogwatch mcp --http` is a process of its own, which listens on the loopback address alone and serves one
//! session. Every process of the machine can knock there, so every request proves itself by the session's key
//! before a byte of its body is read.
//!
//! ```text
//! guard.rs     who may come in (pure)               door.rs   lets callers in, a bounded number of them
//! answer.rs    from a request to its answer         line.rs   a connection whose writes end in time
//! sessions.rs  who has greeted, and who is silent   over.rs   how the end of the session is seen
//! ```

mod guard;
mod handler;
mod listener;
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
use dogwatch_core::dur::Dur;
use dogwatch_core::settings::McpServer;
use dogwatch_host::door::SessionFile;
use guard::Guard;
use handler::Handler;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
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

/// How often a stream that has nothing to say shows that it is alive: clients give up after some minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// What callers may take up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    /// Clients that have greeted; one more, and the one that is silent longest is ended.
    pub sessions: usize,
    /// For the head of a request to come, and between two requests.
    pub head: Duration,
    /// For the body of a request to come.
    pub body: Duration,
    /// For what is written to be taken.
    pub write: Duration,
    /// A client that says nothing for so long is ended.
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

/// Serves a session's agent here, until the session is over, or the process that it stands agent. The listener is on
/// a loopback address; `file` is the session's, which goes with it.
pub fn serve_http(
    session: SessionFile,
    file: &Path,
    listener: std::net::TcpListener,
    agent: Option<OwnedFd>,
) -> io::Result<()> {
    let runtime = crate::runtime()?;
    // A client that waits for the answer to its call is not silent.
    let silence = SESSION_IDLE_LIMIT.saturating_add(longest_call(&session));
    let limits = Limits { silence, ..Limits::default() };
    // unbounded: serves as long as the session lasts
    let served = runtime.block_on(async {
        listener.set_nonblocking(true)?;
        // unbounded: as above
        serve_at(session, file, TcpListener::from_std(listener)?, limits, agent).await
    });
    runtime.shutdown_background();
    served
}

/// The same, for who has a runtime.
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
    let longest = longest_call(&session);
    let guard = Guard::new(&session.token, listener.local_addr()?);
    let (run, notes) = RunClient::new(session);
    let run = Arc::new(run);
    let passing = tokio::spawn(run_client::forward_notes(Arc::clone(&run), notes));
    let side = AgentServer { proxy: Arc::new(Proxy::new(Arc::clone(&run))), run: Arc::clone(&run) };
    let streams = CancellationToken::new();
    let config = StreamableHttpServerConfig::default()
        .enforce_origin_validation()
        .with_allowed_origins(guard.origins())
        .with_allowed_hosts(guard.hosts())
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_cancellation_token(streams.clone());
    let mut manager = LocalSessionManager::default();
    manager.session_config = session_config(limits.silence);
    let manager = Arc::new(manager);
    let service = StreamableHttpService::new(move || Ok(side.clone()), Arc::clone(&manager), config);
    let handler = Handler {
        guard,
        service,
        sessions: Sessions::new(manager, limits.sessions),
        body: limits.body,
        longest,
    };
    let closing = CancellationToken::new();
    let ended = async {
        // unbounded: the session lasts as long as it lasts
        until(run.session_over(), end.wait()).await;
        closing.cancel();
    };
    let connections = listener::accept_connections(listener, Arc::new(handler), limits, closing.clone());
    // unbounded: ends when the session does, and then in time
    tokio::join!(ended, connections);
    streams.cancel();
    run.finish();
    let _ = within(RUN_LIMIT, passing).await;
    Ok(())
}

fn session_config(silence: Duration) -> SessionConfig {
    let mut config = SessionConfig::default();
    config.keep_alive = Some(silence);
    config
}

/// The longest that any call may take.
fn longest_call(session: &SessionFile) -> Duration {
    let of = |server: &McpServer| server.tools.iter().map(|(_, limit)| *limit).fold(server.timeout, Dur::max);
    let servers = session.servers.iter().map(of).map(duration).max().unwrap_or_default();
    check_limit(session).max(servers.saturating_add(4 * START_LIMIT)).saturating_add(2 * TOOL_LIMIT)
}
