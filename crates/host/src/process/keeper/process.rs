//! The keeper process: one thread, one poll, no timer while a job simply runs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use super::link::{Link, Received};
use super::order::{Order, Report, StartOrder};
use super::start::{self, BaseEnv, Refusal};
use super::tree::Tree;
use super::{MAX_FRAME, MAX_HELD, wire};
use crate::sys;

/// The keeper process. Never returns to the caller's own business: exit with what it gives.
pub fn main() -> ExitCode {
    let keeper = KeeperProcess::set_up();
    match keeper.and_then(KeeperProcess::run) {
        Ok(()) => ExitCode::SUCCESS,
        // Standard error is /dev/null when a supervisor started us; a person who did sees this.
        Err(error) => {
            eprintln!("dogwatch keeper: {error}");
            ExitCode::FAILURE
        }
    }
}

struct KeeperProcess {
    /// Stays open to the last: its end of file tells the supervisor that this process is gone.
    link: Link,
    /// The supervisor is gone, or we are to go: all that is left to do is to end the tree.
    ending: bool,
    signals: sys::SignalFd,
    base: BaseEnv,
    held: Vec<OwnedFd>,
    tree: Tree,
    /// When the code that starts jobs was last given back.
    released: Option<Instant>,
}

/// Jobs that follow each other closer than this need the code again at once.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

impl KeeperProcess {
    fn set_up() -> io::Result<Self> {
        let socket = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
        let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        drop(null);
        // What we were started with beyond the three is of no concern to us or our jobs. The socket
        // goes to 3 first, so that it is the only one below the cut.
        let socket = at_three(socket)?;
        sys::close_from(4)?;
        sys::block_all()?;
        // Ignored SIGCHLD is inherited, and would have the kernel reap behind our back.
        sys::default_action(Signal::CHILD)?;
        let signals = sys::SignalFd::new(&[Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP])?;
        // Fails only for a group leader, which we are when a shell started us: then that is as good.
        let _ = rustix::process::setsid();
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        // Keeps no mount busy.
        rustix::process::chdir("/")?;
        // Otherwise it would be called `exe`, after the link that we were started by.
        let _ = std::ffi::CString::new(super::NAME).map(|name| rustix::thread::set_name(&name));
        let base = BaseEnv::of_this_process();
        let (link, tree) = (Link::new(socket), Tree::new());
        Ok(Self { link, ending: false, signals, base, held: Vec::new(), tree, released: None })
    }

    fn run(mut self) -> io::Result<()> {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        self.report(&Report::Ready { pid });
        loop {
            self.settle()?;
            if self.ending && self.tree.is_empty() {
                return Ok(());
            }
            self.wait()?;
            self.take_signals()?;
            // Before the orders: what the last job left may have gone by itself.
            self.settle()?;
            self.take_orders();
        }
    }

    /// Takes note of what has ended and does what is due.
    fn settle(&mut self) -> io::Result<()> {
        let reports = self.tree.advance(Instant::now())?;
        reports.iter().for_each(|report| self.report(report));
        Ok(())
    }

    /// Sleeps until a child ends, an order comes, or the tree has a deadline: none while a job runs.
    fn wait(&self) -> io::Result<()> {
        let timeout = self.tree.timeout(Instant::now());
        let timeout = timeout.map(|span| span.try_into().expect("a grace is far less than 2^63 seconds"));
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        // A closed socket is always ready: it must not wake us once we know.
        if !self.ending {
            let out = if self.link.unsent() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(self.link.as_fd(), PollFlags::IN | out));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(number) = self.signals.take()? {
            // A child's end needs no note: `advance` asks waitpid in any case.
            if number != Signal::CHILD.as_raw() {
                self.shut_down();
            }
        }
        Ok(())
    }

    fn take_orders(&mut self) {
        if self.link.send_some(&[]).is_err() {
            self.shut_down();
        }
        while !self.ending {
            match self.link.receive() {
                Ok(Received::Some) => self.run_orders(),
                Ok(Received::Nothing) => return,
                Ok(Received::Closed) | Err(_) => self.shut_down(),
            }
        }
    }

    fn run_orders(&mut self) {
        while !self.ending {
            let order = match self.link.next_frame() {
                Ok(Some(body)) => wire::decode_order(&body, &mut self.link.fds),
                Ok(None) => return,
                Err(garbage) => Err(garbage),
            };
            match order {
                Ok(order) => self.run_order(order),
                Err(wire::Garbage) => self.shut_down(),
            }
        }
    }

    fn run_order(&mut self, order: Order) {
        match order {
            Order::Hold(fd) if self.held.len() < MAX_HELD => self.held.push(fd),
            // More than that is a supervisor gone mad.
            Order::Hold(_) => self.shut_down(),
            Order::Start(start) => self.start(start),
            Order::Interrupt => self.tree.signal(&[Signal::INT]),
            Order::Terminate => self.tree.signal(&[Signal::TERM, Signal::CONT]),
            Order::Pass(signal) => self.tree.signal(&[signal]),
            Order::Kill => self.tree.kill(Instant::now()),
            Order::Sweep { grace } => self.tree.sweep(Instant::now(), grace),
        }
    }

    fn start(&mut self, order: StartOrder) {
        let job = order.job;
        let started = if self.tree.is_empty() {
            start::start(&order, &self.base)
        } else {
            Err(Refusal::new(rustix::io::Errno::BUSY, "the job before has not ended"))
        };
        // Our copies of its pipes must go before anybody waits for their end.
        drop(order);
        let report = match started {
            Ok(main) => {
                self.tree.began(job, main);
                Report::Started { job, pid: main.unsigned_abs() }
            }
            Err(Refusal { errno, message }) => Report::Refused { job, errno, message },
        };
        self.report(&report);
        self.release_memory();
    }

    /// A job may run for hours, and all that we need meanwhile is to wait.
    fn release_memory(&mut self) {
        let now = Instant::now();
        if self.released.is_none_or(|at| now.duration_since(at) >= RELEASE_INTERVAL) {
            sys::give_back_code();
            self.released = Some(now);
        }
    }

    fn report(&mut self, report: &Report) {
        let sent = self.link.push(&wire::encode_report(report)).and_then(|()| self.link.send_some(&[]));
        // A supervisor that lets megabytes of reports pile up is broken.
        if sent.is_err() || self.link.unsent() > MAX_FRAME {
            self.shut_down();
        }
    }

    /// The supervisor is gone or mad, or somebody wants us gone: end everything, then ourselves.
    fn shut_down(&mut self) {
        if !std::mem::replace(&mut self.ending, true) {
            self.tree.sweep(Instant::now(), super::LAST_GRACE);
        }
    }
}

/// Moves the socket to descriptor 3, whatever lay there.
fn at_three(socket: OwnedFd) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    if socket.as_raw_fd() == 3 {
        return Ok(socket);
    }
    sys::move_to(socket, 3)
}
