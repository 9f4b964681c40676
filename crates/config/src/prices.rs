//! Parses price tables: the built-in one, and the user's `prices.toml`.

use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::document::{Entry, Node, Span, Value};
use crate::toml;
use dogwatch_core::record::prices::{Price, PriceTable};

/// Bytes in a price table.
pub const MAX_PRICES_BYTES: usize = 256 << 10;
/// Models in a price table.
pub const MAX_PRICED_MODELS: usize = 1_000;
/// The highest price, in US dollars per million tokens. A higher one is a mistake.
pub const MAX_PRICE: f64 = 100_000.0;

/// The version of the format.
const VERSION: i128 = 1;
const BUILT_IN: &str = include_str!("../prices.toml");

/// Returns the built-in table. It holds list prices of its date.
pub fn built_in() -> PriceTable {
    let mut table = PriceTable::default();
    add(&mut table, "prices.toml", BUILT_IN).expect("a test reads the built-in table");
    table
}

/// Adds the prices of a file to a table; models that it names are replaced. Returns all errors with their places.
pub fn add(table: &mut PriceTable, name: &str, text: &str) -> Result<(), Vec<Diagnostic>> {
    let source = Source { name, text };
    let mut reading = Reading { source, diagnostics: Diagnostics::default() };
    let found = reading.file(text);
    if reading.diagnostics.has_errors() {
        return Err(reading.diagnostics.into_vec());
    }
    let (date, models) = found.unwrap_or_default();
    models.iter().for_each(|(model, price)| table.set(model, *price, &date));
    Ok(())
}

type Found = (String, Vec<(String, Price)>);

struct Reading<'s> {
    source: Source<'s>,
    diagnostics: Diagnostics,
}

