//! The keeper process: one thread and one `poll`, without a timer while a job runs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use super::job_tree::JobTree;
use super::leash::Leash;
use super::link::{Link, Received};
use super::order::{Order, Report, StartOrder};
use super::start::{self, BaseEnv, StartError};
use super::{MAX_FRAME, MAX_HELD, wire};
use crate::store::lock;
use crate::sys;

/// Runs the keeper process. Exit with the code it returns.
pub fn main() -> ExitCode {
    let keeper = KeeperProcess::set_up();
    match keeper.and_then(KeeperProcess::run) {
        Ok(()) => ExitCode::SUCCESS,
        // stderr is /dev/null if a supervisor started the keeper. An operator who starts it by hand sees this
        // message.
        Err(error) => {
            eprintln!("dogwatch keeper: {error}");
            ExitCode::FAILURE
        }
    }
}

struct KeeperProcess {
    /// Stays open until exit: its end of file signals the supervisor that this process is gone.
    link: Link,
    /// The keeper is shutting down: it only has to end the tree.
    ending: bool,
    signals: sys::SignalFd,
    base: BaseEnv,
    held: Vec<OwnedFd>,
    tree: JobTree,
    leash: Option<Leash>,
}

impl KeeperProcess {
    #[expect(unsafe_code, reason = "the keeper closes what it inherited; see the comments at the calls")]
    fn set_up() -> io::Result<Self> {
        let socket = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
        let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        drop(null);
        // Close all inherited descriptors except the standard three. The socket moves to 3 first, below the cut.
        let socket = match std::os::fd::AsRawFd::as_raw_fd(&socket) {
            3 => socket,
            // SAFETY: this is the start of the process. It has opened only the socket, which is not descriptor 3, and
            // `/dev/null`, which is closed again.
            _ => unsafe { sys::move_to(socket, 3)? },
        };
        // SAFETY: as above. All that this process owns is the socket at 3, and the standard three.
        unsafe { sys::close_from(4)? };
        sys::block_all()?;
        // An ignored SIGCHLD is inherited, and would make the kernel reap children before the keeper sees their
        // status.
        sys::default_action(Signal::CHILD)?;
        let signals = sys::SignalFd::new(&[Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP])?;
        // Fails only for a group leader, for example when started from a shell. That works as well.
        let _ = rustix::process::setsid();
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        // Do not keep a mount busy.
        rustix::process::chdir("/")?;
        // Without this, the process would be named `exe` after the link that started it.
        let _ = std::ffi::CString::new(super::NAME).map(|name| rustix::thread::set_name(&name));
        let base = BaseEnv::of_this_process();
        let (link, tree) = (Link::new(socket), JobTree::new());
        Ok(Self { link, ending: false, signals, base, held: Vec::new(), tree, leash: None })
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
            // Before taking orders: the remaining processes of the last job may have exited.
            self.settle()?;
            self.take_orders();
        }
    }

    /// Reaps ended processes, performs due steps and sends the reports.
    fn settle(&mut self) -> io::Result<()> {
        if self.leash.as_mut().is_some_and(Leash::ends) {
            self.tree.end(Instant::now(), super::LAST_GRACE);
        }
        let reports = self.tree.advance(Instant::now())?;
        reports.iter().for_each(|report| self.report(report));
        Ok(())
    }

    /// Sleeps until a child ends, an order arrives, or the tree has a deadline. A running job has none.
    fn wait(&self) -> io::Result<()> {
        let timeout = self.tree.timeout(Instant::now());
        let timeout = timeout.map(|span| span.try_into().expect("a grace is far less than 2^63 seconds"));
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        // A closed socket is always ready, so stop polling it once the shutdown has begun.
        if !self.ending {
            let out = if self.link.unsent() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(self.link.as_fd(), PollFlags::IN | out));
        }
        fds.extend(self.leash.iter().flat_map(Leash::fds));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(number) = self.signals.take()? {
            // SIGCHLD needs no action: `advance` always calls waitpid.
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
                Err(wire::WireError) => self.shut_down(),
            }
        }
    }

    fn run_order(&mut self, order: Order) {
        match order {
            Order::Hold(fd) if self.held.len() < MAX_HELD => self.held.push(fd),
            // More descriptors mean that the supervisor is broken.
            Order::Hold(_) => self.shut_down(),
            Order::Start(start) => self.start(start),
            Order::Interrupt => self.tree.signal(&[Signal::INT]),
            Order::Terminate => self.tree.signal(&[Signal::TERM, Signal::CONT]),
            Order::Pass(signal) => self.tree.signal(&[signal]),
            Order::Kill => self.tree.kill(Instant::now()),
            Order::Sweep { grace } => self.tree.sweep(Instant::now(), grace),
            Order::Leash { until, watch } => self.take_leash(until, watch),
        }
    }

    fn take_leash(&mut self, until: Duration, watch: Option<OwnedFd>) {
        let taken = match &mut self.leash {
            Some(leash) => leash.renew(until, watch),
            None => Leash::new(until, watch).map(|leash| self.leash = Some(leash)),
        };
        // A keeper that cannot keep the time must not keep a tree.
        if taken.is_err() {
            self.shut_down();
        }
    }

    fn start(&mut self, order: StartOrder) {
        let job = order.job;
        let started = if self.leash.as_ref().is_some_and(Leash::has_ended) {
            Err(StartError::new(rustix::io::Errno::CANCELED, "the leash has ended"))
        } else if self.tree.is_empty() {
            start::start(&order, &self.base)
        } else {
            Err(StartError::new(rustix::io::Errno::BUSY, "the previous job has not ended"))
        };
        // Close the copies of the pipes before the supervisor waits for their end of file.
        drop(order);
        let report = match started {
            Ok(main) => {
                self.tree.began(job, main);
                Report::Started { job, pid: main.unsigned_abs() }
            }
            Err(StartError { errno, message }) => Report::Refused { job, errno, message },
        };
        self.report(&report);
    }

    fn report(&mut self, report: &Report) {
        let sent = self.link.push(&wire::encode_report(report)).and_then(|()| self.link.send_some(&[]));
        // A supervisor that leaves megabytes of reports unread is broken.
        if sent.is_err() || self.link.unsent() > MAX_FRAME {
            self.shut_down();
        }
    }

    /// Starts the shutdown: ends the tree, then the keeper. The supervisor is gone or broken, or the keeper received
    /// a signal to exit.
    fn shut_down(&mut self) {
        if !std::mem::replace(&mut self.ending, true) {
            self.held.iter().for_each(|file| lock::mark_loss(file.as_fd()));
            self.tree.sweep(Instant::now(), super::LAST_GRACE);
        }
    }
}
