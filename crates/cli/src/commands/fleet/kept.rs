//! A program under a keeper of its own: the program and everything that it starts end when this process does.

use dogwatch_host::process::keeper::{EnvChange, Keeper, Order, Report, StartOrder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a tree may take to end beyond its grace.
const MAX_END: Duration = Duration::from_secs(8);

/// A program under a keeper.
pub struct Kept {
    keeper: Keeper,
    job: u64,
    exited: Option<String>,
    empty: bool,
}

/// What to start.
pub struct Program<'a> {
    /// The program and its arguments.
    pub argv: &'a [&'a OsStr],
    /// Variables to set.
    pub env: &'a [(&'a str, &'a OsStr)],
    /// The working directory.
    pub dir: &'a Path,
    /// Where stdout and stderr go.
    pub log: BorrowedFd<'a>,
}

impl Kept {
    /// Starts a keeper. It holds `hold` open until its processes have ended.
    pub fn new(hold: Option<BorrowedFd<'_>>) -> io::Result<Kept> {
        Ok(Kept { keeper: Keeper::start_for_operator(hold)?, job: 0, exited: None, empty: false })
    }

    /// Starts a program. The one before it must have ended.
    pub fn start(&mut self, program: &Program<'_>) -> io::Result<()> {
        let log = || program.log.try_clone_to_owned();
        let stdio: [OwnedFd; 3] = [File::open("/dev/null")?.into(), log()?, log()?];
        let set = |(name, value): &(&str, &OsStr)| -> EnvChange {
            (name.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))
        };
        self.job += 1;
        (self.exited, self.empty) = (None, false);
        self.keeper.send(Order::Start(StartOrder {
            job: self.job,
            argv: program.argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
            env: program.env.iter().map(set).collect(),
            cwd: program.dir.to_owned(),
            stdio,
        }))
    }

    /// Returns how the program ended, if it has.
    pub fn exited(&mut self) -> io::Result<Option<&str>> {
        while let Some(report) = self.keeper.receive()? {
            match report {
                Report::Exited { how, job, .. } if job == self.job => {
                    self.exited = Some(format!("{how:?}").to_lowercase());
                }
                Report::Refused { message, job, .. } if job == self.job => {
                    (self.exited, self.empty) = (Some(message), true);
                }
                Report::Empty { job, .. } if job == self.job => self.empty = true,
                Report::Ready { .. }
                | Report::Started { .. }
                | Report::Exited { .. }
                | Report::Refused { .. }
                | Report::Empty { .. }
                | Report::Unkillable { .. } => {}
            }
        }
        Ok(self.exited.as_deref())
    }

    /// Asks the program and everything that it started to end, and kills what is left after the grace. Returns when no
    /// process is left.
    pub fn end(&mut self, grace: Duration) -> io::Result<()> {
        self.exited()?;
        if self.job == 0 || self.empty {
            return Ok(());
        }
        let order = if grace.is_zero() { Order::Kill } else { Order::Sweep { grace } };
        self.keeper.send(order)?;
        let until = Instant::now() + grace + MAX_END;
        while !self.empty {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.keeper, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.exited()?;
        }
        Ok(())
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.keeper.as_fd()
    }
}
