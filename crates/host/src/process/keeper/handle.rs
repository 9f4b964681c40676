//! The supervisor's handle to a keeper.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use dogwatch_core::run::keeper_deadline::{KeeperCheck, KeeperDeadline, KeeperState};

use super::adopted::{self, Ended};
use super::descendants::is_stopped;
use super::link::{Link, Received};
use super::order::{Order, Report};
use super::{ARGUMENT, NAME, OPERATOR_ARGUMENT, wire};
use crate::clock;

/// The program of a keeper: this binary, by a link that works even if the binary was replaced or removed since.
const PROGRAM: &str = "/proc/self/exe";
/// How long an order may wait for room in the socket. The keeper always reads, so this expires only if it is stopped
/// or gets no CPU time.
const SEND_BOUND: Duration = Duration::from_secs(5);
/// How long a shutdown waits for the keeper to exit: its own grace of 1 s, 5 s of KILL, and slack.
const END_BOUND: Duration = Duration::from_secs(8);
/// How long to wait for a killed keeper to die. It expires only if the keeper is stuck in the kernel.
const DEATH_BOUND: Duration = Duration::from_secs(2);

/// Names the file that a keeper needs and that is missing. A container or a chroot may have no `/proc` or no `/dev`.
fn name_missing(error: io::Error) -> io::Error {
    let missing = [PROGRAM, "/dev/null"].into_iter().find(|path| !Path::new(path).exists());
    match missing {
        Some(path) if error.kind() == io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), format!("{path} does not exist; dogwatch needs /proc and /dev"))
        }
        Some(_) | None => error,
    }
}

/// The keeper exited unexpectedly: it was killed, or it rejected the bytes it received. Its children are now children
/// of this process: see [`super::kill_with_tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the keeper (pid {pid}) is gone")]
pub struct KeeperLostError {
    /// The pid of the lost keeper.
    pub pid: u32,
}

/// Returns whether an error of [`Keeper::send`] or [`Keeper::receive`] means that the keeper is gone.
pub fn is_lost(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<KeeperLostError>())
}

/// A running keeper. Dropping it ends its job's whole tree and the keeper itself.
#[derive(Debug)]
pub struct Keeper {
    link: Link,
    child: Child,
    ended: bool,
    /// Whether the keeper was reaped. Its pid may belong to another process then.
    reaped: bool,
}

impl Keeper {
    /// Starts a keeper from the binary of this process, whose `main` must call [`super::main`] if its first argument
    /// is [`ARGUMENT`]. Does not wait until it is up: [`Report::Ready`] reports that. The keeper holds `hold` open
    /// until it exits.
    pub fn start(hold: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        Self::start_holding(hold.as_slice())
    }

    /// Starts a keeper that holds up to three descriptors open until it exits.
    pub fn start_holding(hold: &[BorrowedFd<'_>]) -> io::Result<Self> {
        Self::start_as(ARGUMENT, hold)
    }

    /// Starts a keeper for programs of the operator: they do not count as part of a session.
    pub fn start_for_operator(hold: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        Self::start_as(OPERATOR_ARGUMENT, hold.as_slice())
    }

    fn start_as(argument: &str, hold: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let mut link = Link::new(ours);
        if !hold.is_empty() {
            // The socket is new and empty, so this never blocks.
            hold.iter().try_for_each(|_| link.push(&wire::hold_body()))?;
            link.send_some(hold)?;
        }
        let mut command = Command::new(PROGRAM);
        command
            .arg0(NAME)
            .arg(argument)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = adopted::spawn(&mut command).map_err(name_missing)?;
        Ok(Self { link, child, ended: false, reaped: false })
    }

    /// Returns the pid of the keeper.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order and resumes the keeper in case it was stopped. Waits up to five seconds for room in the socket.
    /// After any error except `InvalidInput` (too long, nothing was sent), the keeper is unusable: drop it.
    pub fn send(&mut self, order: Order) -> io::Result<()> {
        self.signal(Signal::CONT);
        let (body, fds) = wire::encode_order(order);
        self.link.push(&body)?;
        self.push_out(&fds).map_err(|error| self.lost_if_broken(error))
    }

    /// Returns the next report, if there is one. Each time [`AsFd`] is readable, call this until it returns `None`.
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

    /// Resumes the keeper with SIGCONT. Returns the state it was in before.
    pub fn nudge(&self) -> KeeperState {
        let stopped = is_stopped(self.pid());
        self.signal(Signal::CONT);
        match stopped {
            true => KeeperState::Stopped,
            false if self.link.is_read() => KeeperState::Idle,
            false => KeeperState::Running,
        }
    }

    /// Orders the keeper to end its tree and exit, without waiting.
    pub fn dismiss(&self) {
        self.link.hang_up();
        self.signal(Signal::CONT);
    }

    /// Ends the process tree of the job, if there is one, and the keeper. Kills a keeper that another process keeps
    /// stopping, and ends its tree without it. Fails with `TimedOut` if a process is left after eight seconds; a
    /// keeper that can run keeps trying.
    pub fn shut_down(mut self) -> io::Result<()> {
        self.end()
    }

    /// Kills the keeper in any state. Its children become children of this process; see [`super::kill_with_tree`]. Fails
    /// with `TimedOut` if the keeper does not die.
    pub fn kill_keeper(&mut self) -> io::Result<()> {
        self.ended = true;
        self.kill().map(drop)
    }

    /// Kills the keeper and waits until it is dead. Returns whether it had already exited with an empty tree.
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

    /// Signals the keeper. Only this handle reaps it, so its pid stays valid. A signal to a dead keeper has no
    /// effect.
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
        let mut deadline = KeeperDeadline::report(clock::awake(), END_BOUND.into());
        // The exit of the keeper closes its end of the socket, which reads as end of file here.
        while matches!(self.link.receive(), Ok(Received::Some | Received::Nothing)) {
            while self.link.next_frame().is_ok_and(|frame| frame.is_some()) {}
            let pause = Duration::from(deadline.due().since(clock::awake()));
            if wait_for(self.link.as_fd(), PollFlags::IN, Instant::now() + pause)? {
                continue;
            }
            let seen = self.nudge();
            match deadline.checked(clock::awake(), seen) {
                KeeperCheck::Wait | KeeperCheck::Settled => {}
                KeeperCheck::GiveUp if seen == KeeperState::Stopped => break,
                // The keeper runs, but some process is unkillable. It holds the lock until it is done.
                KeeperCheck::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        // A keeper that closed its end is exiting, so this signal does not change its exit code.
        if self.kill()? {
            return Ok(());
        }
        // The keeper was killed and may have left its tree. Its processes cannot be distinguished from those of other
        // keepers here, so end only the certain ones.
        let Ended { all, .. } = adopted::end_all(|_| false);
        if all { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    fn lost(&self) -> io::Error {
        io::Error::new(io::ErrorKind::BrokenPipe, KeeperLostError { pid: self.pid() })
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum belongs to another crate and may gain variants"
    )]
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
        // Drop cannot return the error.
        let _ = self.end();
    }
}

/// Waits until the descriptor is ready. Returns false if the deadline passed first.
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
