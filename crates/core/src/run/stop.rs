//! Stopping a run by Ctrl-C, a signal, a request or a time limit.

use super::over::End;
use super::{Next, Run};
use crate::record::event::{
    Cause, EndedBy, Event, NodeState, Outcome, STOP_WITHDRAWN, STOPPING, WaitEndedBy,
};
use crate::record::ids::NodeIx;
use crate::run::caller::Source;
use crate::run::decision::Decision;
use crate::run::input::EndSignal;
use crate::run::input::NodeInput;
use crate::run::job::Job;
use crate::text::figures::count;
use crate::text::{clip, printable};
use crate::time::dur::Dur;
use crate::time::moment::Boot;
use crate::time::timer::{Deadline, Timer};
use crate::watch;

/// The window for a double Ctrl-C: after one Ctrl-C has ended a wait, a second within this time stops the loop.
const DOUBLE_INTERRUPT: Dur = Dur::from_secs(2);

const STOPPING_ON_REQUEST: &str =
    "stopping after the current iteration, on request; `dogwatch resume` withdraws the request";

/// The exit code of a run whose leash ended.
pub const LEASH_EXIT_CODE: u8 = 6;

/// The number of operator messages that may wait for the next prompt.
pub const MAX_PENDING_MESSAGES: usize = 50;
/// The longest operator message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024;

/// The stop requests of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop {
    request: StopRequest,
    /// When a Ctrl-C last ended a wait.
    woken: Option<Boot>,
    /// The job whose process tree is unkillable.
    unkillable: Option<Job>,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum StopRequest {
    #[default]
    None,
    /// Stop after the current iteration.
    After(StopCause),
    /// Stop as soon as the process trees are empty.
    Now(StopCause),
}

#[derive(Clone, Debug, PartialEq)]
enum StopCause {
    Operator,
    /// The operator accepts checks that do not pass.
    Accepted,
    Interrupt,
    Signal(EndSignal),
    /// The leash ended.
    Leash(String),
    Time,
    Spent(String),
    /// The run has reached `watchdog.run`.
    Ceiling(String),
    RecordLost(String),
    /// The end of a node ends the run.
    Reached(End),
}

impl StopCause {
    fn ended_by(&self) -> EndedBy {
        match self {
            StopCause::Operator | StopCause::Accepted | StopCause::Interrupt | StopCause::RecordLost(_) => {
                EndedBy::Operator
            }
            StopCause::Signal(_) => EndedBy::Signal,
            StopCause::Leash(_) => EndedBy::Leash,
            StopCause::Time | StopCause::Spent(_) => EndedBy::Budget,
            StopCause::Ceiling(_) => EndedBy::Watchdog,
            StopCause::Reached(end) if end.outcome == Outcome::BudgetExceeded => EndedBy::Budget,
            StopCause::Reached(_) => EndedBy::Operator,
        }
    }
}

impl Run {
    /// Returns the end that a stop request leads to, if there is one.
    pub(super) fn end_by_stop(&self) -> Option<End> {
        let (StopRequest::After(cause) | StopRequest::Now(cause)) = &self.stop.request else { return None };
        // A sleeping run has already stopped by itself; only a signal or a lost record changes its end.
        if let (Some(end), false) = (
            &self.asleep,
            matches!(cause, StopCause::Signal(_) | StopCause::Leash(_) | StopCause::RecordLost(_)),
        ) {
            return Some(end.clone());
        }
        Some(match cause {
            StopCause::Operator => match self.unproven() {
                0 => End::new(Outcome::Stopped, 0, format!("on request{}", self.left_to_do())),
                n => {
                    let nodes = if n == 1 { "one node" } else { "some nodes" };
                    End::new(Outcome::Stopped, 1, format!("on request; the checks of {nodes} do not pass"))
                }
            },
            StopCause::Accepted => End::new(Outcome::Stopped, 0, "on request, accepted as it is"),
            StopCause::Interrupt => End::new(Outcome::Interrupted, 130, "Ctrl-C"),
            StopCause::Signal(s) => {
                End::new(Outcome::Interrupted, s.exit_code(), format!("ended by {}", s.name()))
            }
            StopCause::Leash(why) => End::new(Outcome::Interrupted, LEASH_EXIT_CODE, why.clone()),
            StopCause::Time => {
                let max = self.cx.budget().time.unwrap_or(Dur::ZERO);
                End::new(Outcome::BudgetExceeded, 3, format!("budget.time: {max} used up"))
            }
            StopCause::Spent(what) => End::new(Outcome::BudgetExceeded, 3, what.clone()),
            StopCause::Ceiling(message) => End::new(Outcome::Ceiling, 3, message.clone()),
            StopCause::RecordLost(detail) => End::new(Outcome::RecordLost, 5, detail.clone()),
            StopCause::Reached(end) => end.clone(),
        })
    }

    /// Returns the count of nodes of a graph that are done, unless all are.
    fn left_to_do(&self) -> String {
        let (done, all) = (self.cx.view.node_counts().done, self.cx.view.nodes.len() as u64);
        let is_partial = self.cx.plan.graph.is_some() && done < all;
        if is_partial { format!("; {done} of {} done", count(all, "node")) } else { String::new() }
    }

