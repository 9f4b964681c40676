//! What comes after an iteration: the next one, a wait, or the end.

use super::Run;
use crate::decision::{ContextEntry, Decision};
use crate::dur::Dur;
use crate::ending::Ending;
use crate::event::{Cause, Event, NodeState, Outcome, RunEnded, WaitEndedBy, WaitWhy};
use crate::idle;
use crate::ids::NodeIx;
use crate::moment::Wall;
use crate::settings::IdlePolicy;

/// Clocks differ: a limit is asked again so much after it should have ended.
const AFTER_RESET: Dur = Dur::from_secs(15);
/// The first wait for a service that does not say when, in seconds, and the longest.
const FIRST_REFUSAL: u64 = 15;
const LONGEST_REFUSAL: Dur = Dur::from_mins(10);

pub(super) enum Next {
    Begin,
    /// No length is a pause.
    Wait(WaitWhy, Option<Dur>),
    Finish(End),
}

/// How the run ends.
pub(super) struct End {
    pub outcome: Outcome,
    pub reason: String,
    pub exit_code: u8,
}

impl End {
    pub fn new(outcome: Outcome, exit_code: u8, reason: impl Into<String>) -> End {
        End { outcome, reason: reason.into(), exit_code }
    }
}

impl Run {
    /// The order of the questions matters: what a person asked for comes first, then what makes going
    /// on senseless, then what makes it forbidden, and only then how long to wait.
    pub(super) fn what_next(&self, ix: NodeIx, ending: &Ending) -> Next {
        let end = self
            .end_by_stop()
            .or_else(|| self.end_by_failure(ix, ending))
            .or_else(|| self.end_by_refusals(ix))
            .or_else(|| self.end_by_count(ix))
            .or_else(|| self.end_by_idling(ix, ending))
            .or_else(|| self.end_by_budget());
        match (end, self.wait_for(ix, ending)) {
            (Some(end), _) => Next::Finish(end),
            (None, _) if self.cx.view.paused => Next::Wait(WaitWhy::Paused, None),
            (None, Some((why, delay))) => Next::Wait(why, Some(delay)),
            (None, None) => Next::Begin,
        }
    }

    /// A service that keeps refusing without saying for how long has its own budget.
    fn end_by_refusals(&self, ix: NodeIx) -> Option<End> {
        let (refusals, max) = (self.cx.view.node(ix).refusals, self.cx.settings(ix).limits.overload_retries);
        (refusals > max).then(|| {
            End::new(
                Outcome::ErrorLimit,
                1,
                format!("the service refused {refusals} times in a row (limits.overload_retries: {max})"),
            )
        })
    }

    fn end_by_failure(&self, ix: NodeIx, ending: &Ending) -> Option<End> {
        let node = self.cx.view.node(ix);
        let because = || node.last_end.as_ref().map(|e| e.because.clone()).unwrap_or_default();
        match ending {
            Ending::AuthFailed => Some(End::new(Outcome::AuthFailed, 1, because())),
            Ending::Failed | Ending::TimedOut if self.cx.plan.stop_on_error => Some(End::new(
                Outcome::StoppedOnError,
                1,
                format!("iteration {}: {}", node.iteration, because()),
            )),
            Ending::Failed => node
                .failures
                .open_circuit(&self.cx.settings(ix).errors, self.cx.now.boot)
                .map(|why| End::new(Outcome::ErrorLimit, 1, why)),
            Ending::Completed
            | Ending::Idle { .. }
            | Ending::TimedOut
            | Ending::RateLimited { .. }
            | Ending::Interrupted { .. } => None,
        }
    }

    pub(super) fn end_by_count(&self, ix: NodeIx) -> Option<End> {
        let counts = self.cx.view.node(ix).counts;
        let max = self.cx.settings(ix).max_iterations?;
        (counts.iterations >= max).then(|| {
            let done = format!("{} of {max} iterations completed", counts.completed);
            if counts.completed > 0 {
                End::new(Outcome::Clean, 0, done)
            } else {
                End::new(Outcome::Catastrophic, 1, done)
            }
        })
    }

