//! Short commands of the worker itself: bounded in time, and ended with their group when the job is.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The most that is kept of what a command prints, in bytes.
const MAX_OUTPUT: u64 = 256 * 1024;

/// The process groups of the commands that run.
static RUNNING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Kills every command that runs, for a worker that ends at once.
pub fn end_all() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for group in running.iter().filter_map(|group| Pid::from_raw(*group)) {
        // It may have ended just now.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Keeps the group of a command in the list while it runs.
struct Listed(i32);

impl Listed {
    fn new(group: Pid) -> Listed {
        let group = group.as_raw_nonzero().get();
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).insert(group);
        Listed(group)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Why a command did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// It could not be started, or a file could not be written.
    #[error("{0}")]
    Io(String),
    /// It failed.
    #[error("`{what}` failed: {why}")]
    Failed {
        /// The command.
        what: String,
        /// What it printed.
        why: String,
    },
    /// It took too long.
    #[error("`{0}` took too long")]
    TimedOut(String),
    /// The job was ended.
    #[error("the job was ended")]
    Canceled,
}

/// Cancels the commands of a job.
#[derive(Clone, Debug)]
pub struct Cancel(watch::Receiver<bool>);

impl Cancel {
    /// Follows a flag.
    pub fn new(flag: watch::Receiver<bool>) -> Cancel {
        Cancel(flag)
    }

    /// Returns one that is never set.
    pub fn never() -> Cancel {
        Cancel(watch::channel(false).1)
    }

    /// Returns whether the job was ended.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the job is ended.
    pub async fn wait(&self) {
        let mut flag = self.0.clone();
        if flag.wait_for(|set| *set).await.is_err() {
            // The sender is gone, so nothing can set it.
            std::future::pending::<()>().await;
        }
    }
}

/// Runs a command and returns what it printed to stdout.
pub async fn run(mut command: Command, limit: Duration, cancel: &Cancel) -> Result<String, CommandError> {
    if cancel.is_set() {
        return Err(CommandError::Canceled);
    }
    let what = describe(&command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let cannot = |error: &std::io::Error| CommandError::Io(format!("cannot run `{what}`: {error}"));
    let mut child = command.spawn().map_err(|error| cannot(&error))?;
    let group = Pid::from_child(&child);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let listed = Listed::new(group);
    let work = tokio::task::spawn_blocking(move || {
        let errors = std::thread::Builder::new().name("stderr".into()).spawn(move || read(err));
        let output = read(out);
        let errors = errors.ok().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let ended = child.wait().map(|status| (status, output, errors));
        drop(listed);
        ended
    });
    tokio::pin!(work);
    let end = tokio::select! {
        done = &mut work => return finish(what, done),
        () = tokio::time::sleep(limit) => CommandError::TimedOut(what),
        () = cancel.wait() => CommandError::Canceled,
    };
    // It may have ended just now.
    let _ = kill_process_group(group, Signal::KILL);
    let _ = work.await;
    Err(end)
}

type Done = std::io::Result<(std::process::ExitStatus, String, String)>;

fn finish(what: String, done: Result<Done, tokio::task::JoinError>) -> Result<String, CommandError> {
    let done = done.map_err(|error| CommandError::Io(error.to_string()))?;
    let (status, output, errors) = done.map_err(|error| CommandError::Io(error.to_string()))?;
    if status.success() {
        return Ok(output);
    }
    let text = if errors.trim().is_empty() { output } else { errors };
    let why = dogwatch_core::text::one_line(&text, 300);
    Err(CommandError::Failed { what, why: if why.is_empty() { status.to_string() } else { why } })
}

/// Returns the program and its first argument that is not an option.
fn describe(command: &Command) -> String {
    let mut words = command.get_args().map(|word| word.to_string_lossy());
    let mut name = command.get_program().to_string_lossy().into_owned();
    while let Some(word) = words.next() {
        if word == "-c" {
            words.next();
        } else if !word.starts_with('-') {
            name = format!("{name} {word}");
            break;
        }
    }
    name
}

fn read(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // A pipe that fails ends like one that was closed.
        let _ = pipe.by_ref().take(MAX_OUTPUT).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
