use crate::error::Failure;
use dogwatch_host::door::{FILE_VAR, SessionFile};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a command finds the server that stands beside it.
const URL_VAR: &str = "DOGWATCH_MCP_URL";

/// Serve an agent's session by MCP, on stdin and stdout or over HTTP
///
/// Agents are given this command as an MCP server by the run that starts them; nobody needs to call it by
/// hand. Through it an agent tells its run what its output does not show: progress, an error, that there is
/// nothing to do, that it is done; it can save texts and have the user's checks run. The other MCP servers of
/// the loop file stand behind it, every call to them with a time limit.
///
/// An agent that dogwatch does not know can start it itself: the session's environment says which session it
/// serves. With --http it listens on a port of the loopback address, prints its URL, and serves whoever sends the
/// session's key (`Authorization: Bearer $DOGWATCH_TOKEN`) until the session is over; with a command behind `--` it
/// becomes that command and serves beside it.
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
    /// With --http: become this command, and serve beside it; the URL is in its DOGWATCH_MCP_URL
    #[arg(last = true, value_name = "COMMAND", requires = "http")]
    command: Vec<OsString>,
    /// For ourselves: the listener is on stdin, and the server ends with this process
    #[arg(long, hide = true, value_name = "PID", requires = "http")]
    beside: Option<i32>,
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
    // What becomes a command is called as that is.
    dogwatch_host::sample::be_a_door();
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
) -> Result<u8, Failure> {
    let listener = TcpListener::bind(at).map_err(|e| {
        Failure::with_hint(format!("cannot listen at {at}: {e}"), "`--http` alone takes a port that is free")
    })?;
    let at = listener.local_addr().map_err(|e| Failure::internal(format!("no address: {e}")))?;
    let url = format!("http://{at}{}", dogwatch_mcp::http::PATH);
    if let Some((program, arguments)) = command.split_first() {
        start_beside(file, listener)?;
        // The agent takes our place, so that its signals, its input and its exit code are its own.
        let error = Command::new(program).args(arguments).env(URL_VAR, url).exec();
        return Err(Failure::usage(format!("cannot start `{}`: {error}", program.display())));
    }
    // Printed once it listens: whoever reads the line can ask. The key is not in it.
    super::print(format!("{url}\n").as_bytes())?;
    dogwatch_mcp::http::serve_http(session, file, listener, None).map_err(|e| cannot_serve(&e))?;
    Ok(0)
}

/// Starts the server that stands beside this process, and beside what it becomes.
fn start_beside(file: &Path, listener: TcpListener) -> Result<(), Failure> {
    let cannot = |e: io::Error| Failure::internal(format!("cannot start the server: {e}"));
    let own = std::env::current_exe().map_err(cannot)?;
    Command::new(own)
        .args(["mcp", "--http", "--beside", &std::process::id().to_string(), "--session"])
        .arg(file)
        .stdin(OwnedFd::from(listener))
        .stdout(Stdio::null())
        // Open until the server has ended, a moment after the agent: so long a session's end waits, and
        // nobody is left behind in it.
        .stderr(Stdio::inherit())
        // An interrupt is the agent's; it may still have something to say.
        .process_group(0)
        .spawn()
        .map_err(cannot)?;
    Ok(())
}

fn serve_beside(session: SessionFile, file: &Path, pid: i32) -> Result<u8, Failure> {
    let listener = io::stdin().as_fd().try_clone_to_owned().map_err(|e| cannot_serve(&e))?;
    let process = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Whoever has this number now is somebody else if our parent is gone.
    let Some(process) = process.filter(|_| getppid().is_some_and(|parent| parent.as_raw_pid() == pid)) else {
        return Ok(0);
    };
    dogwatch_mcp::http::serve_http(session, file, listener.into(), Some(process))
        .map_err(|e| cannot_serve(&e))?;
    Ok(0)
}

fn cannot_serve(error: &io::Error) -> Failure {
    Failure::internal(format!("cannot serve: {error}"))
}
