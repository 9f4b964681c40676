//! What a piece of agent output means. The agents' readers turn bytes into signs; a `Totals` adds up the
//! signs of one session; `Sign::into_fact` is what the watchdog is told of one, `Sign::progress` where it shows
//! work. Nothing here keeps more than a bounded piece of what the agent said.

use crate::text::{clip, one_line};
use crate::time::dur::Dur;
use crate::watch::health::HealthIssue;
use crate::watch::{Channel, Fact, ToolStarted};
use serde::{Deserialize, Serialize};

mod heartbeats;
mod limit;

pub use heartbeats::Heartbeats;
pub use limit::{Clock, Limit, LimitKind, ResetsAt};

/// How much of what an agent asks a person is kept.
const MAX_ASKED: usize = 200;

/// One meaningful thing an agent printed, in the order of a session's life.
#[derive(Clone, Debug, PartialEq)]
pub enum Sign {
    /// By what name the session can be resumed.
    SessionId {
        id: String,
    },
    /// The agent said something new.
    Message,
    /// New text that is no message of its own: the next piece of one, or the agent's thinking aloud.
    Text,
    /// A second start with the same id is the same call, told better: the later one counts.
    ToolStarted(ToolStarted),
    ToolEnded {
        id: String,
        ok: bool,
        /// The result with its volatile parts stripped, hashed.
        result: u64,
        /// What went wrong, as a fingerprint; empty for results that are ok.
        error: String,
        /// It is the end of a heartbeat; `Heartbeats` knows.
        heartbeat: bool,
        /// The CLI canceled the call because a parallel call failed.
        canceled: bool,
    },
    SubagentStarted {
        id: String,
    },
    /// It said or did something, or used more tokens than before.
    SubagentProgress {
        id: String,
    },
    SubagentEnded {
        id: String,
    },
    /// The agent's CLI tries a request again. Alive, and no more than that.
    Retrying {
        status: Option<u16>,
        delay: Option<Dur>,
    },
    /// Something went wrong; the session goes on.
    Error {
        text: String,
        fingerprint: String,
    },
    /// The service refused for now. Told when the CLI gives up, not when it tries again by itself.
    Limit(Limit),
    /// The service does not know us, or not any more.
    AuthFailed {
        text: String,
    },
    /// The agent was refused something that only a person can grant.
    NeedsHuman {
        text: String,
    },
    /// So much work goes on behind the agent's back, also after its result.
    BackgroundWork {
        open: u32,
    },
    /// Sums of the session so far, not steps.
    Usage {
        tokens: Option<u64>,
        cost_usd: Option<f64>,
    },
    /// What the agent answers. The last one of a session counts.
    Result(AgentResult),
    /// A plain agent printed a line that it has printed before.
    Repeated,
    /// Alive, and no more than that: heartbeats, lifecycle lines.
    Keepalive,
    /// A line the reader cannot place.
    Unknown,
    /// Most of the last lines were unknown: the format is not the one the reader knows. Told once; from now
    /// on a new line counts as text.
    Drift,
}

impl Sign {
    pub fn error(text: &str) -> Sign {
        Sign::Error { text: text.to_owned(), fingerprint: crate::text::fingerprint::fingerprint(text) }
    }

    /// What the watchdog is told singly. Other progress goes through the coalescer.
    pub fn into_fact(self) -> Option<Fact> {
        Some(match self {
            Sign::ToolStarted(tool) => Fact::ToolStarted(tool),
            Sign::ToolEnded { id, ok, result, error, heartbeat, canceled } => {
                Fact::ToolEnded { id, ok, result, error, heartbeat, canceled }
            }
            Sign::Error { fingerprint, .. } => Fact::Error { fingerprint },
            Sign::SubagentStarted { id } => Fact::SubagentStarted { id },
            Sign::SubagentEnded { id } => Fact::SubagentEnded { id },
            Sign::Repeated => Fact::Repeated,
            Sign::NeedsHuman { text } => Fact::NeedsHuman { what: one_line(&text, MAX_ASKED) },
            _ => return None,
        })
    }

    /// What it tells of the agent's condition that is no matter of the watchdog.
    pub fn strain(&self) -> Option<HealthIssue> {
        match self {
            Sign::Drift => Some(HealthIssue::Drifted),
            Sign::Retrying { status, delay } => {
                Some(HealthIssue::Retrying { status: *status, delay: *delay })
            }
            _ => None,
        }
    }

