//! Sleeps until something happens, and hands over output that is still in the pipes.

use super::HostShell;
use super::slots::ReportingKeeper;
use crate::clock;
use dogwatch_core::drive::shell::{Signaled, Woken};
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::input::EndSignal;
use dogwatch_core::run::job::JobKind;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::timer::Wakeup;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long to wait for a pump to empty its pipes, and for a watcher to report changes, before silence is judged.
const FLUSH_BOUND: Duration = Duration::from_millis(500);
/// How long to wait for a second signal of the same kind after the first.
const ECHO: Duration = Duration::from_millis(2);
/// How often the live line is redrawn.
const TICK: Dur = Dur::from_secs(1);

impl HostShell<'_> {
    /// Sleeps until something happens. With `at_once` it only polls and does not sleep.
    pub(super) fn poll(&mut self, until: Wakeup, at_once: bool) -> io::Result<Woken> {
        self.arm(until)?;
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let patience = at_once.then_some(&now);
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.inbox.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.clocks.awake.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.clocks.boot.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.clocks.ticker.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.clocks.calm.as_fd(), PollFlags::IN),
        ];
        let mut ready = [false; 6];
        fds.extend(self.slots.keepers().map(|(_, fd)| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, patience) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Woken::default()),
            Err(error) => return Err(error.into()),
        }
        let (own, theirs) = fds.split_at(ready.len());
        for (slot, fd) in ready.iter_mut().zip(own) {
            *slot = !fd.revents().is_empty();
        }
        let has_report = theirs.iter().map(|fd| !fd.revents().is_empty());
        let reporting: Vec<ReportingKeeper> = self
            .slots
            .keepers()
            .zip(has_report)
            .filter(|(_, has_report)| *has_report)
            .map(|((keeper, _), _)| keeper)
            .collect();
        let [mail, signals, awake, boot, tick, calm] = ready;
        let due = awake || boot;
        if due {
            self.clocks.awake.drain()?;
            self.clocks.boot.drain()?;
            self.clocks.armed = Wakeup::default();
        }
        if tick {
            self.clocks.ticker.drain()?;
        }
        let waker = calm && self.clocks.calm.drain()?;
        let mut woken = Woken { mail, signals, due, waker, tick, ..Woken::default() };
        for keeper in reporting {
            match keeper {
                ReportingKeeper::Node(node) => woken.keepers.push(node),
                ReportingKeeper::Idle(pid) => {
                    woken.lost_idle.extend(self.slots.drain_idle(pid).err().map(|error| error.to_string()));
                }
            }
        }
        Ok(woken)
    }

    fn arm(&mut self, next: Wakeup) -> io::Result<()> {
        let clocks = &mut self.clocks;
        if next != clocks.armed {
            let at = |ms: u64| Duration::from_millis(ms);
            match next.awake {
                Some(t) => clocks.awake.set_at(at(t.0))?,
                None => clocks.awake.clear()?,
            }
            match next.boot {
                Some(t) => clocks.boot.set_at(at(t.0))?,
                None => clocks.boot.clear()?,
            }
            clocks.armed = next;
        }
        if self.reporter.ticks() {
            let next = clock::awake().plus(TICK).0 / TICK.as_millis() * TICK.as_millis();
            clocks.ticker.set_at(Duration::from_millis(next))?;
        }
        Ok(())
    }

    /// Takes the pending signals.
    pub(super) fn take_signals(&mut self) -> io::Result<Vec<Signaled>> {
        // `timeout` and shells signal a process and then its group. The kernel merges pending signals of one kind,
        // so a short sleep lets the second one merge with the first.
        std::thread::sleep(ECHO);
        let mut taken = Vec::new();
        while let Some(number) = self.signals.take()? {
            taken.push(match number {
                n if n == Signal::INT.as_raw() => Signaled::Interrupt,
                n if n == Signal::TERM.as_raw() => Signaled::End(EndSignal::Terminate),
                n if n == Signal::HUP.as_raw() => Signaled::End(EndSignal::HangUp),
                n if n == Signal::CONT.as_raw() => Signaled::Continue,
                _ => Signaled::Wake,
            });
        }
        Ok(taken)
    }

    /// Flushes the pumps of the judged nodes and the watchers of their work trees. All are asked first and then waited
    /// for together, so one time limit holds for all.
    pub(super) fn flush_evidence(&self, judged: &BTreeSet<NodeIx>) {
        let until = Instant::now() + FLUSH_BOUND;
        let left = || until.saturating_duration_since(Instant::now());
        let slots = || self.slots.all().filter(|slot| judged.contains(&slot.job.node));
        let sessions = || slots().filter(|slot| slot.job.kind == JobKind::Session);
        let shared = self.watchers.work_tree.iter().filter(|_| sessions().any(|slot| slot.watcher.is_none()));
        let watchers = sessions().filter_map(|slot| slot.watcher.as_ref()).chain(shared);
        let watchers: Vec<_> = watchers.map(|watcher| (watcher, watcher.ask_flush())).collect();
        let pumps: Vec<_> = slots().map(|slot| (&slot.pump, slot.pump.ask_flush())).collect();
        for (pump, flush) in pumps {
            pump.await_flush(flush, left());
        }
        for (watcher, flush) in watchers {
            watcher.await_flush(flush, left());
        }
    }

    /// Waits this long for a signal. Returns whether one asked to exit.
    pub(super) fn wait_for_exit(&mut self, pause: Dur) -> bool {
        let pause = Duration::from(pause);
        let pause = Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: pause.subsec_nanos().into(),
        };
        // Ignore errors: the only effect is that the next attempt comes a little sooner.
        let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&pause));
        let taken: io::Result<Vec<_>> = std::iter::from_fn(|| self.signals.take().transpose()).collect();
        let exit_signals = [Signal::INT, Signal::TERM, Signal::HUP];
        taken.is_ok_and(|taken| taken.iter().any(|number| exit_signals.iter().any(|s| s.as_raw() == *number)))
    }
}
