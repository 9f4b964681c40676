use crate::error::Failure;
use dogwatch_host::door::{FILE_VAR, SessionFile};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Serve an agent's session by MCP, on stdin and stdout or over HTTP
///
/// Agents are given this command as an MCP server by the run that starts them; nobody needs to call it by
/// hand. Through it an agent tells its run what its output does not show: progress, an error, that there is
/// nothing to do, that it is done; it can save texts and have the user's checks run. The other MCP servers of
/// the loop file stand behind it, every call to them with a time limit.
///
/// An agent that dogwatch does not know can start it itself: the session's environment says which session it
/// serves. With --http it listens on a port of the loopback address, prints its URL, and serves whoever sends the
/// session's key (`Authorization: Bearer $DOGWATCH_TOKEN`) until the session is over.
#[derive(clap::Args)]
#[command(after_help = "`mcp: false` in a loop file turns it off. See docs/mcp.md.")]
pub struct Args {
    /// The session's file; without it, the one that DOGWATCH_MCP names
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
    /// Serve over HTTP instead, at a loopback address; without one, at a port that is free
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:0",
        value_parser = super::serve::address
    )]
    http: Option<SocketAddr>,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let named = args.session.clone().or_else(|| std::env::var_os(FILE_VAR).map(PathBuf::from));
    let Some(path) = named else {
        return Err(Failure::with_hint(
            "there is no session to serve here",
            "this command is started by an agent that dogwatch runs",
        ));
    };
    let session = SessionFile::read(&path)
        .map_err(|e| Failure::usage(format!("cannot read the session's file {}: {e}", path.display())))?;
    if let Some(at) = args.http {
        return serve_http(session, &path, at);
    }
    dogwatch_mcp::serve_stdio(session).map_err(|e| Failure::internal(format!("cannot serve: {e}")))?;
    Ok(0)
}

fn serve_http(session: SessionFile, file: &Path, at: SocketAddr) -> Result<u8, Failure> {
    let listener = TcpListener::bind(at).map_err(|e| {
        Failure::with_hint(format!("cannot listen at {at}: {e}"), "`--http` alone takes a port that is free")
    })?;
    let at = listener.local_addr().map_err(|e| Failure::internal(format!("no address: {e}")))?;
    // Printed once it listens: whoever reads the line can ask. The key is not in it.
    super::print(format!("http://{at}{}\n", dogwatch_mcp::http::PATH).as_bytes())?;
    dogwatch_mcp::http::serve_http(session, file, listener)
        .map_err(|e| Failure::internal(format!("cannot serve: {e}")))?;
    Ok(0)
}
