//! Runs a part of this program as a job, in a fork of this process.

use super::process::{Forked, close_others, fork};
use super::signal;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// The exit code of a job that panicked, as that of a Rust program.
const PANICKED: u8 = 101;
/// The exit code of a job that was not prepared. Its parent learns the reason in another way.
const NOT_PREPARED: u8 = 126;

/// Where a forked job runs.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// stdin, stdout and stderr. Their numbers are above 2.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The working directory.
    pub cwd: &'a Path,
    /// Changes to the environment: variables to set, or to remove. A name with `=` and a zero byte are errors.
    pub env: &'a [(Vec<u8>, Option<Vec<u8>>)],
    /// A descriptor above 2 that the job needs in addition to the standard three.
    pub keep: Option<BorrowedFd<'a>>,
    /// Ends the job after this time at the latest, and when this process ends. A job that becomes
    /// another program must not have it, because the program would inherit it.
    pub bound: Option<Duration>,
}

/// Forks a single-threaded process and runs `work` in the child: in a new session, with no signal blocked, with the
/// default action of every signal, and with no descriptors but the standard three and `keep`. Returns the pid, which is also its
/// session id and group id, once the child has got that far.
pub fn fork_job(surroundings: &Surroundings<'_>, work: impl FnOnce() -> u8) -> io::Result<i32> {
    let (mut ready, mut unready) = io::pipe()?;
    let parent = rustix::process::getpid();
    match fork()? {
        Forked::Parent(pid) => {
            drop(unready);
            let mut errno = [0; 4];
            match ready.read_exact(&mut errno) {
                // The child closed its end without a word.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(pid),
                Err(error) => Err(error),
                Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
            }
        }
        Forked::Child => {
            let code = match prepare(surroundings, parent) {
                Ok(()) => {
                    // A panic must not reach the code of the parent, which the child is a copy of.
                    catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED)
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    let _ = unready.write_all(&errno.to_ne_bytes());
                    NOT_PREPARED
                }
            };
            std::process::exit(code.into())
        }
    }
}

/// Turns a forked child into the main process of a job. The last step closes the pipe to the parent.
#[expect(
    clippy::disallowed_methods,
    reason = "a forked child has one thread, so it may change its environment"
)]
fn prepare(surroundings: &Surroundings<'_>, parent: Pid) -> io::Result<()> {
    let bad = |(name, value): &(Vec<u8>, Option<Vec<u8>>)| {
        name.is_empty()
            || name.iter().any(|b| matches!(b, b'=' | 0))
            || value.iter().flatten().any(|b| *b == 0)
    };
    if surroundings.env.iter().any(bad) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    rustix::process::setsid()?;
    signal::forget_all()?;
    if let Some(bound) = surroundings.bound {
        end_with(parent, bound)?;
    }
    let [stdin, stdout, stderr] = surroundings.stdio;
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    rustix::process::chdir(surroundings.cwd)?;
    for (name, value) in surroundings.env {
        let name = OsStr::from_bytes(name);
        // SAFETY: the child of a fork has one thread, so no other thread reads the environment.
        unsafe {
            match value {
                Some(value) => std::env::set_var(name, OsStr::from_bytes(value)),
                None => std::env::remove_var(name),
            }
        }
    }
    // SAFETY: the owners of these descriptors are values of the parent. The child neither uses nor drops them: it runs
    // only `work`, which needs no other one than `keep`, and then exits.
    unsafe { close_others(3, surroundings.keep) }
}

/// Lets this process end with its parent, and after `bound` at the latest. A fork shows the environment of its parent in
/// `/proc`, so the nonce of the run would not lead to it.
fn end_with(parent: Pid, bound: Duration) -> io::Result<()> {
    // The signal follows the thread that forked. The parent has no other one.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let seconds = bound.as_secs().try_into().unwrap_or(libc::c_uint::MAX);
    // SAFETY: the call takes no pointers, and SIGALRM has its default action here: it ends the process.
    unsafe { libc::alarm(std::cmp::max(seconds, 1)) };
    Ok(())
}
