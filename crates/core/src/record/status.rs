//! The status of a run for people and programs: the view, with ages computed when it is read.
//!
//! `Status` is dogwatch's own format (docs/reference/status.md); `OrchestratorStatus` is the same in the terms of an orchestrator
//! that ticks. New versions only add fields to both.

use crate::learn::{Forecast, Now};
use crate::record::calls::CallStatus;
use crate::record::event::words;
use crate::record::event::{NodeState, Outcome, RunEnded, WaitWhy};
use crate::record::ids::{Iteration, NodeName, RunId};
use crate::record::view::{Counts, Doing, NodeView, Used, View};
use crate::time::dur::Dur;
use crate::time::moment::{Moment, Wall};
use crate::watch::Channel;
pub use orchestrator::{OrchestratorConfig, OrchestratorStatus};
use serde::{Deserialize, Serialize};
pub use windows::WindowStatus;

mod orchestrator;
mod windows;

/// The status of a run. Unknown values are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The run's id.
    pub run: Option<RunId>,
    /// The path of the loop file.
    pub path: Option<String>,
    /// The directory in which sessions run.
    pub work_dir: Option<String>,
    /// The state of the run in one word.
    pub state: State,
    /// Whether a dogwatch process supervises the run now.
    pub live: bool,
    /// Whether the run is paused. An iteration that has already started continues.
    pub paused: bool,
    /// Whether the run stops after the current iteration, on request.
    #[serde(default)]
    pub stopping: bool,
    /// Operator messages that no prompt has contained yet.
    #[serde(rename = "told")]
    pub pending_messages: Vec<String>,
    /// The status of each node.
    pub nodes: Vec<NodeStatus>,
    /// The iteration counts of all nodes together.
    pub counts: Counts,
    /// The number of iterations that were open when the supervisor was lost. 0 unless the state is `lost`.
    #[serde(default)]
    pub unfinished: u64,
    /// The most recent evidence of any node.
    #[serde(default)]
    pub last_evidence: Option<SeenStatus>,
    /// The tokens and the cost of all sessions.
    #[serde(default)]
    pub spent: Used,
    /// The date of the price table that costs were computed with. Absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// The subscription windows of the accounts that the run's agents use: those that were reported, and those with a
    /// limit in `budget.window`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowStatus>,
    /// Until when the operator's limit keeps the run from calling an agent, if one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_until: Option<Wall>,
    /// The problems recorded so far.
    pub troubles: Troubles,
    /// How the run ended, if it did.
    pub ended: Option<Ended>,
    /// When the run started.
    pub started_at: Option<Wall>,
    /// How long the run was supervised, in seconds, including suspends.
    pub supervised_s: Dur,
    /// The last event in the record.
    pub last_event: Option<LastEvent>,
    /// Why the record may not be as dogwatch wrote it: it was changed, or it cannot be compared with its head.
    #[serde(default)]
    pub record_problem: Option<String>,
}

words! {
    /// The state of a run in one word.
    State {
        /// The run is about to start, or between two steps.
        Starting = "starting",
        /// The commands run, or the prompt is assembled.
        Preparing = "preparing",
        /// An agent works.
        Working = "working",
        /// An agent asks for something that only a person can give.
        NeedsHuman = "needs_human",
        /// The checks run.
        Checking = "checking",
        /// The run waits before the next iteration.
        Waiting = "waiting",
        /// The operator paused the run.
        Paused = "paused",
        /// An idle limit stopped the loop, and dogwatch waits for a wake (`idle.after_stop: watch`).
        Asleep = "asleep",
        /// The run ended.
        Ended = "ended",
        /// The run did not end, but no process supervises it. It can be resumed.
        Lost = "lost",
    }
}

/// The status of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeStatus {
    /// The node's name.
    pub name: NodeName,
    /// The node's state.
    pub state: NodeState,
    /// Why it is in that state, if there is more to say.
    #[serde(default)]
    pub reason: Option<String>,
    /// The number of the latest iteration.
    pub iteration: Iteration,
    /// The node's current activity.
    pub doing: DoingStatus,
    /// The node's iteration counts.
    pub counts: Counts,
    /// The current idle streak, if there is one.
    #[serde(rename = "spell")]
    pub idle_streak: Option<IdleStreakStatus>,
    /// The number of consecutive failures.
    pub failures_in_row: u32,
    /// Why the last iteration ended the way it did.
    pub last_end: Option<String>,
    /// The attempts that the checks have judged, and the checks that failed last.
    #[serde(default)]
    pub attempts: AttemptsStatus,
    /// Hard stops since the last completed iteration.
    #[serde(default)]
    pub recoveries: u32,
    /// The path of the node's own worktree, if it has one.
    #[serde(default)]
    pub worktree: Option<String>,
    /// When work is expected and when the node looks for it, with `idle.strategy: learned`.
    #[serde(default)]
    pub forecast: Option<Forecast>,
}

