//! The session of a node that runs on another worker: it passes the prompt to its worker and prints what comes back.

use crate::error::CliError;
use dogwatch_fleet::worker::sessions::{EXIT, MAX_REQUEST, Request, SOCKET_VAR};
use dogwatch_host::store::{secrets, socket};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

/// How long the worker may take to accept the session.
const ACCEPT: Duration = Duration::from_secs(10);
/// The longest line that the worker sends, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// Run one session of a graph on another worker
///
/// A worker starts it in place of the agent of a node, for graphs that were submitted with --spread.
#[derive(clap::Args)]
pub struct Args {
    /// Environment variable whose value is kept out of the prompt; repeatable
    #[arg(long = "redact", value_name = "NAME")]
    redact: Vec<String>,
}

/// Runs `dogwatch fleet session` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let variable = |name: &str| {
        std::env::var(name).map_err(|_| {
            CliError::with_help(format!("{name} is not set"), "this command is for workers of a fleet")
        })
    };
    let socket = variable(SOCKET_VAR)?;
    let iteration = variable("DOGWATCH_ITERATION")?;
    let iteration = iteration.parse().map_err(|_| CliError::usage("DOGWATCH_ITERATION is not a number"))?;
    let node = variable("DOGWATCH_NODE")?;
    let mut prompt = String::new();
    io::stdin()
        .take(MAX_REQUEST as u64)
        .read_to_string(&mut prompt)
        .map_err(|e| CliError::usage(format!("cannot read the prompt: {e}")))?;
    // The prompt leaves this machine. It may contain the output of commands, and that may contain a secret.
    let prompt = secrets::install(&args.redact).hide(&prompt).into_owned();
    let lost = |e: io::Error| CliError::usage(format!("the connection to the worker is lost: {e}"));
    pass_on(Path::new(&socket), &Request { node, iteration, prompt }).map_err(lost)
}

/// Sends the request, and prints lines until the last one, which holds the exit code.
fn pass_on(path: &Path, request: &Request) -> io::Result<u8> {
    let mut stream = socket::connect(path, ACCEPT)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut lines = BufReader::new(stream);
    let mut stdout = io::stdout().lock();
    loop {
        let mut line = Vec::new();
        // The worker says something at least as often as the node does; the run bounds the wait.
        let length = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let exit = std::str::from_utf8(&line).ok().and_then(|line| line.strip_prefix(EXIT));
        if let Some(code) = exit.and_then(|code| code.trim().parse().ok()) {
            return Ok(code);
        }
        stdout.write_all(&line)?;
        stdout.flush()?;
    }
}
