//! A run: the scheduler, and one `Node` machine for each node.
//!
//! `step` takes an input and returns decisions; `next_wakeup` returns when to step again if nothing happens.
//! Everything the run knows about its past is in its `View`, the fold of the events that it records.

pub mod agent_channel;
pub mod attempts;
mod budget;
pub mod caller;
mod ceiling;
pub mod circuit;
mod cx;
pub mod decision;
pub mod ending;
pub mod gate;
pub mod idle;
pub mod input;
pub mod job;
mod job_tree;
pub mod keeper_deadline;
pub mod life;
mod merging;
mod next;
mod node;
mod notifying;
mod over;
mod recover;
pub mod recovery;
mod resume;
mod schedule;
mod stop;
pub mod touch;
mod wait;
mod watching;

pub use cx::Filter;
pub use resume::{ResumeError, SUPERVISOR_LOST};
pub use stop::{LEASH_EXIT_CODE, MAX_MESSAGE_BYTES, MAX_PENDING_MESSAGES};

use crate::learn::Arrivals;
use crate::record::event::{Cause, Event, NodeState, Outcome, RunStarted, Usage, WaitEndedBy, WaitWhy};
use crate::record::ids::{Iteration, NodeIx, NodeName};
use crate::record::view::View;
use crate::record::windows::WindowsUsed;
use crate::run::decision::Decision;
use crate::run::ending::Ending;
use crate::run::input::{Input, NodeInput};
use crate::run::job::Job;
use crate::settings::{Plan, ReaderName};
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Moment};
use crate::time::timer::{Deadline, Timer, Wakeup};
use cx::Cx;
use next::Next;
use node::{Node, Turn};
use notifying::PendingEnd;
use over::{End, NodeEnd};
use resume::{Rescue, Resuming};
use schedule::{Found, Scheduler};
use std::collections::{BTreeMap, BTreeSet};
use stop::Stop;

/// How long to wait before the next attempt to write the record.
const RECORD_RETRY: Dur = Dur::from_secs(5);
/// More timers than this never fire in one step. A deadline that never passes fails a test instead of hanging it.
const MAX_FIRED: u32 = 1_000_000;

/// The agent to start for a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionPlan<'a> {
    /// The agent's command line.
    pub agent: &'a [String],
    /// The reader of the agent's output.
    pub reader: ReaderName,
    /// The agent's own session to resume, by the agent's name for it.
    pub resumes: Option<&'a str>,
    /// The usage already charged for that session.
    pub charged: Usage,
}

/// A run: the state machine that turns inputs into decisions.
pub struct Run {
    cx: Cx,
    nodes: Vec<Node>,
    /// Selects the next node of a graph; a loop has no scheduler.
    scheduler: Option<Scheduler>,
    /// `fill` is starting nodes.
    filling: bool,
    stop: Stop,
    /// Set on a resumed run until its first step.
    resuming: Option<Resuming>,
    /// Snapshots of work left by a lost supervisor are in progress; nothing else starts before they finish.
    rescue: Option<Rescue>,
    /// The end that waits until the context entry is written.
    ending: Option<End>,
    /// The idle end of a run that sleeps until it is woken.
    asleep: Option<End>,
    /// The end that waits for the last notifications.
    pending_end: Option<PendingEnd>,
    finished: bool,
}

impl Run {
    /// Creates a run that has not begun. `started` becomes its first event. `plan` is the plan in that event with its
    /// secrets intact.
    pub fn new(started: RunStarted, plan: Plan) -> Run {
        let nodes = plan.nodes.iter().enumerate().map(|(i, _)| Node::new(NodeIx(i))).collect();
        Run::with(Cx::new(started, plan), nodes, None)
    }

    fn with(cx: Cx, nodes: Vec<Node>, resuming: Option<Resuming>) -> Run {
        Run {
            scheduler: Scheduler::new(&cx.plan),
            cx,
            nodes,
            filling: false,
            stop: Stop::default(),
            resuming,
            rescue: None,
            ending: None,
            asleep: None,
            pending_end: None,
            finished: false,
        }
    }

