//! The meaning of a piece of agent output. The readers turn bytes into signs, and `Totals` adds up the signs of a session.
//! `Sign::into_fact` returns the fact for the watchdog, and `Sign::progress` the channel on which a sign is progress. All
//! texts kept here are bounded.

use crate::record::event::Usage;
use crate::record::prices::{ComputedCost, CostSource, MAX_MODELS, ModelCounts, PriceTable, TokenCounts};
use crate::record::windows::Window;
use crate::text::{clip, one_line};
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use crate::watch::health::HealthIssue;
use crate::watch::{Channel, Fact, ToolStarted};
use serde::{Deserialize, Serialize};

mod heartbeats;
mod limit;

pub use heartbeats::Heartbeats;
pub use limit::{Clock, Limit, LimitKind, ResetsAt};

/// The longest question to a person that is kept, in bytes.
const MAX_ASKED: usize = 200;

/// A meaningful piece of an agent's output, roughly in the order of a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Sign {
    /// The agent reported its session.
    SessionId {
        /// The id under which the session can be resumed.
        id: String,
    },
    /// The agent reported its version or its model.
    Agent {
        /// The version of the agent's CLI, if it is reported.
        version: Option<String>,
        /// The model that the agent uses, if it is reported.
        model: Option<String>,
    },
    /// A new message of the agent.
    Message,
    /// New text that is not a separate message: the next piece of one, or the agent's thinking.
    Text,
    /// A tool call started. A second start with the same id is the same call with better data: the later one counts.
    ToolStarted(ToolStarted),
    /// A tool call ended.
    ToolEnded {
        /// The id of the call.
        id: String,
        /// Whether the call succeeded.
        ok: bool,
        /// The hash of the result without its volatile parts.
        result: u64,
        /// The fingerprint of the error; empty if the call succeeded.
        error: String,
        /// Whether the call is a heartbeat. `Heartbeats` sets this.
        heartbeat: bool,
        /// Whether the CLI canceled the call because a parallel call failed.
        canceled: bool,
    },
    /// A subagent started.
    SubagentStarted {
        /// The subagent's id.
        id: String,
    },
    /// A subagent printed or did something, or used more tokens than before.
    SubagentProgress {
        /// The subagent's id.
        id: String,
    },
    /// A subagent ended.
    SubagentEnded {
        /// The subagent's id.
        id: String,
    },
    /// The agent's CLI retries a request. This shows that it is alive but is not progress.
    Retrying {
        /// The HTTP status that the service returned, if the agent reports it.
        status: Option<u16>,
        /// The delay before the next try, if the agent reports it.
        delay: Option<Dur>,
    },
    /// An error that does not end the session.
    Error {
        /// The error, clipped.
        text: String,
        /// The fingerprint of the error.
        fingerprint: String,
    },
    /// The service refused for now, and the CLI gave up. A CLI that retries by itself produces `Retrying`.
    Limit(Limit),
    /// The service rejected the login.
    AuthFailed {
        /// The service's message.
        text: String,
    },
    /// The agent was refused something that only a person can grant.
    NeedsHuman {
        /// The question in the agent's words.
        text: String,
    },
    /// Background work of the agent, which may continue after its result.
    BackgroundWork {
        /// The number of open tasks.
        open: u32,
    },
    /// The totals of the session so far.
    Usage {
        /// The number of tokens, if the agent reports it.
        tokens: Option<u64>,
        /// The cost in US dollars, if the agent reports it.
        cost_usd: Option<f64>,
    },
    /// The tokens of the session so far, by model and kind. It precedes the `Usage` with the same figures.
    Counts(Vec<ModelCounts>),
    /// The service reported how much of the subscription's windows is used.
    Windows {
        /// When, if it was not just now.
        seen_at: Option<Wall>,
        /// The windows.
        windows: Vec<Window>,
    },
    /// The agent's result. The last one of a session counts.
    Result(AgentResult),
    /// A plain agent printed a line that it had printed before, or part of a line.
    Repeated,
    /// A heartbeat or lifecycle line, which only shows that the agent is alive.
    Keepalive,
    /// A line that the reader does not recognize.
    Unknown,
    /// The reader did not recognize most of the last lines, so the output format is a different one. Produced once; from
    /// now on every new line counts as text.
    Drift,
}

