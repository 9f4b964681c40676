//! A calendar day of the whole project: what all its runs together have used, and may use.

use crate::record::view::Used;
use crate::settings::DayBudget;
use crate::time::moment::Wall;
use serde::{Deserialize, Serialize};

/// What the sessions of all runs of the project have used on a day, those of this run that are open left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DayUse {
    /// When the day began and when it ends, by the machine's own zone.
    pub since: Wall,
    pub until: Wall,
    pub tokens: u64,
    pub cost_usd: f64,
    /// Sessions that did not say.
    #[serde(default)]
    pub unknown_tokens: u64,
    #[serde(default)]
    pub unknown_cost: u64,
}

impl DayUse {
    pub fn used(&self) -> Used {
        let DayUse { tokens, cost_usd, unknown_tokens, unknown_cost, .. } = *self;
        Used { tokens, cost_usd, unknown_tokens, unknown_cost }
    }
}

impl DayBudget {
    pub fn is_set(&self) -> bool {
        self.tokens.is_some() || self.cost_usd.is_some()
    }

    /// Why nothing more may be spent today, if so. What some sessions did not tell is said, not guessed.
    pub fn spent_all(&self, today: &Used) -> Option<String> {
        let unknown = |n: u64| match n {
            0 => String::new(),
            1 => "; 1 session did not say".to_owned(),
            n => format!("; {n} sessions did not say"),
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
    fn a_day_is_spent_at_its_limit_and_says_what_it_does_not_know() {
        let budget = DayBudget { tokens: Some(100), cost_usd: Some(2.0) };
        let used = |tokens, cost_usd| Used { tokens, cost_usd, unknown_tokens: 0, unknown_cost: 2 };
        assert_eq!(budget.spent_all(&used(99, 1.99)), None);
        let tokens = "budget.day.tokens: 100 of 100 used today by all runs";
        assert_eq!(budget.spent_all(&used(100, 0.0)).as_deref(), Some(tokens));
        let money = "budget.day.cost_usd: $2.00 of $2.00 used today by all runs; 2 sessions did not say";
        assert_eq!(budget.spent_all(&used(0, 2.0)).as_deref(), Some(money));
        assert!(!DayBudget::default().is_set() && budget.is_set());
    }
}