/// The results of the checks so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptsStatus {
    /// The number of attempts that count.
    pub count: u64,
    /// How many of them failed.
    pub failed: u64,
    /// Whether all checks passed in the last attempt.
    pub converged: bool,
    /// The checks that failed in the last attempt, with their exit codes.
    pub failing: Vec<FailingStatus>,
}

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailingStatus {
    /// The command.
    pub cmd: String,
    /// Its exit code.
    pub rc: i32,
}

/// The current activity of a node. Ages are computed when the status is read. They are null for a run without a live
/// supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum DoingStatus {
    /// The node does nothing.
    Nothing,
    /// The commands run, or the prompt is assembled.
    Preparing,
    /// The checks run.
    Checking,
    /// The agent works.
    Working {
        /// The agent's process id.
        pid: u32,
        /// How long the session has lasted, in seconds, without suspends.
        working_s: Option<Dur>,
        /// The number of messages so far.
        messages: u64,
        /// The most recent evidence in this session.
        last_evidence: Option<LastEvidence>,
        /// Set while the agent asks for something that only a person can give.
        #[serde(default)]
        needs_human: Option<NeedsHuman>,
        /// Set while the agent's CLI retries a request and there has been no progress since.
        #[serde(default)]
        retrying: Option<RetryingStatus>,
        /// Whether the reader does not recognize most of the agent's lines.
        #[serde(default)]
        drifted: bool,
        /// The newest tool call that has not ended, or null.
        #[serde(default)]
        call: Option<CallStatus>,
    },
    /// The node waits.
    Waiting {
        /// Why it waits.
        why: WaitWhy,
        /// The length of the wait in seconds, or null if it has none.
        delay_s: Option<Dur>,
        /// When the wait ends, or null if it has no end.
        until: Option<Wall>,
        /// The remaining seconds, or null if the wait has no end.
        left_s: Option<Dur>,
        /// Why the wait is as long as it is, if there is more to say than its kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<String>,
    },
}

/// Evidence of work: on which node and channel, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeenStatus {
    /// The node's name.
    pub node: NodeName,
    /// The channel.
    pub channel: Channel,
    /// When it was seen.
    pub at: Wall,
}

/// The agent's question to a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NeedsHuman {
    /// The question in the agent's words.
    pub what: String,
    /// When the session is stopped if unanswered. Null means never.
    pub until: Option<Wall>,
    /// The remaining seconds, or null.
    pub left_s: Option<Dur>,
}

/// A request that the agent's CLI retries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetryingStatus {
    /// How long it has been retrying, in seconds.
    pub since_s: Option<Dur>,
    /// The HTTP status that the service returned, if the agent reports it.
    pub status: Option<u16>,
    /// The announced delay before the next try, in seconds.
    pub delay_s: Option<Dur>,
}

/// The most recent evidence in this session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastEvidence {
    /// Its age in seconds.
    pub age_s: Option<Dur>,
}

/// An idle streak: consecutive idle iterations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SpellStatus"))]
pub struct IdleStreakStatus {
    /// The number of idle iterations.
    pub count: u64,
    /// The reason of the last iteration.
    pub reason: String,
    /// How many of the last iterations gave this reason.
    pub same_reason: u64,
    /// How long the streak has lasted, in seconds.
    pub lasted_s: Dur,
}

/// The problems recorded so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Troubles {
    /// Their number.
    pub count: u64,
    /// The last one.
    pub last: Option<Trouble>,
}

/// A problem that did not end the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trouble {
    /// The kind of problem.
    pub kind: String,
    /// The details for people.
    pub detail: String,
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ended {
    /// The outcome.
    pub outcome: Outcome,
    /// The reason for people.
    pub reason: String,
    /// The exit code of dogwatch.
    pub exit_code: u8,
    /// Whether the checks of every node passed.
    #[serde(default)]
    pub verified: bool,
    /// The number of nodes that converged after a failed attempt.
    #[serde(default)]
    pub flake_retries: u64,
}

/// The last event in the record.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastEvent {
    /// Its number.
    pub seq: u64,
    /// When it was recorded.
    pub at: Wall,
}

impl Status {
    /// Returns the status of a run. `now` is the current moment if a process supervises the run, and `None` otherwise:
    /// without a supervisor ages do not grow, and the clocks in the record may be those of another boot.
    pub fn of(view: &View, now: Option<Moment>) -> Status {
        let started = view.started.as_ref();
        let counted_to = now.unwrap_or(view.supervised_last()).boot;
        let state = state(view, now.is_some());
        let is_lost = state == State::Lost;
        Status {
            run: started.map(|s| s.run.clone()),
            path: started.map(|s| s.path.clone()),
            work_dir: started.map(|s| s.work_dir.clone()),
            state,
            live: now.is_some(),
            paused: view.paused,
            stopping: view.stopping && now.is_some() && !view.is_over(),
            pending_messages: view.pending_messages.clone(),
            nodes: view.nodes.iter().map(|n| NodeStatus::of(n, view, now)).collect(),
            counts: view.totals(),
            unfinished: if is_lost { view.open_iterations() } else { 0 },
            last_evidence: last_evidence(view),
            spent: if is_lost { view.spent_when_lost() } else { view.spent() },
            prices: view.prices.clone(),
            windows: windows::of(view, now),
            limit_until: view.limit.filter(|until| *until > now.unwrap_or(view.last).wall),
            troubles: troubles(view),
            ended: view.ended.as_ref().map(Ended::from),
            started_at: started.map(|_| view.began.wall),
            supervised_s: started.map_or(Dur::ZERO, |_| view.supervised(counted_to)),
            last_event: (view.seq > 0).then_some(LastEvent { seq: view.seq, at: view.last.wall }),
            record_problem: None,
        }
    }

