//! The fold of a node's events into its view.

use super::{Counts, Doing, LastSeen, NodeView, Used};
use crate::record::artifacts::Artifacts;
use crate::record::event::{IterationEnd, NodeState, Observation, SessionEnded, Usage, WaitEndedBy, WaitWhy};
use crate::record::ids::{Iteration, NodeName};
use crate::run::attempts::{Attempts, Recoveries};
use crate::run::circuit::Failures;
use crate::run::ending::Ending;
use crate::run::idle::{IdleStreak, MAX_OWN_WAKES};
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Boot, Moment, Wall};
use crate::time::watched::WatchedTime;
use crate::watch::Channel;
use crate::watch::health::Health;
use crate::watch::sign::LimitKind;

impl NodeView {
    pub(super) fn new(name: &NodeName) -> NodeView {
        NodeView {
            name: name.clone(),
            state: NodeState::Pending,
            reason: None,
            iteration: Iteration(0),
            counts: Counts::default(),
            doing: Doing::Nothing,
            failures: Failures::default(),
            idle_streak: IdleStreak::default(),
            attempts: Attempts::default(),
            recovery: Recoveries::default(),
            time_before: Dur::ZERO,
            under_way: None,
            watched: WatchedTime::default(),
            agent: 0,
            worktree: None,
            worktree_found: false,
            put_off: None,
            snapshot: None,
            kept: None,
            lost_after: None,
            structured: false,
            session: Dur::ZERO,
            used: Used::default(),
            using: Usage::default(),
            charged: (None, Used::default()),
            refusals: 0,
            condition: Health::default(),
            last_session: None,
            last_end: None,
            last_ending: None,
            open: None,
            wake: None,
            input_digest: None,
            last_seen: None,
            reported: None,
            artifacts: Artifacts::default(),
        }
    }

    /// Returns the usage of all sessions, including the current one.
    pub fn spent(&self) -> Used {
        Used {
            tokens: self.used.tokens + self.using.tokens.unwrap_or(0),
            cost_usd: self.used.cost_usd + self.using.cost_usd.unwrap_or(0.0),
            ..self.used
        }
    }

    /// Returns the usage already counted for the agent's own session with this id.
    pub fn charged(&self, session: &str) -> Usage {
        match &self.charged {
            (Some(name), used) if name == session => {
                Usage { tokens: Some(used.tokens), cost_usd: Some(used.cost_usd) }
            }
            _ => Usage::default(),
        }
    }

    /// Returns how long the node has been running, up to `now`, without the time it was not supervised.
    pub fn lasted(&self, now: Boot) -> Dur {
        self.time_before.saturating_add(self.under_way.map_or(Dur::ZERO, |since| now.since(since)))
    }

    pub(super) fn change(&mut self, at: Moment, to: NodeState, reason: Option<String>) {
        match to {
            NodeState::Running => {
                self.under_way = Some(at.boot);
                self.watched.start(at.awake);
            }
            NodeState::Pending
            | NodeState::Ready
            | NodeState::Done
            | NodeState::Failed
            | NodeState::Blocked => {
                self.time_before = self.lasted(at.boot);
                self.under_way = None;
                self.watched.stop(at.awake);
            }
        }
        (self.state, self.reason) = (to, reason);
    }

    /// Notes progress for the recovery: a hard stop after real work does not count as a repetition of the last one. For a
    /// structured agent, messages on stdout alone are not work.
    pub(super) fn note_progress(&mut self, channel: Channel) {
        if channel != Channel::Stdout || !self.structured {
            self.recovery.progressed();
        }
    }

    pub(super) fn begin(&mut self, at: Awake, iteration: Iteration) {
        self.iteration = iteration;
        self.open = Some(at);
        // The iteration sees every change that happened before it started.
        self.wake = None;
        self.input_digest = None;
        self.reported = None;
        self.doing = Doing::Preparing;
        self.put_off = None;
        self.attempts.just_failed = false;
        self.session = Dur::ZERO;
        self.lost_after = None;
    }

    pub(super) fn observe(&mut self, at: Moment, seen: &Observation) {
        self.note_progress(seen.channel);
        // The event is recorded a little later than the progress was seen.
        let late = at.awake.since(seen.last_ms).as_millis();
        self.last_seen =
            Some(LastSeen { channel: seen.channel, at: Wall(at.wall.0.saturating_sub_unsigned(late)) });
        self.condition.observed(seen);
        if let Doing::Working { messages, last_output, .. } = &mut self.doing {
            *messages = messages.saturating_add(seen.messages);
            *last_output = (*last_output).max(Some(seen.last_ms));
        }
    }

