//! The fields of the larger events.

use super::{EndedBy, Outcome, ReportKind, is_false, is_first, is_zero};
use crate::record::ids::{Iteration, NodeName, RunId};
use crate::record::prices::{CostSource, TokenCounts};
use crate::run::recovery::{Action, Class};
use crate::settings::Plan;
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Wall};
use crate::watch::Channel;
use serde::{Deserialize, Serialize};

/// The fields of `run_started`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The run's id: `YYYYMMDD-HHMMSS-xxxx`. Ids sort by time.
    pub run: RunId,
    /// The absolute path of the loop file.
    pub path: String,
    /// The directory in which sessions and commands run.
    pub work_dir: String,
    /// The names of all nodes; a loop file has one node.
    pub nodes: Vec<NodeName>,
    /// The agent's command line, with secrets replaced.
    pub agent: String,
    /// Every effective setting, with defaults filled in.
    pub settings: Plan,
    /// The id of the machine's current boot. Process ids and the boot clock are valid only within one boot.
    pub boot_id: String,
    /// The process id of dogwatch.
    pub pid: u32,
    /// The version of dogwatch.
    pub dogwatch: String,
    /// The seed of the jitter, so that a replay draws the same values.
    #[serde(default)]
    pub seed: u64,
    /// The SHA-256 hash of the loop file's settings as written, to detect later changes.
    #[serde(default)]
    pub settings_sha256: String,
    /// The keys that were set by flags. The next run does not report them as changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

impl RunStarted {
    /// Returns the name of the run for people: the name of a loop's node, of the directory of `graph.yaml`, or of a graph
    /// file with another name.
    pub fn name(&self) -> &str {
        if let [node] = self.nodes.as_slice() {
            return node.as_str();
        }
        let mut parts = self.path.rsplit('/').filter(|part| !part.is_empty());
        let file = parts.next().unwrap_or("?");
        match file.split_once('.') {
            Some((stem, _)) if stem.eq_ignore_ascii_case("graph") => parts.next().unwrap_or(file),
            Some(_) | None => file,
        }
    }
}

/// The fields of `run_resumed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResumed {
    /// The run's id.
    pub run: RunId,
    /// The id of the machine's current boot.
    pub boot_id: String,
    /// The process id of the new dogwatch.
    pub pid: u32,
    /// The version of the new dogwatch.
    pub dogwatch: String,
    /// The directory in which sessions run from now on, if the run was moved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub work_dir: Option<String>,
    /// The path of the loop file from now on, if the run was moved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<String>,
    /// When the keeper noticed that the supervisor was gone, if it noticed. The time until then was supervised.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_at: Option<Wall>,
}

/// The fields of `command_finished`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandFinished {
    /// The node's name.
    pub node: NodeName,
    /// The iteration's number, from 1.
    pub iteration: Iteration,
    /// The command's name in the loop file.
    pub name: String,
    /// The exit code. Null if the command could not be started or was killed by a signal.
    pub exit_code: Option<i32>,
    /// The number of the signal that killed the command, if one did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<i32>,
    /// Whether the command was stopped at its timeout.
    pub timed_out: bool,
    /// How long the command ran, in seconds.
    pub duration_s: Dur,
    /// The number of bytes that the command printed.
    pub bytes: u64,
    /// How many of these bytes are beyond the cap and not in the prompt. Absent if there are none.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub cut_bytes: u64,
}

/// The fields of `setup_finished`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetupFinished {
    /// The node's name.
    pub node: NodeName,
    /// The command.
    pub cmd: String,
    /// The exit code, as in a shell: 128 plus the signal, 124 after a timeout, 127 if it could not be started.
    pub rc: i32,
    /// How long the command ran, in seconds.
    pub duration_s: Dur,
    /// The end of the output of a failed command. Absent if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tail: Option<String>,
    /// Whether `tail` is only a part of the output. Absent if false.
    #[serde(skip_serializing_if = "is_false", default)]
    pub truncated: bool,
    /// Whether the command was stopped at its timeout. Absent if false.
    #[serde(skip_serializing_if = "is_false", default)]
    pub timed_out: bool,
}

