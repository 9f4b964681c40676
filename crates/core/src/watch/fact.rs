//! What the watchdog is told. Everything here is journalled as it is, so that a replay sees the same.

use crate::record::event::Observation;
use crate::time::dur::Dur;
use serde::{Deserialize, Serialize};

/// One fact about a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// The agent has printed something on stdout, were it only that it has begun. Told once, for agents whose
    /// stream is known: to have said nothing at all is something else than to have gone silent.
    Printed,
    /// A plain agent printed a line again after a pause. The work that went on meanwhile decides whether it counts.
    Repeated,
    /// A stretch of progress on a channel.
    Observed(Observation),
    ToolStarted(ToolStarted),
    ToolEnded {
        id: String,
        ok: bool,
        /// The result with its volatile parts stripped, hashed.
        #[serde(with = "hex64")]
        result: u64,
        /// What went wrong, as a fingerprint; for results that are not ok.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        error: String,
        /// As in its start.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        heartbeat: bool,
        /// The CLI canceled the call because a parallel call failed. It never ran, so it is no error and no part of
        /// a loop.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        canceled: bool,
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
    /// The agent asks for something that only a person can give. Until it goes on nobody blames it for its silence.
    NeedsHuman {
        what: String,
    },
    /// The host slept, or nobody watched: nothing counts for that long.
    Suspended {
        for_ms: u64,
    },
}

impl Fact {
    /// It says that the agent is alive, and no more.
    pub fn is_heartbeat(&self) -> bool {
        match self {
            Fact::ToolStarted(tool) => tool.heartbeat,
            Fact::ToolEnded { heartbeat, .. } => *heartbeat,
            Fact::Printed
            | Fact::Repeated
            | Fact::Observed(_)
            | Fact::Error { .. }
            | Fact::SubagentStarted { .. }
            | Fact::SubagentEnded { .. }
            | Fact::Sampled { .. }
            | Fact::NeedsHuman { .. }
            | Fact::Suspended { .. } => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolStarted {
    pub id: String,
    pub name: String,
    /// Name and arguments, nested ones too, hashed.
    #[serde(with = "hex64")]
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
    /// It tells dogwatch that the agent is alive, and no more: presence, which buys nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub heartbeat: bool,
}

/// A hash is written in hexadecimal: many readers of JSON know no whole numbers beyond 2^53.
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
