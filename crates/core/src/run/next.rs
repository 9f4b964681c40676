//! The next step after an iteration: another iteration, a wait, the node's end, or the run's end.

use super::Run;
use super::gate::AFTER_RESET;
use super::over::{End, NodeEnd};
use super::resume::left_of;
use crate::record::event::{Cause, CheckResult, Event, Outcome, WaitEndedBy, WaitWhy};
use crate::record::ids::NodeIx;
use crate::run::ending::Ending;
use crate::run::idle;
use crate::settings::{AttemptPolicy, IdlePolicy};
use crate::text::figures::{self, count};
use crate::text::{check_output, one_line};
use crate::time::dur::Dur;

/// The first wait for a service that gives no reset time, in seconds.
const FIRST_REFUSAL: u64 = 15;
/// The longest wait for a service that gives no reset time.
const LONGEST_REFUSAL: Dur = Dur::from_mins(10);
/// The number of failing checks that the reason of a node's end names.
const MAX_NAMED_CHECKS: usize = 5;
/// The most of a check's command that the reason shows, in bytes.
const MAX_CHECK_SHOWN: usize = 80;

/// The next step of a node.
pub(super) enum Next {
    Begin,
    /// A wait without a length is a pause or a sleep.
    Wait(WaitWhy, Option<Dur>),
    NodeOver(NodeEnd),
    Finish(End),
    /// The run stops on request: it ends as soon as no node is busy.
    Stop,
}

impl Run {
    /// Returns the next step after an iteration. The order of the tests matters: finished work comes first, then operator
    /// requests, then conditions that make another iteration pointless, then limits that forbid it, and then the wait.
    pub(super) fn what_next(&self, ix: NodeIx, ending: &Ending) -> Next {
        if let Some(over) = self.converged(ix).or_else(|| self.end_by_completion(ix)) {
            return Next::NodeOver(over);
        }
        if self.end_by_stop().is_some() {
            return Next::Stop;
        }
        if let Some(over) = self.end_by_node_ceiling(ix) {
            return Next::NodeOver(over);
        }
        if let Some(end) = self.end_by_run_ceiling(ix).or_else(|| self.end_by_failure(ix, ending)) {
            return Next::Finish(end);
        }
        let over = self
            .end_by_circuit(ix, ending)
            .or_else(|| self.end_by_refusals(ix))
            .or_else(|| self.end_by_recovery(ix, ending))
            .or_else(|| self.end_by_count(ix))
            .or_else(|| self.end_by_idling(ix, ending))
            .or_else(|| self.end_by_node_budget(ix));
        match (over, self.end_by_budget(), self.wait_for(ix, ending)) {
            (Some(over), _, _) => Next::NodeOver(over),
            (None, Some(end), _) => Next::Finish(end),
            (None, None, _) if self.cx.view.paused => Next::Wait(WaitWhy::Paused, None),
            (None, None, Some((why, delay))) => Next::Wait(why, Some(delay)),
            (None, None, None) => Next::Begin,
        }
    }

    /// Returns `next` unless a limit or a pause forbids it now.
    pub(super) fn or_end(&self, ix: NodeIx, next: Next) -> Next {
        let over = self
            .converged(ix)
            .or_else(|| self.end_by_node_ceiling(ix))
            .or_else(|| self.end_by_count(ix))
            .or_else(|| self.end_by_node_budget(ix));
        match (over, self.end_by_run_ceiling(ix).or_else(|| self.end_by_budget())) {
            (Some(over), _) => Next::NodeOver(over),
            (None, Some(end)) => Next::Finish(end),
            (None, None) if self.cx.view.paused => Next::Wait(WaitWhy::Paused, None),
            (None, None) => next,
        }
    }

    /// Returns the node's end if the checks have passed.
    pub(super) fn converged(&self, ix: NodeIx) -> Option<NodeEnd> {
        let attempts = &self.cx.view.node(ix).attempts;
        let policy = self.cx.settings(ix).checks.attempts;
        attempts.converged.then(|| {
            let checks = attempts.last.len();
            let outcome = if attempts.flaked(policy) { Outcome::CleanWithFlake } else { Outcome::Clean };
            let tries = attempts.count.max(1);
            let why = match policy {
                AttemptPolicy::Seed => {
                    format!("{checks} of {checks} checks pass after {}", count(tries, "attempt"))
                }
                AttemptPolicy::Progress => format!("checks pass after {}", count(tries, "iteration")),
            };
            NodeEnd::done("converged", End::new(outcome, 0, why))
        })
    }

