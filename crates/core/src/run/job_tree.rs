//! The life cycle of one process tree, from the order to start it to the proof that it is empty.
//!
//! A job ends with the exit of its main process, not with the end of its output. After the exit, other processes may
//! hold the pipes for the leak limit; then the leftover processes are swept. dogwatch stops a tree in steps:
//! interrupt, terminate, kill, with a grace between them.

use super::cx::Cx;
use crate::record::event::{EndStep, EndedBy, Event};
use crate::run::decision::Decision;
use crate::run::job::{Exit, Job, JobKind};
use crate::run::keeper_deadline::{
    KEEPER_END_BOUND, KEEPER_START_BOUND, KeeperCheck, KeeperDeadline, KeeperState,
};
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use crate::time::timer::{Deadline, Timer};

/// The grace between TERM and KILL for leftover processes.
pub(super) const SWEEP_GRACE: Dur = Dur::from_millis(500);

/// How often a start that fails for lack of a resource is retried. The pauses double.
const MAX_START_RETRIES: u32 = 6;
/// The pause before the first retry. All pauses together take half a minute.
const START_RETRY: Dur = Dur::from_millis(500);

pub(super) struct JobTree {
    pub job: Job,
    /// When the job started, or when the start was requested if it has not started.
    pub since: Awake,
    life: Life,
    pipes_closed: bool,
    ended_by: Option<EndedBy>,
    /// The report that its keeper still owes.
    deadline: Option<KeeperDeadline>,
    /// The number of starts that failed for lack of a resource.
    failed_starts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Starting,
    /// A resource was missing; the start will be retried.
    Retrying,
    Alive,
    Ending(EndStep),
    /// The main process has exited; other processes still hold its pipes.
    Exited(Exit),
    /// The leftover processes are being stopped.
    Sweeping(Exit),
}

impl JobTree {
    /// Orders the start of a job.
    pub fn start(cx: &mut Cx, job: Job) -> JobTree {
        cx.out.push(Decision::Start(job));
        JobTree {
            job,
            since: cx.now.awake,
            life: Life::Starting,
            pipes_closed: false,
            ended_by: None,
            deadline: None,
            failed_starts: 0,
        }
    }

    /// Notes that the main process has started.
    pub fn started(&mut self, cx: &mut Cx) {
        self.since = cx.now.awake;
        if self.life == Life::Starting {
            self.life = Life::Alive;
        }
        // After a kill, the proof that the tree is empty is still due.
        if self.life != Life::Ending(EndStep::Kill) {
            self.reported(cx);
        }
    }

    /// Notes that the order to start was sent to the keeper.
    pub fn sent(&mut self, cx: &mut Cx) {
        if matches!(self.life, Life::Starting | Life::Ending(_)) && self.deadline.is_none() {
            self.expect_report(cx, KEEPER_START_BOUND);
        }
    }

    fn expect_report(&mut self, cx: &mut Cx, within: Dur) {
        self.wait_for_keeper(cx, KeeperDeadline::report(cx.now.awake, within));
    }

    fn wait_for_keeper(&mut self, cx: &mut Cx, deadline: KeeperDeadline) {
        cx.timers.set(Timer::Keeper(self.job.node), Deadline::Awake(deadline.due()));
        self.deadline = Some(deadline);
    }

    /// Notes that the keeper owes no report any longer.
    pub fn reported(&mut self, cx: &mut Cx) {
        self.deadline = None;
        cx.timers.clear(Timer::Keeper(self.job.node));
    }

    /// Checks whether the keeper can run, if a report is still due.
    pub fn look(&mut self, cx: &mut Cx) {
        if self.deadline.is_some() {
            cx.out.push(Decision::Nudge(self.job));
        }
    }

    /// Handles the result of a check. A keeper that cannot report is given up.
    pub fn keeper_seen(&mut self, cx: &mut Cx, stopped: bool) {
        let Some(mut deadline) = self.deadline else { return };
        let seen = if stopped { KeeperState::Stopped } else { KeeperState::Running };
        match deadline.checked(cx.now.awake, seen) {
            KeeperCheck::Wait => self.wait_for_keeper(cx, deadline),
            KeeperCheck::Settled => self.reported(cx),
            KeeperCheck::GiveUp => {
                let why = if stopped { "it is stopped repeatedly" } else { "it does not report" };
                let what = cx.name(self.job.node);
                cx.trouble("keeper_silent", format!("killing the keeper of node {what}: {why}"));
                cx.out.push(Decision::DropKeeper(self.job));
                // A report may have crossed with this decision; if it was not the last one, wait again.
                self.expect_report(cx, KEEPER_END_BOUND);
            }
        }
    }

    /// Schedules another start after one failed for lack of a resource. Returns the error if there are no retries left.
    pub fn retry_later(&mut self, cx: &mut Cx, error: String) -> Option<String> {
        self.reported(cx);
        cx.timers.clear(Timer::Grace(self.job.node));
        if self.ended_by.is_some() || self.failed_starts >= MAX_START_RETRIES {
            return Some(error);
        }
        let pause = Dur::from_millis(START_RETRY.as_millis() << self.failed_starts);
        self.failed_starts += 1;
        self.life = Life::Retrying;
        let node = cx.name(self.job.node);
        let try_no = format!("retry {} of {MAX_START_RETRIES} in {pause}", self.failed_starts);
        cx.trouble("start_failed", format!("node {node}: {error}; {try_no}"));
        cx.timers.set(Timer::StartRetry(self.job.node), Deadline::Awake(cx.now.awake.plus(pause)));
        None
    }

