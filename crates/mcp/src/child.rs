//! Child processes: servers behind the proxy, and checks. Each child gets its own process group, so that the whole
//! group can be killed. The session's keeper kills descendants that left the group.

use crate::bound::within;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// How long to wait for a killed process to exit.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// How much of the end of a child's output is kept, in bytes.
pub const MAX_TAIL: usize = 4 * 1024;

/// A child process. Dropping it kills its process group.
pub struct Child {
    process: Option<Process>,
    group: Option<Pid>,
}

/// A started process with its pipes.
pub struct Started {
    pub child: Child,
    pub stdin: Option<pipe::Sender>,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
}

/// Starts a process in its own group. Without `with_stdin` its stdin is `/dev/null`.
pub fn start(argv: &[String], cwd: &Path, with_stdin: bool) -> io::Result<Started> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut process = Command::new(program)
        .args(arguments)
        .current_dir(cwd)
        .stdin(if with_stdin { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let gone = || io::Error::other("a requested pipe is missing");
    let stdin = process.stdin.take().map(OwnedFd::from);
    let stdout = OwnedFd::from(process.stdout.take().ok_or_else(gone)?);
    let stderr = OwnedFd::from(process.stderr.take().ok_or_else(gone)?);
    let group = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    Ok(Started {
        child: Child { process: Some(process), group },
        stdin: stdin.map(pipe::Sender::from_owned_fd).transpose()?,
        stdout: pipe::Receiver::from_owned_fd(stdout)?,
        stderr: pipe::Receiver::from_owned_fd(stderr)?,
    })
}

impl Child {
    /// Waits for the process to exit and returns its status; `None` if it reaches the limit. Kills the process group
    /// in both cases.
    pub async fn wait_at_most(mut self, limit: Duration) -> Option<ExitStatus> {
        let mut process = self.process.take()?;
        // If the caller drops this future, dropping `self` kills the process.
        // unbounded: runs in its own thread; the kill below ends it
        let mut exited = tokio::task::spawn_blocking(move || process.wait());
        let in_time = within(limit, &mut exited).await;
        kill(self.group.take());
        match in_time {
            Ok(ended) => ended.ok()?.ok(),
            Err(_) => {
                let _ = within(KILL_LIMIT, exited).await;
                None
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        kill(self.group.take());
        let Some(mut process) = self.process.take() else { return };
        if matches!(process.try_wait(), Ok(None)) {
            // unbounded: the process was killed; a detached thread reaps it
            let reaper = std::thread::Builder::new().spawn(move || process.wait());
            // If the thread cannot start, the session's keeper reaps the process.
            drop(reaper);
        }
    }
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // The group may already be gone.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The end of a process's output, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct BoundedTail(Arc<Mutex<Vec<u8>>>);

impl BoundedTail {
    /// Returns the kept output as printable text.
    pub fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = dogwatch_core::text::printable_bytes(&bytes);
        text.trim().to_owned()
    }

    /// Appends output and discards the oldest bytes beyond the limit.
    pub fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_TAIL)..]);
        let over = kept.len().saturating_sub(MAX_TAIL);
        kept.drain(..over);
    }
}

/// Reads a pipe until all writers have closed it, and keeps the end of the output.
pub async fn drain(mut from: pipe::Receiver, tail: BoundedTail) {
    let mut chunk = vec![0; 16 * 1024];
    // unbounded: ends with the process and its descendants, which are killed
    while let Ok(n) = from.read(&mut chunk).await {
        if n == 0 {
            return;
        }
        tail.push(&chunk[..n]);
    }
}
