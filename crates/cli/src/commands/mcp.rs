use crate::error::Failure;
use dogwatch_host::door::{FILE_VAR, SessionFile};
use std::path::PathBuf;

/// Serve an agent's session by MCP, on stdin and stdout
///
/// Agents are given this command as an MCP server by the run that starts them; nobody needs to call it by
/// hand. Through it an agent tells its run what its output does not show: progress, an error, that there is
/// nothing to do, that it is done; it can save texts and have the user's checks run. The other MCP servers of
/// the loop file stand behind it, every call to them with a time limit.
///
/// An agent that dogwatch does not know can start it itself: the session's environment says which session it
/// serves.
#[derive(clap::Args)]
#[command(after_help = "`mcp: false` in a loop file turns it off. See docs/mcp.md.")]
pub struct Args {
    /// The session's file; without it, the one that DOGWATCH_MCP names
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
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
    dogwatch_mcp::serve_stdio(session).map_err(|e| Failure::internal(format!("cannot serve: {e}")))?;
    Ok(0)
}
