//! The record of a job.

use crate::record::event::words;
use crate::record::ids::RunId;
use crate::time::moment::Wall;
use serde::{Deserialize, Serialize};

words! {
    /// The state of a job in the store.
    #[derive(Default)]
    JobState {
        /// Submitted, and not claimed yet.
        #[default]
        Queued = "queued",
        /// A worker holds the lease.
        Running = "running",
        /// Its worker ended it cleanly before it was over. Any worker may take it at once.
        Released = "released",
        /// It is over.
        Done = "done",
        /// It ended uncleanly too often. No worker takes it again.
        Poisoned = "poisoned",
    }
}

impl JobState {
    /// Returns whether no worker will take the job again.
    pub const fn is_over(self) -> bool {
        match self {
            JobState::Done | JobState::Poisoned => true,
            JobState::Queued | JobState::Running | JobState::Released => false,
        }
    }
}

/// How a job ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// The outcome of the run, or `refused` or `failed` if there was none.
    pub outcome: String,
    /// The exit code of `dogwatch run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The git ref that holds the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit of that ref.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The object that holds the result as a git bundle, if the remote refused the ref.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The record of a job. Only the owner of the lease writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The state.
    pub state: JobState,
    /// The name of the worker that claimed the job last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// A random text of that claim. It tells one's own write from another's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nonce: String,
    /// The number of the claim: the fencing token.
    #[serde(default)]
    pub epoch: u64,
    /// The sequence number of the job's message in the queue; 0 before the first claim.
    #[serde(default)]
    pub sequence: u64,
    /// The run, once it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How the job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// Why its worker gave it up, if it did not end cleanly. The next claim removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Unclean ends in a row without a finished iteration.
    #[serde(default)]
    pub crashes: u32,
    /// Whether an iteration has finished since the last claim.
    #[serde(default)]
    pub moved: bool,
    /// A description of the job for people: the loop file and its repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The job of the graph, if this job is a session of one of its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// When the job was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted: Option<Wall>,
}
