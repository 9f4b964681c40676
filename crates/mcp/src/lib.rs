//! The side door: an MCP server through which an agent tells its run what its output does not show, and a
//! bounded proxy for the agent's other MCP servers.
//!
//! `dogwatch mcp` is this crate in a process of its own, which the agent's CLI starts and ends. It lives in the
//! session's process tree and knows its run by the session's file; the run itself loads none of this. It speaks
//! on stdin and stdout, or on a port of the loopback address if it is told to.
//!
//! ```text
//! bound.rs   the one way to wait, with a limit         limits.rs    every limit by its name
//! lines.rs   lines in bounded memory (pure)            wire.rs      messages as lines, from and to anybody
//! tools.rs   the tools and their arguments (pure)      serve.rs     the server that the agent speaks to
//! home.rs    the way to the run                        artifact.rs  texts that are kept
//! checks.rs  the user's checks, for the agent          child.rs     processes that this one starts
//! proxy/     the agent's other servers, behind ours    http/        the same server, for who takes a URL
//! ```
//!
//! What never happens here: a wait without a bound (`tests/audit.rs` looks), a judgement whether an agent is
//! stuck (the core's), a word on stdout that is no MCP message.

mod artifact;
pub mod bound;
mod checks;
mod child;
pub mod http;
pub mod limits;
mod lines;
mod proxy;
pub mod run_client;
mod serve;
pub mod tools;
pub mod wire;

use bound::within;
use dogwatch_host::door::SessionFile;
use limits::{INITIALIZE_LIMIT, MAX_ASKED, RUN_LIMIT};
use proxy::Proxy;
use run_client::RunClient;
use serve::AgentServer;
use std::io;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use wire::{Peer, Wire};

/// Serves a session's agent on stdin and stdout, until it closes its end.
pub fn serve_stdio(session: SessionFile) -> io::Result<()> {
    let runtime = runtime()?;
    // unbounded: serves as long as the agent speaks to it, and lives in the session's tree
    let served = runtime.block_on(async {
        let wire = Wire::new(tokio::io::stdin(), tokio::io::stdout(), Peer::Agent, MAX_ASKED);
        // unbounded: as above
        serve_on(session, wire).await
    });
    // A thread that still reads stdin is not waited for.
    runtime.shutdown_background();
    served
}

/// Serves one agent on this wire.
pub async fn serve_on<R, W>(session: SessionFile, wire: Wire<R, W>) -> io::Result<()>
where
    R: tokio::io::AsyncRead + Unpin + Send + 'static,
    W: tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (run, notes) = RunClient::new(session);
    let run = Arc::new(run);
    let passing = tokio::spawn(run_client::forward_notes(Arc::clone(&run), notes));
    let side = AgentServer { proxy: Arc::new(Proxy::new(Arc::clone(&run))), run: Arc::clone(&run) };
    let served = match within(INITIALIZE_LIMIT, rmcp::serve_server(side, wire)).await {
        Ok(Ok(served)) => served,
        // Who leaves without a greeting has nothing to say.
        Ok(Err(rmcp::service::ServerInitializeError::ConnectionClosed(_))) => return Ok(()),
        Ok(Err(error)) => return Err(io::Error::other(error)),
        Err(late) => return Err(io::Error::other(format!("the agent does not say who it is: {late}"))),
    };
    // unbounded: the agent speaks when it has something to say
    let _ = served.waiting().await;
    run.finish();
    let _ = within(RUN_LIMIT, passing).await;
    Ok(())
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}
