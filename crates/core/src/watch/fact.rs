//! What the watchdog is told. Everything here is journalled as it is, so that a replay sees the same.

use crate::dur::Dur;
use crate::event::Observation;
use serde::{Deserialize, Serialize};

/// One fact about a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// A stretch of progress on a channel.
    Observed(Observation),
    ToolStarted(ToolStarted),
    ToolEnded {
        id: String,
        ok: bool,
        /// The result with its volatile parts stripped, hashed.
        result: u64,
        /// What went wrong, as a fingerprint; for results that are not ok.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        error: String,
    },
    /// An error that is no tool's.
    Error {
        fingerprint: String,
    },
    SubagentStarted {
        id: String,
    },
    SubagentEnded {
        id: String,
    },
    /// Children of the agent that are alive, and the CPU time all of them have used so far.
    Sampled {
        children: u32,
        cpu_ms: u64,
    },
    /// The host slept, or nobody watched: nothing counts for that long.
    Suspended {
        for_ms: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolStarted {
    pub id: String,
    pub name: String,
    /// Name and arguments, nested ones too, hashed.
    pub call: u64,
    /// The timeout the call itself declares.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout: Option<Dur>,
    /// It hands the work to a subagent, so its time is time spent waiting on children.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub delegates: bool,
    /// It is a call to an MCP server.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub mcp: bool,
}