/// The fields of `session_ended`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEnded {
    /// The node's name.
    pub node: NodeName,
    /// The iteration's number, from 1.
    pub iteration: Iteration,
    /// The agent's exit code, or null if a signal killed it or it never started.
    pub exit_code: Option<i32>,
    /// The number of the signal that killed the agent, or null.
    pub signal: Option<i32>,
    /// What ended the session.
    pub ended_by: EndedBy,
    /// How long the session lasted, in seconds of awake time.
    pub duration_s: Dur,
    /// The number of messages that the reader counted.
    pub messages: u64,
    /// The number of tool calls that the reader counted.
    pub tools: u64,
    /// The number of tokens used. Absent if the agent does not report it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens: Option<u64>,
    /// The cost in US dollars. Absent if it is unknown, which is not zero.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_usd: Option<f64>,
    /// Where the cost comes from. Absent without a cost, and in records of earlier versions, where agents reported it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_source: Option<CostSource>,
    /// The date of the price table, if the cost was computed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prices: Option<String>,
    /// The tokens by kind. Absent if the agent does not report them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counts: Option<TokenCounts>,
    /// Whether the agent's own result reports an error. Absent if the agent gave no result.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub is_error: Option<bool>,
    /// The last line of the agent's result, or its error; one line without control characters.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub said: String,
    /// The number of bytes printed on stdout.
    pub stdout_bytes: u64,
    /// The number of bytes printed on stderr.
    pub stderr_bytes: u64,
    /// How many of these bytes are beyond the cap and not in the raw files. Absent if there are none.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub cut_bytes: u64,
    /// The number of leftover processes that outlived the agent and were killed. Absent if there are none.
    #[serde(skip_serializing_if = "is_zero", default, rename = "stragglers")]
    pub leftovers: u64,
    /// The command lines of the first of them, without secrets. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default, rename = "leftovers")]
    pub leftover_names: Vec<String>,
    /// The id under which the agent's own session can be resumed, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<String>,
    /// The version of the agent's CLI. Absent if the agent does not report it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_version: Option<String>,
    /// The model that the agent used. Absent if the agent does not report it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
}

impl SessionEnded {
    /// Returns the usage of the session.
    pub fn usage(&self) -> Usage {
        let SessionEnded { tokens, cost_usd, cost_source, counts, .. } = *self;
        Usage { tokens, cost_usd, cost_source, counts }
    }
}

/// The fields that all endings of an iteration share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IterationEnd {
    /// The node's name.
    pub node: NodeName,
    /// The iteration's number, from 1.
    pub iteration: Iteration,
    /// How long the iteration lasted, in seconds, including its commands.
    pub duration_s: Dur,
    /// Why the iteration has this ending, as a sentence for people (docs/reference/exit-codes.md).
    pub because: String,
    /// The error without its volatile parts; similar failures have the same fingerprint. Absent if nothing failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fingerprint: Option<String>,
}

/// A file that the checks depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The path, relative to the directory in which the node works.
    pub path: String,
    /// The SHA-256 hash of the content. Absent if there is no such file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
}

/// The fields of `node_attempt`: the checks of an iteration and their verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeAttempt {
    /// The node's name.
    pub node: NodeName,
    /// The iteration's number, from 1.
    pub iteration: Iteration,
    /// How long the iteration has lasted so far, in seconds of awake time.
    pub duration_s: Dur,
    /// Whether all checks exited with 0.
    pub converged: bool,
    /// The wait before this attempt, in seconds. Absent for the first attempt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backoff_s: Option<Dur>,
    /// Whether the attempt does not count because the agent did not work (idle, refused, interrupted). An attempt that
    /// converged counts anyway. Absent if false.
    #[serde(skip_serializing_if = "is_false", default)]
    pub uncounted: bool,
    /// Whether the attempt made progress: the work tree reached a state that is new in this run, and the failing checks
    /// or their output changed. Such an attempt is not charged. Absent if false.
    #[serde(skip_serializing_if = "is_false", default)]
    pub progress: bool,
    /// The hash of the work tree that the checks judged. Absent if it is unknown or not needed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tree: Option<String>,
    /// The result of each check.
    pub results: Vec<CheckResult>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The command.
    pub cmd: String,
    /// The exit code, as in a shell: 128 plus the signal, 124 after a timeout, 127 if it could not be started.
    pub rc: i32,
    /// How long the check ran, in seconds.
    pub duration_s: Dur,
    /// The end of the output of a failed check. Absent if it passed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tail: Option<String>,
    /// Whether `tail` is only a part of the output. Absent if false.
    #[serde(skip_serializing_if = "is_false", default)]
    pub truncated: bool,
    /// Whether the check was stopped at its timeout. Absent if false.
    #[serde(skip_serializing_if = "is_false", default)]
    pub timed_out: bool,
    /// Whether the check failed and then passed on the same work tree. Absent if false.
    #[serde(skip_serializing_if = "is_false", default)]
    pub flaky: bool,
    /// The exit code of the first try, if the check ran more than once on the same work tree.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_rc: Option<i32>,
}

