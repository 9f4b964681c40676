//! What a run is at, for people and programs: the view, with ages computed at the moment it is read.
//!
//! `Status` is dogwatch's own shape (docs/reference/status.md); `OrchestratorStatus` is the same in the words of an
//! orchestrator that ticks. Both only ever gain fields.

use crate::record::event::{NodeState, Outcome, RunEnded, WaitWhy};
use crate::record::ids::{Iteration, NodeName, RunId};
use crate::record::view::{Counts, Doing, NodeView, Used, View};
use crate::settings::{NO_PENDING_TASKS, Settings, StopAfter};
use crate::time::dur::Dur;
use crate::time::moment::{Moment, Wall};
use crate::watch::Channel;
use serde::{Deserialize, Serialize};

/// A run as it stands. What is not known is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    pub run: Option<RunId>,
    /// The loop file.
    pub path: Option<String>,
    pub work_dir: Option<String>,
    pub state: State,
    /// Whether a dogwatch supervises it now.
    pub live: bool,
    /// A pause was asked for; an iteration that had begun goes on all the same.
    pub paused: bool,
    /// What people said that no prompt has carried yet.
    pub told: Vec<String>,
    pub nodes: Vec<NodeStatus>,
    /// Over all nodes.
    pub counts: CountsStatus,
    /// The last sign of work of any node.
    #[serde(default)]
    pub last_evidence: Option<SeenStatus>,
    /// What the sessions have used.
    #[serde(default)]
    pub spent: SpentStatus,
    pub troubles: Troubles,
    pub ended: Option<Ended>,
    pub started_at: Option<Wall>,
    /// Time with a supervisor, suspends included.
    pub supervised_s: Dur,
    pub last_event: Option<LastEvent>,
}

/// A run's state in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Between two things, or about to begin.
    Starting,
    Preparing,
    Working,
    /// An agent asks for something that only a person can give.
    NeedsHuman,
    /// The user's checks run.
    Checking,
    Waiting,
    Paused,
    /// An idle limit stopped it; its dogwatch waits to be woken (`idle.after_stop: watch`).
    Asleep,
    Ended,
    /// It did not end, and nobody supervises it: resume it.
    Lost,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Preparing => "preparing",
            State::Working => "working",
            State::NeedsHuman => "needs_human",
            State::Checking => "checking",
            State::Waiting => "waiting",
            State::Paused => "paused",
            State::Asleep => "asleep",
            State::Ended => "ended",
            State::Lost => "lost",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeStatus {
    pub name: NodeName,
    pub state: NodeState,
    /// Why it is in that state, where there is more to say.
    #[serde(default)]
    pub reason: Option<String>,
    /// The last number given to an iteration.
    pub iteration: Iteration,
    pub doing: DoingStatus,
    pub counts: CountsStatus,
    /// The row of idle iterations it is in, if it is in one.
    pub spell: Option<SpellStatus>,
    pub failures_in_row: u32,
    /// Why the last iteration counted as what it counted.
    pub last_end: Option<String>,
    /// Attempts that the checks have judged, and which checks failed last.
    #[serde(default)]
    pub attempts: AttemptsStatus,
    /// Hard stops since the last completed iteration.
    #[serde(default)]
    pub recoveries: u32,
    /// Its own worktree, if it has one.
    #[serde(default)]
    pub worktree: Option<String>,
}

/// What the checks have said so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptsStatus {
    pub count: u64,
    pub failed: u64,
    pub converged: bool,
    /// The commands that failed last, with their exit codes.
    pub failing: Vec<FailingStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailingStatus {
    pub cmd: String,
    pub rc: i32,
}

/// What a node is at. Ages count to the moment of reading; in a run that nobody supervises they are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum DoingStatus {
    Nothing,
    Preparing,
    Checking,
    Working {
        pid: u32,
        /// How long the session has lasted, suspends left out.
        working_s: Option<Dur>,
        messages: u64,
        last_evidence: Option<LastEvidence>,
        /// It asks for something that only a person can give.
        #[serde(default)]
        needs_human: Option<NeedsHuman>,
        /// Its CLI tries a request again, and there has been no progress since.
        #[serde(default)]
        retrying: Option<RetryingStatus>,
        /// Most of its lines are unknown; they count as bytes do.
        #[serde(default)]
        drifted: bool,
    },
    Waiting {
        why: WaitWhy,
        delay_s: Option<Dur>,
        until: Option<Wall>,
        left_s: Option<Dur>,
    },
}

