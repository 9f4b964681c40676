//! Jobs that are parts of dogwatch: snapshots, worktrees, and the first step of a sandboxed session.
//!
//! The keeper runs them in a fork of itself. To start the binary again would take two milliseconds, most of them for the
//! relocations of a large program. A fork is safe because the keeper has one thread.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use super::order::StartOrder;
use super::start::{StartError, why};
use crate::git::{role, snapshot, worktree};
use crate::sandbox::{self, Sandboxed};
use crate::sys::{self, Surroundings, fork_job};

/// How long a snapshot or a worktree may take if no dogwatch ends it. The bounds of the core are shorter.
const GIT_BOUND: Duration = Duration::from_secs(10 * 60);

/// Starts the job if it is a part of dogwatch, and returns its pid.
pub(super) fn start(order: &StartOrder) -> Option<Result<i32, StartError>> {
    let [program, name, args @ ..] = order.argv.as_slice() else { return None };
    let name = std::str::from_utf8(name).ok().filter(|_| program == role::PROGRAM.as_bytes())?;
    let args = || args.iter().cloned().map(OsString::from_vec);
    let started = match name {
        snapshot::ARGUMENT => fork(order, None, Some(GIT_BOUND), || git_part(|| snapshot::main(args()))),
        worktree::ARGUMENT => fork(order, None, Some(GIT_BOUND), || git_part(|| worktree::main(args()))),
        sandbox::ARGUMENT => match Sandboxed::prepare(args()) {
            Ok(session) => fork(order, session.ruleset(), None, || session.become_agent()),
            Err((code, why)) => fork(order, None, None, || sandbox::fail(code, &why)),
        },
        _ => return None,
    };
    Some(started.map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        why(errno, name, &order.cwd)
    }))
}

fn fork(
    order: &StartOrder,
    keep: Option<BorrowedFd<'_>>,
    bound: Option<Duration>,
    work: impl FnOnce() -> u8,
) -> io::Result<i32> {
    let [stdin, stdout, stderr] = &order.stdio;
    let stdio = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    fork_job(&Surroundings { stdio, cwd: &order.cwd, env: &order.env, keep, bound }, work)
}

/// Runs a part that writes files and pipes. A full disk and a closed pipe are errors there, not signals.
fn git_part(run: impl FnOnce() -> u8) -> u8 {
    for signal in [Signal::PIPE, Signal::XFSZ] {
        // It can only fail for a signal that does not exist.
        let _ = sys::ignore(signal);
    }
    run()
}
