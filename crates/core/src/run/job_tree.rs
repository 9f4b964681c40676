//! The process tree of a job in a run: carries out the orders of its `Life`, and retries starts that lack a resource.

use super::cx::Cx;
use super::node::clear_limits;
use crate::record::event::{EndStep, EndedBy, Event};
use crate::run::decision::Decision;
use crate::run::input::NodeInput;
use crate::run::job::{Exit, Job, JobKind};
use crate::run::keeper_deadline::{KeeperCheck, KeeperState};
use crate::run::life::{Life, TreeOrder};
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use crate::time::timer::{Deadline, Timer};

/// How often a start that fails for lack of a resource is retried. The pauses double.
const MAX_START_RETRIES: u32 = 6;
/// The pause before the first retry. All pauses together take half a minute.
const START_RETRY: Dur = Dur::from_millis(500);

pub(super) struct JobTree {
    pub job: Job,
    /// When the job started, or when the start was requested if it has not started.
    pub since: Awake,
    life: Life,
    ended_by: Option<EndedBy>,
    /// The number of starts that failed for lack of a resource.
    failed_starts: u32,
    /// A resource was missing; the start will be retried.
    retrying: bool,
}

impl JobTree {
    /// Orders the start of a job.
    pub fn start(cx: &mut Cx, job: Job) -> JobTree {
        cx.out.push(Decision::Start(job));
        let since = cx.now.awake;
        JobTree { job, since, life: Life::default(), ended_by: None, failed_starts: 0, retrying: false }
    }

    /// Handles a fact that means the same for every tree. Returns any other fact.
    pub fn handle(&mut self, cx: &mut Cx, fact: NodeInput) -> Option<NodeInput> {
        let (now, node) = (cx.now.awake, self.job.node);
        let order = match fact {
            NodeInput::Exited(exit) => {
                clear_limits(cx, node);
                let leak = cx.settings(node).watchdog.leak;
                self.life.exited(now, exit, leak, false)
            }
            NodeInput::PipesClosed => {
                // Usually the main process has also exited and only the keeper's report is missing, so a stopped keeper
                // is continued.
                if self.exit().is_none() {
                    cx.out.push(Decision::Nudge(self.job));
                }
                self.life.pipes_closed(now)
            }
            NodeInput::Sent => {
                self.life.sent(now);
                None
            }
            NodeInput::Due(Timer::Step(_)) => {
                let grace = cx.settings(node).watchdog.grace;
                self.life.time_passed(now, grace)
            }
            NodeInput::Due(Timer::Keeper(_)) => {
                if self.life.keeper_due().is_some() {
                    cx.out.push(Decision::Nudge(self.job));
                }
                return None;
            }
            NodeInput::KeeperSeen { stopped } => {
                self.keeper_seen(cx, stopped);
                None
            }
            NodeInput::Due(Timer::PrepJob(_)) => {
                self.end(cx, EndedBy::Watchdog);
                return None;
            }
            NodeInput::Unstarted { error } => {
                return self.retry_later(cx, error).map(|error| NodeInput::Refused { error });
            }
            NodeInput::Due(Timer::StartRetry(_)) => {
                return self.start_again(cx).map(|error| NodeInput::Refused { error });
            }
            other @ (NodeInput::Started { .. }
            | NodeInput::Refused { .. }
            | NodeInput::Observed(_)
            | NodeInput::Noted(_)
            | NodeInput::HealthIssueFound(_)
            | NodeInput::Reported(_)
            | NodeInput::Used(_)
            | NodeInput::ResultSeen
            | NodeInput::Ended(_)
            | NodeInput::PromptAssembled { .. }
            | NodeInput::PinsHashed { .. }
            | NodeInput::Due(_)) => return Some(other),
        };
        self.carry_out(cx, order);
        None
    }

    /// Notes that the main process has started.
    pub fn started(&mut self, cx: &mut Cx) {
        self.since = cx.now.awake;
        self.life.started();
        self.arm(cx);
    }

    /// Notes that the keeper owes no report any longer.
    pub fn reported(&mut self, cx: &mut Cx) {
        self.life.reported();
        self.arm(cx);
    }

