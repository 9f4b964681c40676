//! The usage and the budget of all runs of a project on one calendar day.

use crate::record::view::Used;
use crate::settings::DayBudget;
use crate::text::figures::count;
use crate::time::moment::Wall;
use serde::{Deserialize, Serialize};

/// The fields of `day_used`: the usage of all runs of the project on one day. The open sessions of this run are not
/// included; those of other runs count as far as they have reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DayUse {
    /// The start of the day in the machine's time zone.
    pub since: Wall,
    /// The end of the day in the machine's time zone.
    pub until: Wall,
    /// The number of tokens used.
    pub tokens: u64,
    /// The cost in US dollars.
    pub cost_usd: f64,
    /// The number of sessions that did not report their tokens.
    #[serde(default)]
    pub unknown_tokens: u64,
    /// The number of sessions that did not report their cost.
    #[serde(default)]
    pub unknown_cost: u64,
}

impl DayUse {
    /// Creates the usage of the day from `since` to `until`.
    pub fn new((since, until): (Wall, Wall), used: &Used) -> DayUse {
        let Used { tokens, cost_usd, unknown_tokens, unknown_cost, .. } = *used;
        DayUse { since, until, tokens, cost_usd, unknown_tokens, unknown_cost }
    }

    /// Returns the totals without the day.
    pub fn used(&self) -> Used {
        let DayUse { tokens, cost_usd, unknown_tokens, unknown_cost, .. } = *self;
        Used { tokens, cost_usd, unknown_tokens, unknown_cost, computed_usd: 0.0 }
    }
}

impl DayBudget {
    /// Returns whether the budget limits anything.
    pub fn is_set(&self) -> bool {
        self.tokens.is_some() || self.cost_usd.is_some()
    }

    /// Returns the reason if today's budget is used up. Sessions with unknown usage are mentioned, not estimated.
    pub fn spent_all(&self, today: &Used) -> Option<String> {
        let unknown = |n: u64| match n {
            0 => String::new(),
            n => format!("; {} did not report it", count(n, "session")),
        };
        match (self.tokens, self.cost_usd) {
            (Some(max), _) if today.tokens >= max => Some(format!(
                "budget.day.tokens: {} of {max} used today by all runs{}",
                today.tokens,
                unknown(today.unknown_tokens)
            )),
            (_, Some(max)) if today.cost_usd >= max => Some(format!(
                "budget.day.cost_usd: ${:.2} of ${max:.2} used today by all runs{}",
                today.cost_usd,
                unknown(today.unknown_cost)
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_budget_is_used_up_at_its_limit_and_mentions_unknown_usage() {
        let budget = DayBudget { tokens: Some(100), cost_usd: Some(2.0) };
        let used = |tokens, cost_usd| Used { tokens, cost_usd, unknown_cost: 2, ..Used::default() };
        assert_eq!(budget.spent_all(&used(99, 1.99)), None);
        let tokens = "budget.day.tokens: 100 of 100 used today by all runs";
        assert_eq!(budget.spent_all(&used(100, 0.0)).as_deref(), Some(tokens));
        let money =
            "budget.day.cost_usd: $2.00 of $2.00 used today by all runs; 2 sessions did not report it";
        assert_eq!(budget.spent_all(&used(0, 2.0)).as_deref(), Some(money));
        assert!(!DayBudget::default().is_set() && budget.is_set());
    }
}
