//! Jobs. A job is one process tree: a session or a command. The shell runs it under a keeper; the core decides
//! when it times out and how it is stopped.

use crate::record::event::{EndedBy, SessionEnded};
use crate::record::ids::{Iteration, NodeIx, NodeName};
use crate::record::prices::{ComputedCost, CostSource};
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use crate::watch::sign::Totals;
use serde::{Deserialize, Serialize};

/// The identity of a process tree. Facts about a job whose iteration has closed are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// The node.
    pub node: NodeIx,
    /// The iteration.
    pub iteration: Iteration,
    /// The kind of job.
    pub kind: JobKind,
}

/// The purpose of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// The command with this index in the node's list.
    Command(usize),
    /// `work_when`: decides whether there is work.
    Gate,
    /// An agent session.
    Session,
    /// A snapshot of the work tree.
    Snapshot,
    /// `wake_on.probe`: decides whether the wait ends.
    Probe,
    /// The check with this index in the node's list.
    Check(usize),
    /// The creation of the node's own git worktree, or the search for an existing one.
    Worktree,
    /// The setup command with this index in the node's list, in a new worktree.
    Setup(usize),
    /// The commit of what a finished node left uncommitted in its worktree.
    Commit,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// The process exited with this code.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
}

impl Exit {
    /// Returns the exit code, unless a signal killed the process.
    pub fn code(self) -> Option<i32> {
        match self {
            Exit::Code(c) => Some(c),
            Exit::Signal(_) => None,
        }
    }

    /// Returns the signal that killed the process.
    pub fn signal(self) -> Option<i32> {
        match self {
            Exit::Code(_) => None,
            Exit::Signal(s) => Some(s),
        }
    }
}

/// The final report of a job, made once its tree is empty and its pipes are drained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobReport {
    /// The totals of the agent's output.
    pub totals: Totals,
    /// A marker in the agent's result text.
    pub marker: Option<Marker>,
    /// The number of bytes printed on stdout.
    pub stdout_bytes: u64,
    /// The number of bytes printed on stderr.
    pub stderr_bytes: u64,
    /// Output bytes that were dropped because they exceeded a limit.
    pub cut_bytes: u64,
    /// The leftover processes that were killed.
    pub leftovers: Leftovers,
    /// The result of a snapshot job.
    pub snapshot: Option<Snapshot>,
    /// The result of a worktree job.
    pub worktree: Option<Worktree>,
    /// The result of a commit job.
    pub commit: Option<Commit>,
    /// The end of the output of a check or a setup command.
    pub tail: OutputTail,
    /// When the service that refused a request accepts requests again, if it gave a time.
    pub resets_at: Option<Wall>,
    /// The cost of the session by the price table, if its agent does not report one.
    pub computed_cost: Option<ComputedCost>,
    /// The last line of stderr or stdout, for agents that report no error themselves.
    pub last_line: String,
}

/// How a session ended, apart from what its agent printed.
#[derive(Clone, Debug)]
pub struct SessionExit {
    /// How the main process exited.
    pub exit: Option<Exit>,
    /// What ended the session.
    pub ended_by: EndedBy,
    /// How long the session lasted.
    pub lasted: Dur,
    /// The last words of the agent.
    pub said: String,
}

impl JobReport {
    /// Returns the record of a session that ended with this report.
    pub fn session_ended(&self, node: NodeName, iteration: Iteration, how: SessionExit) -> SessionEnded {
        let totals = &self.totals;
        let computed = self.computed_cost.as_ref().filter(|_| totals.cost_usd.is_none());
        let source = if computed.is_some() { CostSource::Computed } else { CostSource::Reported };
        let cost_usd = totals.cost_usd.or(computed.map(|cost| cost.usd));
        SessionEnded {
            node,
            iteration,
            exit_code: how.exit.and_then(Exit::code),
            signal: how.exit.and_then(Exit::signal),
            ended_by: how.ended_by,
            duration_s: how.lasted,
            messages: totals.messages,
            tools: totals.tools,
            tokens: totals.tokens,
            cost_usd,
            cost_source: cost_usd.map(|_| source),
            prices: computed.map(|cost| cost.prices.clone()),
            counts: totals.counts(),
            is_error: totals.result.as_ref().map(|result| result.is_error),
            said: how.said,
            stdout_bytes: self.stdout_bytes,
            stderr_bytes: self.stderr_bytes,
            cut_bytes: self.cut_bytes,
            leftovers: self.leftovers.count,
            leftover_names: self.leftovers.names.clone(),
            session: totals.session_id.clone(),
            agent_version: totals.agent_version.clone(),
            model: totals.model.clone(),
        }
    }
}