    pub(super) fn session_over(&mut self, s: &SessionEnded) {
        self.session = s.duration_s;
        self.used.add(s);
        self.using = Usage::default();
        if self.charged.0 != s.session {
            self.charged = (s.session.clone(), Used::default());
        }
        self.charged.1.add(s);
        self.condition = Health::default();
        self.last_session = Some(s.clone());
        self.doing = Doing::Preparing;
    }

    pub(super) fn completed(&mut self, end: &IterationEnd) {
        self.counts.iterations += 1;
        self.counts.completed += 1;
        self.failures.clear();
        self.recovery.refill();
        self.idle_streak = IdleStreak::default();
        self.over(end, Ending::Completed);
    }

    pub(super) fn idled(&mut self, at: Boot, end: &IterationEnd, reason: &str, skipped: bool) {
        self.counts.iterations += 1;
        self.counts.completed += 1;
        self.counts.idle += 1;
        self.failures.clear();
        self.recovery.refill();
        self.idle_streak.add(at, reason);
        if !skipped {
            self.idle_streak.input_digest = self.input_digest.take();
        }
        self.over(end, Ending::Idle { reason: reason.to_owned(), skipped });
    }

    pub(super) fn failed(&mut self, at: Boot, end: &IterationEnd, ending: Ending) {
        self.counts.iterations += 1;
        self.counts.failed += 1;
        self.failures.add(at, end.fingerprint.as_deref().unwrap_or(""), self.session);
        self.idle_streak = IdleStreak::default();
        self.over(end, ending);
    }

    /// Notes a refusal. It is neither idle nor a failure, so the idle streak and the failures stay as they are.
    pub(super) fn limited(&mut self, end: &IterationEnd, limit: LimitKind, resets_at: Option<Wall>) {
        self.refusals = if resets_at.is_some() { 0 } else { self.refusals.saturating_add(1) };
        let refusals = self.refusals;
        self.over(end, Ending::RateLimited { limit, resets_at });
        self.refusals = refusals;
    }

    pub(super) fn timed_out(&mut self, end: &IterationEnd) {
        self.counts.iterations += 1;
        self.counts.timed_out += 1;
        self.idle_streak = IdleStreak::default();
        let refused = self.recovery.last.as_ref().is_some_and(|stopped| stopped.refused.is_some());
        let refusals = if refused { self.refusals.saturating_add(1) } else { 0 };
        self.over(end, Ending::TimedOut);
        self.refusals = refusals;
    }

    pub(super) fn over(&mut self, end: &IterationEnd, ending: Ending) {
        if !matches!(ending, Ending::Interrupted { .. }) {
            self.refusals = 0;
        }
        self.doing = Doing::Nothing;
        self.open = None;
        self.last_end = Some(end.clone());
        self.last_ending = Some(ending);
    }

    pub(super) fn wait(&mut self, why: WaitWhy, delay: Option<Dur>, until: Option<Wall>) {
        let delay = delay.unwrap_or(Dur::ZERO);
        match why {
            WaitWhy::Idle => self.idle_streak.last_delay = delay,
            WaitWhy::Backoff | WaitWhy::Recovery => self.attempts.backoff = Some(delay),
            WaitWhy::Paused | WaitWhy::RateLimit | WaitWhy::Error | WaitWhy::Delay | WaitWhy::Asleep => {}
        }
        let was = std::mem::replace(&mut self.doing, Doing::Waiting { why, delay, until });
        match (why, was) {
            (WaitWhy::Paused, Doing::Waiting { why, delay, until: Some(until) }) => {
                self.put_off = Some((why, delay, until));
            }
            // A pause that continues after a resume keeps the wait that it interrupted.
            (WaitWhy::Paused, _) => {}
            _ => self.put_off = None,
        }
    }

    pub(super) fn wait_over(&mut self, by: WaitEndedBy) {
        let was = std::mem::replace(&mut self.doing, Doing::Nothing);
        self.put_off = None;
        if matches!(was, Doing::Waiting { why: WaitWhy::Paused, .. }) {
            // A wake does not lift a pause, and lifting a pause does not discard the wake.
            return;
        }
        if by == WaitEndedBy::Path && self.wake == Some(by) {
            self.idle_streak.own_wakes = (self.idle_streak.own_wakes + 1).min(MAX_OWN_WAKES);
        }
        self.wake = None;
    }
}
