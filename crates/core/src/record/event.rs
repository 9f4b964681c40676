//! What is written down: past tense, numbered, the only truth about a run.
//!
//! Names and fields are a public interface (docs/reference/events.md): they change only by adding. A line of the
//! journal is one `Recorded`.

use crate::record::day::DayUse;
use crate::record::ids::{Iteration, NodeName, RunId};
use crate::record::notification::How;
use crate::run::recovery::{Action, Class};
use crate::settings::{AfterStop, Plan, Tampered};
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Boot, Moment, Wall};
use crate::watch::sign::LimitKind;
use crate::watch::{Channel, Evidence, Fact, StopReason};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of the journal's format.
pub const FORMAT: u32 = 1;

/// An event with its number and moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    pub v: u32,
    pub seq: u64,
    pub at: Wall,
    pub awake_ms: Awake,
    pub boot_ms: Boot,
    #[serde(flatten)]
    pub event: Event,
}

impl Recorded {
    pub fn new(seq: u64, at: Moment, event: Event) -> Recorded {
        Recorded { v: FORMAT, seq, at: at.wall, awake_ms: at.awake, boot_ms: at.boot, event }
    }

    pub fn moment(&self) -> Moment {
        Moment { awake: self.awake_ms, boot: self.boot_ms, wall: self.at }
    }
}