impl Sign {
    /// Creates an error with its fingerprint.
    pub fn error(text: &str) -> Sign {
        Sign::Error { text: text.to_owned(), fingerprint: crate::text::fingerprint::fingerprint(text) }
    }

    /// Returns the fact that is passed to the watchdog by itself, if there is one. Other progress goes through the
    /// coalescer.
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
            Sign::SessionId { .. }
            | Sign::Agent { .. }
            | Sign::Message
            | Sign::Text
            | Sign::SubagentProgress { .. }
            | Sign::Retrying { .. }
            | Sign::Limit(_)
            | Sign::AuthFailed { .. }
            | Sign::BackgroundWork { .. }
            | Sign::Usage { .. }
            | Sign::Counts(_)
            | Sign::Windows { .. }
            | Sign::Result(_)
            | Sign::Keepalive
            | Sign::Unknown
            | Sign::Drift => return None,
        })
    }

    /// Returns the health issue that the sign reports, if any.
    pub fn health_issue(&self) -> Option<HealthIssue> {
        if let Sign::Retrying { status, delay } = *self {
            return Some(HealthIssue::Retrying { status, delay });
        }
        matches!(self, Sign::Drift).then_some(HealthIssue::Drifted)
    }

    /// Returns the channel on which the sign is progress. Starts and ends of tool calls are progress on stdout too, but
    /// they are separate facts and must not count twice.
    pub fn progress(&self) -> Option<Channel> {
        let stdout = matches!(self, Sign::Message | Sign::Text | Sign::Result(_));
        let subagent = matches!(
            self,
            Sign::SubagentStarted { .. } | Sign::SubagentProgress { .. } | Sign::SubagentEnded { .. }
        );
        stdout.then_some(Channel::Stdout).or(subagent.then_some(Channel::Subagent))
    }
}

/// The agent's own result. It is recorded but never trusted alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentResult {
    /// The last `AgentResult::MAX_TEXT` bytes of the final text; markers are at its end.
    pub text: String,
    /// Whether the agent reports an error.
    pub is_error: bool,
    /// The HTTP status that the service returned, if the agent reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub api_status: Option<u16>,
}

impl AgentResult {
    /// The longest text that is kept, in bytes.
    pub const MAX_TEXT: usize = 64 * 1024;

    /// Creates a result and clips its text.
    pub fn new(text: &str, is_error: bool) -> AgentResult {
        AgentResult { text: tail(text, AgentResult::MAX_TEXT).to_owned(), is_error, api_status: None }
    }
}

/// Returns the longest suffix of at most `max` bytes that starts at a character boundary.
pub fn tail(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

/// The totals of a session's signs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// The number of messages.
    pub messages: u64,
    /// The number of tool calls.
    pub tools: u64,
    /// The number of errors.
    pub errors: u64,
    /// The number of subagents.
    pub subagents: u64,
    /// The number of lines that the reader did not recognize.
    pub unknown: u64,
    /// Whether the reader did not recognize most lines.
    pub drifted: bool,
    /// The id of the agent's own session.
    pub session_id: Option<String>,
    /// The version of the agent's CLI, if it reports it.
    pub agent_version: Option<String>,
    /// The agent's model, if it reports it.
    pub model: Option<String>,
    /// The number of tokens used, if the agent reports it.
    pub tokens: Option<u64>,
    /// The cost in US dollars, if the agent reports it.
    pub cost_usd: Option<f64>,
    /// The tokens by model and kind, if the agent reports them.
    pub by_model: Vec<ModelCounts>,
    /// The last report about the subscription's windows, and when it was made if not just then.
    pub windows: Option<(Option<Wall>, Vec<Window>)>,
    /// The number of open background tasks.
    pub background: u32,
    /// The last result.
    pub result: Option<AgentResult>,
    /// The last refusal of the service, unless a good result came after it.
    pub limit: Option<Limit>,
    /// The text of a rejected login, unless a good result came after it.
    pub auth_failed: Option<String>,
    /// The last question to a person.
    pub needs_human: Option<String>,
    /// The last error, clipped.
    pub last_error: Option<String>,
}

