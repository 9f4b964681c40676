//! The supervisor's side of a keeper.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use dogwatch_core::run::owed::{Looked, Owed, Seen};

use super::adopted::{self, Ended};
use super::descendants::stat_of;
use super::link::{Link, Received};
use super::order::{Order, Report};
use super::{ARGUMENT, NAME, wire};
use crate::clock;

/// How long an order may wait for room in the socket. The keeper reads at all times, so this passes
/// only when it is stopped or starved.
const SEND_BOUND: Duration = Duration::from_secs(5);
/// How long a shut-down waits for the keeper's end: its own grace of 1 s, 5 s of KILL, and slack.
const END_BOUND: Duration = Duration::from_secs(8);
/// How long a killed keeper may take to be gone. It passes only when the keeper is stuck in the kernel.
const DEATH_BOUND: Duration = Duration::from_secs(2);

/// The keeper has gone without being told to: killed, or it gave up on what it was sent. Its children are
/// then children of this process: see [`super::end_adopted`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the keeper (pid {pid}) is gone")]
pub struct KeeperLost {
    pub pid: u32,
}

/// Whether an error of [`Keeper::send`] or [`Keeper::receive`] means that the keeper is gone.
pub fn is_lost(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<KeeperLost>())
}

/// A running keeper. Dropping it ends its job's whole tree and the keeper itself.
#[derive(Debug)]
pub struct Keeper {
    link: Link,
    child: Child,
    ended: bool,
    /// It was reaped: its pid may mean another process by now.
    reaped: bool,
}

impl Keeper {
    /// Starts a keeper from this process's own binary, whose `main` must call [`super::main`] when its
    /// first argument is [`ARGUMENT`]. Does not wait for it: [`Report::Ready`] tells. `hold` is kept
    /// open by the keeper for as long as it lives.
    pub fn start(hold: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        Self::start_holding(hold.as_slice())
    }

    /// Starts a keeper that keeps all of these open for as long as it lives: at most three.
    pub fn start_holding(hold: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let mut link = Link::new(ours);
        if !hold.is_empty() {
            // The socket is new and empty: this never has to wait.
            hold.iter().try_for_each(|_| link.push(&wire::hold_body()))?;
            link.send_some(hold)?;
        }
        // The link, not the name: it stays right when the file was replaced or removed meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0(NAME)
            .arg(ARGUMENT)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = adopted::spawn(&mut command)?;
        Ok(Self { link, child, ended: false, reaped: false })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order, and continues the keeper in case it was stopped. Waits for room in the socket if it must, up
    /// to five seconds. After any error but `InvalidInput` (too long, nothing was sent) the keeper is of no more use:
    /// drop it.
    pub fn send(&mut self, order: Order) -> io::Result<()> {
        self.signal(Signal::CONT);
        let (body, fds) = wire::encode_order(order);
        self.link.push(&body)?;
        self.push_out(&fds).map_err(|error| self.lost_if_broken(error))
    }

    /// The next report, if one is there. Call it until it answers `None` each time [`AsFd`] is readable.
    pub fn receive(&mut self) -> io::Result<Option<Report>> {
        loop {
            if let Some(body) = self.link.next_frame().map_err(io::Error::other)? {
                return wire::decode_report(&body).map(Some).map_err(io::Error::other);
            }
            match self.link.receive()? {
                Received::Some => {}
                Received::Nothing => return Ok(None),
                Received::Closed => return Err(self.lost()),
            }
        }
    }

    /// Continues the keeper. Returns what it was found doing.
    pub fn nudge(&self) -> Seen {
        let stopped = i32::try_from(self.pid()).ok().and_then(stat_of).is_some_and(|stat| stat.is_stopped());
        self.signal(Signal::CONT);
        match stopped {
            true => Seen::Stopped,
            false if self.link.is_read() => Seen::Idle,
            false => Seen::Running,
        }
    }

    /// Tells the keeper to end its job's tree and itself, and waits for neither.
    pub fn dismiss(&self) {
        self.link.hang_up();
        self.signal(Signal::CONT);
    }

    /// Ends the job's tree, if there is one, and the keeper. A keeper that another process stops again and again is
    /// killed, and what it leaves is ended without it. Fails with `TimedOut` when a process is left after eight seconds;
    /// a keeper that can run goes on by itself then.
    pub fn shut_down(mut self) -> io::Result<()> {
        self.end()
    }

    /// Kills the keeper, whatever it does. Its children are then children of this process; see
    /// [`super::end_adopted`]. Fails with `TimedOut` when the keeper does not go.
    pub fn bury(&mut self) -> io::Result<()> {
        self.ended = true;
        self.kill().map(drop)
    }

    /// Kills the keeper and waits until it is dead. Returns whether it had ended by itself with an empty tree.
    fn kill(&mut self) -> io::Result<bool> {
        let pid = Pid::from_child(&self.child);
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        self.signal(Signal::KILL);
        if !wait_for(fd.as_fd(), PollFlags::IN, Instant::now() + DEATH_BOUND)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let status = adopted::reap(&mut self.child)?;
        self.reaped = status.is_some();
        Ok(status.is_some_and(|status| status.success()))
    }

    /// The keeper is a child that only this handle reaps, so its pid keeps its meaning. It may be dead, and then the
    /// signal means nothing.
    fn signal(&self, signal: Signal) {
        if !self.reaped {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    fn push_out(&mut self, fds: &[OwnedFd]) -> io::Result<()> {
        let deadline = Instant::now() + SEND_BOUND;
        let mut beside: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        while self.link.unsent() > 0 {
            if self.link.send_some(&beside)? {
                beside.clear();
            } else if !wait_for(self.link.as_fd(), PollFlags::OUT, deadline)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        self.dismiss();
        let mut owed = Owed::report(clock::awake(), END_BOUND.into());
        // The keeper's exit closes its end: our end of file.
        while matches!(self.link.receive(), Ok(Received::Some | Received::Nothing)) {
            while self.link.next_frame().is_ok_and(|frame| frame.is_some()) {}
            let pause = Duration::from(owed.due().since(clock::awake()));
            if wait_for(self.link.as_fd(), PollFlags::IN, Instant::now() + pause)? {
                continue;
            }
            let seen = self.nudge();
            match owed.looked(clock::awake(), seen) {
                Looked::Wait | Looked::Settled => {}
                Looked::GiveUp if seen == Seen::Stopped => break,
                // It runs and tries to end what cannot be ended. It keeps the lock until it is done.
                Looked::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        // A keeper that has closed its end is exiting: the signal does not change its exit code.
        if self.kill()? {
            return Ok(());
        }
        // It was killed, by us or by another process, and may have left its tree. Nothing here tells its processes
        // from those of others, so only the certain ones are ended.
        let Ended { all, .. } = adopted::end_all(|_| false);
        if all { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    fn lost(&self) -> io::Error {
        io::Error::new(io::ErrorKind::BrokenPipe, KeeperLost { pid: self.pid() })
    }

    fn lost_if_broken(&self, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.lost(),
            _ => error,
        }
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // No caller is left that could handle the error.
        let _ = self.end();
    }
}

/// Waits until the socket is ready; false when the deadline came first.
fn wait_for(fd: BorrowedFd<'_>, what: PollFlags, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = left.try_into().expect("a bound of seconds fits a timespec");
        match poll(&mut [PollFd::from_borrowed_fd(fd, what)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
