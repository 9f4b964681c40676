//! The status of tokens and cost.

use crate::record::view::Used;
use serde::{Deserialize, Serialize};

/// Tokens and cost. Sessions that did not report theirs are counted, not taken as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpentStatus {
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

impl From<Used> for SpentStatus {
    fn from(used: Used) -> SpentStatus {
        let Used { tokens, cost_usd, unknown_tokens, unknown_cost, computed_usd } = used;
        SpentStatus { tokens, cost_usd, unknown_tokens, unknown_cost, computed_usd }
    }
}

impl From<SpentStatus> for Used {
    fn from(spent: SpentStatus) -> Used {
        let SpentStatus { tokens, cost_usd, unknown_tokens, unknown_cost, computed_usd } = spent;
        Used { tokens, cost_usd, unknown_tokens, unknown_cost, computed_usd }
    }
}
