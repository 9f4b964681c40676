//! Decisions of the core: imperative and in order. The shell makes all records that precede an effect durable
//! before it carries out the effect.

use crate::record::event::{CheckResult, Recorded};
use crate::record::ids::{Iteration, NodeIx, RunId};
use crate::record::notification::Delivery;
use crate::run::job::{Conflict, Job};
use crate::run::life::TreeOrder;
use crate::run::recovery::Class;
use crate::time::moment::{Boot, Wall};
use crate::watch::Evidence;
use serde::Serialize;

/// An effect that the shell carries out.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Append an event to the journal.
    Record(Box<Recorded>),
    /// Start a command or a session under the node's keeper.
    Start(Job),
    /// Read the prompt template, fill it in, and keep the result for the session.
    AssemblePrompt(Box<WantedPrompt>),
    /// Hash the files that the node's checks depend on.
    HashPins {
        /// The node.
        node: NodeIx,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// Also hash the work tree.
        tree: bool,
    },
    /// Write the log of the node's last attempt.
    KeepLog {
        /// The node.
        node: NodeIx,
        /// The iteration's number, from 1.
        iteration: Iteration,
    },
    /// Write a summary of work that will not be finished.
    KeepPartial {
        /// The node.
        node: NodeIx,
        /// The iteration's number, from 1.
        iteration: Iteration,
        /// The file's name within the run's directory.
        file: String,
    },
    /// Sample how many children of the agent are alive and how much CPU time they have used.
    Sample(Job),
    /// Pass an order to the keeper of the job's process tree.
    Order(Job, TreeOrder),
    /// Continue the job's keeper in case it was stopped, and answer with `Input::KeeperSeen`.
    Nudge(Job),
    /// Kill a keeper that does not report, end the job's processes without it, and report the job's end.
    DropKeeper(Job),
    /// Write the reason for an idle stop to the context file that other programs read.
    KeepContext(Box<ContextEntry>),
    /// Release the idle keepers: a sleeping run needs none.
    ReleaseKeepers,
    /// Pass the new end of the leash to all keepers. They enforce it even if this process is stopped.
    RenewLeash {
        /// The end on the boot clock.
        until: Boot,
    },
    /// Send a notification. Only the end of the run waits for its delivery, and only for a short time.
    Notify(Box<Delivery>),
    /// Retry writing the events that the record still lacks.
    RetryRecord,
    /// End the run and exit with this code.
    Finish {
        /// The exit code of dogwatch.
        exit_code: u8,
    },
}

impl Decision {
    /// Returns whether the events that precede this decision must be on disk before it is carried out. Decisions that
    /// only read, clean up or stay in memory need not wait.
    pub fn waits_for_disk(&self) -> bool {
        match self {
            Decision::Start(_)
            | Decision::KeepLog { .. }
            | Decision::KeepPartial { .. }
            | Decision::Order(_, TreeOrder::Step(_))
            | Decision::DropKeeper(_)
            | Decision::KeepContext(_)
            | Decision::Notify(_)
            | Decision::Finish { .. } => true,
            Decision::Record(_)
            | Decision::AssemblePrompt(_)
            | Decision::HashPins { .. }
            | Decision::Sample(_)
            | Decision::Order(_, TreeOrder::Sweep)
            | Decision::Nudge(_)
            | Decision::ReleaseKeepers
            | Decision::RenewLeash { .. }
            | Decision::RetryRecord => false,
        }
    }
}

/// A prompt to assemble.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedPrompt {
    /// The node.
    pub node: NodeIx,
    /// The iteration's number, from 1.
    pub iteration: Iteration,
    /// Operator messages since the last prompt.
    pub messages: Vec<String>,
    /// Also return the input digest.
    pub input_digest: bool,
    /// Earlier results that the prompt includes.
    pub prompt_context: PromptContext,
}

/// Earlier results that a prompt includes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptContext {
    /// The checks that failed in the last attempt.
    pub failed: Vec<CheckResult>,
    /// Pinned files that were changed.
    pub tampered: Vec<String>,
    /// The number of this attempt, from 1.
    pub attempt: u64,
    /// The limit on attempts.
    pub max_attempts: Option<u64>,
    /// The merge conflicts that the agent has to resolve.
    pub conflicts: Vec<Conflict>,
    /// The diagnosis of the session that the watchdog stopped.
    pub diagnosis: Option<Diagnosis>,
}

/// The diagnosis of a session that the watchdog stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The class of the failure.
    pub class: Class,
    /// The iteration of the session, which holds its output.
    pub iteration: Iteration,
    /// The watchdog's reason code.
    pub reason: String,
    /// The watchdog's message.
    pub message: String,
    /// The evidence at the moment of the stop.
    pub evidence: Vec<Evidence>,
    /// Earlier hard stops since the last completed iteration, oldest first.
    pub tried: Vec<String>,
    /// How much of the recovery budget is used, including this attempt.
    pub attempt: u32,
    /// The size of the recovery budget.
    pub budget: u32,
}

/// The reason for an idle stop, in the format of context files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContextEntry {
    /// When the run stopped.
    pub at: Wall,
    /// The run that stopped.
    pub run: Option<RunId>,
    /// The type of the entry: `decision`.
    pub entry_type: &'static str,
    /// The topic: `orchestrator_sleep`.
    pub topic: &'static str,
    /// The entry as a sentence for people.
    pub content: String,
    /// The confidence, from 0 to 1.
    pub confidence: f64,
    /// The metadata for programs.
    pub metadata: ContextMetadata,
}

/// The metadata of a context entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextMetadata {
    /// The reason of the last idle iteration.
    pub reason: String,
    /// The number of consecutive idle iterations.
    pub consecutive_idle_ticks: u64,
    /// The decision that led to the stop.
    pub last_decision: LastDecision,
}

/// The decision that led to a context entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LastDecision {
    /// The kind of decision.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The reason of the decision.
    pub reason: String,
}

impl ContextEntry {
    /// Returns the entry for an idle stop.
    pub fn sleep(at: Wall, run: Option<RunId>, reason: &str, ticks: u64) -> ContextEntry {
        ContextEntry {
            at,
            run,
            entry_type: "decision",
            topic: "orchestrator_sleep",
            content: format!("Stopped orchestrator after {ticks} idle ticks ({reason})"),
            confidence: 1.0,
            metadata: ContextMetadata {
                reason: reason.to_owned(),
                consecutive_idle_ticks: ticks,
                last_decision: LastDecision { kind: "idle", reason: reason.to_owned() },
            },
        }
    }
}
