//! What a piece of agent output means. The agents' readers turn bytes into signs; a `Tally` adds up the
//! signs of one session. Neither keeps more than a bounded piece of what the agent said.

use crate::text::clip;
use serde::{Deserialize, Serialize};

/// One meaningful thing an agent printed.
#[derive(Clone, Debug, PartialEq)]
pub enum Sign {
    /// The agent said something new.
    Message,
    /// New text that is no message of its own: the next piece of one, or the agent's thinking aloud.
    Text,
    ToolStarted {
        id: String,
        name: String,
    },
    ToolEnded {
        id: String,
        ok: bool,
    },
    /// A subagent did something, or began or ended.
    Subagent,
    /// Something went wrong; the session goes on.
    Error {
        text: String,
    },
    Usage {
        tokens: Option<u64>,
        cost_usd: Option<f64>,
    },
    /// What the agent answers. The last one of a session counts.
    Result(AgentResult),
    /// Alive, and no more than that: heartbeats, retries, lifecycle lines.
    Keepalive,
    /// A line the reader cannot place.
    Unknown,
}

/// An agent's own account of how it ended. Recorded, never believed alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentResult {
    /// The final text, at most `AgentResult::MAX_TEXT` bytes of it: the end, where markers stand.
    pub text: String,
    pub is_error: bool,
    /// The HTTP status the agent's API answered with, if the agent says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub api_status: Option<u16>,
}

impl AgentResult {
    pub const MAX_TEXT: usize = 64 * 1024;

    pub fn new(text: &str, is_error: bool) -> AgentResult {
        AgentResult { text: tail(text, AgentResult::MAX_TEXT).to_owned(), is_error, api_status: None }
    }
}

/// The last at most `max` bytes of a text, beginning between characters.
pub fn tail(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

/// The sum of a session's signs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    pub messages: u64,
    pub tools: u64,
    pub errors: u64,
    pub unknown: u64,
    pub tokens: Option<u64>,
    pub cost_usd: Option<f64>,
    pub result: Option<AgentResult>,
    /// The last error, clipped.
    pub last_error: Option<String>,
}

impl Tally {
    const MAX_ERROR: usize = 500;

    pub fn add(&mut self, sign: Sign) {
        match sign {
            Sign::Message => self.messages += 1,
            Sign::ToolStarted { .. } => self.tools += 1,
            Sign::Text | Sign::ToolEnded { .. } | Sign::Subagent | Sign::Keepalive => {}
            Sign::Error { text } => {
                self.errors += 1;
                self.last_error = Some(clip(&text, Tally::MAX_ERROR).to_owned());
            }
            Sign::Usage { tokens, cost_usd } => {
                self.tokens = tokens.or(self.tokens);
                self.cost_usd = cost_usd.or(self.cost_usd);
            }
            Sign::Result(result) => self.result = Some(result),
            Sign::Unknown => self.unknown += 1,
        }
    }
}