impl Reading<'_> {
    fn error(&mut self, span: &Span, message: impl AsRef<str>) -> &mut Diagnostic {
        self.diagnostics.error(self.source, span.clone(), message)
    }

    fn file(&mut self, text: &str) -> Option<Found> {
        if text.len() > MAX_PRICES_BYTES {
            self.error(&(0..0), format!("the price table is longer than {MAX_PRICES_BYTES} bytes"));
            return None;
        }
        let node = match toml::parse(text) {
            Ok(node) => node,
            Err(errors) => {
                for bad in errors {
                    self.error(&bad.span.unwrap_or(0..0), bad.message);
                }
                return None;
            }
        };
        let Value::Map(entries) = node.value else { return None };
        let (mut version, mut date, mut models) = (false, None, Vec::new());
        for Entry { key, key_span, value } in &entries {
            match key.as_str() {
                "version" => version = self.version(value),
                "date" => date = self.date(value),
                "models" => models = self.models(value),
                other => {
                    let message = format!("unknown key `{other}`");
                    self.error(key_span, message).help("a price table has `version`, `date` and `models`");
                }
            }
        }
        if !version && !self.diagnostics.has_errors() {
            self.error(&(0..0), "the price table has no `version`").help("add `version = 1`");
        }
        if date.is_none() && !self.diagnostics.has_errors() {
            self.error(&(0..0), "the price table has no `date`")
                .help("add `date = \"2026-07-04\"`, the day of the prices");
        }
        Some((date?, models))
    }

    fn version(&mut self, node: &Node) -> bool {
        let known = node.value == Value::Int(VERSION);
        if !known {
            self.error(&node.span, "`version` must be 1").help("a later dogwatch may read other versions");
        }
        known
    }

    fn date(&mut self, node: &Node) -> Option<String> {
        let is_date = |text: &&str| {
            let digits =
                |range: std::ops::Range<usize>| text.as_bytes()[range].iter().all(u8::is_ascii_digit);
            text.len() == 10 && text.is_ascii() && digits(0..4) && digits(5..7) && digits(8..10)
        };
        let date = node.text().filter(is_date).map(str::to_owned);
        if date.is_none() {
            self.error(&node.span, "`date` must be a day").help("write it as \"2026-07-04\"");
        }
        date
    }

    fn models(&mut self, node: &Node) -> Vec<(String, Price)> {
        let Value::Map(models) = &node.value else {
            self.error(&node.span, "`models` must be a table with one entry per model");
            return Vec::new();
        };
        if models.len() > MAX_PRICED_MODELS {
            self.error(&node.span, format!("more than {MAX_PRICED_MODELS} models"));
            return Vec::new();
        }
        models
            .iter()
            .filter_map(|Entry { key, value, .. }| Some((key.clone(), self.price(key, value)?)))
            .collect()
    }

    fn price(&mut self, model: &str, node: &Node) -> Option<Price> {
        const SHAPE: &str = "{ input = 1.25, cached_input = 0.125, output = 10.0 }";
        let Value::Map(fields) = &node.value else {
            let message = format!("the prices of `{model}` must be a table");
            self.error(&node.span, message).help(format!("for example {SHAPE}"));
            return None;
        };
        let (mut input, mut cached_input, mut output) = (None, None, None);
        for Entry { key, key_span, value } in fields {
            let field = match key.as_str() {
                "input" => &mut input,
                "cached_input" => &mut cached_input,
                "output" => &mut output,
                other => {
                    let message = format!("unknown key `{other}`");
                    self.error(key_span, message).help(format!("for example {SHAPE}"));
                    return None;
                }
            };
            *field = Some(self.amount(key, value)?);
        }
        let (Some(input), Some(output)) = (input, output) else {
            let message = format!("`{model}` needs the prices `input` and `output`");
            self.error(&node.span, message).help(format!("for example {SHAPE}"));
            return None;
        };
        Some(Price { input, cached_input: cached_input.unwrap_or(input), output })
    }

    fn amount(&mut self, key: &str, node: &Node) -> Option<f64> {
        let amount = match node.value {
            Value::Int(n) => Some(n as f64),
            Value::Float(n) => Some(n),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
        };
        let amount = amount.filter(|n| (0.0..=MAX_PRICE).contains(n));
        if amount.is_none() {
            let message = format!("`{key}` must be US dollars per million tokens, from 0 to {MAX_PRICE}");
            self.error(&node.span, message);
        }
        amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let bad = add(&mut PriceTable::default(), "prices.toml", text).expect_err("an error");
        bad.iter().map(|d| format!("{} {}", d.position(), d.message)).collect()
    }

    #[test]
    fn the_built_in_table_has_dated_prices_that_make_sense() {
        let table = built_in();
        assert!(table.iter().count() >= 10);
        for (model, price, date) in table.iter() {
            assert!(price.cached_input <= price.input && price.input < price.output, "{model}");
            assert_eq!(date.len(), 10, "{model}");
        }
    }

    #[test]
    fn the_users_prices_replace_the_built_in_ones() {
        let mut table = built_in();
        let own = "version = 1\ndate = \"2026-11-01\"\n[models]\n\"gpt-5.5\" = { input = 1, output = 2.5 }\n\"mine\" = { input = 0, output = 0 }\n";
        add(&mut table, "prices.toml", own).expect("valid");
        let (price, date) = table.get("gpt-5.5").expect("a price");
        assert_eq!((price.input, price.cached_input, price.output, date), (1.0, 1.0, 2.5, "2026-11-01"));
        assert!(
            table.get("mine").is_some() && table.get("gpt-5.4").is_some_and(|(_, date)| date != "2026-11-01")
        );
    }

    #[test]
    fn errors_have_a_place() {
        let head = "version = 1\ndate = \"2026-11-01\"\n[models]\n";
        for (text, wanted) in [
            ("date = \"2026-11-01\"", "has no `version`"),
            ("version = 2\ndate = \"2026-11-01\"", "`version` must be 1"),
            ("version = 1", "has no `date`"),
            ("version = 1\ndate = \"soon\"", "`date` must be a day"),
            ("version = 1\ndate = \"2026-11-01\"\nmodel = 1", "unknown key `model`"),
            (&format!("{head}a = 5"), "the prices of `a` must be a table"),
            (&format!("{head}a = {{ input = 1 }}"), "`a` needs the prices `input` and `output`"),
            (
                &format!("{head}a = {{ input = -1, output = 2 }}"),
                "`input` must be US dollars per million tokens",
            ),
            (&format!("{head}a = {{ inptu = 1, output = 2 }}"), "unknown key `inptu`"),
            ("version = ", ""),
        ] {
            let found = errors(text);
            assert!(found.iter().any(|error| error.contains(wanted)), "{text}: {found:?}");
        }
        let long = format!("# {}", "x".repeat(MAX_PRICES_BYTES));
        assert!(errors(&long)[0].contains("longer than"));
    }
}
