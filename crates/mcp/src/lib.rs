//! The agent channel: an MCP server through which an agent reports to its run what its output does not show,
//! and a bounded proxy for the agent's other MCP servers.
//!
//! `dogwatch mcp` runs this crate in a separate process, which the agent's CLI starts and stops. The process is
//! part of the session's process tree and finds its run through the session file. The run itself does not load
//! this crate. The server uses stdin and stdout, or a port on the loopback address if requested.
//!
//! ```text
//! bound.rs       waits with a time limit               limits.rs    named limits
//! lines.rs       line splitting, bounded (pure)        wire.rs      MCP messages as JSON lines
//! tools.rs       the tools and their arguments (pure)  serve.rs     the MCP server for the agent
//! run_client.rs  requests to the run                   artifact.rs  saved texts
//! checks.rs      runs the user's checks                child.rs     child processes
//! proxy/         the agent's other MCP servers         http/        the same server over HTTP
//! rpc/           the protocol                          operator.rs  the server for interactive sessions
//! ```
//!
//! This crate never waits without a bound (`tests/audit.rs` enforces it), never judges whether an agent is stuck
//! (the core does that), and writes only MCP messages to stdout.

mod artifact;
pub mod bound;
mod checks;
mod child;
pub mod http;
pub mod limits;
mod lines;
pub mod operator;
mod proxy;
pub mod rpc;
pub mod run_client;
mod serve;
pub mod tools;
pub mod wire;

use bound::within;
use dogwatch_host::driver::mcp_setup::SessionFile;
use limits::{MAX_ASKED, RUN_LIMIT};
use proxy::Proxy;
use run_client::RunClient;
use serve::AgentServer;
use std::io;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use wire::{Peer, Wire};

/// Serves a session's agent on stdin and stdout until the agent closes its end.
pub fn serve_stdio(session: SessionFile) -> io::Result<()> {
    let runtime = runtime()?;
    // unbounded: serves until the agent disconnects; the session's process tree contains it
    let served = runtime.block_on(async {
        let wire = Wire::new(tokio::io::stdin(), tokio::io::stdout(), Peer::Agent, MAX_ASKED);
        // unbounded: see above
        serve_on(session, wire).await
    });
    // Do not wait for the thread that still reads stdin.
    runtime.shutdown_background();
    served
}

/// Serves one agent over the given wire.
pub async fn serve_on(session: SessionFile, wire: Wire) -> io::Result<()> {
    let (run, notes) = RunClient::new(session);
    let run = Arc::new(run);
    let forwarding = tokio::spawn(run_client::forward_notes(Arc::clone(&run), notes));
    let server = AgentServer { proxy: Arc::new(Proxy::new(Arc::clone(&run))), run: Arc::clone(&run) };
    // unbounded: the agent decides when to send a request
    let served = rpc::stdio::serve(Arc::new(server), wire).await;
    run.finish();
    let _ = within(RUN_LIMIT, forwarding).await;
    served
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}