    /// Returns the node's end if the service has refused too often without a reset time.
    fn end_by_refusals(&self, ix: NodeIx) -> Option<NodeEnd> {
        let (refusals, max) = (self.cx.view.node(ix).refusals, self.cx.settings(ix).limits.overload_retries);
        (refusals > max).then(|| {
            let why =
                format!("the service refused {refusals} times in a row (limits.overload_retries: {max})");
            NodeEnd::failed("overloaded", End::new(Outcome::ErrorLimit, 1, why))
        })
    }

    /// Returns the run's end if this ending stops the whole run, whatever its other nodes do.
    fn end_by_failure(&self, ix: NodeIx, ending: &Ending) -> Option<End> {
        let node = self.cx.view.node(ix);
        let because = || node.last.end.as_ref().map(|e| e.because.clone()).unwrap_or_default();
        match ending {
            // Another agent may have valid credentials.
            Ending::AuthFailed if self.cx.free_agent(ix).is_some_and(|n| n != self.nodes[ix.0].agent) => None,
            Ending::AuthFailed => Some(End::new(Outcome::AuthFailed, 1, because())),
            Ending::Failed | Ending::TimedOut if self.cx.plan.stop_on_error => Some(End::new(
                Outcome::StoppedOnError,
                1,
                format!("iteration {}: {}", node.iteration, because()),
            )),
            Ending::Failed
            | Ending::TimedOut
            | Ending::Completed
            | Ending::Idle { .. }
            | Ending::RateLimited { .. }
            | Ending::Interrupted { .. } => None,
        }
    }

    /// Returns the node's end after a crash loop. Nodes with checks have their own limit.
    fn end_by_circuit(&self, ix: NodeIx, ending: &Ending) -> Option<NodeEnd> {
        let settings = self.cx.settings(ix);
        if *ending != Ending::Failed || settings.checks.any() {
            return None;
        }
        let failures = &self.cx.view.node(ix).failures;
        let why = failures.open_circuit(&settings.errors, self.cx.now.boot)?;
        Some(NodeEnd::failed("error_limit", End::new(Outcome::ErrorLimit, 1, why)))
    }

    fn end_by_count(&self, ix: NodeIx) -> Option<NodeEnd> {
        let (node, settings) = (self.cx.view.node(ix), self.cx.settings(ix));
        if settings.checks.any() {
            return self.end_by_attempts(ix);
        }
        let max = settings.max_iterations?;
        let counts = node.counts;
        (counts.iterations >= max).then(|| {
            let iterations = if max == 1 { "iteration" } else { "iterations" };
            let done = format!("{} of {max} {iterations} completed", counts.completed);
            if counts.completed > 0 {
                NodeEnd::done("clean", End::new(Outcome::Clean, 0, done))
            } else {
                NodeEnd::failed("max_iterations_reached", End::new(Outcome::Catastrophic, 1, done))
            }
        })
    }

    /// Returns the node's end if its attempts are used up: all of them, or those in a row without progress.
    fn end_by_attempts(&self, ix: NodeIx) -> Option<NodeEnd> {
        let (attempts, settings) = (&self.cx.view.node(ix).attempts, self.cx.settings(ix));
        let used = settings.max_iterations.filter(|max| attempts.count >= *max);
        let why = match (settings.checks.attempts, used) {
            (AttemptPolicy::Seed, Some(max)) => {
                format!("{} of {max} attempts used, and {}", attempts.count, named_checks(attempts.failing()))
            }
            (AttemptPolicy::Progress, Some(max)) => {
                format!("{} of {max} iterations used; {}", attempts.count, still_failing(attempts.failing()))
            }
            (_, None) => {
                let stalled = attempts.stalled;
                settings.checks.max_stalled.filter(|max| stalled >= *max)?;
                let idle = count(stalled, "iteration");
                format!("{idle} without progress; {}", still_failing(attempts.failing()))
            }
        };
        Some(NodeEnd::failed("max_iterations_reached", End::new(Outcome::Catastrophic, 1, why)))
    }

    /// Returns the end of a graph's node without checks once an iteration has completed.
    fn end_by_completion(&self, ix: NodeIx) -> Option<NodeEnd> {
        let settings = self.cx.settings(ix);
        let unchecked = self.cx.plan.graph.is_some() && !settings.checks.any();
        let counts = self.cx.view.node(ix).counts;
        // Without an `idle` block, an idle iteration is like any other. The node would never wait and never end.
        let idle = if settings.idle.is_some() { counts.idle } else { 0 };
        (unchecked && counts.completed > idle)
            .then(|| NodeEnd::done("completed", End::new(Outcome::Clean, 0, "an iteration completed")))
    }