/// Everything that can be written down, in the order of a run's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    RunStarted(Box<RunStarted>),
    RunResumed(RunResumed),
    NodeTransition {
        node: NodeName,
        from: NodeState,
        to: NodeState,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
    },
    IterationStarted {
        node: NodeName,
        iteration: Iteration,
        cause: Cause,
    },
    CommandFinished(CommandFinished),
    PromptAssembled {
        node: NodeName,
        iteration: Iteration,
        bytes: u64,
        sha256: String,
        /// What the agent is about to see, when `idle.skip_unchanged` wants it remembered.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        sight: Option<InputDigest>,
    },
    SessionStarted {
        node: NodeName,
        iteration: Iteration,
        pid: u32,
        argv: Vec<String>,
        /// Which agent of the chain; the first is not told.
        #[serde(skip_serializing_if = "is_first", default)]
        agent: u32,
        /// The agent's own session that it goes on with.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        resumes: Option<String>,
    },
    Observed {
        node: NodeName,
        iteration: Iteration,
        #[serde(flatten)]
        seen: Observation,
    },
    /// What the watchdog was told singly.
    Fact {
        node: NodeName,
        iteration: Iteration,
        #[serde(flatten)]
        fact: Fact,
    },
    /// The agent asks for something that only a person can give; it is ended at `until`.
    NeedsHuman {
        node: NodeName,
        iteration: Iteration,
        what: String,
        until: Option<Wall>,
    },
    NeedsHumanEnded {
        node: NodeName,
        iteration: Iteration,
        by: HumanEndedBy,
    },
    /// Its CLI tries a request again. Written once until there is progress.
    AgentRetrying {
        node: NodeName,
        iteration: Iteration,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        status: Option<u16>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        delay_s: Option<Dur>,
    },
    /// Most of its lines are unknown; from now on they count as bytes do.
    AgentDrifted {
        node: NodeName,
        iteration: Iteration,
    },
    /// What the session has used so far.
    Used {
        node: NodeName,
        iteration: Iteration,
        #[serde(flatten)]
        usage: Usage,
    },
    /// What all runs of the project had used on this day before a session was started.
    DayUsed(DayUse),
    /// Silence would have ended the session but for this evidence.
    WatchdogContinue {
        node: NodeName,
        iteration: Iteration,
        deferred_by: Channel,
        evidence_summary: Vec<Evidence>,
        active_channel: Option<Channel>,
    },
    /// The host slept, or dogwatch could not run. The watchdog's clocks stood still.
    Suspended {
        for_s: Dur,
        /// The host was awake meanwhile: dogwatch itself was stopped or got no processor.
        #[serde(skip_serializing_if = "is_false", default)]
        unwatched: bool,
    },
    MarkerSeen {
        node: NodeName,
        iteration: Iteration,
        state: String,
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        attrs: Vec<(String, String)>,
    },
    HardStop {
        node: NodeName,
        iteration: Iteration,
        reason: StopReason,
        message: String,
        evidence_summary: Vec<Evidence>,
        active_channel: Option<Channel>,
        recoverable: bool,
    },
    /// A step of ending a process tree, written before the signal is sent.
    SessionSignalled {
        node: NodeName,
        iteration: Iteration,
        step: EndStep,
        ended_by: EndedBy,
    },
    /// The agent told us something beside its output.
    AgentReported {
        node: NodeName,
        iteration: Iteration,
        #[serde(flatten)]
        report: Report,
    },
    SessionEnded(SessionEnded),
    SnapshotTaken {
        node: NodeName,
        iteration: Iteration,
        #[serde(rename = "ref")]
        name: String,
        /// Files that differ from what git has already.
        files: u64,
        /// Files that are not in it.
        #[serde(skip_serializing_if = "is_zero", default)]
        skipped: u64,
    },
    /// The node has a git worktree of its own.
    WorktreeReady {
        node: NodeName,
        path: String,
        branch: String,
    },
    /// What the files that the checks rest on contained when the node began.
    ChecksPinned {
        node: NodeName,
        files: Vec<Pin>,
    },
    ChecksStarted {
        node: NodeName,
        iteration: Iteration,
    },
    /// Files that the checks rest on are not what they were.
    CheckTampered {
        node: NodeName,
        iteration: Iteration,
        files: Vec<String>,
        /// What that does: `fail` or `warn`.
        policy: Tampered,
    },
    NodeAttempt(NodeAttempt),
    IterationCompleted(IterationEnd),
    IterationIdle {
        #[serde(flatten)]
        end: IterationEnd,
        reason: String,
        consecutive: u64,
        spell_s: Dur,
        skipped: bool,
    },
    IterationFailed(IterationEnd),
    IterationTimedOut(IterationEnd),
    IterationRateLimited {
        #[serde(flatten)]
        end: IterationEnd,
        limit: LimitKind,
        resets_at: Option<Wall>,
    },
    IterationAuthFailed(IterationEnd),
    IterationInterrupted {
        #[serde(flatten)]
        end: IterationEnd,
        by: String,
    },
    RecoveryPlanned(RecoveryPlanned),
    /// What there is of a work that will not be finished lies in this file of the run's directory.
    PartialKept {
        node: NodeName,
        iteration: Iteration,
        file: String,
        /// The work tree as it was then.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        snapshot: Option<String>,
    },
    /// A pause has neither a length nor an end.
    WaitStarted {
        node: NodeName,
        why: WaitWhy,
        delay_s: Option<Dur>,
        until: Option<Wall>,
    },
    WaitEnded {
        node: NodeName,
        by: WaitEndedBy,
    },
    /// An idle limit stopped the loop. `run_ended` follows, or with `after: watch` a wait that has no end.
    RunSlept {
        node: NodeName,
        reason: String,
        /// Idle iterations in a row.
        consecutive: u64,
        /// Since the first of them ended.
        spell_s: Dur,
        after: AfterStop,
    },
    /// A wake that came while there was nothing to end; the next wait ends by it.
    WakeRemembered {
        node: NodeName,
        by: WaitEndedBy,
    },
    /// The run was asked to pause: no iteration begins until it is lifted.
    Paused {},
    Unpaused {},
    /// A person has something to say to the agent; it goes into the next prompt.
    Told {
        text: String,
    },
    Notice {
        kind: String,
        message: String,
    },
    Trouble {
        kind: String,
        detail: String,
    },
    /// Somebody was told of something, or could not be. The same key is not told again.
    Notified {
        key: String,
        how: How,
        ok: bool,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        detail: Option<String>,
    },
    RunEnded(RunEnded),
    /// An event of a later version. It is kept and passed over.
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    pub run: RunId,
    /// The loop file.
    pub path: String,
    /// Where sessions and commands run.
    pub work_dir: String,
    pub nodes: Vec<NodeName>,
    /// The agent's command line, secrets replaced.
    pub agent: String,
    pub settings: Plan,
    pub boot_id: String,
    pub pid: u32,
    pub dogwatch: String,
    /// Jitter draws from it, so that a replay draws the same.
    #[serde(default)]
    pub seed: u64,
    /// Of the loop file's settings as they were read, to tell later whether they changed.
    #[serde(default)]
    pub settings_sha256: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResumed {
    pub run: RunId,
    pub boot_id: String,
    pub pid: u32,
    pub dogwatch: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandFinished {
    pub node: NodeName,
    pub iteration: Iteration,
    pub name: String,
    /// Absent when the command could not be started or died by a signal.
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub duration_s: Dur,
    pub bytes: u64,
    /// Output beyond the cap, not in the prompt.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub cut_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEnded {
    pub node: NodeName,
    pub iteration: Iteration,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub ended_by: EndedBy,
    pub duration_s: Dur,
    pub messages: u64,
    pub tools: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_usd: Option<f64>,
    /// The agent's own word on it, if it gave one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub is_error: Option<bool>,
    /// The first line of the agent's result, or of its last error.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub said: String,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Output beyond the cap of the raw files.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub cut_bytes: u64,
    /// Processes that outlived the agent and were ended.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub stragglers: u64,
    /// By what name the agent's own session can be gone on with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IterationEnd {
    pub node: NodeName,
    pub iteration: Iteration,
    pub duration_s: Dur,
    /// Why it counts as what it counts, with the facts.
    pub because: String,
    /// What failed, volatile parts stripped; equal for failures that are alike.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fingerprint: Option<String>,
}

/// A file that the checks rest on. A file that is not there has no hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
}

