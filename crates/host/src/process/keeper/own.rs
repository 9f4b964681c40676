//! Jobs that are parts of dogwatch: snapshots, worktrees, and the first step of a sandboxed session.
//!
//! The keeper runs them in a fork of itself. To start the binary again would take two milliseconds, most of them for the
//! relocations of a large program. A fork is safe because the keeper has one thread.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use rustix::io::Errno;
use rustix::process::Signal;

use super::order::StartOrder;
use super::start::{StartError, why};
use crate::git::{role, snapshot, worktree};
use crate::sandbox;
use crate::sys::{self, Surroundings, fork_job};

/// A part of dogwatch. It gets the arguments and returns an exit code.
type Part = fn(Vec<OsString>) -> u8;

/// Starts the job if it is a part of dogwatch, and returns its pid.
pub(super) fn start(order: &StartOrder) -> Option<Result<i32, StartError>> {
    let [program, name, args @ ..] = order.argv.as_slice() else { return None };
    let part = Some(name).filter(|_| program == role::PROGRAM.as_bytes()).and_then(|name| part(name))?;
    let args = args.iter().cloned().map(OsString::from_vec).collect();
    let [stdin, stdout, stderr] = &order.stdio;
    let stdio = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let surroundings = Surroundings { stdio, cwd: &order.cwd, env: &order.env };
    let started = fork_job(&surroundings, move || part(args));
    Some(started.map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        why(errno, &String::from_utf8_lossy(name), &order.cwd)
    }))
}

fn part(name: &[u8]) -> Option<Part> {
    let parts: [(&str, Part); 3] = [
        (snapshot::ARGUMENT, |args| git_part(|| snapshot::main(args.into_iter()))),
        (worktree::ARGUMENT, |args| git_part(|| worktree::main(args.into_iter()))),
        (sandbox::ARGUMENT, |args| sandbox::become_agent(args.into_iter())),
    ];
    parts.into_iter().find(|(known, _)| known.as_bytes() == name).map(|(_, part)| part)
}

/// Runs a part that writes files and pipes. A full disk and a closed pipe are errors there, not signals.
fn git_part(run: impl FnOnce() -> u8) -> u8 {
    for signal in [Signal::PIPE, Signal::XFSZ] {
        // It can only fail for a signal that does not exist.
        let _ = sys::ignore(signal);
    }
    run()
}