    pub(super) fn end_by_idling(&self, ix: NodeIx, ending: &Ending) -> Option<NodeEnd> {
        let (Ending::Idle { reason, .. }, Some(policy)) = (ending, &self.cx.settings(ix).idle) else {
            return None;
        };
        let idle_streak = &self.cx.view.node(ix).idle_streak;
        let lasted = idle_streak.lasted(self.cx.now.boot);
        let alone = || !self.every().any(|other| other != ix && self.nodes[other.0].is_working());
        let counted = idle::count_reached(policy, idle_streak).filter(|_| alone());
        let why = if let Some(count) = counted {
            let idle = figures::count(count, "idle iteration");
            format!("{}; entering sleep mode after {idle}", reason.replace('_', " "))
        } else if policy.max.is_some_and(|max| max <= lasted) {
            let idle = figures::count(idle_streak.count, "idle iteration");
            format!("idle for {lasted} ({reason}); entering sleep mode after {idle}")
        } else {
            return None;
        };
        // An idle stop is a success for a node without checks, and a failure if there are checks that do not pass.
        Some(match self.cx.settings(ix).checks.any() {
            false => NodeEnd::done("idle", End::new(Outcome::Idle, 0, why)),
            true => {
                NodeEnd::failed("idle", End::new(Outcome::Idle, 1, format!("{why}; the checks do not pass")))
            }
        })
    }

    /// Returns the wait before the next iteration. There is one wait per gap: the first that applies in this order,
    /// whatever its length.
    fn wait_for(&self, ix: NodeIx, ending: &Ending) -> Option<(WaitWhy, Dur)> {
        let settings = self.cx.settings(ix);
        let node = self.cx.view.node(ix);
        let refused = *ending == Ending::TimedOut && self.refused(ix).is_some();
        if refused || matches!(ending, Ending::RateLimited { .. }) {
            let another = self.cx.free_agent(ix).is_some_and(|n| n != self.nodes[ix.0].agent);
            let delay = || self.limit_delay(ix, ending).max(self.until_open(ix).unwrap_or(Dur::ZERO));
            return (!another).then(|| (WaitWhy::RateLimit, delay()));
        }
        // No agent may be called, so no other wait matters.
        if let Some(delay) = self.until_open(ix) {
            return Some((WaitWhy::RateLimit, delay));
        }
        if let (Ending::Idle { .. }, Some(policy)) = (ending, &settings.idle) {
            return Some((WaitWhy::Idle, self.idle_delay(ix, policy)));
        }
        if node.recovery.due.is_some() && *ending == Ending::TimedOut {
            return Some((WaitWhy::Recovery, node.recovery.wait()));
        }
        // Another agent need not wait for the failures of this one.
        if node.recovery.due.is_some() {
            return None;
        }
        if let Some(wait) = node.attempts.wait(settings.checks.attempts).filter(|_| settings.checks.any()) {
            return Some((WaitWhy::Backoff, wait));
        }
        if *ending == Ending::Failed {
            return Some((WaitWhy::Error, node.failures.wait()));
        }
        (!settings.delay.is_zero()).then_some((WaitWhy::Delay, settings.delay))
    }

    /// Returns the time until an agent of the chain may be called, if none may be now.
    fn until_open(&self, ix: NodeIx) -> Option<Dur> {
        self.cx.opens(ix).map(|(at, _)| left_of(at, self.cx.now.wall))
    }

    /// Returns the wait for a rate limit: until shortly after the reset time, or with growing delays if there is none, but
    /// never longer than `limits.max_wait`.
    pub(super) fn limit_delay(&self, ix: NodeIx, ending: &Ending) -> Dur {
        let resets_at = if let Ending::RateLimited { resets_at, .. } = ending { *resets_at } else { None };
        let delay = match resets_at {
            Some(at) => {
                let left = u64::try_from(at.0 - self.cx.now.wall.0).unwrap_or(0);
                Dur::from_millis(left).saturating_add(AFTER_RESET)
            }
            None => {
                let doublings = self.cx.view.node(ix).refusals.saturating_sub(1).min(16);
                Dur::from_secs(FIRST_REFUSAL << doublings).min(LONGEST_REFUSAL)
            }
        };
        delay.min(self.cx.settings(ix).limits.max_wait)
    }

    /// Returns the idle wait. A wait that would exceed `idle.max` ends at that limit, so that the loop makes one last
    /// attempt.
    fn idle_delay(&self, ix: NodeIx, policy: &IdlePolicy) -> Dur {
        let idle_streak = &self.cx.view.node(ix).idle_streak;
        let seed = self.cx.view.started.as_ref().map_or(0, |s| s.seed);
        let delay = match self.cx.learned_wait(ix) {
            Some(decided) => decided.wait,
            None => idle::delay(
                policy,
                idle_streak.count,
                idle_streak.last_delay,
                idle::draw(seed, self.cx.view.seq),
            ),
        };
        match policy.max {
            Some(max) => delay.min(max.saturating_sub(idle_streak.lasted(self.cx.now.boot))),
            None => delay,
        }
    }

