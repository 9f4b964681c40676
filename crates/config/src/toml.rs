//! Parses TOML into the same tree as YAML. Only this module uses the TOML library.

use crate::document::{Entry, Node, SyntaxError, Value};
use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

/// Parses a document into a mapping, or returns all syntax errors.
pub fn parse(text: &str) -> Result<Node, Vec<SyntaxError>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(Node::new(entries(table.get_ref()), 0..0));
    }
    let error =
        |e: &::toml::de::Error| SyntaxError { message: e.message().to_owned(), span: e.span(), help: None };
    let mut bad: Vec<SyntaxError> = errors.iter().map(error).collect();
    // The library reports errors by phase. Report them in the order of the file.
    bad.sort_by_key(|bad| bad.span.as_ref().map(|span| span.start));
    Err(bad)
}

fn entries(table: &DeTable<'_>) -> Value {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            key_span: key.span(),
            value: node(value),
        })
        .collect();
    // The library sorts by name. Keep the order of the file, so that errors are reported in that order.
    entries.sort_by_key(|entry| entry.key_span.start);
    Value::Map(entries)
}

fn node(spanned: &Spanned<DeValue<'_>>) -> Node {
    let value = match spanned.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(n) => {
            i128::from_str_radix(n.as_str(), n.radix()).map_or(Value::Float(f64::NAN), Value::Int)
        }
        DeValue::Float(n) => Value::Float(n.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        // No key holds a date. As text it gets the error message of its key.
        DeValue::Datetime(date) => Value::Text(date.to_string()),
        DeValue::Array(items) => Value::List(items.iter().map(node).collect()),
        DeValue::Table(table) => entries(table),
    };
    Node::new(value, spanned.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_have_spans() {
        let text = "delay = \"5s\"\n[idle]\nmax = 0x10\nbackoff = 1_0.5\n[[commands]]\nname = 'a'\n";
        let Value::Map(top) = parse(text).expect("is TOML").value else { panic!("a document is a mapping") };
        let keys: Vec<&str> = top.iter().map(|e| &text[e.key_span.clone()]).collect();
        assert_eq!(keys, ["delay", "idle", "commands"]);
        assert_eq!(&text[top[0].value.span.clone()], "\"5s\"");
        let Value::Map(idle) = &top[1].value.value else { panic!("a table is a mapping") };
        assert_eq!((&idle[0].value.value, &idle[1].value.value), (&Value::Int(16), &Value::Float(10.5)));
        let Value::List(commands) = &top[2].value.value else { panic!("an array is a list") };
        assert_eq!(commands.len(), 1);
    }

    #[test]
    fn all_errors_are_reported_with_their_place() {
        let bad = parse("a = \nb = 1\nb = 2\n").expect_err("is not TOML");
        assert_eq!(bad.len(), 2, "{bad:?}");
        assert!(bad.iter().all(|b| b.span.is_some()));
    }

    #[test]
    fn deep_nesting_is_an_error() {
        assert!(parse(&format!("a = {}", "[".repeat(100_000))).is_err());
    }
}