    /// Retries the start after the pause. Returns an error if the job was stopped in the meantime.
    pub fn start_again(&mut self, cx: &mut Cx) -> Option<String> {
        if self.life != Life::Retrying {
            return None;
        }
        if self.ended_by.is_some() {
            return Some("not started: stopped before the retry".to_owned());
        }
        self.life = Life::Starting;
        self.since = cx.now.awake;
        cx.out.push(Decision::Start(self.job));
        None
    }

    /// Cancels the next retry.
    fn give_up_start(&mut self, cx: &mut Cx, by: EndedBy) {
        self.ended_by.get_or_insert(by);
        cx.timers.set(Timer::StartRetry(self.job.node), Deadline::Awake(cx.now.awake));
    }

    /// Returns how long the job has lasted.
    pub fn lasted(&self, cx: &Cx) -> Dur {
        cx.now.awake.since(self.since)
    }

    /// Returns how the main process exited, once it has.
    pub fn exit(&self) -> Option<Exit> {
        match self.life {
            Life::Starting | Life::Retrying | Life::Alive | Life::Ending(_) => None,
            Life::Exited(exit) | Life::Sweeping(exit) => Some(exit),
        }
    }

    /// Returns what stopped the job, unless it ended by itself.
    pub fn ended_by(&self) -> Option<EndedBy> {
        self.ended_by
    }

    /// Handles the exit of the main process. If dogwatch was stopping the tree, it is swept at once. Otherwise processes
    /// that still hold the pipes may write until the leak limit.
    pub fn exited(&mut self, cx: &mut Cx, exit: Exit, leak: Dur) {
        let ours = match self.life {
            Life::Starting | Life::Retrying | Life::Alive => false,
            Life::Ending(_) => true,
            Life::Exited(_) | Life::Sweeping(_) => return,
        };
        cx.timers.clear(Timer::Grace(self.job.node));
        self.life = Life::Exited(exit);
        if ours || self.pipes_closed {
            self.sweep(cx);
        } else {
            cx.timers.set(Timer::Leak(self.job.node), Deadline::Awake(cx.now.awake.plus(leak)));
        }
    }

    /// Handles the end of the output. Usually the main process has also exited and only the keeper's report is missing,
    /// so a stopped keeper is continued.
    pub fn pipes_closed(&mut self, cx: &mut Cx) {
        self.pipes_closed = true;
        if self.exit().is_none() {
            cx.out.push(Decision::Nudge(self.job));
        }
        self.sweep(cx);
    }

    /// Stops the leftover processes. Does nothing while the main process is alive.
    pub fn sweep(&mut self, cx: &mut Cx) {
        if let Life::Exited(exit) = self.life {
            cx.timers.clear(Timer::Leak(self.job.node));
            self.life = Life::Sweeping(exit);
            cx.out.push(Decision::Sweep { job: self.job, grace: SWEEP_GRACE });
            self.expect_report(cx, SWEEP_GRACE.saturating_add(KEEPER_END_BOUND));
        }
    }

    /// Starts to stop the tree. The first request determines `ended_by`.
    pub fn end(&mut self, cx: &mut Cx, by: EndedBy) {
        match self.life {
            Life::Starting | Life::Alive => {
                self.ended_by = Some(by);
                // Commands have no turn to finish, so they get TERM at once.
                let first = match self.job.kind {
                    JobKind::Session => EndStep::Interrupt,
                    JobKind::Command(_)
                    | JobKind::Gate
                    | JobKind::Probe
                    | JobKind::Snapshot
                    | JobKind::Check(_)
                    | JobKind::Worktree => EndStep::Terminate,
                };
                self.take_step(cx, first);
            }
            Life::Retrying => self.give_up_start(cx, by),
            Life::Exited(_) => self.sweep(cx),
            Life::Ending(_) | Life::Sweeping(_) => {}
        }
    }

    /// Takes the next step after the grace has passed.
    pub fn next_step(&mut self, cx: &mut Cx) {
        match self.life {
            Life::Ending(EndStep::Interrupt) => self.take_step(cx, EndStep::Terminate),
            Life::Ending(EndStep::Terminate) => self.take_step(cx, EndStep::Kill),
            Life::Ending(EndStep::Kill)
            | Life::Starting
            | Life::Retrying
            | Life::Alive
            | Life::Exited(_)
            | Life::Sweeping(_) => {}
        }
    }

    /// Kills the tree without further grace.
    pub fn kill(&mut self, cx: &mut Cx, by: EndedBy) {
        match self.life {
            Life::Starting | Life::Alive | Life::Ending(EndStep::Interrupt | EndStep::Terminate) => {
                self.ended_by.get_or_insert(by);
                self.take_step(cx, EndStep::Kill);
            }
            Life::Retrying => self.give_up_start(cx, by),
            Life::Ending(EndStep::Kill) | Life::Sweeping(_) => {}
            Life::Exited(_) => self.sweep(cx),
        }
    }

    fn take_step(&mut self, cx: &mut Cx, step: EndStep) {
        let node = self.job.node;
        self.life = Life::Ending(step);
        if self.job.kind == JobKind::Session {
            let ended_by = self.ended_by.unwrap_or(EndedBy::Operator);
            let name = cx.name(node);
            cx.record(Event::SessionSignalled { node: name, iteration: self.job.iteration, step, ended_by });
        }
        let grace = Deadline::Awake(cx.now.awake.plus(cx.settings(node).watchdog.grace));
        match step {
            EndStep::Interrupt => {
                cx.timers.set(Timer::Grace(node), grace);
                cx.out.push(Decision::Interrupt(self.job));
            }
            EndStep::Terminate => {
                cx.timers.set(Timer::Grace(node), grace);
                cx.out.push(Decision::Terminate(self.job));
            }
            EndStep::Kill => {
                cx.timers.clear(Timer::Grace(node));
                cx.out.push(Decision::Kill(self.job));
                self.expect_report(cx, KEEPER_END_BOUND);
            }
        }
    }
}