    /// Passes every event through a filter that removes secrets, before it is recorded.
    pub fn filtered(mut self, filter: Filter) -> Run {
        self.cx.filter = Some(filter);
        self
    }

    /// Sets what the nodes learned in earlier runs about the arrival of their work. The run records it when it begins.
    pub fn learn_from(&mut self, learned: BTreeMap<NodeName, Arrivals>) {
        self.cx.learned = learned;
    }

    /// Sets what other runs learned about the windows of accounts. The run records it when it begins.
    pub fn know_windows(&mut self, windows: Vec<WindowsUsed>) {
        self.cx.windows = windows;
    }

    /// Returns the fold of all events of the run.
    pub fn view(&self) -> &View {
        &self.cx.view
    }

    /// Returns the plan of the run.
    pub fn plan(&self) -> &Plan {
        &self.cx.plan
    }

    /// Returns the node's session: the agent of its chain, and the agent's own session to resume.
    pub fn session(&self, ix: NodeIx) -> SessionPlan<'_> {
        let node = &self.nodes[ix.0];
        let (agent, reader) = self.cx.agent(ix, node.agent);
        let resumes = node.resumes.as_deref();
        let charged = resumes.map_or(Usage::default(), |session| self.cx.view.node(ix).charged(session));
        SessionPlan { agent, reader, resumes, charged }
    }

    /// Returns when to step again if nothing happens before.
    pub fn next_wakeup(&self) -> Wakeup {
        if self.finished { Wakeup::default() } else { self.cx.timers.next_wakeup() }
    }

    /// Returns the nodes whose agents are judged for silence at this moment. The shell must report their output up
    /// to then before it sends [`Input::OutputDrained`].
    pub fn to_judge(&self, now: Moment) -> BTreeSet<NodeIx> {
        self.cx.timers.to_judge(now)
    }

    /// Handles an input and returns the decisions that follow from it.
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Decision> {
        self.cx.now = now;
        let drained = if let Input::OutputDrained { upto } = input {
            Some(upto)
        } else {
            matches!(input, Input::TimePassed).then_some(now.awake)
        };
        // What happened after the end of the leash was its work, so this comes first. The run may be over then.
        if !self.finished && self.pending_end.is_none() && self.cx.timers.is_due(Timer::Leash, now) {
            self.leash_expired();
        }
        if !self.finished {
            match self.pending_end {
                Some(_) => self.take_at_the_end(input),
                None => self.take(input),
            }
            let mut fired = 0;
            while let Some(timer) = self.due(drained) {
                fired += 1;
                debug_assert!(fired <= MAX_FIRED, "{timer:?} is set for the same moment over and over");
                self.fire(timer);
            }
        }
        std::mem::take(&mut self.cx.out)
    }

    fn due(&mut self, drained: Option<Awake>) -> Option<Timer> {
        if self.finished { None } else { self.cx.timers.take_due(self.cx.now, drained) }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Began => self.begin(),
            Input::TimePassed | Input::OutputDrained { .. } => {}
            Input::Job(job, input) => self.take_of_job(job, input),
            Input::Node(node, iteration, input) => self.pass_to_node(node, iteration, input),
            Input::DayUsed(day) => self.day_used(day),
            Input::WindowsSeen { job, seen_at, windows } => self.windows_seen(job, seen_at, windows),
            Input::LimitAsked { until, account } => self.limit_asked(until, account),
            Input::ZoneSeen { utc_offset_s } => self.cx.utc_offset_s = Some(utc_offset_s),
            Input::Suspended { lasted, unwatched } => self.suspended(lasted, unwatched),
            Input::TreeUnkillable { job, detail } => self.tree_unkillable(job, detail),
            Input::Interrupted => self.interrupted(),
            Input::EndAsked(signal) => self.end_asked(signal),
            Input::LeashRenewed { until } => self.leash_renewed(until),
            Input::LeashClosed => self.leash_ended("the leash was closed at its other end"),
            Input::StopAsked => self.stop_asked(),
            Input::StopAccepted => self.stop_accepted(),
            Input::WakeAsked(by) => self.wake_all(by),
            Input::PauseAsked => self.pause(),
            Input::UnpauseAsked => {
                self.withdraw_stop();
                self.unpause(WaitEndedBy::Api);
                for ix in self.every() {
                    self.wake_if_remembered(ix);
                }
                self.fill();
            }
            Input::MessageReceived { text, from } => self.message_received(&text, from),
            Input::VerdictLabeled { node, iteration, label } => {
                self.cx.record(Event::VerdictLabeled { node, iteration, label });
            }
            Input::ContextKept { error } => self.context_kept(error),
            Input::Notified { key, how, error } => self.notified(key, how, error),
            Input::Noticed { kind, message } => self.cx.record(Event::Notice { kind: kind.into(), message }),
            Input::TroubleMet { kind, detail } => self.cx.trouble(kind, detail),
            Input::RecordFailed { detail } => self.record_failed(detail),
            Input::RecordRecovered => self.record_recovered(),
            Input::RecordLost { detail } => self.record_lost(detail),
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::LastNotifications => self.leave_now(),
            Timer::RecordRetry => {
                self.cx.out.push(Decision::RetryRecord);
                self.retry_record_later();
            }
            // The run has ended and only waits for its last notifications.
            _ if self.pending_end.is_some() => {}
            Timer::PrepJob(ix)
            | Timer::Watch(ix)
            | Timer::Result(ix)
            | Timer::Step(ix)
            | Timer::Keeper(ix)
            | Timer::StartRetry(ix)
            | Timer::Wait(ix)
            | Timer::Probe(ix) => {
                let iteration = self.nodes[ix.0].iteration;
                self.pass_to_node(ix, iteration, NodeInput::Due(timer));
            }
            Timer::NodeCeiling(ix) => self.node_ceiling_reached(ix),
            Timer::RunCeiling => self.run_ceiling_reached(),
            Timer::Leash => self.leash_expired(),
            Timer::NodeBudget(ix) => self.node_time_is_up(ix),
            Timer::Budget => self.time_is_up(),
        }
    }

    fn leash_expired(&mut self) {
        self.leash_ended("the leash expired: no later time arrived");
    }

    fn begin(&mut self) {
        if self.resuming.is_some() {
            return self.begin_again();
        }
        self.cx.record_start();
        self.arm_budget();
        self.arm_run_ceiling();
        if self.scheduler.is_some() {
            self.take_up_graph();
            return self.fill();
        }
        for ix in self.every() {
            self.start_node(ix);
        }
    }

    /// Restores the states of a graph's nodes from the record and records the states that follow from them.
    fn take_up_graph(&mut self) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let Found { ready, blocked } = scheduler.take_up(&self.cx.view);
        for ix in ready {
            self.cx.transition(ix, NodeState::Ready, None);
        }
        for (ix, failed) in blocked {
            let why = format!("ancestor_failed:{}", self.cx.name(failed));
            self.cx.transition(ix, NodeState::Blocked, Some(why));
        }
    }

    fn start_node(&mut self, ix: NodeIx) {
        self.cx.transition(ix, NodeState::Running, None);
        self.arm_node_budget(ix);
        self.arm_node_ceiling(ix);
        let turn = self.nodes[ix.0].prepare(&mut self.cx, Cause::First);
        self.turn(ix, turn);
    }

    fn every(&self) -> impl Iterator<Item = NodeIx> + use<> {
        (0..self.nodes.len()).map(NodeIx)
    }

    /// Passes a fact about a job to its node, unless the job's iteration has closed.
    fn take_of_job(&mut self, job: Job, input: NodeInput) {
        if let NodeInput::Ended(report) = &input
            && let Some((seen_at, windows)) = report.totals.windows.clone()
        {
            self.windows_seen(job, seen_at.unwrap_or(self.cx.now.wall), windows);
        }
        let used = matches!(input, NodeInput::Used(_));
        if self.nodes.get(job.node.0).is_some_and(|n| n.has_job(job)) {
            self.pass_to_node(job.node, job.iteration, input);
        }
        if used {
            self.stop_if_spent(job.node);
        }
    }

    fn pass_to_node(&mut self, ix: NodeIx, iteration: Iteration, fact: NodeInput) {
        let Some(node) = self.nodes.get_mut(ix.0).filter(|n| n.iteration == iteration) else { return };
        let turn = node.handle(&mut self.cx, fact);
        self.turn(ix, turn);
    }

    fn turn(&mut self, ix: NodeIx, turn: Turn) {
        match turn {
            Turn::Stay => self.finish_if_quiet(),
            Turn::IterationOver(ending) => self.iteration_over(ix, &ending),
            Turn::WaitOver(cause) => self.wait_over(ix, cause),
            Turn::CannotBegin(word, why) => {
                let end = End::new(Outcome::Catastrophic, 1, why.clone());
                self.cx.trouble("node_cannot_begin", format!("{}: {why}", self.cx.name(ix)));
                self.node_over(ix, NodeEnd::failed(word, end));
            }
            Turn::NodeOver(over) => self.node_over(ix, *over),
            Turn::Rescued => self.rescued(ix),
        }
    }

    /// Starts an iteration with the first agent that is not resting. If all agents rest, waits for one.
    fn begin_iteration(&mut self, ix: NodeIx, cause: Cause) {
        let forced = std::mem::take(&mut self.nodes[ix.0].forced);
        let any = || self.cx.any_agent(ix).filter(|_| forced);
        let Some(agent) = self.cx.free_agent(ix).or_else(any) else {
            return self.wait_for_an_agent(ix);
        };
        if !self.nodes[ix.0].has_place(&self.cx) {
            let turn = self.nodes[ix.0].prepare(&mut self.cx, cause);
            return self.turn(ix, turn);
        }
        let resumes = self.session_to_resume(ix, agent);
        let cause = self.cause(ix, cause);
        let node = &mut self.nodes[ix.0];
        (node.agent, node.resumes) = (agent, resumes);
        node.begin(&mut self.cx, cause);
    }

    fn wait_for_an_agent(&mut self, ix: NodeIx) {
        match self.cx.opens(ix) {
            Some((at, _)) => {
                self.wait(ix, WaitWhy::RateLimit, Some(resume::left_of(at, self.cx.now.wall)));
            }
            None => {
                let end = End::new(Outcome::ErrorLimit, 1, "no agent in the chain is available");
                self.node_over(ix, NodeEnd::failed("no_agent_left", end));
            }
        }
    }

    /// Returns the cause of the next iteration. Only `Next` is refined: an operator or the start gives a more specific
    /// cause.
    fn cause(&self, ix: NodeIx, cause: Cause) -> Cause {
        let node = self.cx.view.node(ix);
        let refined = if node.recovery.due.is_some() {
            Some(Cause::Recovery)
        } else {
            node.attempts.just_failed.then_some(Cause::CheckFailed)
        };
        refined.filter(|_| cause == Cause::Next).unwrap_or(cause)
    }

    fn iteration_over(&mut self, ix: NodeIx, ending: &Ending) {
        let next = self.decide_next(ix, ending);
        self.follow(ix, next, Cause::Next);
    }

    /// Decides what follows an iteration. A recovery plan is recorded before anything follows from it.
    fn decide_next(&mut self, ix: NodeIx, ending: &Ending) -> Next {
        self.plan_recovery(ix, ending);
        self.what_next(ix, ending)
    }

    fn follow(&mut self, ix: NodeIx, next: Next, cause: Cause) {
        match next {
            _ if self.is_leaving() => {}
            Next::Begin => self.begin_iteration(ix, cause),
            Next::Wait(why, delay) => self.wait(ix, why, delay),
            Next::NodeOver(over) => self.node_over(ix, over),
            Next::Finish(end) => self.end_run(end),
            Next::Stop => self.finish_if_quiet(),
        }
    }

    fn record_failed(&mut self, detail: String) {
        self.cx.trouble("record_failed", detail);
        self.retry_record_later();
    }

    fn record_recovered(&mut self) {
        self.cx.timers.clear(Timer::RecordRetry);
        let message = "the record can be written again; continuing".to_owned();
        self.cx.record(Event::Notice { kind: "record_recovered".into(), message });
    }

    fn retry_record_later(&mut self) {
        let at = self.cx.now.awake.plus(RECORD_RETRY);
        self.cx.timers.set(Timer::RecordRetry, Deadline::Awake(at));
    }
}
