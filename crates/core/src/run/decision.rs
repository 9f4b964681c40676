//! What the core wants done: imperative, in order. The shell makes all records that stand before an
//! effect durable before it carries the effect out.

use crate::record::event::{CheckResult, Recorded};
use crate::record::ids::{Iteration, NodeIx, RunId};
use crate::record::notification::Delivery;
use crate::run::job::Job;
use crate::run::recovery::Class;
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use crate::watch::Evidence;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Record(Box<Recorded>),
    /// Start a command or a session under the node's keeper.
    Start(Job),
    /// Read the loop file's body, fill it in, keep it for the session.
    AssemblePrompt {
        node: NodeIx,
        iteration: Iteration,
        /// What people said since the last prompt.
        told: Vec<String>,
        /// Also say what the agent is about to see.
        sight: bool,
        /// What went before that the agent should know.
        brief: Box<PromptContext>,
    },
    /// Say what the files that the node's checks rest on contain.
    HashPins {
        node: NodeIx,
        iteration: Iteration,
    },
    /// Write the node's log: how its last attempt went.
    KeepLog {
        node: NodeIx,
        iteration: Iteration,
    },
    /// Write down what there is of a work that will not be finished.
    KeepPartial {
        node: NodeIx,
        iteration: Iteration,
        /// The file's name within the run's directory.
        file: String,
    },
    /// Say how many children of the agent live and how much CPU time they have used.
    Sample(Job),
    /// INT to the session's group.
    Interrupt(Job),
    /// TERM, then CONT, to the session's group.
    Terminate(Job),
    /// Kill until nothing is left of the tree.
    Kill(Job),
    /// The main process is gone: end what is left of the tree, within the grace, then by force.
    Sweep {
        job: Job,
        grace: Dur,
    },
    /// Continue the job's keeper in case it was stopped, and answer with `Input::KeeperSeen`.
    Nudge(Job),
    /// The keeper does not report: kill it, end the job's processes without it, and report the job's end.
    DropKeeper(Job),
    /// Keep why the run went to sleep where other programs look for it.
    KeepContext(Box<ContextEntry>),
    /// Send the resting keepers home: the run sleeps and needs none.
    ReleaseKeepers,
    /// Tell somebody of something. Nothing waits for it but the end of the run, and that not for long.
    Notify(Box<Delivery>),
    /// Try again to write what the record still misses.
    RetryRecord,
    /// The run is over; exit with this code.
    Finish {
        exit_code: u8,
    },
}

/// What an agent is told of what went before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptContext {
    /// The checks that failed in the last attempt.
    pub failed: Vec<CheckResult>,
    /// Pinned files that were changed.
    pub tampered: Vec<String>,
    /// Which attempt this is, from 1; of how many.
    pub attempt: u64,
    pub max_attempts: Option<u64>,
    /// What is known of the session that had to be ended.
    pub diagnosis: Option<Diagnosis>,
}

/// What is known of a session that had to be ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    pub class: Class,
    /// The iteration it was in: its output lies there.
    pub iteration: Iteration,
    /// The watchdog's reason, and its words.
    pub reason: String,
    pub message: String,
    pub evidence: Vec<Evidence>,
    /// What came before in the same row, oldest first.
    pub tried: Vec<String>,
    /// How much of the recovery budget is used, this one included.
    pub attempt: u32,
    pub budget: u32,
}

/// Why the run stopped by itself, in the form that context files have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContextEntry {
    /// When the run stopped.
    pub at: Wall,
    pub run: Option<RunId>,
    pub entry_type: &'static str,
    pub topic: &'static str,
    pub content: String,
    pub confidence: f64,
    pub metadata: ContextMetadata,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextMetadata {
    pub reason: String,
    pub consecutive_idle_ticks: u64,
    pub last_decision: LastDecision,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LastDecision {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub reason: String,
}

impl ContextEntry {
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
