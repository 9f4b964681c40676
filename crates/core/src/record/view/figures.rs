//! The figures of the view: counts of iterations, usage, and the current activity of a node.

use crate::record::event::{SessionEnded, Usage, WaitWhy};
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Wall};
use crate::watch::Channel;
use serde::{Deserialize, Serialize};

/// Evidence of work: its channel and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSeen {
    /// The channel.
    pub channel: Channel,
    /// When it was seen.
    pub at: Wall,
}

/// The number of iterations by ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "CountsStatus"))]
pub struct Counts {
    /// The iterations that count for `-n` and the budget: all but interrupted and rate-limited ones.
    pub iterations: u64,
    /// The completed iterations, including idle ones.
    pub completed: u64,
    /// The idle iterations.
    pub idle: u64,
    /// The failed iterations, without those that timed out.
    pub failed: u64,
    /// The iterations that the watchdog stopped.
    pub timed_out: u64,
    /// The interrupted iterations.
    pub interrupted: u64,
}

impl Counts {
    /// Returns the number of iterations that the other counts add up to, including interrupted ones.
    pub fn ended(&self) -> u64 {
        self.iterations + self.interrupted
    }

    /// Returns the sum of two counts.
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            iterations: self.iterations + other.iterations,
            completed: self.completed + other.completed,
            idle: self.idle + other.idle,
            failed: self.failed + other.failed,
            timed_out: self.timed_out + other.timed_out,
            interrupted: self.interrupted + other.interrupted,
        }
    }
}

/// Tokens and cost. Sessions that did not report theirs are counted, not taken as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SpentStatus"))]
pub struct Used {
    /// The number of tokens used.
    pub tokens: u64,
    /// The cost in US dollars.
    pub cost_usd: f64,
    /// The number of sessions that did not report their tokens.
    pub unknown_tokens: u64,
    /// The number of sessions whose cost is not known.
    pub unknown_cost: u64,
    /// How much of the cost dogwatch computed from list prices, in US dollars. Agents reported the rest.
    #[serde(default)]
    pub computed_usd: f64,
}

impl Used {
    /// Returns the sum of two usages.
    pub fn plus(self, other: Used) -> Used {
        Used {
            tokens: self.tokens.saturating_add(other.tokens),
            cost_usd: self.cost_usd + other.cost_usd,
            unknown_tokens: self.unknown_tokens.saturating_add(other.unknown_tokens),
            unknown_cost: self.unknown_cost.saturating_add(other.unknown_cost),
            computed_usd: self.computed_usd + other.computed_usd,
        }
    }

    /// Returns the usage of a session that is over. What is not recorded is unknown: the session was not free.
    pub fn of(session: &Usage) -> Used {
        Used {
            unknown_tokens: u64::from(session.tokens.is_none()),
            unknown_cost: u64::from(session.cost_usd.is_none()),
            ..Used::so_far(session)
        }
    }

    /// Returns the usage of an open session. What it has not reported yet counts as zero.
    pub fn so_far(session: &Usage) -> Used {
        Used {
            tokens: session.tokens.unwrap_or(0),
            cost_usd: session.cost_usd.unwrap_or(0.0),
            computed_usd: session.computed(),
            ..Used::default()
        }
    }

    /// Adds the usage of a session.
    pub(super) fn add(&mut self, s: &SessionEnded) {
        *self = self.plus(Used::of(&s.usage()));
    }
}

/// The current activity of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Doing {
    /// The node does nothing.
    #[default]
    Nothing,
    /// The commands run, or the prompt is assembled.
    Preparing,
    /// The checks run.
    Checking,
    /// The agent works.
    Working {
        /// The agent's process id.
        pid: u32,
        /// When the session started.
        since: Awake,
        /// The number of messages so far.
        messages: u64,
        /// The most recent progress.
        last_output: Option<Awake>,
    },
    /// The node waits.
    Waiting {
        /// Why it waits.
        why: WaitWhy,
        /// The length of the wait.
        delay: Dur,
        /// When the wait ends. A pause has no end.
        until: Option<Wall>,
    },
}
