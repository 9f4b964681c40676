//! Continuing a run in the background: in a process that no terminal and no caller takes along.
//!
//! Two processes do it. `dogwatch wake RUN --detach` starts the one that supervises, waits until that one holds the run,
//! and exits; the supervisor then belongs to init, so its starter has no zombie to collect. The supervisor leaves its
//! starter's session itself, so that neither a closed terminal nor the end of `dogwatch serve` reaches it.

use crate::error::Failure;
use crate::runs::FoundRun;
use dogwatch_core::text::one_line;
use dogwatch_host::store::registry::Pointer;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden flag of the process that supervises.
pub const IN_OWN_SESSION: &str = "--in-own-session";
/// In the run's directory: what the supervisor says if it cannot continue.
const ERROR_FILE: &str = "detached.err";
/// How long the supervisor may take until it holds the run; a large record takes a while to read.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long `dogwatch serve` waits for all of it.
const WAKE_TIMEOUT: Duration = Duration::from_secs(25);
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How much of what it says is passed on, in bytes.
const MAX_ERROR_TEXT: usize = 500;

/// Starts a process that continues the run, and returns once it does, with a sentence about it.
pub fn wake(found: &FoundRun) -> Result<String, Failure> {
    let cannot =
        |e: io::Error| Failure::usage(format!("cannot continue run {} in the background: {e}", found.id));
    let errors =
        File::options().read(true).write(true).create(true).truncate(true).open(found.dir.join(ERROR_FILE));
    let mut errors = errors.map_err(cannot)?;
    let mut child = Command::new(std::env::current_exe().map_err(cannot)?)
        .args(["wake", found.id.as_str(), IN_OWN_SESSION, "--state-dir"])
        .arg(found.state_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.try_clone().map_err(cannot)?)
        .spawn()
        .map_err(cannot)?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            if matches!(status.code(), Some(2 | 4 | 5)) {
                errors.rewind().map_err(cannot)?;
                return Err(Failure::usage(
                    first_line(errors).unwrap_or_else(|| format!("it ended with {status}")),
                ));
            }
            // It may have looked once, found nothing to do and gone to sleep again.
            return Ok(format!("run {} was woken and has ended again", found.id));
        }
        if found.is_live() {
            return Ok(format!("run {} continues in the background (pid {})", found.id, child.id()));
        }
        if Instant::now() >= deadline {
            return Err(Failure::usage(format!(
                "run {} did not begin within {} s; pid {} still tries",
                found.id,
                START_TIMEOUT.as_secs(),
                child.id()
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The first line that a process wrote about its failure.
fn first_line(errors: impl Read) -> Option<String> {
    let mut text = Vec::new();
    errors.take(MAX_ERROR_TEXT as u64 * 4).read_to_end(&mut text).ok()?;
    let line = one_line(&String::from_utf8_lossy(&text), MAX_ERROR_TEXT);
    (!line.is_empty()).then(|| line.trim_start_matches("Error: ").to_owned())
}

/// Leaves the session of the process that started this one.
pub fn leave_session() -> Result<(), Failure> {
    rustix::process::setsid()
        .map(drop)
        .map_err(|e| Failure::internal(format!("cannot start a session of its own: {e}")))
}

/// For `dogwatch serve`: continues a run that went to sleep. Blocks for a bounded time.
pub fn continue_run(pointer: &Pointer) -> Result<(), String> {
    let state_dir = pointer.run_dir.parent().and_then(Path::parent).unwrap_or(&pointer.run_dir);
    let mut child = std::env::current_exe()
        .and_then(|own| {
            Command::new(own)
                .args(["wake", pointer.run.as_str(), "--detach", "--state-dir"])
                .arg(state_dir)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
        })
        .map_err(|e| format!("dogwatch cannot be started: {e}"))?;
    let deadline = Instant::now() + WAKE_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                let why = child.stderr.take().and_then(first_line);
                return Err(why.unwrap_or_else(|| format!("it ended with {status}")));
            }
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => {
                // Its own limit is shorter: it hangs. What it started goes on by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", WAKE_TIMEOUT.as_secs()));
            }
        }
    }
}