    /// Starts a wait, and ends it at once if a wake request was remembered.
    pub(super) fn wait(&mut self, ix: NodeIx, why: WaitWhy, delay: Option<Dur>) {
        self.nodes[ix.0].wait(&mut self.cx, why, delay);
        self.wake_if_remembered(ix);
    }

    /// Ends the wait if a wake request arrived earlier, when no wait could end: during a session or in a pause.
    pub(super) fn wake_if_remembered(&mut self, ix: NodeIx) {
        if let (Some(why), Some(by)) = (self.nodes[ix.0].waiting(), self.cx.view.node(ix).waits.wake)
            && self.may_wake(ix, why, by)
        {
            self.leave_wait(ix, by);
        }
    }

    /// Ends the waits that this request may end. The other nodes remember the request for their next wait.
    pub(super) fn wake_all(&mut self, by: WaitEndedBy) {
        for ix in self.every() {
            match self.nodes[ix.0].waiting() {
                Some(why) if why != WaitWhy::Paused && may_end(why, by) => self.leave_wait(ix, by),
                Some(_) | None => self.remember_wake(ix, by),
            }
        }
    }

    /// Remembers a wake request. Repeated requests count as one.
    fn remember_wake(&mut self, ix: NodeIx, by: WaitEndedBy) {
        if self.cx.view.node(ix).waits.wake.is_none() {
            self.cx.record(Event::WakeRemembered { node: self.cx.name(ix), by });
        }
    }

    /// Returns whether a remembered wake may end the wait. An agent that changes a path that wakes it must not keep itself
    /// awake forever.
    fn may_wake(&self, ix: NodeIx, why: WaitWhy, by: WaitEndedBy) -> bool {
        let own =
            by == WaitEndedBy::Path && self.cx.view.node(ix).idle_streak.own_wakes >= idle::MAX_OWN_WAKES;
        why != WaitWhy::Paused && may_end(why, by) && !own
    }

    /// Ends a wait early. A person who ends a wait for an agent gets an iteration even though no agent may be called.
    pub(super) fn leave_wait(&mut self, ix: NodeIx, by: WaitEndedBy) {
        let limited = self.nodes[ix.0].waiting() == Some(WaitWhy::RateLimit);
        let person = matches!(by, WaitEndedBy::Operator | WaitEndedBy::Api | WaitEndedBy::Signal);
        self.nodes[ix.0].forced = limited && person;
        let turn = self.nodes[ix.0].wake(&mut self.cx, by, Cause::Wake);
        self.turn(ix, turn);
    }

    pub(super) fn wait_over(&mut self, ix: NodeIx, cause: Cause) {
        if self.end_by_stop().is_some() {
            return self.finish_if_quiet();
        }
        self.asleep = None;
        let next = self.or_end(ix, Next::Begin);
        self.follow(ix, next, cause);
    }
}

/// Names the first failing checks and counts the rest.
fn named_checks<'a>(mut failing: impl Iterator<Item = &'a CheckResult>) -> String {
    let name = |r: &CheckResult| format!("`{}` exits {}", one_line(&r.cmd, MAX_CHECK_SHOWN), r.rc);
    let named: Vec<String> = failing.by_ref().take(MAX_NAMED_CHECKS).map(name).collect();
    with_the_rest(&named, failing.count())
}

/// Names the first failing checks with the last line of their output, and counts the rest: `pytest still fails (4
/// failed)`.
fn still_failing<'a>(mut failing: impl Iterator<Item = &'a CheckResult>) -> String {
    let name = |r: &CheckResult| {
        let cmd = one_line(&r.cmd, MAX_CHECK_SHOWN);
        let said = check_output::summary(r.tail.as_deref().unwrap_or(""));
        let how = if r.timed_out { "timed out".to_owned() } else { format!("exit {}", r.rc) };
        format!("{cmd} still fails ({})", if said.is_empty() { how } else { said })
    };
    let named: Vec<String> = failing.by_ref().take(MAX_NAMED_CHECKS).map(name).collect();
    with_the_rest(&named, failing.count())
}

fn with_the_rest(named: &[String], more: usize) -> String {
    match more {
        0 => named.join(", "),
        1 => format!("{}, and 1 more check fails", named.join(", ")),
        more => format!("{}, and {more} more checks fail", named.join(", ")),
    }
}

/// Returns whether a request may end a wait. People may end any wait. Files and probes indicate work, so they end only
/// waits for work: an agent that fails after changing a file must not cut its own backoff short.
fn may_end(why: WaitWhy, by: WaitEndedBy) -> bool {
    let for_work = matches!(why, WaitWhy::Idle | WaitWhy::Delay | WaitWhy::Asleep);
    for_work || !matches!(by, WaitEndedBy::Path | WaitEndedBy::Probe)
}
