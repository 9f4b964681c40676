//! The documents that cross the server, as JSON.

use crate::names::Name;
pub use dogwatch_core::lease::{JobRecord, JobResult, JobState};
use dogwatch_core::time::moment::Wall;
use serde::{Deserialize, Serialize};

/// The version of the job document that this program writes and understands.
pub const JOB_VERSION: u32 = 1;
/// The largest job document, in bytes.
pub const MAX_JOB: usize = 64 * 1024;
/// The largest document of a node, in bytes. Its prompt is in it.
pub const MAX_NODE: usize = 768 * 1024;

/// A job: a whole run. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The version of this document.
    pub v: u32,
    /// The repository, as git names it.
    pub repo: String,
    /// The commit to start from.
    pub commit: String,
    /// The loop or graph, relative to the top of the repository.
    pub path: String,
    /// The arguments of the loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Settings, as `--set key=value` takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// How many iterations, as `-n` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// The account.
    pub account: Name,
    /// The oldest dogwatch that may run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_version: Option<String>,
    /// The labels that a worker must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// The longest session, as `--timeout` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Whether a schedule made the message. Then every message is a job of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scheduled: bool,
    /// Whether the nodes of the graph are jobs of their own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// The node that this job runs. Everything else comes from the job of its graph.
    #[serde(skip)]
    pub node: Option<NodeJob>,
}

impl Job {
    /// Returns what the job is, for people.
    pub fn title(&self) -> String {
        match &self.node {
            Some(node) => node.title(),
            None => format!("{} of {}", self.path, self.repo),
        }
    }
}

/// A session of a node, as a job of its own. The worker that runs the graph queues it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeJob {
    /// The version of this document.
    pub v: u32,
    /// The job of the graph, of the same account.
    pub graph: Name,
    /// The node.
    pub node: String,
    /// The commit to start from.
    pub commit: String,
    /// The prompt.
    pub prompt: String,
}

impl NodeJob {
    /// Returns what the job is, for people.
    pub fn title(&self) -> String {
        format!("node {} of {}", self.node, self.graph)
    }

    /// Returns the document for the queue, or why it has no room there.
    pub fn document(&self) -> Result<Vec<u8>, String> {
        let document = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        if document.len() > MAX_NODE {
            return Err(format!("the prompt is too long: a node has room for {MAX_NODE} bytes"));
        }
        Ok(document)
    }

    /// Reads a document of the queue, or says why no worker can.
    pub fn read(document: &[u8]) -> Result<NodeJob, String> {
        if document.len() > MAX_NODE {
            return Err(format!("the node is larger than {MAX_NODE} bytes"));
        }
        let node: NodeJob =
            serde_json::from_slice(document).map_err(|error| format!("not a node: {error}"))?;
        if node.v > JOB_VERSION {
            return Err("it is written for a newer dogwatch".to_owned());
        }
        Ok(node)
    }
}

/// The presence of a worker: what it offers, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// The worker.
    pub worker: Name,
    /// The host name.
    pub host: String,
    /// The version of dogwatch.
    pub version: String,
    /// The accounts that it works for.
    pub accounts: Vec<Name>,
    /// How many jobs it runs at once.
    pub slots: usize,
    /// The jobs that it runs, as `account.job`.
    pub jobs: Vec<String>,
    /// The graphs that it runs and whose nodes are jobs of their own, as `account.job`. They hold no slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graphs: Vec<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Whether it takes no more jobs.
    #[serde(default)]
    pub draining: bool,
    /// The jobs that it does not run, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refuses: Vec<Refusal>,
    /// Why it takes no jobs at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The load of the last minute, in hundredths of a process.
    #[serde(default)]
    pub load: u32,
    /// When it started.
    pub since: Wall,
}

/// A job that a worker does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The job, as `account.job`.
    pub job: String,
    /// Why.
    pub why: String,
}

/// Why an account is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parked {
    /// The provider refused work.
    RateLimit,
    /// The budget of the day is spent.
    Budget,
}

/// The limits of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Until when no job of the account starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Wall>,
    /// Why, until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Parked>,
    /// The worker that found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Name>,
    /// The most that may be spent on one day, in millionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day_micro_usd: Option<u64>,
    /// The most tokens that may be used on one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day_tokens: Option<u64>,
    /// How urgent the account's jobs are. A worker with several accounts serves the highest first.
    #[serde(default)]
    pub priority: i32,
}

/// Returns in words why an account is parked.
pub fn why_parked(limit: &Limit) -> String {
    let by = limit.by.as_ref().map_or_else(|| "a worker".to_owned(), ToString::to_string);
    match limit.why {
        Some(Parked::Budget) => "its budget of the day is spent".to_owned(),
        Some(Parked::RateLimit) | None => format!("the provider refused {by}"),
    }
}

/// The operator's wish for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// Run it.
    Run,
    /// Begin no new iteration.
    Pause,
    /// End it after the current iteration.
    Stop,
}

/// A request to the owner of a job, on its control subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Control {
    /// End a wait.
    Wake,
    /// Begin no new iteration.
    Pause,
    /// Undo `pause`.
    Resume,
    /// End the run after the current iteration.
    Stop,
    /// Send a message to the agent with the next prompt.
    Tell {
        /// The message.
        text: String,
    },
}

/// The answer to a `Control`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlAnswer {
    /// Whether the run took it.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_document_of_a_newer_version_with_more_fields_is_read() {
        let text = r#"{"v":1,"repo":"r","commit":"c","path":"p","account":"acme","new":true}"#;
        let job: Job = serde_json::from_str(text).expect("a job");
        assert_eq!((job.needs.len(), job.scheduled), (0, false));
    }

    #[test]
    fn a_node_has_room_for_a_long_prompt_and_not_for_a_longer_one() {
        let node = |prompt: usize| NodeJob {
            v: JOB_VERSION,
            graph: "nightly".parse().expect("a name"),
            node: "api".to_owned(),
            commit: "c".to_owned(),
            prompt: "x".repeat(prompt),
        };
        let rest = node(0).document().expect("a document").len();
        let longest = node(MAX_NODE - rest).document().expect("a document");
        assert_eq!(longest.len(), MAX_NODE);
        assert_eq!(NodeJob::read(&longest), Ok(node(MAX_NODE - rest)));
        let why = node(MAX_NODE - rest + 1).document().expect_err("too long");
        assert_eq!(why, "the prompt is too long: a node has room for 786432 bytes");
        let why = NodeJob::read(&[longest, b" ".to_vec()].concat()).expect_err("too long");
        assert_eq!(why, "the node is larger than 786432 bytes");
        let newer = NodeJob { v: JOB_VERSION + 1, ..node(0) }.document().expect("a document");
        assert_eq!(NodeJob::read(&newer).expect_err("newer"), "it is written for a newer dogwatch");
    }

    #[test]
    fn a_control_request_is_one_flat_object() {
        let text = serde_json::to_string(&Control::Tell { text: "hi".into() }).expect("JSON");
        assert_eq!(text, r#"{"do":"tell","text":"hi"}"#);
    }
}
