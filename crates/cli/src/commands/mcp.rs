use crate::error::CliError;
use crate::operator::Project;
use dogwatch_host::driver::mcp_setup::{FILE_VAR, SessionFile};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The environment variable that gives a command the URL of the server that runs beside it.
const URL_VAR: &str = "DOGWATCH_MCP_URL";

/// Serve an agent session over MCP, on stdio or HTTP
///
/// A run registers this command as an MCP server with its agent, so you rarely call it yourself. Through it an agent
/// reports progress and errors, reports that it is idle or done, saves artifacts and runs your checks. It also
/// forwards calls to the other MCP servers of the loop file, with a timeout on every call.
///
/// An agent that dogwatch does not know can start this command itself; the environment of the session selects the
/// session. With --http the server listens on a loopback port, prints its URL, and answers requests that carry the
/// session's token (`Authorization: Bearer $DOGWATCH_TOKEN`) until the session ends. With a command after `--` it
/// replaces itself with that command and keeps serving in a second process.
///
/// With --project it serves an interactive session instead: tools that list the runs of this project, show their status
/// and report what they did. `dogwatch plugin install` sets this up for Claude Code.
#[derive(clap::Args)]
#[command(after_help = "Set `mcp: false` in a loop file to turn it off. See docs/guide/mcp.md.")]
pub struct Args {
    /// Serve the runs of this project to an interactive session, on stdio
    #[arg(long, conflicts_with_all = ["session", "http"])]
    project: bool,
    /// With --project: also let the session start, wake and message runs
    #[arg(long, requires = "project")]
    allow_steering: bool,
    /// Session file [default: the file that $DOGWATCH_MCP names]
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
    /// Serve over HTTP on this loopback address [default: a free port]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:0",
        value_parser = super::serve::address
    )]
    http: Option<SocketAddr>,
    /// Command to run while serving over HTTP; it finds the URL in $DOGWATCH_MCP_URL
    #[arg(last = true, value_name = "COMMAND", requires = "http")]
    command: Vec<OsString>,
    /// Internal: serve on the listener on stdin until this process exits
    #[arg(long, hide = true, value_name = "PID", requires = "http")]
    beside: Option<i32>,
}

/// Runs `dogwatch mcp` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    if args.project {
        dogwatch_mcp::operator::serve_operator(Arc::new(Project::here(args.allow_steering)))
            .map_err(|e| cannot_serve(&e))?;
        return Ok(0);
    }
    let named = args.session.clone().or_else(|| std::env::var_os(FILE_VAR).map(PathBuf::from));
    let Some(path) = named else {
        return Err(CliError::with_help(
            "no session to serve: DOGWATCH_MCP is not set",
            "dogwatch starts this command for its agents; see docs/guide/mcp.md",
        ));
    };
    let session = SessionFile::read(&path)
        .map_err(|e| CliError::usage(format!("cannot read the session file {}: {e}", path.display())))?;
    // `exec` resets this mark, so a process that becomes the command does not keep it.
    dogwatch_host::process::sample::name_mcp_server();
    match (args.http, args.beside) {
        (Some(_), Some(pid)) => serve_beside(session, &path, pid),
        (Some(at), None) => serve_http(session, &path, at, &args.command),
        (None, _) => {
            dogwatch_mcp::serve_stdio(session).map_err(|e| cannot_serve(&e))?;
            Ok(0)
        }
    }
}

fn serve_http(
    session: SessionFile,
    file: &Path,
    at: SocketAddr,
    command: &[OsString],
) -> Result<u8, CliError> {
    let listener = TcpListener::bind(at).map_err(|e| {
        CliError::with_help(
            format!("cannot listen on {at}: {e}"),
            "pass --http without a value to use a free port",
        )
    })?;
    let at = listener
        .local_addr()
        .map_err(|e| CliError::internal(format!("cannot read the listener's address: {e}")))?;
    let url = format!("http://{at}{}", dogwatch_mcp::http::PATH);
    if let Some((program, arguments)) = command.split_first() {
        start_beside(file, listener)?;
        // `exec` replaces this process with the agent, so signals, stdin and the exit code are the agent's.
        let error = Command::new(program).args(arguments).env(URL_VAR, url).exec();
        return Err(CliError::usage(format!("cannot start `{}`: {error}", program.display())));
    }
    // Printed after the server listens, so a reader of this line can connect. It does not contain the token.
    super::print(format!("{url}\n"))?;
    dogwatch_mcp::http::serve_http(session, file, listener, None).map_err(|e| cannot_serve(&e))?;
    Ok(0)
}

/// Starts a server process that runs beside this process, and beside the command that this process becomes.
fn start_beside(file: &Path, listener: TcpListener) -> Result<(), CliError> {
    let cannot = |e: io::Error| CliError::internal(format!("cannot start the server: {e}"));
    let own = std::env::current_exe().map_err(cannot)?;
    Command::new(own)
        .args(["mcp", "--http", "--beside", &std::process::id().to_string(), "--session"])
        .arg(file)
        .stdin(OwnedFd::from(listener))
        .stdout(Stdio::null())
        // The server holds stderr open until it exits, shortly after the agent. The end of the session waits for
        // that, so the server does not become a leftover process.
        .stderr(Stdio::inherit())
        // An interrupt must reach only the agent, which may still send requests.
        .process_group(0)
        .spawn()
        .map_err(cannot)?;
    Ok(())
}

fn serve_beside(session: SessionFile, file: &Path, pid: i32) -> Result<u8, CliError> {
    let listener = io::stdin().as_fd().try_clone_to_owned().map_err(|e| cannot_serve(&e))?;
    let process = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // If the parent is gone, the pid may belong to another process.
    let Some(process) = process.filter(|_| getppid().is_some_and(|parent| parent.as_raw_pid() == pid)) else {
        return Ok(0);
    };
    dogwatch_mcp::http::serve_http(session, file, listener.into(), Some(process))
        .map_err(|e| cannot_serve(&e))?;
    Ok(0)
}

fn cannot_serve(error: &io::Error) -> CliError {
    CliError::internal(format!("cannot serve: {error}"))
}
