//! A process that this one starts: a server behind the proxy, or a check. It gets a process group of its own,
//! so that all of it can be ended; what gets away from that the session's keeper ends.

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

/// How long a process that was killed may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// Of what it prints for people, so much of the end is kept.
pub const MAX_TAIL: usize = 4 * 1024;

pub struct Child {
    process: Option<Process>,
    group: Option<Pid>,
}

/// A process with its pipes.
pub struct Started {
    pub child: Child,
    pub stdin: Option<pipe::Sender>,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
}

/// Starts it in a group of its own. Without `with_stdin` there is nothing on its stdin.
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
    let gone = || io::Error::other("a pipe that was asked for is not there");
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
    /// How it ended, if it does within the limit; then its group is killed, and so it is at the end of the limit.
    pub async fn wait_at_most(mut self, limit: Duration) -> Option<ExitStatus> {
        let mut process = self.process.take()?;
        // Whoever waits may lose interest; then it is killed as well, when `self` goes.
        // unbounded: in a thread of its own, and ended by the signals below
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

/// A child that nobody waits for any more is ended, with all its group.
impl Drop for Child {
    fn drop(&mut self) {
        kill(self.group.take());
        let Some(mut process) = self.process.take() else { return };
        if matches!(process.try_wait(), Ok(None)) {
            // unbounded: it was killed; a thread waits that nobody waits for, and nobody stays in the process table
            let reaper = std::thread::Builder::new().spawn(move || process.wait());
            // Without one the session's keeper reaps it in the end.
            drop(reaper);
        }
    }
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // It may be gone already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The end of what a process prints.
#[derive(Clone, Debug, Default)]
pub struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    pub fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = dogwatch_core::text::printable_bytes(&bytes);
        text.trim().to_owned()
    }

    pub fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_TAIL)..]);
        let over = kept.len().saturating_sub(MAX_TAIL);
        kept.drain(..over);
    }
}

/// Keeps the end of what comes out of a pipe, until nobody writes to it any more.
pub async fn drain(mut from: pipe::Receiver, tail: Tail) {
    let mut chunk = vec![0; 16 * 1024];
    // unbounded: ends when the process and its kin do, and these are ended
    while let Ok(n) = from.read(&mut chunk).await {
        if n == 0 {
            return;
        }
        tail.push(&chunk[..n]);
    }
}