    fn end_by_idling(&self, ix: NodeIx, ending: &Ending) -> Option<End> {
        let (Ending::Idle { reason, .. }, Some(policy)) = (ending, &self.cx.settings(ix).idle) else {
            return None;
        };
        let spell = &self.cx.view.node(ix).spell;
        let lasted = spell.lasted(self.cx.now.boot);
        if idle::count_reached(policy, spell) {
            let why = format!(
                "{}; entering sleep mode after {} idle iterations",
                reason.replace('_', " "),
                spell.count
            );
            return Some(End::new(Outcome::Idle, 0, why));
        }
        (policy.max? <= lasted).then(|| {
            let why = format!(
                "idle for {lasted} ({reason}); entering sleep mode after {} idle iterations",
                spell.count
            );
            End::new(Outcome::Idle, 0, why)
        })
    }

    /// Before each iteration: is there anything left to spend?
    pub(super) fn end_by_budget(&self) -> Option<End> {
        let budget = self.cx.budget();
        let used = self.cx.view.totals().iterations;
        let time = self.cx.view.supervised(self.cx.now.boot);
        let spent = match (budget.iterations, budget.time) {
            (Some(max), _) if used >= max => format!("budget.iterations: {used} of {max} used"),
            (_, Some(max)) if time >= max => format!("budget.time: {time} of {max} used"),
            _ => self.overspent()?,
        };
        Some(End::new(Outcome::BudgetExceeded, 3, spent))
    }

    /// Tokens or money beyond the budget.
    pub(super) fn overspent(&self) -> Option<String> {
        let (budget, spent) = (self.cx.budget(), self.cx.view.spent());
        match (budget.tokens, budget.cost_usd) {
            (Some(max), _) if spent.tokens >= max => {
                Some(format!("budget.tokens: {} of {max} used", spent.tokens))
            }
            (_, Some(max)) if spent.cost_usd >= max => {
                Some(format!("budget.cost_usd: ${:.2} of ${max:.2} used", spent.cost_usd))
            }
            _ => None,
        }
    }

    /// One wait per gap: of those that apply the first in this order counts, whatever its length.
    fn wait_for(&self, ix: NodeIx, ending: &Ending) -> Option<(WaitWhy, Dur)> {
        let settings = self.cx.settings(ix);
        let node = self.cx.view.node(ix);
        if let Ending::RateLimited { resets_at, .. } = ending {
            return Some((WaitWhy::RateLimit, self.limit_delay(ix, *resets_at)));
        }
        if let (Ending::Idle { .. }, Some(policy)) = (ending, &settings.idle) {
            return Some((WaitWhy::Idle, self.idle_delay(ix, policy)));
        }
        if *ending == Ending::Failed {
            return Some((WaitWhy::Error, node.failures.wait()));
        }
        (!settings.delay.is_zero()).then_some((WaitWhy::Delay, settings.delay))
    }