/// Processes that were alive after the main process of a job exited and were killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Their number.
    pub count: u64,
    /// The command lines of the first ones: without control characters and secrets, and clipped.
    pub names: Vec<String>,
}

/// The result of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// The snapshot was taken.
    Taken {
        /// The git ref of the snapshot.
        name: String,
        /// The number of files that differ from HEAD.
        files: u64,
        /// Files that are not in it.
        skipped: u64,
        /// The hash of its git tree.
        tree: Option<String>,
    },
    /// The directory has no work tree to take snapshots of; later attempts would fail too.
    NoWorkTree {
        /// The reason, for people.
        why: String,
    },
    /// The snapshot failed.
    Failed {
        /// The reason, for people.
        why: String,
    },
}

/// The result of creating a node's worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "worktree", rename_all = "snake_case")]
pub enum Worktree {
    /// The worktree exists.
    Ready(Arranged),
    /// The worktree cannot be created. Nothing of the user's was changed.
    Failed {
        /// The reason, for people.
        why: String,
    },
}

/// A worktree that is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arranged {
    /// The path of the worktree, for display.
    pub path: String,
    /// The branch that is checked out there.
    pub branch: String,
    /// The commit that is checked out.
    pub commit: String,
    /// The commit on which a new branch starts, before any merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Whether the worktree existed before, with all its files.
    pub reused: bool,
    /// The conflicts between the branches that were merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
}

/// A merge that left conflicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The node whose branch was merged.
    pub from: NodeName,
    /// The files in conflict.
    pub files: Vec<String>,
    /// The messages of git about the conflicts.
    pub detail: String,
}

/// The result of committing a finished node's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum Commit {
    /// The node's branch has all its work.
    Made(Made),
    /// The work cannot be committed. The files are unchanged.
    Failed {
        /// The reason, for people.
        why: String,
    },
}

/// A branch that has all the work of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The branch.
    pub branch: String,
    /// The commit at its tip.
    pub commit: String,
    /// The number of files that had not been committed.
    pub files: u64,
    /// The number of untracked files that were left out.
    pub skipped: u64,
}

/// The last bytes of a check's output: stderr, then stdout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputTail {
    /// The end of the output.
    pub text: String,
    /// Whether output before it was cut.
    pub truncated: bool,
}

impl OutputTail {
    /// The most of a failing check's output that is kept, in bytes.
    pub const MAX_BYTES: usize = 4096;
}

/// `<!-- ralph:state NAME key=value … -->` in the agent's result text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The state in one word.
    pub state: String,
    /// The attributes as pairs of key and value.
    pub attrs: Vec<(String, String)>,
}

impl Marker {
    /// The longest state, in bytes.
    pub const MAX_STATE: usize = 64;
    /// The most attributes of a marker.
    pub const MAX_ATTRS: usize = 16;
    /// The longest key of an attribute, in bytes.
    pub const MAX_KEY: usize = 64;
    /// The longest value of an attribute, in bytes.
    pub const MAX_VALUE: usize = 256;
    /// The longest marker, in bytes. A longer comment is not a marker.
    pub const MAX_LEN: usize = 4 * 1024;

    /// Returns the value of an attribute.
    pub fn attr(&self, key: &str) -> Option<&str> {
        self.attrs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}
