//! A job is one process tree: a session, or a command. The shell runs it under a keeper; the core
//! decides when it has lasted too long and how it is ended.

use crate::record::ids::{Iteration, NodeIx};
use crate::time::moment::Wall;
use crate::watch::sign::Totals;

/// Which process tree. Facts about a job whose iteration has closed are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    pub node: NodeIx,
    pub iteration: Iteration,
    pub kind: JobKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// The command with this index in the node's list.
    Command(usize),
    /// `work_when`: is there anything to do?
    Gate,
    Session,
    /// The work tree is kept as it is now.
    Snapshot,
    /// `wake_on.probe`: should the wait end?
    Probe,
    /// The check with this index in the node's list.
    Check(usize),
    /// The node's own git worktree is made, or found again.
    Worktree,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    pub fn code(self) -> Option<i32> {
        match self {
            Exit::Code(c) => Some(c),
            Exit::Signal(_) => None,
        }
    }

    pub fn signal(self) -> Option<i32> {
        match self {
            Exit::Code(_) => None,
            Exit::Signal(s) => Some(s),
        }
    }
}

/// What the shell knows of a job once its tree is empty and its pipes are drained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobReport {
    pub tally: Totals,
    /// A marker in the agent's result text.
    pub marker: Option<Marker>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub cut_bytes: u64,
    /// Processes that were still there after the main one's exit and were ended.
    pub stragglers: u64,
    /// What came of a snapshot.
    pub snapshot: Option<Snapshot>,
    /// What came of making a worktree.
    pub worktree: Option<Worktree>,
    /// The end of a check's output.
    pub tail: Tail,
    /// When the service that refused will answer again, if it said so.
    pub resets_at: Option<Wall>,
    /// The last line of stderr or stdout, for agents that give no error of their own.
    pub last_line: String,
}

/// What came of keeping the work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Snapshot {
    Taken {
        name: String,
        files: u64,
        /// Files that are not in it.
        skipped: u64,
    },
    /// There is nothing to keep here, and there will not be.
    NoWorkTree {
        why: String,
    },
    Failed {
        why: String,
    },
}

/// What came of making a node's worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Worktree {
    Ready { path: String, branch: String },
    Failed { why: String },
}

/// The last bytes of a check's output: stderr, then stdout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    pub text: String,
    pub truncated: bool,
}

impl Tail {
    /// How much of a failing check's output is kept.
    pub const MAX_BYTES: usize = 4096;
}

/// `<!-- ralph:state NAME key=value … -->` in the agent's result text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub state: String,
    pub attrs: Vec<(String, String)>,
}

impl Marker {
    pub const MAX_STATE: usize = 64;
    pub const MAX_ATTRS: usize = 16;
    pub const MAX_KEY: usize = 64;
    pub const MAX_VALUE: usize = 256;
    /// A longer comment is no marker.
    pub const MAX_LEN: usize = 4 * 1024;

    pub fn attr(&self, key: &str) -> Option<&str> {
        self.attrs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}
