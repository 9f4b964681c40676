//! The view of a node, and the fold of its events into it.

use super::{Counts, Doing, LastSeen, Used};
use crate::learn::History;
use crate::record::artifacts::Artifacts;
use crate::record::calls::OpenCalls;
use crate::record::event::{
    EndedBy, InputDigest, IterationEnd, NodeState, Observation, Report, ReportKind, SessionEnded, Usage,
    WaitEndedBy, WaitWhy,
};
use crate::record::ids::{Iteration, NodeName};
use crate::record::prices::TokenCounts;
use crate::run::attempts::{Attempts, Recoveries, Stopped};
use crate::run::circuit::Failures;
use crate::run::ending::Ending;
use crate::run::idle::{IdleStreak, MAX_OWN_WAKES};
use crate::run::job::Conflict;
use crate::settings::AttemptPolicy;
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Boot, Moment, Wall};
use crate::time::watched::WatchedTime;
use crate::watch::health::Health;
use crate::watch::sign::LimitKind;
use crate::watch::{Channel, Evidence, Fact, StopReason};

/// The state of a node, folded from the run's events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// The node's name.
    pub name: NodeName,
    /// The node's state.
    pub state: NodeState,
    /// Why the node is in that state.
    pub reason: Option<String>,
    /// The number of the latest iteration.
    pub iteration: Iteration,
    /// The iteration counts.
    pub counts: Counts,
    /// The current activity.
    pub doing: Doing,
    /// The current iteration.
    pub current: CurrentIteration,
    /// The last iteration and the last session.
    pub last: LastIteration,
    /// The agent and the state of its session.
    pub session: SessionView,
    /// The usage of the node's sessions.
    pub usage: NodeUsage,
    /// How long the node has been running.
    pub time: NodeTime,
    /// The wakes and the interrupted wait.
    pub waits: NodeWaits,
    /// The recent failures.
    pub failures: Failures,
    /// The current idle streak.
    pub idle_streak: IdleStreak,
    /// The number of consecutive refusals of a service without a reset time.
    pub refusals: u32,
    /// The learned arrival times of work, with `idle.strategy: learned`.
    pub learned: Option<Box<History>>,
    /// The attempts that the checks have judged.
    pub attempts: Attempts,
    /// Which of them are charged.
    pub attempt_policy: AttemptPolicy,
    /// The hard stops and the recovery from them.
    pub recovery: Recoveries,
    /// The results of the node's work: its worktree, its snapshot and the saved files.
    pub work: NodeWork,
}

/// The current iteration of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurrentIteration {
    /// When the iteration started. `None` if no iteration is open.
    pub started: Option<Awake>,
    /// The digest of the agent's input.
    pub input_digest: Option<InputDigest>,
    /// The last progress report of the agent.
    pub reported: Option<Report>,
    /// How long the session lasted, once it has ended.
    pub(super) session: Dur,
    /// How long the iteration had lasted when its supervisor was lost.
    pub lost_after: Option<Dur>,
}

impl CurrentIteration {
    /// Returns when the iteration started, unless its session has ended.
    pub fn before_session(&self) -> Option<Awake> {
        self.started.filter(|_| self.session == Dur::ZERO)
    }
}

/// The end of a node's last iteration and of its last session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastIteration {
    /// The last session that ended.
    pub session: Option<SessionEnded>,
    /// The end of the last iteration.
    pub end: Option<IterationEnd>,
    /// The kind of that end.
    pub ending: Option<Ending>,
}

/// The agent of a node and the state of its session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionView {
    /// The index of the agent in the chain that worked last.
    pub agent: u32,
    /// Whether the reader understands the agent's output, so that messages can be distinguished from work.
    pub(super) structured: bool,
    /// The health of the current session.
    pub health: Health,
    /// The tool calls of the current session that have not ended.
    pub calls: OpenCalls,
    /// The most recent evidence of any session.
    pub last_seen: Option<LastSeen>,
}

/// The usage of a node's sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUsage {
    /// The usage of all sessions that ended.
    pub ended: Used,
    /// The usage of the current session so far.
    pub current: Usage,
    /// The id of the agent's own latest session, and the usage already counted for it. Several dogwatch sessions may
    /// continue the same session of the agent.
    pub(super) charged: (Option<String>, Used),
    /// The tokens by kind that were counted for it.
    pub(super) charged_counts: TokenCounts,
}

/// How long a node has been running.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeTime {
    /// How long the node was running before the current stretch.
    pub(super) before: Dur,
    /// When the current stretch of running started.
    pub(super) running_since: Option<Boot>,
    /// How long the node has been running for its ceiling.
    pub watched: WatchedTime,
}

