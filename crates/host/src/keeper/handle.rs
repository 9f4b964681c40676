//! The supervisor's side of a keeper.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::link::{Link, Received};
use super::order::{Order, Report};
use super::{ARGUMENT, wire};

/// How long an order may wait for room in the socket. The keeper reads at all times, so this passes
/// only when it is stopped or starved.
const SEND_BOUND: Duration = Duration::from_secs(5);
/// How long a shut-down waits for the keeper's end: its own grace of 1 s, 5 s of KILL, and slack.
const END_BOUND: Duration = Duration::from_secs(8);

/// The keeper has gone without being told to: killed, or it gave up on what it was sent. Its
/// descendants are then nobody's; a new keeper does not have them.
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
        let child = Command::new("/proc/self/exe")
            .arg0("dogwatch-keeper")
            .arg(ARGUMENT)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { link, child, ended: false })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order. Waits for room in the socket if it must, up to five seconds. After any error
    /// but `InvalidInput` (too long, nothing was sent) the keeper is of no more use: drop it.
    pub fn send(&mut self, order: Order) -> io::Result<()> {
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

    /// Tells the keeper to end its job's tree and itself, and waits for neither.
    pub fn dismiss(&self) {
        self.link.hang_up();
    }

    /// Ends the job's tree, if there is one, and the keeper. Fails with `TimedOut` when the keeper is
    /// still at it after eight seconds; it goes on by itself then.
    pub fn shut_down(mut self) -> io::Result<()> {
        self.end()
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
        self.link.hang_up();
        let deadline = Instant::now() + END_BOUND;
        // The keeper's exit closes its end: our end of file.
        while matches!(self.link.receive(), Ok(Received::Some | Received::Nothing)) {
            while self.link.next_frame().is_ok_and(|frame| frame.is_some()) {}
            if !wait_for(self.link.as_fd(), PollFlags::IN, deadline)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        // Only its last instructions are left to it.
        self.child.wait().map(drop)
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
        // Nobody is left to tell; the keeper does its work without us.
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
