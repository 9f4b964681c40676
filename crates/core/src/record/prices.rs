//! What tokens cost: the price table, and the cost of a session whose agent reports only its tokens.

use crate::record::event::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most models of one session whose tokens are counted separately.
pub const MAX_MODELS: usize = 16;
/// The number of tokens that a price is for.
const PER: f64 = 1_000_000.0;

words! {
    /// Where the cost of a session comes from.
    CostSource {
        /// The agent reported it.
        Reported = "reported",
        /// dogwatch computed it from the tokens and a price table.
        Computed = "computed",
    }
}

/// The tokens of a session by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// The number of input tokens, including cached ones.
    pub input: u64,
    /// How many of them were read from a cache.
    pub cached_input: u64,
    /// The number of output tokens, including those of reasoning.
    pub output: u64,
    /// How many of them were reasoning.
    pub reasoning: u64,
}

impl TokenCounts {
    /// Returns the sum of two counts.
    #[must_use]
    pub fn plus(self, other: TokenCounts) -> TokenCounts {
        self.with(other, u64::saturating_add)
    }

    /// Returns what remains after an earlier count.
    #[must_use]
    pub fn minus(self, other: TokenCounts) -> TokenCounts {
        self.with(other, u64::saturating_sub)
    }

    fn with(self, other: TokenCounts, by: fn(u64, u64) -> u64) -> TokenCounts {
        TokenCounts {
            input: by(self.input, other.input),
            cached_input: by(self.cached_input, other.cached_input),
            output: by(self.output, other.output),
            reasoning: by(self.reasoning, other.reasoning),
        }
    }
}

/// The tokens that one model used in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// The model. `None` if the agent does not say which one: then it is the session's.
    pub model: Option<String>,
    /// Its tokens.
    pub counts: TokenCounts,
}

/// The prices of a model, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// The price of input.
    pub input: f64,
    /// The price of input that is read from a cache.
    pub cached_input: f64,
    /// The price of output, including reasoning.
    pub output: f64,
}

impl Price {
    fn of(&self, counts: &TokenCounts) -> f64 {
        let cached = counts.cached_input.min(counts.input);
        let fresh = counts.input - cached;
        let sum = fresh as f64 * self.input
            + cached as f64 * self.cached_input
            + counts.output as f64 * self.output;
        sum / PER
    }
}

/// The prices of models, each with the date of the table that it is from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriceTable {
    models: BTreeMap<String, (Price, String)>,
}

/// A cost that was computed.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputedCost {
    /// The cost in US dollars.
    pub usd: f64,
    /// The date of the price table; of several the oldest.
    pub prices: String,
}

impl PriceTable {
    /// Sets the price of a model, as of a date. It replaces an earlier one.
    pub fn set(&mut self, model: &str, price: Price, date: &str) {
        self.models.insert(model.to_owned(), (price, date.to_owned()));
    }

    /// Returns the price of a model and the date of its table. A provider in front (`openai/…`) and a date behind the
    /// name (`…-2026-04-23`) may be missing in the table.
    pub fn get(&self, model: &str) -> Option<(Price, &str)> {
        let bare = model.rsplit('/').next().unwrap_or(model);
        let found = [model, bare, undated(bare)].into_iter().find_map(|name| self.models.get(name));
        found.map(|(price, date)| (*price, date.as_str()))
    }

    /// Returns the cost of these tokens. `None` if nothing was counted or a price is not known: a part of a cost would
    /// look like all of it. `model` is used where the counts name none.
    pub fn cost(&self, used: &[ModelCounts], model: Option<&str>) -> Option<ComputedCost> {
        let mut sum: Option<ComputedCost> = None;
        for ModelCounts { model: own, counts } in used {
            let (price, date) = self.get(own.as_deref().or(model)?)?;
            let usd = price.of(counts) + sum.as_ref().map_or(0.0, |sum| sum.usd);
            let prices = match sum {
                Some(sum) if sum.prices.as_str() <= date => sum.prices,
                Some(_) | None => date.to_owned(),
            };
            sum = Some(ComputedCost { usd, prices });
        }
        sum
    }

    /// Returns the models with their prices and dates, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Price, &str)> {
        self.models.iter().map(|(name, (price, date))| (name.as_str(), *price, date.as_str()))
    }
}

/// Cuts a date off a model's name: `-2026-04-23` or `-20260423`.
fn undated(name: &str) -> &str {
    let date = |text: &str| {
        let digits = text.bytes().filter(u8::is_ascii_digit).count();
        digits == 8 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-')
    };
    [11, 9]
        .iter()
        .filter_map(|len| name.len().checked_sub(*len))
        .filter(|at| name.is_char_boundary(*at))
        .find(|at| name[*at..].starts_with('-') && date(&name[*at + 1..]))
        .map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> PriceTable {
        let mut table = PriceTable::default();
        table.set("big", Price { input: 5.0, cached_input: 0.5, output: 30.0 }, "2026-07-01");
        table.set("small", Price { input: 1.0, cached_input: 1.0, output: 2.0 }, "2026-06-01");
        table
    }

    fn used(model: Option<&str>, input: u64, cached_input: u64, output: u64) -> ModelCounts {
        let counts = TokenCounts { input, cached_input, output, reasoning: 0 };
        ModelCounts { model: model.map(str::to_owned), counts }
    }

    #[test]
    fn cached_input_is_cheaper_and_part_of_the_input() {
        let cost = table().cost(&[used(None, 1_000_000, 400_000, 100_000)], Some("big")).expect("a cost");
        assert!((cost.usd - (0.6 * 5.0 + 0.4 * 0.5 + 0.1 * 30.0)).abs() < 1e-9, "{cost:?}");
        assert_eq!(cost.prices, "2026-07-01");
        let odd = table().cost(&[used(None, 10, 99, 0)], Some("big")).expect("a cost");
        assert!(odd.usd < 1e-4, "more cached than input is all of it");
    }

    #[test]
    fn several_models_add_up_and_one_unknown_price_makes_all_unknown() {
        let both = [used(Some("big"), 1_000_000, 0, 0), used(Some("small"), 1_000_000, 0, 0)];
        let cost = table().cost(&both, None).expect("a cost");
        assert_eq!((cost.usd, cost.prices.as_str()), (6.0, "2026-06-01"));
        assert_eq!(table().cost(&[both[0].clone(), used(Some("new"), 1, 0, 0)], None), None);
        assert_eq!(table().cost(&[used(None, 1, 0, 0)], None), None, "no model");
        assert_eq!(table().cost(&[], Some("big")), None, "nothing was counted");
    }

    #[test]
    fn a_model_is_found_without_its_provider_and_its_date() {
        let table = table();
        for name in ["big", "openai/big", "big-2026-04-23", "x/y/big-20260423"] {
            assert!(table.get(name).is_some(), "{name}");
        }
        for name in ["", "bigger", "big-2026-04", "big-mini", "-20260423", "é-2026-04-23"] {
            assert!(table.get(name).is_none(), "{name}");
        }
    }
}