    /// Handles Ctrl-C. In a wait, the first Ctrl-C starts the next iteration and a second within 2 s stops the loop, even
    /// if a session has started. While an agent works, the first stops the run after this iteration, the second
    /// interrupts the agent and the third kills it. A sleeping run ends.
    pub(super) fn interrupted(&mut self) {
        if self.asleep.is_some() {
            return self.stop_now(StopCause::Interrupt);
        }
        let now = self.cx.now.boot;
        let woke_just_now = self.stop.woken.is_some_and(|at| now.since(at) <= DOUBLE_INTERRUPT);
        if woke_just_now {
            return self.stop_now(StopCause::Interrupt);
        }
        if !self.nodes.iter().any(|n| n.is_working()) {
            self.stop.woken = Some(now);
            self.unpause(WaitEndedBy::Operator);
            return self.wake_waiting();
        }
        match self.stop.request {
            StopRequest::None => {
                self.stop_after(StopCause::Operator);
                // Commands and checks run without an agent.
                let agent = self.nodes.iter().any(|node| node.has_session());
                self.announce_stop(match agent {
                    true => "stopping after this iteration; Ctrl-C again interrupts the agent",
                    false => "stopping after this iteration; Ctrl-C again stops it now",
                });
            }
            StopRequest::After(_) | StopRequest::Now(_) => self.stop_now(StopCause::Interrupt),
        }
    }

    pub(super) fn end_asked(&mut self, signal: EndSignal) {
        self.stop_now(StopCause::Signal(signal));
    }

    pub(super) fn stop_asked(&mut self) {
        self.stop_after(StopCause::Operator);
        self.announce_stop(STOPPING_ON_REQUEST);
    }

    /// Stops the run like [`Run::stop_asked`], with exit code 0 even if checks do not pass.
    pub(super) fn stop_accepted(&mut self) {
        if self.stop.request == StopRequest::After(StopCause::Operator) {
            self.stop.request = StopRequest::After(StopCause::Accepted);
        }
        self.stop_after(StopCause::Accepted);
        self.announce_stop(STOPPING_ON_REQUEST);
    }

    /// Records that the run stops after the current iteration, unless it has ended already or is known to stop.
    fn announce_stop(&mut self, message: &str) {
        let on_request = matches!(self.stop.request, StopRequest::After(_));
        if on_request && !self.is_leaving() && !self.cx.view.stopping {
            self.cx.record(Event::Notice { kind: STOPPING.into(), message: message.into() });
        }
    }

    /// Withdraws the operator's request to stop after the current iteration. Nodes that have ended their iteration
    /// since then continue.
    pub(super) fn withdraw_stop(&mut self) {
        let requested =
            matches!(self.stop.request, StopRequest::After(StopCause::Operator | StopCause::Accepted));
        if !requested || self.is_leaving() {
            return;
        }
        self.stop.request = StopRequest::None;
        let message = "the request to stop was withdrawn; the run continues".to_owned();
        self.cx.record(Event::Notice { kind: STOP_WITHDRAWN.into(), message });
        for ix in self.every() {
            let running = self.cx.view.node(ix).state == NodeState::Running;
            if running && self.nodes[ix.0].is_resting() {
                let next = self.or_end(ix, Next::Begin);
                self.follow(ix, next, Cause::Next);
            }
        }
    }

    /// Returns the number of nodes that have started and whose checks do not pass.
    fn unproven(&self) -> usize {
        let unproven = |ix: &NodeIx| {
            let node = self.cx.view.node(*ix);
            self.cx.settings(*ix).checks.any() && node.iteration.0 > 0 && !node.attempts.converged
        };
        self.every().filter(unproven).count()
    }

    pub(super) fn time_is_up(&mut self) {
        self.stop_now(StopCause::Time);
    }

    /// Stops the run if its token or cost budget is used up. These budgets also apply during a session.
    pub(super) fn stop_run_if_spent(&mut self) {
        if let (Some(what), StopRequest::None | StopRequest::After(_)) =
            (self.overspent(), &self.stop.request)
        {
            self.stop_now(StopCause::Spent(what));
        }
    }

    /// Returns whether the run ends as soon as its process trees are empty.
    pub(super) fn is_stopping_now(&self) -> bool {
        matches!(self.stop.request, StopRequest::Now(_))
    }

    /// Ends the run at its ceiling. Its nodes are already ending.
    pub(super) fn stop_at_ceiling(&mut self, message: String) {
        self.stop.request = StopRequest::Now(StopCause::Ceiling(message));
        self.finish_if_hopeless();
        self.finish_if_quiet();
    }

    /// Records a suspension. The awake clock pauses while the host is suspended, so only time in which dogwatch could
    /// not run is subtracted.
    pub(super) fn suspended(&mut self, lasted: Dur, unwatched: bool) {
        self.cx.record(Event::Suspended { for_s: lasted, unwatched });
        if unwatched {
            self.rearm_ceilings();
            for ix in self.every() {
                let iteration = self.nodes[ix.0].iteration;
                let fact = watch::Fact::Suspended { for_ms: lasted.as_millis() };
                self.pass_to_node(ix, iteration, NodeInput::Noted(fact));
            }
        }
    }