    /// Handles the result of a check. A keeper that cannot report is given up.
    fn keeper_seen(&mut self, cx: &mut Cx, stopped: bool) {
        let state = if stopped { KeeperState::Stopped } else { KeeperState::Running };
        match self.life.keeper_checked(cx.now.awake, state) {
            KeeperCheck::Wait | KeeperCheck::Settled => {}
            KeeperCheck::GiveUp => {
                let why = if stopped { "it is stopped repeatedly" } else { "it does not report" };
                let what = cx.name(self.job.node);
                cx.trouble("keeper_silent", format!("killing the keeper of node {what}: {why}"));
                cx.out.push(Decision::DropKeeper(self.job));
            }
        }
    }

    /// Schedules another start after one failed for lack of a resource. Returns the error if no retries are left.
    fn retry_later(&mut self, cx: &mut Cx, error: String) -> Option<String> {
        self.life = Life::default();
        self.arm(cx);
        if self.ended_by.is_some() || self.failed_starts >= MAX_START_RETRIES {
            return Some(error);
        }
        let pause = Dur::from_millis(START_RETRY.as_millis() << self.failed_starts);
        self.failed_starts += 1;
        self.retrying = true;
        let node = cx.name(self.job.node);
        let try_no = format!("retry {} of {MAX_START_RETRIES} in {pause}", self.failed_starts);
        cx.trouble("start_failed", format!("node {node}: {error}; {try_no}"));
        cx.timers.set(Timer::StartRetry(self.job.node), Deadline::Awake(cx.now.awake.plus(pause)));
        None
    }

    /// Retries the start after the pause. Returns an error if the job was stopped in the meantime.
    fn start_again(&mut self, cx: &mut Cx) -> Option<String> {
        if !std::mem::take(&mut self.retrying) {
            return None;
        }
        if self.ended_by.is_some() {
            return Some("not started: stopped before the retry".to_owned());
        }
        self.since = cx.now.awake;
        cx.out.push(Decision::Start(self.job));
        None
    }

    /// Returns how long the job has lasted.
    pub fn lasted(&self, cx: &Cx) -> Dur {
        cx.now.awake.since(self.since)
    }

    /// Returns how the main process exited, once it has.
    pub fn exit(&self) -> Option<Exit> {
        self.life.exit()
    }

    /// Returns what stopped the job, unless it ended by itself.
    pub fn ended_by(&self) -> Option<EndedBy> {
        self.ended_by
    }

    /// Starts to stop the tree. The first request determines `ended_by`.
    pub fn end(&mut self, cx: &mut Cx, by: EndedBy) {
        // Commands have no turn to finish, so they get TERM at once.
        let is_session = self.job.kind == JobKind::Session;
        let first = if is_session { EndStep::Interrupt } else { EndStep::Terminate };
        let (now, grace) = (cx.now.awake, cx.settings(self.job.node).watchdog.grace);
        self.stop(cx, by, |life| life.end(now, first, grace));
    }

    /// Kills the tree without further grace.
    pub fn kill(&mut self, cx: &mut Cx, by: EndedBy) {
        let now = cx.now.awake;
        self.stop(cx, by, |life| life.kill(now));
    }

    fn stop(&mut self, cx: &mut Cx, by: EndedBy, act: impl FnOnce(&mut Life) -> Option<TreeOrder>) {
        if self.retrying {
            // Cancel the next retry.
            self.ended_by.get_or_insert(by);
            let at = Deadline::Awake(cx.now.awake);
            return cx.timers.set(Timer::StartRetry(self.job.node), at);
        }
        let order = act(&mut self.life);
        if matches!(order, Some(TreeOrder::Step(_))) {
            self.ended_by.get_or_insert(by);
        }
        self.carry_out(cx, order);
    }

    fn carry_out(&mut self, cx: &mut Cx, order: Option<TreeOrder>) {
        let job = self.job;
        if let Some(TreeOrder::Step(step)) = order
            && job.kind == JobKind::Session
        {
            let (node, ended_by) = (cx.name(job.node), self.ended_by.unwrap_or(EndedBy::Operator));
            cx.record(Event::SessionSignalled { node, iteration: job.iteration, step, ended_by });
        }
        cx.out.extend(order.map(|order| Decision::Order(job, order)));
        self.arm(cx);
    }

    /// Sets the timers to the moments at which the tree and its keeper need attention.
    fn arm(&self, cx: &mut Cx) {
        let node = self.job.node;
        for (timer, at) in
            [(Timer::Step(node), self.life.due()), (Timer::Keeper(node), self.life.keeper_due())]
        {
            match at {
                Some(at) => cx.timers.set(timer, Deadline::Awake(at)),
                None => cx.timers.clear(timer),
            }
        }
    }
}