impl Totals {
    const MAX_ERROR: usize = 500;

    /// Adds a sign.
    pub fn add(&mut self, sign: &Sign) {
        match sign {
            Sign::SessionId { id } => self.session_id = Some(id.clone()),
            Sign::Agent { version, model } => {
                self.agent_version = version.clone().or(self.agent_version.take());
                self.model = model.clone().or(self.model.take());
            }
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
                self.cost_usd = cost_usd.map(in_nano_dollars).or(self.cost_usd);
            }
            Sign::Counts(by_model) => self.by_model = by_model.iter().take(MAX_MODELS).cloned().collect(),
            Sign::Windows { seen_at, windows } => self.windows = Some((*seen_at, windows.clone())),
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

    /// Returns the usage so far. A cost that the agent does not report is computed, if the prices are known.
    pub fn usage(&self, prices: &PriceTable) -> Usage {
        let computed = self.computed_cost(prices).map(|cost| cost.usd);
        let source = match (self.cost_usd, computed) {
            (Some(_), _) => Some(CostSource::Reported),
            (None, Some(_)) => Some(CostSource::Computed),
            (None, None) => None,
        };
        Usage {
            tokens: self.tokens,
            cost_usd: self.cost_usd.or(computed),
            cost_source: source,
            counts: self.counts(),
        }
    }

    /// Returns the cost by the price table, unless the agent reports one.
    pub fn computed_cost(&self, prices: &PriceTable) -> Option<ComputedCost> {
        match self.cost_usd {
            Some(_) => None,
            None => prices.cost(&self.by_model, self.model.as_deref()),
        }
    }

    /// Returns the tokens by kind, of all models together.
    pub fn counts(&self) -> Option<TokenCounts> {
        self.by_model.iter().map(|used| used.counts).reduce(TokenCounts::plus)
    }

    /// Notes a result. A good result shows that an earlier refusal is over.
    fn ended(&mut self, result: AgentResult) {
        if !result.is_error {
            self.limit = None;
            self.auth_failed = None;
        }
        self.result = Some(result);
    }
}

/// Rounds a sum to a number that is read from the journal exactly as it was written.
fn in_nano_dollars(usd: f64) -> f64 {
    (usd * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Sign {
        Sign::Limit(Limit { kind: LimitKind::Overload, resets_at: None, text: "529".into() })
    }

    #[test]
    fn a_refusal_lasts_until_a_good_result() {
        let mut totals = Totals::default();
        totals.add(&limit());
        totals.add(&Sign::AuthFailed { text: "401".into() });
        totals.add(&Sign::Result(AgentResult::new("no", true)));
        assert!(totals.limit.is_some() && totals.auth_failed.is_some());
        totals.add(&Sign::Result(AgentResult::new("yes", false)));
        assert!(totals.limit.is_none() && totals.auth_failed.is_none());
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
            Sign::Agent { version: None, model: Some("m".into()) },
            Sign::BackgroundWork { open: 1 },
            Sign::Usage { tokens: Some(1), cost_usd: None },
            limit(),
        ] {
            assert_eq!((sign.progress(), sign.into_fact()), (None, None));
        }
    }

    // promise: 7
    #[test]
    fn a_cost_is_read_from_the_journal_exactly_as_it_was_recorded() {
        let mut totals = Totals::default();
        totals.add(&Sign::Usage { tokens: None, cost_usd: Some(0.1 + 0.2 - 0.252_843) });
        let cost = totals.cost_usd.expect("it was reported");
        let written = serde_json::to_string(&cost).expect("a number");
        assert_eq!(serde_json::from_str::<f64>(&written).expect("a number").to_bits(), cost.to_bits());
    }
}