    /// Stops the run because of the end of one of its nodes.
    pub(super) fn stop_for(&mut self, end: End) {
        self.stop_now(StopCause::Reached(end));
    }

    pub(super) fn record_lost(&mut self, detail: String) {
        self.cx.trouble("record_lost", detail.clone());
        self.stop_after(StopCause::RecordLost(detail));
    }

    /// Handles a process tree that KILL has not emptied. No new session starts. If the run is stopping, it ends, and the
    /// keeper keeps trying.
    pub(super) fn tree_unkillable(&mut self, job: Job, detail: String) {
        if self.nodes.get(job.node.0).is_some_and(|n| n.has_job(job)) {
            self.nodes[job.node.0].keeper_reported(&mut self.cx);
            self.cx.trouble("tree_stands", detail);
            self.stop.unkillable = Some(job);
            self.finish_if_hopeless();
        }
    }

    /// Ends a run that is stopping now but has an unkillable process tree. The keeper keeps trying.
    fn finish_if_hopeless(&mut self) {
        let unkillable = self
            .stop
            .unkillable
            .is_some_and(|job| self.nodes.get(job.node.0).is_some_and(|n| n.has_job(job)));
        if let (true, StopRequest::Now(_), Some(end)) = (unkillable, &self.stop.request, self.end_by_stop()) {
            self.finish(end);
        }
    }

    fn stop_after(&mut self, cause: StopCause) {
        if self.stop.request == StopRequest::None {
            self.stop.request = StopRequest::After(cause);
        }
        self.finish_if_quiet();
    }

    /// Stops the run now. The first request ends jobs gently; the second kills them.
    fn stop_now(&mut self, cause: StopCause) {
        let again = matches!(self.stop.request, StopRequest::Now(_));
        let by = cause.ended_by();
        if !again {
            self.stop.request = StopRequest::Now(cause);
        }
        for node in self.nodes.iter_mut().filter(|n| n.is_busy()) {
            if again { node.kill(&mut self.cx, by) } else { node.end(&mut self.cx, by) }
        }
        self.finish_if_hopeless();
        self.finish_if_quiet();
    }

    /// Takes a new time until which the run may live.
    pub(super) fn leash_renewed(&mut self, until: Boot) {
        if !self.is_stopping_for_leash() {
            self.cx.timers.set(Timer::Leash, Deadline::Boot(until));
            self.cx.out.push(Decision::RenewLeash { until });
        }
    }

    /// Ends the run because its leash ended. Work is killed at once: another supervisor may be about to take over.
    pub(super) fn leash_ended(&mut self, why: &str) {
        if self.is_stopping_for_leash() {
            return;
        }
        self.cx.timers.clear(Timer::Leash);
        let cause = StopCause::Leash(format!("{why}; continue with `dogwatch resume`"));
        self.stop.request = StopRequest::Now(cause.clone());
        // The second request kills.
        self.stop_now(cause);
    }

    fn is_stopping_for_leash(&self) -> bool {
        matches!(self.stop.request, StopRequest::Now(StopCause::Leash(_)))
    }

    /// Pauses the run: no iteration starts until the pause is lifted. A running iteration may finish.
    pub(super) fn pause(&mut self) {
        if self.cx.view.paused {
            return;
        }
        self.cx.record(Event::Paused {});
        for node in &mut self.nodes {
            node.pause(&mut self.cx);
        }
    }

    pub(super) fn unpause(&mut self, by: WaitEndedBy) {
        if !self.cx.view.paused {
            return;
        }
        self.cx.record(Event::Unpaused {});
        for ix in self.every() {
            let turn = self.nodes[ix.0].unpause(&mut self.cx, by);
            self.turn(ix, turn);
        }
    }

    /// Ends every wait at the operator's request.
    fn wake_waiting(&mut self) {
        if self.nodes.iter().any(|n| n.waiting().is_some()) {
            self.wake_all(WaitEndedBy::Operator);
        }
    }

    /// Accepts a message for the next prompt, within limits.
    pub(super) fn message_received(&mut self, text: &str, from: Source) {
        let text = clip(&printable(text), MAX_MESSAGE_BYTES).trim().to_owned();
        if text.is_empty() {
            return;
        }
        if self.cx.view.pending_messages.len() < MAX_PENDING_MESSAGES {
            self.cx.record(Event::MessageReceived { text, from });
        } else {
            let message = format!(
                "{MAX_PENDING_MESSAGES} messages already wait for the next prompt; this one was dropped"
            );
            self.cx.record(Event::Notice { kind: "told_too_much".into(), message });
        }
    }

    pub(super) fn finish_if_quiet(&mut self) {
        // The cheap test comes first: this runs after every fact.
        if let Some(end) = self.end_by_stop()
            && !self.nodes.iter().any(|n| n.is_busy())
        {
            self.finish(end);
        }
    }
}
