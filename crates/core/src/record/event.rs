//! The events of a run: numbered, in the past tense, and the only source of truth about it.
//!
//! Names and fields are a public interface (docs/reference/events.md): they are added to, never changed or removed. One line of
//! the journal holds one [`Recorded`]. The fields of the larger events are in `payload`, their words in `kinds`.

use crate::learn::LearnedState;
use crate::record::day::DayUse;
use crate::record::ids::{Iteration, NodeName};
use crate::record::notification::How;
use crate::record::windows::WindowsUsed;
use crate::run::caller::Source;
use crate::settings::{AfterStop, MergePolicy, Tampered};
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Boot, Moment, Wall};
use crate::watch::limits::Label;
use crate::watch::sign::LimitKind;
use crate::watch::{Channel, Evidence, Fact, StopReason};
use serde::{Deserialize, Serialize};

/// Defines an enum whose variants have the same word in the record and on the screen.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The words of all variants, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($word),+];

            /// Returns the variant with this word.
            pub fn named(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|variant| variant.as_str() == word)
            }

            /// Returns the word for this variant in the record and on the screen.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

mod durable;
mod kinds;
mod payload;
mod subject;

pub use kinds::{
    Cause, EndStep, EndedBy, EndingKind, HumanEndedBy, NodeState, Outcome, ReportKind, WaitEndedBy, WaitWhy,
};
pub use payload::{
    CheckResult, CommandFinished, InputDigest, IterationEnd, NodeAttempt, NodeCounts, Observation, Pin,
    RecoveryPlanned, Report, RunEnded, RunResumed, RunStarted, SessionEnded, SetupFinished, Usage,
};

/// The version of the journal's format.
pub const FORMAT: u32 = 1;

/// An event with its number and the time it was recorded, as one line of the journal. `dogwatch-codec` writes it as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The version of the journal's format: [`FORMAT`].
    pub v: u32,
    /// The number of the event: 1, 2, 3 … without a gap.
    pub seq: u64,
    /// The wall-clock time, in RFC 3339 with milliseconds, in UTC.
    pub at: Wall,
    /// The awake clock in milliseconds. It stops while the machine is suspended; sessions are measured by it.
    pub awake_ms: Awake,
    /// The boot clock in milliseconds. It includes suspends; waits are measured by it.
    pub boot_ms: Boot,
    /// The event itself. Its kind is the field `event`.
    pub event: Event,
}

impl Recorded {
    /// Creates the record of an event in the current format.
    pub fn new(seq: u64, at: Moment, event: Event) -> Recorded {
        Recorded { v: FORMAT, seq, at: at.wall, awake_ms: at.awake, boot_ms: at.boot, event }
    }

    /// Returns the time of the event on all three clocks.
    pub fn moment(&self) -> Moment {
        Moment { awake: self.awake_ms, boot: self.boot_ms, wall: self.at }
    }
}

/// The kind of the notice that the run stops after the current iteration.
pub const STOPPING: &str = "stopping";
/// The kind of the notice that the operator withdrew the request to stop.
pub const STOP_WITHDRAWN: &str = "stop_withdrawn";