/// The checks of an iteration, and what they decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeAttempt {
    pub node: NodeName,
    pub iteration: Iteration,
    pub duration_s: Dur,
    pub converged: bool,
    /// The wait before it; the first attempt has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backoff_s: Option<Dur>,
    /// It was not the agent's turn to work: it counts for nothing unless it converged.
    #[serde(skip_serializing_if = "is_false", default)]
    pub uncounted: bool,
    pub results: Vec<CheckResult>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    pub cmd: String,
    /// As a shell says it: 128 and the signal, 124 after the timeout, 127 if it could not be started.
    pub rc: i32,
    pub duration_s: Dur,
    /// The end of its output, if it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tail: Option<String>,
    #[serde(skip_serializing_if = "is_false", default)]
    pub truncated: bool,
    #[serde(skip_serializing_if = "is_false", default)]
    pub timed_out: bool,
    /// It failed, and passed when it was run again on the same tree.
    #[serde(skip_serializing_if = "is_false", default)]
    pub flaky: bool,
    /// What the first of several tries on the same tree gave.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_rc: Option<i32>,
}

/// What follows from an end that was no good one, by the table of docs/guide/recovery.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoveryPlanned {
    pub node: NodeName,
    pub iteration: Iteration,
    pub class: Class,
    pub action: Action,
    /// What happened, in words.
    pub because: String,
    /// How much of which budget is used.
    #[serde(skip_serializing_if = "is_first", default)]
    pub used: u32,
    #[serde(skip_serializing_if = "is_first", default)]
    pub budget: u32,
    /// The agent that rests, by its command line, and until when; without a time it rests for good.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Wall>,
    /// The agent that works next, if it is another.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_agent: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnded {
    pub outcome: Outcome,
    pub reason: String,
    pub verified: bool,
    pub iterations: u64,
    /// Idle ones included.
    pub completed: u64,
    pub failed: u64,
    pub idle: u64,
    pub nodes: NodeCounts,
    pub flake_retries: u64,
    pub total_duration_s: Dur,
    pub exit_code: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeCounts {
    pub done: u64,
    pub failed: u64,
    pub blocked: u64,
}