/// The fields of `recovery_planned`: the step that follows a failed iteration, by the table of docs/guide/recovery.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoveryPlanned {
    /// The node's name.
    pub node: NodeName,
    /// The number of the iteration that failed.
    pub iteration: Iteration,
    /// The class of the failure.
    pub class: Class,
    /// The chosen step.
    pub action: Action,
    /// What happened, as a sentence for people.
    pub because: String,
    /// How much of the recovery budget is used. Absent if zero.
    #[serde(skip_serializing_if = "is_first", default)]
    pub used: u32,
    /// The size of the recovery budget. Absent if there is none.
    #[serde(skip_serializing_if = "is_first", default)]
    pub budget: u32,
    /// The command line of the agent that is set aside, if one is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<String>,
    /// Until when that agent is set aside. Absent if for the rest of the run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Wall>,
    /// The command line of the agent that works next, if it is a different one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_agent: Option<String>,
}

/// The fields of `run_ended`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnded {
    /// How the run ended.
    pub outcome: Outcome,
    /// The reason as a sentence for people.
    pub reason: String,
    /// Whether the checks of every node passed.
    pub verified: bool,
    /// The number of iterations that count for `-n`.
    pub iterations: u64,
    /// The number of completed iterations, including idle ones.
    pub completed: u64,
    /// The number of failed iterations, including those that timed out.
    pub failed: u64,
    /// The number of idle iterations.
    pub idle: u64,
    /// The number of nodes in each final state.
    pub nodes: NodeCounts,
    /// The number of nodes that converged, but not on the first attempt.
    pub flake_retries: u64,
    /// How long the run was supervised, in seconds.
    pub total_duration_s: Dur,
    /// The exit code of dogwatch (docs/reference/exit-codes.md).
    pub exit_code: u8,
}

/// The number of nodes in each final state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Nodes that ended successfully.
    pub done: u64,
    /// Nodes that failed.
    pub failed: u64,
    /// Nodes that never started because a node before them failed.
    pub blocked: u64,
}

/// The digest of an agent's input: its prompt, without the parts that change by themselves, and the work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputDigest {
    /// The hash of the prompt.
    pub prompt: String,
    /// The hash of the work tree.
    pub tree: String,
}

/// The tokens and the cost of a session. A value that is not known is absent, not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The number of tokens. Absent if the agent does not report it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens: Option<u64>,
    /// The cost in US dollars. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_usd: Option<f64>,
    /// Where the cost comes from. Absent without a cost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_source: Option<CostSource>,
    /// The tokens by kind. Absent if the agent does not report them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counts: Option<TokenCounts>,
}

impl Usage {
    /// Returns the cost if it was computed, and otherwise zero.
    pub fn computed(&self) -> f64 {
        self.cost_usd.filter(|_| self.cost_source == Some(CostSource::Computed)).unwrap_or(0.0)
    }
}

/// A report from the agent, or about a server behind the MCP proxy, that is not part of the agent's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The subject of the report.
    pub kind: ReportKind,
    /// The text of the report: one line, at most 500 bytes. For an artifact, its name.
    pub text: String,
    /// The number of finished steps, for progress.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub done: Option<u64>,
    /// The number of all steps, for progress.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub total: Option<u64>,
    /// The size of an artifact in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    /// The number of reports before this one that came too fast to be recorded. Absent if there are none.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub withheld: u64,
}

/// A stretch of progress on one channel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The channel.
    pub channel: Channel,
    /// The time of the first piece of progress, in milliseconds of the awake clock.
    pub first_ms: Awake,
    /// The time of the last piece of progress, in milliseconds of the awake clock.
    pub last_ms: Awake,
    /// The number of pieces of progress.
    pub count: u64,
    /// How many of them were messages. Absent if none were.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub messages: u64,
    /// The longest gap between two pieces of this stretch, in milliseconds.
    pub max_gap_ms: u64,
    /// On the channel `workspace`: the digest of the work tree after the last change. Absent while it is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub digest: Option<u64>,
}