    /// The channel on which this is progress. Starts and ends of tools are progress too, on stdout, but as
    /// facts of their own they are not counted twice.
    pub fn progress(&self) -> Option<Channel> {
        match self {
            Sign::Message | Sign::Text | Sign::Result(_) => Some(Channel::Stdout),
            Sign::SubagentStarted { .. } | Sign::SubagentProgress { .. } | Sign::SubagentEnded { .. } => {
                Some(Channel::Subagent)
            }
            Sign::ToolStarted(_) | Sign::ToolEnded { .. } => None,
            Sign::SessionId { .. }
            | Sign::Retrying { .. }
            | Sign::Error { .. }
            | Sign::Limit(_)
            | Sign::AuthFailed { .. }
            | Sign::NeedsHuman { .. }
            | Sign::BackgroundWork { .. }
            | Sign::Usage { .. }
            | Sign::Repeated
            | Sign::Keepalive
            | Sign::Unknown
            | Sign::Drift => None,
        }
    }
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
pub struct Totals {
    pub messages: u64,
    pub tools: u64,
    pub errors: u64,
    pub subagents: u64,
    pub unknown: u64,
    pub drifted: bool,
    pub session_id: Option<String>,
    pub tokens: Option<u64>,
    pub cost_usd: Option<f64>,
    /// Work that goes on behind the agent's back.
    pub background: u32,
    pub result: Option<AgentResult>,
    /// Why the service refused, unless a good result came after it.
    pub limit: Option<Limit>,
    pub auth_failed: Option<String>,
    pub needs_human: Option<String>,
    /// The last error, clipped.
    pub last_error: Option<String>,
}

impl Totals {
    const MAX_ERROR: usize = 500;

    pub fn add(&mut self, sign: &Sign) {
        match sign {
            Sign::SessionId { id } => self.session_id = Some(id.clone()),
            Sign::Message => self.messages += 1,
            Sign::ToolStarted(_) => self.tools += 1,
            Sign::SubagentStarted { .. } => self.subagents += 1,
            Sign::Error { text, .. } => {
                self.errors += 1;
                self.last_error = Some(clip(text, Totals::MAX_ERROR).to_owned());
            }
            Sign::Limit(limit) => self.limit = Some(limit.clone()),
            Sign::AuthFailed { text } => self.auth_failed = Some(text.clone()),
            Sign::NeedsHuman { text } => self.needs_human = Some(text.clone()),
            Sign::BackgroundWork { open } => self.background = *open,
            Sign::Usage { tokens, cost_usd } => {
                self.tokens = tokens.or(self.tokens);
                self.cost_usd = cost_usd.or(self.cost_usd);
            }
            Sign::Result(result) => self.ended(result.clone()),
            Sign::Unknown => self.unknown += 1,
            Sign::Drift => self.drifted = true,
            Sign::Text
            | Sign::ToolEnded { .. }
            | Sign::SubagentProgress { .. }
            | Sign::SubagentEnded { .. }
            | Sign::Retrying { .. }
            | Sign::Repeated
            | Sign::Keepalive => {}
        }
    }

    /// A good result means that the agent got over what stopped it before.
    fn ended(&mut self, result: AgentResult) {
        if !result.is_error {
            self.limit = None;
            self.auth_failed = None;
        }
        self.result = Some(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Sign {
        Sign::Limit(Limit { kind: LimitKind::Overload, resets_at: None, text: "529".into() })
    }

    #[test]
    fn a_refusal_stands_until_a_good_result() {
        let mut tally = Totals::default();
        tally.add(&limit());
        tally.add(&Sign::AuthFailed { text: "401".into() });
        tally.add(&Sign::Result(AgentResult::new("no", true)));
        assert!(tally.limit.is_some() && tally.auth_failed.is_some());
        tally.add(&Sign::Result(AgentResult::new("yes", false)));
        assert!(tally.limit.is_none() && tally.auth_failed.is_none());
    }

    #[test]
    fn loop_18_the_parents_own_text_never_marks_the_subagent_channel() {
        for sign in [Sign::Message, Sign::Text, Sign::Result(AgentResult::default())] {
            assert_eq!(sign.progress(), Some(Channel::Stdout));
        }
        assert_eq!(Sign::SubagentProgress { id: "1".into() }.progress(), Some(Channel::Subagent));
    }

    #[test]
    fn loop_5_keepalives_retries_and_lifecycle_lines_are_neither_progress_nor_facts() {
        for sign in [
            Sign::Keepalive,
            Sign::Unknown,
            Sign::Drift,
            Sign::Retrying { status: Some(529), delay: None },
            Sign::SessionId { id: "x".into() },
            Sign::BackgroundWork { open: 1 },
            Sign::Usage { tokens: Some(1), cost_usd: None },
            limit(),
        ] {
            assert_eq!((sign.progress(), sign.into_fact()), (None, None));
        }
    }
}
