//! Continues a run in the background, in a process that outlives its terminal and its caller.
//!
//! This takes two processes. `dogwatch wake RUN --detach` starts the supervisor, waits until it holds the run, and
//! exits. The supervisor is then a child of init, so its starter has no zombie to reap. The supervisor creates its own
//! session, so that neither a closed terminal nor the end of `dogwatch serve` affects it.

use crate::error::CliError;
use crate::runs::FoundRun;
use dogwatch_core::text::one_line;
use dogwatch_host::store::registry::Pointer;
use dogwatch_host::store::safe_file;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden flag of the supervisor process.
pub const IN_OWN_SESSION: &str = "--in-own-session";
/// The file in the run's directory that receives the errors of the supervisor.
const ERROR_FILE: &str = "detached.err";
/// How long the supervisor may take until it holds the run. Reading a large record takes a while.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long `dogwatch serve` waits for `dogwatch wake --detach`.
const WAKE_TIMEOUT: Duration = Duration::from_secs(25);
/// The time between two checks of the supervisor.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The most of an error message to pass on, in bytes.
const MAX_ERROR_TEXT: usize = 500;

/// Starts a process that continues the run, and waits until it does. Returns a message about it.
pub fn wake(found: &FoundRun) -> Result<String, CliError> {
    let cannot =
        |e: io::Error| CliError::usage(format!("cannot continue run {} in the background: {e}", found.id));
    let errors = safe_file::update(&found.dir.join(ERROR_FILE), safe_file::PRIVATE);
    let mut errors = errors.and_then(|file| file.set_len(0).map(|()| file)).map_err(cannot)?;
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
                return Err(CliError::usage(
                    first_line(errors).unwrap_or_else(|| format!("the supervisor ended with {status}")),
                ));
            }
            // It may have found nothing to do and gone back to sleep.
            return Ok(format!("woke run {}, which has already ended again", found.id));
        }
        if found.is_live() {
            return Ok(format!("run {} continues in the background (pid {})", found.id, child.id()));
        }
        if Instant::now() >= deadline {
            return Err(CliError::usage(format!(
                "run {} did not start within {} s; pid {} is still trying",
                found.id,
                START_TIMEOUT.as_secs(),
                child.id()
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the first line of an error output, without its prefix.
fn first_line(errors: impl Read) -> Option<String> {
    let mut text = Vec::new();
    errors.take(MAX_ERROR_TEXT as u64 * 4).read_to_end(&mut text).ok()?;
    let line = one_line(&String::from_utf8_lossy(&text), MAX_ERROR_TEXT);
    (!line.is_empty()).then(|| line.trim_start_matches("error: ").to_owned())
}

/// Creates a new session for this process.
pub fn leave_session() -> Result<(), CliError> {
    rustix::process::setsid()
        .map(drop)
        .map_err(|e| CliError::internal(format!("cannot create a new session: {e}")))
}

/// Continues a run that is asleep, for `dogwatch serve`. Blocks for a limited time.
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
        .map_err(|e| format!("cannot start dogwatch: {e}"))?;
    let deadline = Instant::now() + WAKE_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                let why = child.stderr.take().and_then(first_line);
                return Err(why.unwrap_or_else(|| format!("the supervisor ended with {status}")));
            }
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => {
                // Its own timeout is shorter, so it hangs. The supervisor that it started is not affected.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", WAKE_TIMEOUT.as_secs()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_an_error_has_no_prefix() {
        let output = &b"error: run 1 has ended (clean)\nhelp: start a new run\n"[..];
        let line = first_line(output).expect("a line");
        assert!(line.starts_with("run 1 has ended (clean)"), "{line}");
        assert_eq!(first_line(&b""[..]), None);
    }
}