/// What remains of wakes and pauses for the next wait of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeWaits {
    /// The wait that a pause interrupted: its reason, length and end.
    pub put_off: Option<(WaitWhy, Dur, Wall)>,
    /// A wake that arrived while the node was not waiting.
    pub wake: Option<WaitEndedBy>,
    /// Why the current wait is as long as it is.
    pub because: Option<String>,
}

/// The results of a node's work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeWork {
    /// The path and the branch of the node's own worktree.
    pub worktree: Option<(String, String)>,
    /// Whether this supervisor has seen the worktree. It may have been removed while the run had no supervisor.
    pub worktree_found: bool,
    /// The number of setup commands that have succeeded in it.
    pub set_up: usize,
    /// The conflicts with which the node started.
    pub conflicts: Vec<Conflict>,
    /// The commit that has all the work of a finished node.
    pub commit: Option<String>,
    /// The git ref of the last snapshot.
    pub snapshot: Option<String>,
    /// The iteration of that snapshot.
    pub snapshot_of: Option<Iteration>,
    /// The files that agents saved.
    pub artifacts: Artifacts,
}

impl NodeView {
    pub(super) fn new(name: &NodeName) -> NodeView {
        NodeView { name: name.clone(), ..NodeView::default() }
    }

    /// Returns the usage of all sessions, including the current one.
    pub fn spent(&self) -> Used {
        Used {
            tokens: self.usage.ended.tokens + self.usage.current.tokens.unwrap_or(0),
            cost_usd: self.usage.ended.cost_usd + self.usage.current.cost_usd.unwrap_or(0.0),
            computed_usd: self.usage.ended.computed_usd + self.usage.current.computed(),
            ..self.usage.ended
        }
    }

    /// Returns the usage already counted for the agent's own session with this id.
    pub fn charged(&self, session: &str) -> Usage {
        match &self.usage.charged {
            (Some(name), used) if name == session => Usage {
                tokens: Some(used.tokens),
                cost_usd: Some(used.cost_usd),
                counts: Some(self.usage.charged_counts),
                cost_source: None,
            },
            _ => Usage::default(),
        }
    }

    /// Returns how long the node has been running, up to `now`, without the time it was not supervised.
    pub fn lasted(&self, now: Boot) -> Dur {
        self.time.before.saturating_add(self.time.running_since.map_or(Dur::ZERO, |since| now.since(since)))
    }

    pub(super) fn change(&mut self, at: Moment, to: NodeState, reason: &Option<String>) {
        if to == NodeState::Running {
            self.time.running_since = Some(at.boot);
            self.time.watched.start(at.awake);
        } else {
            self.time.before = self.lasted(at.boot);
            self.time.running_since = None;
            self.time.watched.stop(at.awake);
        }
        (self.state, self.reason) = (to, reason.clone());
    }

    /// Notes progress for the recovery: a hard stop after real work does not count as a repetition of the last one. For a
    /// structured agent, messages on stdout alone are not work.
    pub(super) fn note_progress(&mut self, channel: Channel) {
        if channel != Channel::Stdout || !self.session.structured {
            self.recovery.progressed();
        }
    }

    pub(super) fn begin(&mut self, at: Awake, iteration: Iteration) {
        self.iteration = iteration;
        self.current = CurrentIteration { started: Some(at), ..CurrentIteration::default() };
        // The iteration sees every change that happened before it started.
        self.waits = NodeWaits::default();
        self.doing = Doing::Preparing;
        self.attempts.just_failed = false;
        self.work.commit = None;
    }

    pub(super) fn session_started(&mut self, at: Awake, pid: u32, agent: u32) {
        self.doing = Doing::Working { pid, since: at, messages: 0, last_output: None };
        self.session.health = Health::default();
        self.session.calls.clear();
        self.session.agent = agent;
        self.recovery.due = None;
        // The agent sees every change that happened before it started.
        self.waits.wake = None;
    }

    /// Notes a fact of the session. The start or end of a tool call is progress; a heartbeat is not.
    pub(super) fn note_fact(&mut self, at: Moment, fact: &Fact) {
        if !fact.is_call() {
            return;
        }
        let mut succeeded = false;
        if let Fact::ToolStarted(tool) = fact {
            self.session.calls.start(at.awake, tool);
        } else if let Fact::ToolEnded { id, ok, .. } = fact {
            self.session.calls.end(id);
            succeeded = *ok;
        }
        self.observe(at, &Observation::single(Channel::Stdout, at.awake));
        if succeeded {
            self.recovery.progressed();
        }
    }