    /// Adds what is wrong with the record. The events themselves cannot show it.
    pub fn with_record_problem(self, problem: Option<String>) -> Status {
        Status { record_problem: problem, ..self }
    }
}

fn state(view: &View, live: bool) -> State {
    if view.is_over() {
        return State::Ended;
    }
    if !live {
        return State::Lost;
    }
    // The busiest node determines the state of the run.
    view.nodes.iter().map(state_of).max_by_key(|s| rank(*s)).unwrap_or(State::Starting)
}

fn state_of(node: &NodeView) -> State {
    match &node.doing {
        Doing::Nothing => State::Starting,
        Doing::Preparing => State::Preparing,
        Doing::Working { .. } if node.session.health.asking.is_some() => State::NeedsHuman,
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
        // The question must be visible even if other nodes work.
        State::NeedsHuman => 7,
    }
}

fn last_evidence(view: &View) -> Option<SeenStatus> {
    let seen = view.nodes.iter().filter_map(|n| Some((n.session.last_seen?, &n.name)));
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
        let idle_streak = &node.idle_streak;
        NodeStatus {
            name: node.name.clone(),
            state: node.state,
            reason: node.reason.clone(),
            iteration: node.iteration,
            doing: DoingStatus::of(node, view.place(node), now),
            counts: node.counts,
            idle_streak: (idle_streak.count > 0).then(|| IdleStreakStatus {
                count: idle_streak.count,
                reason: idle_streak.reason.clone(),
                same_reason: idle_streak.same_reason,
                lasted_s: idle_streak.lasted(now.unwrap_or(view.last).boot),
            }),
            failures_in_row: node.failures.in_row,
            last_end: node.last.end.as_ref().map(|end| end.because.clone()),
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
            worktree: node.work.worktree.as_ref().map(|(path, _)| path.clone()),
            forecast: forecast(node, view, now),
        }
    }
}

/// Returns the forecast of a node that learns. Without a supervisor nothing looks for work.
fn forecast(node: &NodeView, view: &View, now: Option<Moment>) -> Option<Forecast> {
    let history = node.learned.as_deref()?;
    let plans = &view.started.as_ref()?.settings.nodes;
    let policy = plans.iter().find(|plan| plan.name == node.name)?.settings.idle.as_ref()?;
    let at = now.unwrap_or(view.last);
    let until = if let Doing::Waiting { why: WaitWhy::Idle, until, .. } = node.doing { until } else { None };
    let point = Now {
        wall: at.wall,
        offset_ms: history.offset_ms(),
        age: node.idle_streak.lasted(at.boot),
        looks: node.idle_streak.count,
        until,
        skipped: node.idle_streak.skipped,
    };
    let mut forecast = Forecast::new(node.name.as_str(), history, policy, point);
    if now.is_none() {
        forecast.looks.clear();
        forecast.expected_at = None;
    }
    Some(forecast)
}

impl DoingStatus {
    fn of(node: &NodeView, work_dir: &str, now: Option<Moment>) -> DoingStatus {
        let health = &node.session.health;
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
                needs_human: health.asking.as_ref().map(|asking| NeedsHuman {
                    what: asking.what.clone(),
                    until: asking.until,
                    left_s: asking.until.and_then(|until| left(until, now)),
                }),
                retrying: health.retrying.map(|retrying| RetryingStatus {
                    since_s: now.map(|now| now.awake.since(retrying.since)),
                    status: retrying.status,
                    delay_s: retrying.delay,
                }),
                drifted: health.drifted,
                call: CallStatus::of(&node.session.calls, work_dir, now),
            },
            Doing::Waiting { why, delay, until } => {
                DoingStatus::waiting(*why, *delay, *until, node.waits.because.clone(), now)
            }
        }
    }

    /// Returns the status of a wait. A pause has neither a length nor an end.
    fn waiting(
        why: WaitWhy,
        delay: Dur,
        until: Option<Wall>,
        because: Option<String>,
        now: Option<Moment>,
    ) -> DoingStatus {
        let until = until.filter(|_| why != WaitWhy::Paused);
        let left_s = until.and_then(|until| left(until, now));
        DoingStatus::Waiting { why, delay_s: until.map(|_| delay), until, left_s, because }
    }
}

fn left(until: Wall, now: Option<Moment>) -> Option<Dur> {
    let now = now?.wall;
    Some(Dur::from_millis(u64::try_from(until.0.saturating_sub(now.0)).unwrap_or(0)))
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
