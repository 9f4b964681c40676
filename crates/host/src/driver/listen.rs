//! The driver's event loop: sleeps until something happens, then turns it into inputs for the core in a fixed
//! order.

use super::slots::{Slot, Whose};
use super::{Driver, jobs};
use crate::absence::Gap;
use crate::clock;
use crate::driver::inbox::Mail;
use crate::fs::wake::PathWaker;
use crate::process::keeper::{Report, is_lost};
use dogwatch_core::record::event::WaitEndedBy;
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::input::{EndSignal, Input};
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

/// How long to wait for a pump to empty its pipes before silence is judged.
const FLUSH_BOUND: Duration = Duration::from_millis(500);
/// How long to wait for a second signal of the same kind after the first.
const ECHO: Duration = Duration::from_millis(2);
/// Wakes closer together than this are a storm. During a storm the waker pauses for `CALM`.
const STORM: Dur = Dur::from_millis(5);
const CALM: Dur = Dur::from_secs(1);
/// How often the live line is redrawn.
const TICK: Dur = Dur::from_secs(1);

impl Driver<'_> {
    /// Sleeps until something happens and queues the inputs that follow. Only polls if there are jobs to start.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        self.arm()?;
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let patience = (!self.waiting.is_empty()).then_some(&at_once);
        let (ready, speaking) = {
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.inbox.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.awake.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.boot.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.ticker.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.calm.as_fd(), PollFlags::IN),
            ];
            let mut ready = [false; 6];
            let keepers = self.slots.keepers();
            fds.extend(keepers.map(|(_, fd)| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            self.absence.sleeps(self.armed.awake);
            match poll(&mut fds, patience) {
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let (own, theirs) = fds.split_at(ready.len());
            for (slot, fd) in ready.iter_mut().zip(own) {
                *slot = !fd.revents().is_empty();
            }
            let spoke = theirs.iter().map(|fd| !fd.revents().is_empty());
            let keepers = self.slots.keepers().zip(spoke).filter(|(_, spoke)| *spoke);
            let speaking: Vec<Whose> = keepers.map(|((whose, _), _)| whose).collect();
            (ready, speaking)
        };
        let interrupted = self.absence.woke();
        let [mail, signals, awake, boot, tick, calm] = ready;
        // Take mail before signals: a client that posts a message and then sends a signal expects that order.
        if mail {
            self.take_mail();
        }
        let continued = (signals || interrupted) && self.take_signals()?;
        self.note_absence(continued);
        for whose in speaking {
            match whose {
                Whose::Node(node) => self.take_reports(node),
                Whose::Idle(pid) => self.hear_idle(pid),
            }
        }
        if awake || boot {
            self.take_time()?;
        }
        if calm && self.calm.drain()? {
            self.rearm_waker();
        }
        if tick {
            self.ticker.drain()?;
            self.reporter.tick(clock::now(), self.run.view());
        }
        Ok(())
    }

    /// Reports time in which dogwatch could not run, before anything is judged.
    fn note_absence(&mut self, continued: bool) {
        for Gap { lasted, unwatched } in self.absence.gaps(continued) {
            self.todo.push_front(Input::Suspended { lasted, unwatched });
        }
    }

    fn arm(&mut self) -> io::Result<()> {
        let next = self.run.next_wakeup();
        if next != self.armed {
            let at = |ms: u64| Duration::from_millis(ms);
            match next.awake {
                Some(t) => self.awake.set_at(at(t.0))?,
                None => self.awake.clear()?,
            }
            match next.boot {
                Some(t) => self.boot.set_at(at(t.0))?,
                None => self.boot.clear()?,
            }
            self.armed = next;
        }
        if self.reporter.ticks() {
            let next = clock::awake().plus(TICK).0 / TICK.as_millis() * TICK.as_millis();
            self.ticker.set_at(Duration::from_millis(next))?;
        }
        Ok(())
    }

    /// Takes the pending signals. Returns whether SIGCONT was among them.
    fn take_signals(&mut self) -> io::Result<bool> {
        // `timeout` and shells signal a process and then its group. The kernel merges pending signals of one kind,
        // so a short sleep lets the second one merge with the first.
        std::thread::sleep(ECHO);
        let mut continued = false;
        while let Some(number) = self.signals.take()? {
            let input = match number {
                n if n == Signal::INT.as_raw() => Input::Interrupted,
                n if n == Signal::TERM.as_raw() => Input::EndAsked(EndSignal::Terminate),
                n if n == Signal::HUP.as_raw() => Input::EndAsked(EndSignal::HangUp),
                n if n == Signal::CONT.as_raw() => {
                    continued = true;
                    continue;
                }
                _ => Input::WakeAsked(WaitEndedBy::Signal),
            };
            self.todo.push_back(input);
        }
        Ok(continued)
    }

    /// Records a change for every session that works in this tree. Which file changed, and which process changed
    /// it, does not matter.
    fn work_tree_changed(&mut self, owner: Option<NodeIx>, digest: Option<u64>) {
        if let (None, Some(watcher)) = (owner, &self.work_tree) {
            watcher.rearm();
        }
        let now = clock::awake();
        for live in self.slots.all().map(|slot| &mut slot.live) {
            let own = live.watcher.as_ref().filter(|_| owner == Some(live.job.node));
            if let Some(watcher) = own {
                watcher.rearm();
            }
            let works_there = own.is_some() || (owner.is_none() && live.watcher.is_none());
            if works_there && live.started && live.job.kind == JobKind::Session {
                let job = live.job;
                self.todo
                    .extend(live.workspace.changed(now, digest).map(|seen| Input::Observed { job, seen }));
            }
        }
    }

    /// Rearms the waker after a change: at once for a single change, after `CALM` for a storm.
    fn listen_again(&mut self) {
        let (now, last) = (clock::awake(), self.woken);
        self.woken = now;
        let storm = now.since(last) < STORM;
        if !storm || self.calm.set_at(Duration::from_millis(now.plus(CALM).0)).is_err() {
            self.rearm_waker();
        }
    }

    fn rearm_waker(&self) {
        if let Some(waker) = &self.waker {
            waker.rearm();
        }
    }

    pub(super) fn take_mail(&mut self) {
        for mail in self.inbox.take() {
            let input = match mail {
                Mail::FromSession { job, input } => {
                    // An agent may print before the keeper reports that it has started.
                    match self.slots.of(job).filter(|slot| !slot.live.started) {
                        Some(slot) => {
                            slot.live.early.push(input);
                            continue;
                        }
                        None => {
                            if matches!(input, Input::Noted { .. }) {
                                self.flush_workspace(job.node);
                            }
                            input
                        }
                    }
                }
                Mail::WorkTreeChanged { node, digest } => {
                    self.work_tree_changed(node, digest);
                    continue;
                }
                Mail::PipesClosed { job } => Input::PipesClosed { job },
                Mail::Input(input) => {
                    // Every change counts, also during a session. The core decides what it means.
                    if matches!(input, Input::WakeAsked(WaitEndedBy::Path)) {
                        self.listen_again();
                    }
                    // A change after a session was sent to the keeper may come too late for the agent to see it. So
                    // it must not be recorded as a change before the session.
                    let is_starting =
                        |slot: &&mut Slot| !slot.live.started && slot.live.job.kind == JobKind::Session;
                    match self.slots.all().find(is_starting) {
                        Some(slot) if matches!(input, Input::WakeAsked(_)) => {
                            slot.live.early.push(input);
                            continue;
                        }
                        Some(_) | None => input,
                    }
                }
                Mail::AgentRequested { token, request, reply } => {
                    self.answer_request(&token, &request, reply);
                    continue;
                }
                Mail::ViewAsked(reply) => {
                    // The caller may have given up; that is not an error here.
                    let _ = reply.try_send(self.run.view().clone());
                    continue;
                }
            };
            self.todo.push_back(input);
        }
    }

    /// Handles a deadline that may have passed. Output from before the deadline is taken in first, because silence
    /// may only be judged with empty pipes. Only the pumps of nodes that are due are flushed: among many sessions,
    /// one is nearly always due.
    fn take_time(&mut self) -> io::Result<()> {
        self.awake.drain()?;
        self.boot.drain()?;
        self.armed = Wakeup::default();
        let now = clock::now();
        let judged = self.run.to_judge(now);
        self.flush_pumps(&judged);
        self.take_mail();
        for node in judged {
            self.flush_workspace(node);
        }
        self.todo.push_back(Input::OutputDrained { upto: now.awake });
        Ok(())
    }

    /// Hands over what the coalescers of a node hold back, so that it is judged with all evidence.
    fn flush_workspace(&mut self, node: NodeIx) {
        let Some(Slot { live, .. }) = self.slots.node(node) else { return };
        let job = live.job;
        let seen = live.workspace.flush(clock::awake());
        self.todo.extend(seen.map(|seen| Input::Observed { job, seen }));
        self.todo.extend(live.mcp.as_mut().and_then(|mcp| mcp.flush(job)));
    }

    /// Flushes the pumps of the judged nodes. All are asked first and then waited for together, so one time limit
    /// holds for all.
    fn flush_pumps(&mut self, judged: &BTreeSet<NodeIx>) {
        let until = Instant::now() + FLUSH_BOUND;
        let slots = self.slots.all().filter(|slot| judged.contains(&slot.live.job.node));
        let asked: Vec<_> = slots.map(|slot| (&slot.live.pump, slot.live.pump.ask_flush())).collect();
        for (pump, flush) in asked {
            pump.await_flush(flush, until.saturating_duration_since(Instant::now()));
        }
    }

    /// Takes reports of an idle keeper. The only one of interest is that it is gone.
    fn hear_idle(&mut self, pid: u32) {
        if let Err(error) = self.slots.hear_idle(pid) {
            let detail = format!("an idle keeper was lost ({error})");
            self.todo.push_back(Input::TroubleMet { kind: "keeper_lost", detail });
        }
    }

    pub(super) fn take_reports(&mut self, node: NodeIx) {
        while let Some(keeper) = self.slots.node(node).and_then(|slot| slot.keeper.as_mut()) {
            match keeper.receive() {
                Ok(Some(report)) => self.take_report(node, report),
                Ok(None) => return,
                Err(error) if is_lost(&error) => return self.keeper_lost(node, &error.to_string()),
                Err(error) => return self.keeper_lost(node, &format!("its socket failed: {error}")),
            }
        }
    }

    fn take_report(&mut self, node: NodeIx, report: Report) {
        let Some(Slot { live, .. }) = self.slots.node(node) else { return };
        let of_live = |job: u64| job == live.number;
        match report {
            Report::Started { job, pid } if of_live(job) => {
                self.todo.push_back(Input::JobStarted {
                    job: live.job,
                    pid,
                    argv: std::mem::take(&mut live.argv),
                });
                live.started = true;
                live.main = Some(pid);
                if live.job.kind == JobKind::Session {
                    // The job has started, so its work tree can be surveyed now.
                    live.watcher.iter().chain(&self.work_tree).for_each(PathWaker::let_go);
                }
                self.todo.extend(live.early.drain(..));
            }
            Report::Refused { job, errno, message } if of_live(job) => self.refused(node, errno, message),
            Report::Exited { job, how, alone, .. } if of_live(job) => {
                let exit = jobs::exit_of(how);
                live.alone = alone;
                live.exit = Some(exit);
                self.todo.push_back(Input::JobExited { job: live.job, exit });
            }
            Report::Empty { job, killed } if of_live(job) => self.job_ended(node, killed),
            Report::Unkillable { job, left, detail } if of_live(job) => {
                self.todo.push_back(Input::TreeUnkillable {
                    job: live.job,
                    detail: jobs::unkillable(left, &detail),
                });
            }
            // Reports about a job that is over, or the greeting.
            Report::Ready { .. }
            | Report::Started { .. }
            | Report::Refused { .. }
            | Report::Exited { .. }
            | Report::Empty { .. }
            | Report::Unkillable { .. } => {}
        }
    }
}
