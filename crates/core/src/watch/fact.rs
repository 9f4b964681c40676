//! The facts that the watchdog takes. They are recorded unchanged, so a replay sees the same.

use crate::record::event::{Event, Observation};
use crate::record::ids::{Iteration, NodeName};
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use serde::{Deserialize, Serialize};

/// A fact about a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// A structured agent printed its first line on stdout. Sent once, because an agent that never printed anything is
    /// judged differently from one that went silent.
    Printed,
    /// A plain agent printed an old line or part of a line after a pause. It counts as progress only if there was work meanwhile.
    Repeated,
    /// A stretch of progress on a channel.
    Observed(Observation),
    /// A tool call started.
    ToolStarted(ToolStarted),
    /// A tool call ended.
    ToolEnded {
        /// The id of the call.
        id: String,
        /// Whether the call succeeded.
        ok: bool,
        /// The hash of the result without its volatile parts.
        #[serde(with = "hex64")]
        result: u64,
        /// The fingerprint of the error, if the call failed.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        error: String,
        /// Whether the call is a heartbeat, as in its start.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        heartbeat: bool,
        /// Whether the CLI canceled the call because a parallel call failed. The call never ran, so it is neither an
        /// error nor part of a loop.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        canceled: bool,
    },
    /// An error outside of a tool call.
    Error {
        /// The fingerprint of the error.
        fingerprint: String,
    },
    /// A subagent started.
    SubagentStarted {
        /// The subagent's id.
        id: String,
    },
    /// A subagent ended.
    SubagentEnded {
        /// The subagent's id.
        id: String,
    },
    /// A sample of the agent's child processes.
    Sampled {
        /// The number of live children.
        children: u32,
        /// The CPU time that all of them have used so far, in milliseconds.
        cpu_ms: u64,
    },
    /// The agent asks for something that only a person can give. Its silence does not count until it makes progress.
    NeedsHuman {
        /// The question in the agent's words.
        what: String,
    },
    /// The machine was suspended, or dogwatch could not run. This time does not count.
    Suspended {
        /// How long, in milliseconds.
        for_ms: u64,
    },
}

impl Fact {
    /// Returns whether the fact only shows that the agent is alive.
    pub fn is_heartbeat(&self) -> bool {
        matches!(
            self,
            Fact::ToolStarted(ToolStarted { heartbeat: true, .. }) | Fact::ToolEnded { heartbeat: true, .. }
        )
    }

    /// Returns whether the fact is the start or the end of a tool call that is not a heartbeat.
    pub fn is_call(&self) -> bool {
        matches!(self, Fact::ToolStarted(_) | Fact::ToolEnded { .. }) && !self.is_heartbeat()
    }

    /// Returns the event that records the fact. `unanswered` is when a session is stopped whose question has no answer.
    pub fn into_event(self, node: NodeName, iteration: Iteration, unanswered: Option<Wall>) -> Event {
        if let Fact::Observed(seen) = self {
            Event::Observed { node, iteration, seen }
        } else if let Fact::NeedsHuman { what } = self {
            Event::NeedsHuman { node, iteration, what, until: unanswered }
        } else {
            Event::Fact { node, iteration, fact: self }
        }
    }
}

/// The start of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The id of the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The most informative argument of the call, for people: the command, the file or the query. One line without
    /// secrets, at most 120 bytes; absent if there is none.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub subject: String,
    /// The hash of the name and all arguments.
    #[serde(with = "hex64")]
    pub call: u64,
    /// The timeout that the call declares.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout: Option<Dur>,
    /// Whether the call delegates to a subagent, so its time counts as waiting on children.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub delegates: bool,
    /// Whether the call goes to an MCP server.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub mcp: bool,
    /// Whether the call is dogwatch's own `heartbeat`, which shows presence but moves no deadline.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub heartbeat: bool,
}

/// Writes a hash in hexadecimal, because many JSON readers do not support integers beyond 2^53.
mod hex64 {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(hash: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{hash:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        u64::from_str_radix(&text, 16).map_err(de::Error::custom)
    }
}
