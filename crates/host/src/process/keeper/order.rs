//! Orders from the supervisor to a keeper, and the reports it sends back.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use dogwatch_core::record::event::EndStep;
use dogwatch_core::run::job::Exit;
use dogwatch_core::run::life::{SWEEP_GRACE, TreeOrder};

/// An environment variable to set, or to remove if the value is `None`, relative to the environment of the keeper.
pub type EnvChange = (Vec<u8>, Option<Vec<u8>>);

/// An order to the keeper.
#[derive(Debug)]
pub enum Order {
    /// Keep this descriptor open until the keeper exits. It is the lock file: while a keeper cleans up after a killed
    /// supervisor, the next one cannot take the lock.
    Hold(OwnedFd),
    /// Start a job.
    Start(StartOrder),
    /// Send SIGINT to the process group of the job, or to every remaining descendant once the main process is gone.
    Interrupt,
    /// Send SIGTERM, then SIGCONT so that stopped processes handle it. Same recipients as `Interrupt`.
    Terminate,
    /// Forward a signal that the supervisor received on behalf of the job. Same recipients as `Interrupt`.
    Pass(Signal),
    /// Send SIGKILL until the tree is empty. The reply is `Empty`, preceded by `Exited` if that is still due.
    Kill,
    /// Send SIGTERM and SIGCONT to every descendant, wait up to `grace` for them to exit, then proceed as `Kill`.
    Sweep {
        /// The grace between TERM and KILL.
        grace: Duration,
    },
    /// End the tree by yourself a moment after this time, or after `watch` is closed at its other end, and start nothing
    /// more then. A supervisor that can run ends the tree first. A later order replaces the time.
    Leash {
        /// The time on the boot clock, since boot.
        until: Duration,
        /// The descriptor to watch. Sent once.
        watch: Option<OwnedFd>,
    },
}

impl From<TreeOrder> for Order {
    fn from(order: TreeOrder) -> Order {
        match order {
            TreeOrder::Step(EndStep::Interrupt) => Order::Interrupt,
            TreeOrder::Step(EndStep::Terminate) => Order::Terminate,
            TreeOrder::Step(EndStep::Kill) => Order::Kill,
            TreeOrder::Sweep => Order::Sweep { grace: SWEEP_GRACE.into() },
        }
    }
}

/// The description of a job to start.
#[derive(Debug)]
pub struct StartOrder {
    /// The id of the job, repeated in its reports.
    pub job: u64,
    /// The program and its arguments. A program without a slash is searched on the PATH of the *child*.
    pub argv: Vec<Vec<u8>>,
    /// Changes to the environment, applied in order.
    pub env: Vec<EnvChange>,
    /// The working directory, an absolute path.
    pub cwd: PathBuf,
    /// stdin, stdout and stderr. The copies of the supervisor are closed once the order is sent.
    pub stdio: [OwnedFd; 3],
}

/// A report from the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The keeper is ready for orders.
    Ready {
        /// The process id of the keeper.
        pid: u32,
    },
    /// The main process of the job is running. Its pid is also its process group id and session id.
    Started {
        /// The number of the job.
        job: u64,
        /// The process id of the main process.
        pid: u32,
    },
    /// The job did not start, for example because the program was not found or the working directory is invalid.
    Refused {
        /// The number of the job.
        job: u64,
        /// The error number of the operating system.
        errno: i32,
        /// Why the job cannot start.
        message: String,
    },
    /// The main process ended. `cpu` is the user and system time of all processes reaped so far. `alone` means that
    /// no other process of the job was left at that moment.
    Exited {
        /// The number of the job.
        job: u64,
        /// How the main process ended.
        how: Exit,
        /// The CPU time that it used.
        cpu: Duration,
        /// Whether no other process of the job was alive.
        alone: bool,
    },
    /// The process tree is empty. `killed` counts the processes, excluding the main one, that ended after the keeper
    /// signaled them to stop.
    Empty {
        /// The number of the job.
        job: u64,
        /// The number of processes that were killed.
        killed: u64,
        /// The command lines of some of them, ready to be shown.
        names: Vec<String>,
    },
    /// A process survived five seconds of SIGKILL (a hung disk, or a process of another user). The keeper keeps
    /// trying and reports `Empty` once it is gone. `left` counts all survivors, `detail` describes the first ones.
    Unkillable {
        /// The number of the job.
        job: u64,
        /// The number of processes that are left.
        left: u64,
        /// Some of them.
        detail: Vec<Remnant>,
    },
}

/// A process that survived SIGKILL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remnant {
    /// Its process id.
    pub pid: u32,
    /// Its name in the kernel, at most 15 bytes.
    pub comm: String,
    /// Its state as shown in /proc: `D` uninterruptible, `Z` zombie, and so on.
    pub state: char,
}