/// Every kind of event, roughly in the order in which they occur in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run started. This is the first line of every journal.
    RunStarted(Box<RunStarted>),
    /// A new dogwatch process resumed a run whose supervisor was lost.
    RunResumed(RunResumed),
    /// A node changed its state.
    NodeTransition {
        /// The node's name.
        node: NodeName,
        /// The state before.
        from: NodeState,
        /// The state after.
        to: NodeState,
        /// Why the state changed, if there is more to say: for example the run's outcome.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
    },
    /// An iteration is about to start. The line is synced to disk before anything is started.
    IterationStarted {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// Why the iteration started.
        cause: Cause,
    },
    /// A command of the loop file finished, and no process that it started is left.
    CommandFinished(CommandFinished),
    /// The prompt is complete and saved in the record. The line is synced to disk before the session starts.
    PromptAssembled {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The length of the prompt in bytes.
        bytes: u64,
        /// The SHA-256 hash of the prompt, in hexadecimal.
        sha256: String,
        /// The digest of the agent's input. Present only if `idle.skip_unchanged` needs it.
        #[serde(skip_serializing_if = "Option::is_none", default, rename = "sight")]
        input_digest: Option<InputDigest>,
    },
    /// The agent's process started.
    SessionStarted {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The agent's process id, which is also its process group and session id.
        pid: u32,
        /// The command line as it was run, including the flags that dogwatch added, with secrets replaced.
        argv: Vec<String>,
        /// The agent's index in the chain of agents, from 0. Absent for the first agent.
        #[serde(skip_serializing_if = "is_first", default)]
        agent: u32,
        /// The id of the agent's own session that this session continues, if it continues one.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        resumes: Option<String>,
    },
    /// The agent made progress on a channel. After 5 s without progress the next piece is recorded at once; otherwise
    /// a channel is recorded at most every 5 s. `run --json` does not print this event.
    Observed {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The stretch of progress.
        #[serde(flatten)]
        seen: Observation,
    },
    /// The watchdog received a single fact. Facts are recorded so that a replay sees the same input.
    Fact {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The fact. Its kind is the field `fact`, which determines the other fields.
        #[serde(flatten)]
        fact: Fact,
    },
    /// The agent asked for something that only a person can give: an answer or a permission. Until `until` its silence
    /// does not count against it. Further questions while it waits are not recorded.
    NeedsHuman {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The question in the agent's words, at most 200 characters.
        what: String,
        /// When the session is stopped if no answer comes (`watchdog.human`). Null means never.
        until: Option<Wall>,
    },
    /// The agent no longer waits for a person.
    NeedsHumanEnded {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// What ended the wait.
        by: HumanEndedBy,
    },
    /// The agent's CLI retries a request to its service. This shows that the agent is alive but is not progress. It is
    /// recorded once until there is progress again.
    AgentRetrying {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The HTTP status that the service returned, if the agent reports it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        status: Option<u16>,
        /// The seconds until the next try, if the agent reports them.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        delay_s: Option<Dur>,
    },
    /// The reader does not recognize most of the agent's recent lines, most likely because the agent's output format
    /// changed. For the rest of the session every new line counts as progress. Recorded once per session.
    AgentDrifted {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
    },
    /// The session's token and cost totals changed.
    Used {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The totals of the session so far.
        #[serde(flatten)]
        usage: Usage,
    },
    /// The project's usage today, computed before a session starts. Recorded only if `budget.day` sets a limit and the
    /// totals changed.
    DayUsed(DayUse),
    /// The agent's service reported how much of its subscription windows is used. Recorded when a whole percentage or a
    /// reset time changes, and otherwise every ten minutes at most.
    WindowsUsed(WindowsUsed),
    /// The operator set a limit, which works like the limit of a service: no agent is called before it ends. An earlier
    /// limit is replaced.
    LimitSet {
        /// Until when. A time in the past lifts the limit.
        until: Wall,
        /// The account that it applies to. Absent if it applies to all agents.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        account: Option<String>,
    },
    /// Stdout was silent past its limit, but evidence on another channel kept the session alive.
    WatchdogContinue {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The channel whose evidence deferred the stop.
        deferred_by: Channel,
        /// The evidence on all four channels.
        evidence_summary: Vec<Evidence>,
        /// The channel with the most recent evidence, or null if there is none.
        active_channel: Option<Channel>,
    },
    /// The machine was suspended, or dogwatch could not run: it was stopped by a signal or got no CPU time for more
    /// than a second. The watchdog's clocks stopped for exactly that time.
    Suspended {
        /// How long, in seconds.
        for_s: Dur,
        /// Whether the machine was awake and only dogwatch could not run. Absent if false.
        #[serde(skip_serializing_if = "is_false", default)]
        unwatched: bool,
    },
    /// The agent's result contained a state marker. Recorded after `session_ended`.
    MarkerSeen {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The marker's name. Unknown names are recorded too.
        state: String,
        /// The marker's attributes as pairs of key and value, for example `reason`. Absent if there are none.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        attrs: Vec<(String, String)>,
    },
    /// The watchdog decided to stop the session. The line is synced to disk before the first signal.
    HardStop {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The rule that fired.
        reason: StopReason,
        /// The reason as a sentence for people, with the limit and the measured value.
        message: String,
        /// The evidence on all four channels.
        evidence_summary: Vec<Evidence>,
        /// The channel with the most recent evidence, or null if there is none.
        active_channel: Option<Channel>,
        /// Whether another attempt makes sense.
        recoverable: bool,
    },
    /// A person judged a stop of the watchdog with `dogwatch verdict`. This event may follow `run_ended`. The newest label of
    /// a stop counts.
    VerdictLabeled {
        /// The node's name.
        node: NodeName,
        /// The number of the stopped iteration.
        iteration: Iteration,
        /// Whether the stop was right.
        label: Label,
    },
    /// A signal is about to be sent to the session's process tree. The line is synced to disk before the signal.
    SessionSignalled {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The step of ending the tree.
        step: EndStep,
        /// The first cause that asked for the end.
        ended_by: EndedBy,
    },
    /// The agent sent a report over the agent channel, or a server behind the MCP proxy misbehaved. A burst of up to 20
    /// reports is recorded, then one per second.
    AgentReported {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The report.
        #[serde(flatten)]
        report: Report,
    },
    /// The agent exited, and no process of its tree is left.
    SessionEnded(SessionEnded),
    /// A snapshot of the work tree was taken: before the first iteration (number 0) and after each session, once none
    /// of its processes is left.
    SnapshotTaken {
        /// The node's name.
        node: NodeName,
        /// The iteration's number; 0 for the snapshot before the first iteration.
        iteration: Iteration,
        /// The git ref of the snapshot, under `refs/dogwatch/`. No branch, index or file of the user changes.
        #[serde(rename = "ref")]
        name: String,
        /// The number of files that differ from HEAD: untracked, changed or staged.
        files: u64,
        /// The number of files left out because they are too large or unreadable. Absent if there are none.
        #[serde(skip_serializing_if = "is_zero", default)]
        skipped: u64,
        /// The hash of the snapshot's git tree.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        tree: Option<String>,
    },
    /// The node's own git worktree is ready. The node works there, on its own branch.
    WorktreeReady {
        /// The node's name.
        node: NodeName,
        /// The path of the worktree.
        path: String,
        /// The branch that is checked out there.
        branch: String,
        /// The commit on which a new branch starts, before its dependencies are merged. All nodes of a run start on the
        /// same one.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        base: Option<String>,
        /// The nodes whose branches are merged into it. Absent if there are none.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        merged: Vec<NodeName>,
        /// Whether the worktree existed before, as after a resume. Absent if it is new.
        #[serde(skip_serializing_if = "is_false", default)]
        reused: bool,
    },
    /// The branch of a dependency conflicts with the others. With `merge: agent` the files have conflict markers, and the
    /// node's agent resolves them; with `merge: fail` the node fails.
    MergeConflicted {
        /// The node's name.
        node: NodeName,
        /// The dependency whose branch was merged.
        from: NodeName,
        /// The files in conflict.
        files: Vec<String>,
        /// The messages of git about the conflicts.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        detail: String,
        /// The effect: `agent` or `fail`.
        policy: MergePolicy,
    },
    /// A `setup` command ran in the node's new worktree.
    SetupFinished(SetupFinished),
    /// A node is done, and its branch has all its work.
    WorkCommitted {
        /// The node's name.
        node: NodeName,
        /// The node's branch.
        branch: String,
        /// The commit at its tip.
        commit: String,
        /// The number of files that the agent had not committed. dogwatch committed them.
        files: u64,
        /// The number of files left out because they are private or too large. Absent if there are none.
        #[serde(skip_serializing_if = "is_zero", default)]
        skipped: u64,
    },
    /// The files that the checks depend on were hashed when the node started.
    ChecksPinned {
        /// The node's name.
        node: NodeName,
        /// The pinned files with their hashes.
        files: Vec<Pin>,
        /// The hash of the work tree, if no snapshot holds it and progress is judged by it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        tree: Option<String>,
    },
    /// The session is over and the checks started.
    ChecksStarted {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
    },
    /// Files that the checks depend on changed since they were pinned.
    CheckTampered {
        /// The node's name.
        node: NodeName,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The files that were changed, removed or added, or why this could not be determined.
        files: Vec<String>,
        /// The effect: with `fail` the attempt fails, with `warn` the checks run anyway.
        policy: Tampered,
    },
    /// All checks of an iteration finished.
    NodeAttempt(NodeAttempt),
    /// The iteration completed: the agent exited by itself with code 0 and reported no error.
    IterationCompleted(IterationEnd),
    /// The iteration was idle: the agent reported that there is nothing to do, or it was not called.
    IterationIdle {
        /// The fields that all endings share.
        #[serde(flatten)]
        end: IterationEnd,
        /// The reason that the agent gave, for example `no_pending_tasks` or `at_capacity`, or `unspecified`.
        reason: String,
        /// The number of consecutive idle iterations, including this one.
        consecutive: u64,
        /// The seconds since the first of them ended.
        #[serde(rename = "spell_s")]
        streak_s: Dur,
        /// Whether the iteration was skipped without calling the agent.
        skipped: bool,
    },
    /// The iteration failed.
    IterationFailed(IterationEnd),
    /// The watchdog stopped the iteration.
    IterationTimedOut(IterationEnd),
    /// The agent's service refused for now. The iteration does not count for `-n`.
    IterationRateLimited {
        /// The fields that all endings share.
        #[serde(flatten)]
        end: IterationEnd,
        /// The kind of refusal.
        limit: LimitKind,
        /// When the service accepts requests again, or null if it does not say.
        resets_at: Option<Wall>,
    },
    /// The agent's service rejected the login. The run ends, unless another agent can take over.
    IterationAuthFailed(IterationEnd),
    /// The iteration was interrupted. It does not count for `-n`.
    IterationInterrupted {
        /// The fields that all endings share.
        #[serde(flatten)]
        end: IterationEnd,
        /// The cause: `operator`, `signal`, `budget`, or `supervisor_lost` if the run was resumed.
        by: String,
    },
    /// The next step after a failed iteration was chosen, by the table of docs/guide/recovery.md.
    RecoveryPlanned(RecoveryPlanned),
    /// The node was given up, and its partial work was saved.
    PartialKept {
        /// The node's name.
        node: NodeName,
        /// The number of its last iteration.
        iteration: Iteration,
        /// The file that describes the partial work, in the run's directory.
        file: String,
        /// The git ref of the snapshot of the work tree, if there is one.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        snapshot: Option<String>,
    },
    /// What the loop's earlier runs have learned about the arrival of work, with `idle.strategy: learned`. Recorded when
    /// the run starts, so that a replay computes the same waits and the next run can continue from here.
    IdleLearned {
        /// The node's name.
        node: NodeName,
        /// The state at the start of the run.
        state: LearnedState,
    },
    /// The node started to wait. There is one wait between two iterations; if several reasons apply, the first in the
    /// order of `why` counts.
    WaitStarted {
        /// The node's name.
        node: NodeName,
        /// Why it waits.
        why: WaitWhy,
        /// The length of the wait in seconds. Null for a pause and for a sleeping run.
        delay_s: Option<Dur>,
        /// The wall-clock time at which the wait ends, or null if it has no end.
        until: Option<Wall>,
        /// Local time minus UTC, in seconds. Present for idle waits.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        utc_offset_s: Option<i32>,
        /// Why the wait is as long as it is, for people: what an idle wait with `idle.strategy: learned` is based on, or
        /// the window or the limit that a wait for a rate limit observes.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        because: Option<String>,
    },
    /// The wait ended.
    WaitEnded {
        /// The node's name.
        node: NodeName,
        /// What ended the wait.
        by: WaitEndedBy,
    },
    /// An idle limit (`idle.stop_after` or `idle.max`) stopped the loop. With `after: exit` a `run_ended` with outcome
    /// `idle` follows; with `after: watch` a `wait_started` with `why: asleep` follows.
    RunSlept {
        /// The node's name.
        node: NodeName,
        /// The reason of the last idle iteration.
        reason: String,
        /// The number of consecutive idle iterations.
        consecutive: u64,
        /// The seconds since the first of them ended.
        #[serde(rename = "spell_s")]
        streak_s: Dur,
        /// What happens next: the setting `idle.after_stop`.
        after: AfterStop,
    },
    /// A wake arrived while the node was not waiting. It ends the next wait.
    WakeRemembered {
        /// The node's name.
        node: NodeName,
        /// The source of the wake.
        by: WaitEndedBy,
    },
    /// The operator paused the run. No iteration starts until the pause is lifted.
    Paused {},
    /// The operator lifted the pause.
    Unpaused {},
    /// A message for the agent arrived. The next prompt contains it.
    #[serde(rename = "told")]
    MessageReceived {
        /// The message, at most 4 KiB.
        text: String,
        /// The author: `operator`, which is not written, or `agent` for an agent of another run.
        #[serde(default, skip_serializing_if = "Source::is_operator")]
        from: Source,
    },
    /// Something worth knowing that needs no action.
    Notice {
        /// The kind of notice, for example `stopping`, `settings_changed`, `orphans_ended` or `record_recovered`.
        kind: String,
        /// The notice as a sentence for people.
        message: String,
    },
    /// Something went wrong, and the run continues.
    Trouble {
        /// The kind of problem, for example `record_failed`, `loop_file`, `start_failed` or `notify`.
        kind: String,
        /// The details for people.
        detail: String,
    },
    /// A notification was delivered, or its delivery failed. No notification with the same key is sent again.
    Notified {
        /// The key of the notification, for example `ended:1` or `hard_stop:fix:7`.
        key: String,
        /// How it was delivered.
        how: How,
        /// Whether the delivery succeeded.
        ok: bool,
        /// Why the delivery failed. Absent if it succeeded.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        detail: Option<String>,
    },
    /// The run ended. Only labels of its stops may follow.
    RunEnded(RunEnded),
    /// An event of a later version. Readers skip it.
    #[serde(other)]
    Unknown,
}

fn is_false(b: &bool) -> bool {
    !*b
}

fn is_first(n: &u32) -> bool {
    *n == 0
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
