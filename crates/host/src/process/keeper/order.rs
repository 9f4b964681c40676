//! What the supervisor asks of a keeper and what the keeper answers.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use crate::sys::HowEnded;

/// A variable to set, or with `None` to remove, relative to the keeper's own environment.
pub type EnvChange = (Vec<u8>, Option<Vec<u8>>);

/// An order to the keeper.
#[derive(Debug)]
pub enum Order {
    /// Keep this open until the keeper exits: the lock file, so that a keeper that is still cleaning
    /// up after a killed supervisor keeps the next one out.
    Hold(OwnedFd),
    Start(StartOrder),
    /// SIGINT to the session's group; once the main process is gone, to every descendant that is left.
    Interrupt,
    /// SIGTERM, then SIGCONT so that the stopped see it: to the group, or to those left as above.
    Terminate,
    /// A signal that somebody sent to the supervisor and that is the job's: to the group, or as above.
    Pass(Signal),
    /// SIGKILL until nothing is left. Answered by `Empty`, and `Exited` before it if still owed.
    Kill,
    /// TERM+CONT to every descendant, up to `grace` for them to go, then as `Kill`.
    Sweep {
        grace: Duration,
    },
}

/// What to start as a job.
#[derive(Debug)]
pub struct StartOrder {
    pub job: u64,
    /// The program, searched on the *child's* PATH if it has no slash, then its arguments.
    pub argv: Vec<Vec<u8>>,
    pub env: Vec<EnvChange>,
    /// Absolute.
    pub cwd: PathBuf,
    /// stdin, stdout, stderr. The supervisor's copies are closed once the order is sent.
    pub stdio: [OwnedFd; 3],
}

/// A report from the keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The keeper is up.
    Ready { pid: u32 },
    /// The job's main process runs; its pid is also that of its group and session.
    Started { job: u64, pid: u32 },
    /// The job did not start: the program was not found, cannot be executed, the directory is bad…
    Refused { job: u64, errno: i32, message: String },
    /// The main process ended. `cpu` is what it and all reaped so far have used, user plus system.
    /// `alone`: nothing else of the job was left at that moment.
    Exited { job: u64, how: HowEnded, cpu: Duration, alone: bool },
    /// Nothing of the job is left. `killed`: how many processes besides the main one went after we
    /// had told them to.
    Empty { job: u64, killed: u64 },
    /// Something outlived five seconds of SIGKILL (a hung disk, another user's process). The keeper goes
    /// on trying and reports `Empty` when it has gone. `left` counts all, `detail` names the first.
    Unkillable { job: u64, left: u64, detail: Vec<Remnant> },
}

/// A process that does not go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remnant {
    pub pid: u32,
    /// The kernel's name for it, at most 15 bytes.
    pub comm: String,
    /// As in /proc: `D` uninterruptible, `Z` zombie…
    pub state: char,
}