/// A sign of work: of which node, on which channel, when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeenStatus {
    pub node: NodeName,
    pub channel: Channel,
    pub at: Wall,
}

/// Tokens and money. Sessions that did not say are counted, never taken for zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpentStatus {
    pub tokens: u64,
    pub cost_usd: f64,
    pub unknown_tokens: u64,
    pub unknown_cost: u64,
}

/// What a person is asked for, and until when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NeedsHuman {
    pub what: String,
    /// It is ended then; null is never.
    pub until: Option<Wall>,
    pub left_s: Option<Dur>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetryingStatus {
    pub since_s: Option<Dur>,
    /// What the service answered, if the agent says so.
    pub status: Option<u16>,
    /// Until the next try, as it was told.
    pub delay_s: Option<Dur>,
}

/// The last sign of work in this session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastEvidence {
    pub age_s: Option<Dur>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountsStatus {
    /// Those that count against `-n` and the budget.
    pub iterations: u64,
    /// Idle ones included.
    pub completed: u64,
    pub idle: u64,
    pub failed: u64,
    pub timed_out: u64,
    pub interrupted: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpellStatus {
    pub count: u64,
    /// The last iteration's reason, and how many in a row gave it.
    pub reason: String,
    pub same_reason: u64,
    pub lasted_s: Dur,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Troubles {
    pub count: u64,
    pub last: Option<Trouble>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trouble {
    pub kind: String,
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ended {
    pub outcome: Outcome,
    pub reason: String,
    pub exit_code: u8,
    /// Whether checks have proved it.
    #[serde(default)]
    pub verified: bool,
    /// Nodes that converged after a failed attempt.
    #[serde(default)]
    pub flake_retries: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastEvent {
    pub seq: u64,
    pub at: Wall,
}

impl Status {
    /// `now` is the present moment if somebody supervises the run now, and `None` if nobody does: then
    /// nothing grows older, and its clocks may be those of another boot.
    pub fn of(view: &View, now: Option<Moment>) -> Status {
        let started = view.started.as_ref();
        let counted_to = now.unwrap_or(view.last).boot;
        Status {
            run: started.map(|s| s.run.clone()),
            path: started.map(|s| s.path.clone()),
            work_dir: started.map(|s| s.work_dir.clone()),
            state: state(view, now.is_some()),
            live: now.is_some(),
            paused: view.paused,
            told: view.told.clone(),
            nodes: view.nodes.iter().map(|n| NodeStatus::of(n, view, now)).collect(),
            counts: view.totals().into(),
            last_evidence: last_evidence(view),
            spent: view.spent().into(),
            troubles: troubles(view),
            ended: view.ended.as_ref().map(Ended::from),
            started_at: started.map(|_| view.began.wall),
            supervised_s: started.map_or(Dur::ZERO, |_| view.supervised(counted_to)),
            last_event: (view.seq > 0).then_some(LastEvent { seq: view.seq, at: view.last.wall }),
        }
    }
}

fn state(view: &View, live: bool) -> State {
    if view.is_over() {
        return State::Ended;
    }
    if !live {
        return State::Lost;
    }
    // Of several nodes the busiest speaks for the run.
    view.nodes.iter().map(state_of).max_by_key(|s| rank(*s)).unwrap_or(State::Starting)
}

fn state_of(node: &NodeView) -> State {
    match &node.doing {
        Doing::Nothing => State::Starting,
        Doing::Preparing => State::Preparing,
        Doing::Working { .. } if node.condition.asking.is_some() => State::NeedsHuman,
        Doing::Working { .. } => State::Working,
        Doing::Checking => State::Checking,
        Doing::Waiting { why: WaitWhy::Paused, .. } => State::Paused,
        Doing::Waiting { why: WaitWhy::Asleep, .. } => State::Asleep,
        Doing::Waiting { .. } => State::Waiting,
    }
}

fn rank(state: State) -> u8 {
    match state {
        State::Ended | State::Lost => 0,
        State::Starting => 1,
        State::Paused | State::Asleep => 2,
        State::Waiting => 3,
        State::Preparing => 4,
        State::Checking => 5,
        State::Working => 6,
        // A person must hear of it, however many others work.
        State::NeedsHuman => 7,
    }
}

fn last_evidence(view: &View) -> Option<SeenStatus> {
    let seen = view.nodes.iter().filter_map(|n| Some((n.last_seen?, &n.name)));
    seen.max_by_key(|(seen, _)| seen.at).map(|(seen, node)| SeenStatus {
        node: node.clone(),
        channel: seen.channel,
        at: seen.at,
    })
}

fn troubles(view: &View) -> Troubles {
    let last = view.last_trouble.clone().map(|(kind, detail)| Trouble { kind, detail });
    Troubles { count: view.troubles, last }
}

impl NodeStatus {
    fn of(node: &NodeView, view: &View, now: Option<Moment>) -> NodeStatus {
        let spell = &node.spell;
        NodeStatus {
            name: node.name.clone(),
            state: node.state,
            reason: node.reason.clone(),
            iteration: node.iteration,
            doing: DoingStatus::of(node, now),
            counts: node.counts.into(),
            spell: (spell.count > 0).then(|| SpellStatus {
                count: spell.count,
                reason: spell.reason.clone(),
                same_reason: spell.same_reason,
                lasted_s: spell.lasted(now.unwrap_or(view.last).boot),
            }),
            failures_in_row: node.failures.in_row,
            last_end: node.last_end.as_ref().map(|end| end.because.clone()),
            attempts: AttemptsStatus {
                count: node.attempts.count,
                failed: node.attempts.failed,
                converged: node.attempts.converged,
                failing: node
                    .attempts
                    .failing()
                    .map(|r| FailingStatus { cmd: r.cmd.clone(), rc: r.rc })
                    .collect(),
            },
            recoveries: node.recovery.used,
            worktree: node.worktree.as_ref().map(|(path, _)| path.clone()),
        }
    }
}

impl DoingStatus {
    fn of(node: &NodeView, now: Option<Moment>) -> DoingStatus {
        let condition = &node.condition;
        match &node.doing {
            Doing::Nothing => DoingStatus::Nothing,
            Doing::Preparing => DoingStatus::Preparing,
            Doing::Checking => DoingStatus::Checking,
            Doing::Working { pid, since, messages, last_output } => DoingStatus::Working {
                pid: *pid,
                working_s: now.map(|now| now.awake.since(*since)),
                messages: *messages,
                last_evidence: last_output
                    .map(|at| LastEvidence { age_s: now.map(|now| now.awake.since(at)) }),
                needs_human: condition.asking.as_ref().map(|asking| NeedsHuman {
                    what: asking.what.clone(),
                    until: asking.until,
                    left_s: asking.until.and_then(|until| left(until, now)),
                }),
                retrying: condition.retrying.map(|retrying| RetryingStatus {
                    since_s: now.map(|now| now.awake.since(retrying.since)),
                    status: retrying.status,
                    delay_s: retrying.delay,
                }),
                drifted: condition.drifted,
            },
            Doing::Waiting { why, delay, until } => DoingStatus::waiting(*why, *delay, *until, now),
        }
    }

    /// A pause has neither a length nor an end.
    fn waiting(why: WaitWhy, delay: Dur, until: Option<Wall>, now: Option<Moment>) -> DoingStatus {
        let until = until.filter(|_| why != WaitWhy::Paused);
        let left_s = until.and_then(|until| left(until, now));
        DoingStatus::Waiting { why, delay_s: until.map(|_| delay), until, left_s }
    }
}

fn left(until: Wall, now: Option<Moment>) -> Option<Dur> {
    let now = now?.wall;
    Some(Dur::from_millis(u64::try_from(until.0.saturating_sub(now.0)).unwrap_or(0)))
}

impl From<Counts> for CountsStatus {
    fn from(c: Counts) -> CountsStatus {
        CountsStatus {
            iterations: c.iterations,
            completed: c.completed,
            idle: c.idle,
            failed: c.failed,
            timed_out: c.timed_out,
            interrupted: c.interrupted,
        }
    }
}

impl From<Used> for SpentStatus {
    fn from(used: Used) -> SpentStatus {
        let Used { tokens, cost_usd, unknown_tokens, unknown_cost } = used;
        SpentStatus { tokens, cost_usd, unknown_tokens, unknown_cost }
    }
}

impl From<&RunEnded> for Ended {
    fn from(end: &RunEnded) -> Ended {
        Ended {
            outcome: end.outcome,
            reason: end.reason.clone(),
            exit_code: end.exit_code,
            verified: end.verified,
            flake_retries: end.flake_retries,
        }
    }
}

/// The status of an orchestrator that ticks: an iteration is a tick, times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OrchestratorStatus {
    pub running: bool,
    pub tick_count: u64,
    /// Failed and timed-out iterations.
    pub error_count: u64,
    /// Failures since the last success that lie within the error window.
    pub recent_errors: u64,
    pub consecutive_idle_ticks: u64,
    pub current_tick_interval: Option<u64>,
    pub last_idle_reason: Option<String>,
    pub config: OrchestratorConfig,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OrchestratorConfig {
    pub dry_run: bool,
    pub tick_interval: Option<u64>,
    /// After how many idle ticks without pending tasks it stops; null is never.
    pub max_idle_ticks_before_stop: Option<u32>,
    pub max_errors: Option<u32>,
    pub error_window: Option<u64>,
    pub enable_telemetry: bool,
}

impl OrchestratorStatus {
    /// `now` as for [`Status::of`]. Of several nodes the counts are summed, the rest is of the busiest.
    pub fn of(view: &View, now: Option<Moment>) -> OrchestratorStatus {
        let totals = view.totals();
        let (node, settings) = busiest(view);
        let at = now.unwrap_or(view.last).boot;
        let config = settings.map(OrchestratorConfig::of).unwrap_or_default();
        OrchestratorStatus {
            running: now.is_some() && !view.is_over() && !view.is_asleep(),
            tick_count: totals.iterations,
            error_count: totals.failed + totals.timed_out,
            recent_errors: match (node, settings) {
                (Some(node), Some(settings)) => node.failures.within(settings.errors.window, at),
                (None, _) | (_, None) => 0,
            },
            consecutive_idle_ticks: node.map_or(0, |n| n.spell.count),
            current_tick_interval: node.and_then(idle_wait).or(config.tick_interval),
            last_idle_reason: node.filter(|n| n.spell.count > 0).map(|n| n.spell.reason.clone()),
            config: OrchestratorConfig { enable_telemetry: true, ..config },
        }
    }
}

fn busiest(view: &View) -> (Option<&NodeView>, Option<&Settings>) {
    // The first of equals: `max_by_key` would take the last.
    let Some(node) = view.nodes.iter().rev().max_by_key(|n| rank(state_of(n))) else {
        return (None, None);
    };
    let plan = view.started.as_ref().map(|s| &s.settings);
    let plan = plan.and_then(|p| p.nodes.iter().find(|n| n.name == node.name));
    (Some(node), plan.map(|n| &n.settings))
}

/// The last wait of the spell, if there was one.
fn idle_wait(node: &NodeView) -> Option<u64> {
    let wait = node.spell.last_delay.as_millis();
    (node.spell.count > 0 && wait > 0).then_some(wait)
}

impl OrchestratorConfig {
    fn of(settings: &Settings) -> OrchestratorConfig {
        let interval = settings.idle.as_ref().map_or(settings.delay, |idle| idle.delay);
        OrchestratorConfig {
            dry_run: false,
            tick_interval: Some(interval.as_millis()),
            max_idle_ticks_before_stop: settings.idle.as_ref().and_then(|idle| stop_after(&idle.stop_after)),
            max_errors: Some(settings.errors.max),
            error_window: Some(settings.errors.window.as_millis()),
            enable_telemetry: true,
        }
    }
}

fn stop_after(limit: &StopAfter) -> Option<u32> {
    match limit {
        StopAfter::Never => None,
        StopAfter::Count(n) => Some(*n),
        StopAfter::PerReason(limits) => limits.iter().find(|(r, _)| r == NO_PENDING_TASKS).map(|(_, n)| *n),
    }
}