    /// Until the limit ends and a little longer, or ever longer if nobody says when; never beyond the maximum.
    fn limit_delay(&self, ix: NodeIx, resets_at: Option<Wall>) -> Dur {
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

    /// The wait that would pass `idle.max` ends at it: one last look, no useless sleep.
    fn idle_delay(&self, ix: NodeIx, policy: &IdlePolicy) -> Dur {
        let spell = &self.cx.view.node(ix).spell;
        let seed = self.cx.view.started.as_ref().map_or(0, |s| s.seed);
        let delay = idle::delay(policy, spell.count, spell.last_delay, idle::draw(seed, self.cx.view.seq));
        match policy.max {
            Some(max) => delay.min(max.saturating_sub(spell.lasted(self.cx.now.boot))),
            None => delay,
        }
    }

    /// Begins a wait, and ends it at once if somebody already said so.
    pub(super) fn wait(&mut self, ix: NodeIx, why: WaitWhy, delay: Option<Dur>) {
        self.nodes[ix.0].wait(&mut self.cx, why, delay);
        self.wake_if_remembered(ix);
    }

    /// A wake that came when no wait could be ended by it: during a session, or in a pause.
    pub(super) fn wake_if_remembered(&mut self, ix: NodeIx) {
        if let (Some(why), Some(by)) = (self.nodes[ix.0].waiting(), self.cx.view.node(ix).wake)
            && self.may_wake(ix, why, by)
        {
            self.leave_wait(ix, by);
        }
    }

    /// Ends what may be ended by it; what may not is remembered for the next wait.
    pub(super) fn wake_all(&mut self, by: WaitEndedBy) {
        for ix in self.every() {
            match self.nodes[ix.0].waiting() {
                Some(why) if why != WaitWhy::Paused && may_end(why, by) => self.leave_wait(ix, by),
                Some(_) | None => self.remember_wake(ix, by),
            }
        }
    }

    /// A storm of wakes is one.
    fn remember_wake(&mut self, ix: NodeIx, by: WaitEndedBy) {
        if self.cx.view.node(ix).wake.is_none() {
            self.cx.record(Event::WakeRemembered { node: self.cx.name(ix), by });
        }
    }

    /// An agent that itself touches what it is woken by must not keep itself awake for ever.
    fn may_wake(&self, ix: NodeIx, why: WaitWhy, by: WaitEndedBy) -> bool {
        let own = by == WaitEndedBy::Path && self.cx.view.node(ix).spell.own_wakes >= idle::MAX_OWN_WAKES;
        why != WaitWhy::Paused && may_end(why, by) && !own
    }

    fn leave_wait(&mut self, ix: NodeIx, by: WaitEndedBy) {
        let turn = self.nodes[ix.0].wake(&mut self.cx, by, Cause::Wake);
        self.turn(ix, turn);
    }

    pub(super) fn wait_over(&mut self, ix: NodeIx, cause: Cause) {
        match self.end_by_stop().or_else(|| self.end_by_budget()) {
            Some(end) => self.finish(end),
            None if self.cx.view.paused => self.wait(ix, WaitWhy::Paused, None),
            None => self.begin_iteration(ix, cause),
        }
    }

    /// Ends the run. One that goes to sleep leaves word where other programs look for it first.
    pub(super) fn finish(&mut self, end: End) {
        if self.finished || self.ending.is_some() || self.last_words.is_some() {
            return;
        }
        if end.outcome == Outcome::Idle {
            let spell = self.cx.view.nodes.iter().map(|n| &n.spell).max_by_key(|s| s.count);
            let entry = spell.map(|s| ContextEntry::sleep(&s.reason, s.count));
            self.ending = Some(end);
            self.cx.out.extend(entry.map(|e| Decision::KeepContext(Box::new(e))));
        } else {
            self.close(end);
        }
    }

    pub(super) fn context_kept(&mut self, error: Option<String>) {
        let Some(end) = self.ending.take() else { return };
        if let Some(error) = error {
            self.cx.trouble("context_not_kept", error);
        }
        self.close(end);
    }

    fn close(&mut self, end: End) {
        for ix in self.every() {
            let done = self.cx.view.node(ix).counts.completed > 0;
            let state = if done { NodeState::Done } else { NodeState::Failed };
            self.cx.transition(ix, state, Some(end.outcome.as_str().to_owned()));
        }
        let totals = self.cx.view.totals();
        let ended = RunEnded {
            outcome: end.outcome,
            reason: end.reason,
            verified: false,
            iterations: totals.iterations,
            completed: totals.completed,
            failed: totals.failed + totals.timed_out,
            idle: totals.idle,
            nodes: self.cx.view.node_counts(),
            flake_retries: 0,
            total_duration_s: self.cx.view.supervised(self.cx.now.boot),
            exit_code: end.exit_code,
        };
        self.leave(ended);
    }
}

/// People end any wait. Files and probes tell of work, so they end a wait for work: an agent that fails
/// after touching a file must not talk itself out of its own backoff.
fn may_end(why: WaitWhy, by: WaitEndedBy) -> bool {
    match by {
        WaitEndedBy::Path | WaitEndedBy::Probe => matches!(why, WaitWhy::Idle | WaitWhy::Delay),
        WaitEndedBy::Timer | WaitEndedBy::Operator | WaitEndedBy::Api | WaitEndedBy::Signal => true,
    }
}