/// What an agent was about to see: its prompt, without what changes by itself, and the work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputDigest {
    pub prompt: String,
    pub tree: String,
}

/// Tokens and money. What the agent does not say is unknown, not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_usd: Option<f64>,
}

/// What an agent, or the server it speaks through, told us beside its output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub kind: ReportKind,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub done: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub total: Option<u64>,
    /// Of an artifact.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    /// Reports before this one that came too fast to be written down.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub withheld: u64,
}

/// Progress seen on a channel: one record for a stretch of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    pub channel: Channel,
    /// Awake milliseconds of the first and last piece.
    pub first_ms: Awake,
    pub last_ms: Awake,
    /// Pieces of progress.
    pub count: u64,
    /// How many of them were messages.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub messages: u64,
    /// The longest gap between two pieces of this stretch.
    pub max_gap_ms: u64,
    /// On `workspace`: the state the work tree is in now, if it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub digest: Option<u64>,
}

/// The words of an enum, the same on the screen as in the record.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Why an iteration began.
    Cause { First = "first", Next = "next", Wake = "wake", CheckFailed = "check_failed", Recovery = "recovery", Resumed = "resumed" }
}

words! {
    /// Who ended a session.
    EndedBy {
        /// The agent exited.
        Itself = "itself",
        Watchdog = "watchdog",
        /// Ctrl-C or a stop command.
        Operator = "operator",
        /// TERM or HUP of dogwatch.
        Signal = "signal",
        Budget = "budget",
        /// It had given its result and did not go.
        ResultGrace = "result_grace",
        /// It could not be started.
        Nobody = "never_started",
    }
}

words! {
    /// What ended the wait for a person.
    HumanEndedBy {
        /// The agent went on.
        Progress = "progress",
        Deadline = "deadline",
        /// The session was over first.
        Session = "session",
    }
}

words! {
    /// The steps of ending a process tree, in their order.
    EndStep { Interrupt = "interrupt", Terminate = "terminate", Kill = "kill" }
}

words! {
    /// Why a run waits. The order is the order of precedence.
    WaitWhy {
        Paused = "paused", RateLimit = "rate_limit", Idle = "idle", Error = "error",
        Recovery = "recovery", Backoff = "backoff", Delay = "delay", Asleep = "asleep",
    }
}

words! {
    /// What a report is about.
    ReportKind {
        State = "state", Progress = "progress", Error = "error", Artifact = "artifact", Checks = "checks",
        /// A server behind the proxy.
        Server = "server",
    }
}

words! {
    /// What ended a wait.
    WaitEndedBy {
        Timer = "timer", Operator = "operator", Path = "path", Probe = "probe", Api = "api", Signal = "signal",
        /// The node's own time is up.
        Budget = "budget",
        /// The node has reached `watchdog.node`.
        Ceiling = "ceiling",
    }
}

words! {
    /// A node's state.
    NodeState {
        Pending = "pending", Ready = "ready", Running = "running", Done = "done", Failed = "failed", Blocked = "blocked",
    }
}

words! {
    /// How a run ended.
    Outcome {
        Clean = "clean", CleanWithFlake = "clean_with_flake", Partial = "partial", Stuck = "stuck",
        Catastrophic = "catastrophic", Idle = "idle", Stopped = "stopped", StoppedOnError = "stopped_on_error",
        Interrupted = "interrupted", ErrorLimit = "error_limit", AuthFailed = "auth_failed",
        BudgetExceeded = "budget_exceeded", Ceiling = "ceiling",
        /// The record could not be kept, so nothing more was started.
        RecordLost = "record_lost",
    }
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