    pub(super) fn report(&mut self, iteration: Iteration, report: &Report) {
        match report.kind {
            ReportKind::Progress => self.current.reported = Some(report.clone()),
            ReportKind::Artifact => {
                self.work.artifacts.add(iteration, &report.text, report.bytes.unwrap_or(0))
            }
            ReportKind::State | ReportKind::Error | ReportKind::Checks | ReportKind::Server => {}
        }
    }

    pub(super) fn hard_stop(
        &mut self,
        iteration: Iteration,
        reason: StopReason,
        message: &str,
        evidence: &[Evidence],
    ) {
        let silent = matches!(reason, StopReason::NoOutputAtStart | StopReason::NoOutputDeadline);
        let refused = self.session.health.refused().filter(|_| silent);
        let (message, evidence) = (message.to_owned(), evidence.to_vec());
        self.recovery.stopped(Stopped { iteration, reason, message, evidence, refused });
    }

    pub(super) fn checks_started(&mut self) {
        self.doing = Doing::Checking;
        self.attempts.tampered.clear();
    }

    pub(super) fn observe(&mut self, at: Moment, seen: &Observation) {
        self.note_progress(seen.channel);
        // The event is recorded a little later than the progress was seen.
        let late = at.awake.since(seen.last_ms).as_millis();
        self.session.last_seen =
            Some(LastSeen { channel: seen.channel, at: Wall(at.wall.0.saturating_sub_unsigned(late)) });
        self.session.health.observed(seen);
        if let Doing::Working { messages, last_output, .. } = &mut self.doing {
            *messages = messages.saturating_add(seen.messages);
            *last_output = (*last_output).max(Some(seen.last_ms));
        }
    }

    pub(super) fn session_over(&mut self, s: &SessionEnded) {
        self.current.session = s.duration_s;
        self.usage.ended.add(s);
        self.usage.current = Usage::default();
        if self.usage.charged.0 != s.session {
            self.usage.charged = (s.session.clone(), Used::default());
            self.usage.charged_counts = TokenCounts::default();
        }
        self.usage.charged_counts = self.usage.charged_counts.plus(s.counts.unwrap_or_default());
        self.usage.charged.1.add(s);
        self.session.health = Health::default();
        self.session.calls.clear();
        self.last.session = Some(s.clone());
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
        self.idle_streak.skipped = skipped;
        if !skipped {
            self.idle_streak.input_digest = self.current.input_digest.take();
        }
        self.over(end, Ending::Idle { reason: reason.to_owned(), skipped });
    }

    pub(super) fn failed(&mut self, at: Boot, end: &IterationEnd, ending: Ending) {
        self.counts.iterations += 1;
        self.counts.failed += 1;
        self.failures.add(at, end.fingerprint.as_deref().unwrap_or(""), self.current.session);
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

    pub(super) fn interrupted(&mut self, end: &IterationEnd) {
        self.counts.interrupted += 1;
        self.over(end, Ending::Interrupted { by: EndedBy::Operator });
    }

    fn over(&mut self, end: &IterationEnd, ending: Ending) {
        if !matches!(ending, Ending::Interrupted { .. }) {
            self.refusals = 0;
        }
        self.doing = Doing::Nothing;
        self.current.started = None;
        self.last.end = Some(end.clone());
        self.last.ending = Some(ending);
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
                self.waits.put_off = Some((why, delay, until));
            }
            // A pause that continues after a resume keeps the wait that it interrupted.
            (WaitWhy::Paused, _) => {}
            _ => self.waits.put_off = None,
        }
    }

    pub(super) fn wait_over(&mut self, by: WaitEndedBy) {
        let was = std::mem::replace(&mut self.doing, Doing::Nothing);
        (self.waits.put_off, self.waits.because) = (None, None);
        if matches!(was, Doing::Waiting { why: WaitWhy::Paused, .. }) {
            // A wake does not lift a pause, and lifting a pause does not discard the wake.
            return;
        }
        if by == WaitEndedBy::Path && self.waits.wake == Some(by) {
            self.idle_streak.own_wakes = (self.idle_streak.own_wakes + 1).min(MAX_OWN_WAKES);
        }
        self.waits.wake = None;
    }
}

impl NodeWork {
    /// Notes that the worktree is ready. In a new one, nothing is set up.
    pub(super) fn arranged(&mut self, path: &str, branch: &str, reused: bool) {
        (self.worktree, self.worktree_found) = (Some((path.to_owned(), branch.to_owned())), true);
        if !reused {
            self.set_up = 0;
        }
    }
}
