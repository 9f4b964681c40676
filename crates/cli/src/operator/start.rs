//! Starts a run in the background, in a new session, so that it outlives the server that started it.

use crate::detached;
use crate::error::CliError;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long a run may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest first line of a run, in bytes: `run_started` holds all settings.
const MAX_FIRST_LINE: u64 = 16 * 1024 * 1024;
/// The longest error that is passed on, in bytes.
const MAX_ERROR: u64 = 4 * 1024;

/// Starts a run and returns a message with its id.
pub fn run(path: &str, iterations: Option<u32>) -> Result<String, CliError> {
    // A path that looks like an option would be one.
    if path.is_empty() || path.starts_with('-') {
        return Err(CliError::usage("`path` must name a directory with RALPH.md or graph.*, or such a file"));
    }
    let cannot = |e: std::io::Error| CliError::usage(format!("cannot start a run: {e}"));
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command.args(["run", "--json", detached::IN_OWN_SESSION, path]);
    if let Some(n) = iterations {
        command.args(["-n", &n.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    let started = child.stdout.take().and_then(first_line);
    let id = started.and_then(|line| {
        let event: serde_json::Value = serde_json::from_str(&line).ok()?;
        event["run"].as_str().map(str::to_owned)
    });
    let Some(id) = id else {
        let why = refused(&mut child);
        return Err(CliError::usage(format!("the run did not start: {why}")));
    };
    // Without this it would stay a zombie when it ends.
    let _ = std::thread::Builder::new().name("reap".into()).spawn(move || child.wait());
    Ok(format!("started run {id} in the background; `run_status` shows its progress"))
}

/// Returns the first line of the output, or none if it does not arrive in time. A run continues when no process reads its output.
fn first_line(out: ChildStdout) -> Option<String> {
    let (sender, line) = sync_channel(1);
    let reader = std::thread::Builder::new().name("started".into()).spawn(move || {
        let mut text = String::new();
        let read = BufReader::new(out.take(MAX_FIRST_LINE)).read_line(&mut text);
        let _ = sender.send(read.ok().filter(|n| *n > 0).map(|_| text));
    });
    reader.ok()?;
    line.recv_timeout(START_TIMEOUT).ok().flatten()
}

/// Ends a child that did not start a run, and returns what it said.
fn refused(child: &mut Child) -> String {
    let _ = child.kill();
    let mut text = String::new();
    if let Some(errors) = child.stderr.take() {
        let _ = errors.take(MAX_ERROR).read_to_string(&mut text);
    }
    let _ = child.wait();
    let text = text.trim().trim_start_matches("error: ").to_owned();
    if text.is_empty() { format!("no answer within {} s", START_TIMEOUT.as_secs()) } else { text }
}
