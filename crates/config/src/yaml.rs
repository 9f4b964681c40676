//! Parses YAML into a tree. Only this module uses the YAML library.

use crate::document::{Entry, Node, Span, SyntaxError, Value};
use crate::limits;
use dogwatch_core::text::clip;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{NonFiniteFloatPolicy, Options};
use serde_saphyr::{Error, Location, MessageFormatter, Spanned, UserMessageFormatter};
use std::fmt;

/// Parses one document. `base` is the offset of `text` in its file, so that spans refer to the file. An empty
/// document is `Null`.
pub fn parse(text: &str, base: usize) -> Result<Node, SyntaxError> {
    parse_within(text, base, limits::MAX_YAML_EVENTS)
}

/// Parses one document of at most `events` parser events.
pub fn parse_within(text: &str, base: usize, events: usize) -> Result<Node, SyntaxError> {
    let shift = |span: Span| span.start + base..span.end + base;
    match serde_saphyr::from_str_with_options::<Option<Spanned<Raw>>>(text, options(events)) {
        Ok(Some(raw)) => {
            node(raw, text, base).map_err(|bad| SyntaxError { span: bad.span.map(shift), ..bad })
        }
        Ok(None) => Ok(Node::new(Value::Null, base..base)),
        Err(error) => {
            let span = error.location().and_then(|l| span_of(l, text)).map(shift);
            Err(SyntaxError { message: message_of(&error), span, help: help_for(&error) })
        }
    }
}

/// Returns strict options with limits. `no` is text and keys are unique, which avoids common surprises of YAML.
/// A document that exceeds the limits is a mistake or an alias bomb.
fn options(events: usize) -> Options {
    let mut options = Options::default();
    let mut budget = options.budget.take().unwrap_or_default();
    budget.max_documents = 1;
    budget.max_depth = limits::MAX_DEPTH;
    budget.flow_nesting_limit = limits::MAX_DEPTH;
    budget.max_events = events;
    budget.max_nodes = events;
    budget.max_aliases = limits::MAX_YAML_ALIASES;
    budget.max_anchors = limits::MAX_YAML_ALIASES;
    budget.max_merge_keys = limits::MAX_YAML_ALIASES;
    budget.max_recorded_anchor_events = limits::MAX_YAML_EVENTS;
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = limits::MAX_YAML_EVENTS;
    options.strict_booleans = true;
    // Pass `.nan` through: the key that holds it reports a better error.
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    options.with_snippet = false;
    options
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum belongs to another crate and may gain variants")]
fn message_of(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key `{key}`"),
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => "more than one document".to_owned(),
        Error::Budget { .. } => "too large or nested too deeply".to_owned(),
        error => UserMessageFormatter.format_message(error).into_owned(),
    }
}

/// Returns the help text for two common mistakes.
fn help_for(error: &serde_saphyr::Error) -> Option<&'static str> {
    let message = UserMessageFormatter.format_message(error.without_snippet());
    if message.contains("mapping values are not allowed") {
        Some("quote a value that contains `: `; indent all keys of a block equally")
    } else if message.contains("unexpected character") {
        Some("quote a value that starts with this character")
    } else {
        None
    }
}

/// Converts a location to a byte range of `text`. Returns none if the library does not know the location.
fn span_of(location: Location, text: &str) -> Option<Span> {
    if location == Location::UNKNOWN {
        return None;
    }
    let span = location.span();
    let start = match span.byte_offset() {
        Some(offset) => usize::try_from(offset).ok()?,
        None => offset_of(text, location.line(), location.column()),
    };
    let len = span.byte_len().and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
    let start = clip(text, start).len();
    let end = clip(text, start.saturating_add(len)).len();
    Some(start..end)
}

/// Returns the byte offset of a line and column, both from 1.
fn offset_of(text: &str, line: u64, column: u64) -> usize {
    let skip = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some(row) = text.split_inclusive('\n').nth(skip) else { return text.len() };
    let start = row.as_ptr() as usize - text.as_ptr() as usize;
    let chars = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
    start + row.char_indices().nth(chars).map_or(row.trim_end().len(), |(at, _)| at)
}

/// A value as the library returns it, before its span is computed.
enum Raw {
    Scalar(Value),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

fn node(raw: Spanned<Raw>, text: &str, base: usize) -> Result<Node, SyntaxError> {
    // Errors in an alias point at its use, because that key has the invalid value.
    let place = span_of(raw.referenced, text).or_else(|| span_of(raw.defined, text)).unwrap_or(0..0);
    let span = place.start + base..place.end + base;
    Ok(match raw.value {
        Raw::Scalar(value) => Node::new(value, span),
        Raw::List(items) => {
            let items =
                items.into_iter().map(|item| node(item, text, base)).collect::<Result<Vec<_>, _>>()?;
            Node::new(Value::List(items), span)
        }
        Raw::Map(pairs) => {
            let entries: Vec<Entry> =
                pairs.into_iter().map(|p| entry(p, text, base)).collect::<Result<_, _>>()?;
            // A block mapping has no bracket to point at, so point at its first key.
            let first = entries.first().map(|first| first.key_span.clone());
            let span = if span.is_empty() { first.unwrap_or(span) } else { span };
            Node::new(Value::Map(entries), span)
        }
    })
}

fn entry((key, value): (Spanned<Raw>, Spanned<Raw>), text: &str, base: usize) -> Result<Entry, SyntaxError> {
    let place = span_of(key.referenced, text).unwrap_or(0..0);
    let key_text = match key.value {
        Raw::Scalar(Value::Text(key)) => key,
        Raw::Scalar(_) => text[place.clone()].to_owned(),
        Raw::List(_) | Raw::Map(_) => {
            return Err(SyntaxError {
                message: "a key must be a plain word".to_owned(),
                span: Some(place),
                help: None,
            });
        }
    };
    let key_span = place.start + base..place.end + base;
    Ok(Entry { key: key_text, key_span, value: node(value, text, base)? })
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Bool(v)))
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Int(v.into())))
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Int(v.into())))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Float(v)))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Text(v.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Raw::Map(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every leaf as `path=source text`, in order.
    fn leaves(node: &Node, text: &str, path: &str, out: &mut Vec<String>) {
        match &node.value {
            Value::List(items) => items.iter().for_each(|item| leaves(item, text, &format!("{path}[]"), out)),
            Value::Map(entries) => {
                entries.iter().for_each(|e| {
                    leaves(&e.value, text, &format!("{path}/{}", &text[e.key_span.clone()]), out)
                });
            }
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {
                out.push(format!("{path}={}", &text[node.span.clone()]))
            }
        }
    }

    #[test]
    fn values_and_keys_have_spans_in_the_whole_file() {
        let file = "\u{feff}---\r\nagent: claude -p # c\r\nidle:\r\n  max: \"x é\"\r\nl:\r\n  - é\r\n  - {b: .nan, c: no}\r\n1: x\r\nn:\r\n---\r\n";
        let base = file.find("agent").expect("the marker exists");
        let end = file.rfind("---").expect("the marker exists");
        let mut out = Vec::new();
        leaves(&parse(&file[base..end], base).expect("is YAML"), file, "", &mut out);
        assert_eq!(
            out,
            ["/agent=claude -p", "/idle/max=\"x é\"", "/l[]=é", "/l[]/b=.nan", "/l[]/c=no", "/1=x", "/n="]
        );
    }

    #[test]
    fn scalars_have_the_expected_types() {
        let value = |text: &str| parse(text, 0).expect("is YAML").value;
        for (text, expected) in [
            ("true", Value::Bool(true)),
            ("no", Value::Text("no".to_owned())),
            ("off", Value::Text("off".to_owned())),
            ("'5'", Value::Text("5".to_owned())),
            ("5", Value::Int(5)),
            ("-5", Value::Int(-5)),
            ("18446744073709551615", Value::Int(u64::MAX.into())),
            ("0.5", Value::Float(0.5)),
            (".inf", Value::Float(f64::INFINITY)),
            ("~", Value::Null),
            ("", Value::Null),
            ("# only a comment", Value::Null),
            ("30s", Value::Text("30s".to_owned())),
        ] {
            assert_eq!(value(text), expected, "{text:?}");
        }
    }

    #[test]
    fn loop_11_syntax_errors_have_a_message_and_a_place() {
        for (text, message, at) in [
            ("a: [1", "unclosed bracket '['", 3),
            ("a: 'x", "unclosed quote", 3),
            ("a: b: c", "mapping values are not allowed in this context", 4),
            ("a: 1\na: 2", "duplicate key `a`", 5),
            ("a: *x", "reference to unknown value", 3),
            ("a: 1\n--- \nb: 1", "more than one document", 5),
            ("? [a]\n: b", "a key must be a plain word", 2),
        ] {
            let bad = parse(text, 0).expect_err(text);
            assert_eq!((bad.message.as_str(), bad.span.map(|s| s.start)), (message, Some(at)), "{text:?}");
        }
    }

    #[test]
    fn an_alias_bomb_and_deep_nesting_are_errors() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let items = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{items}]\n"));
        }
        assert!(parse(&bomb, 0).is_err());
        for (open, close) in [("[", "]"), ("{a: ", "}")] {
            let nested = |n: usize| format!("{}{}", open.repeat(n), close.repeat(n));
            assert!(parse(&nested(limits::MAX_DEPTH / 2), 0).is_ok());
            assert!(parse(&nested(limits::MAX_DEPTH * 2), 0).is_err());
            assert!(parse(&nested(100_000), 0).is_err());
        }
        let block: String = (0..10_000).map(|i| format!("{:i$}a:\n", "")).collect();
        assert!(parse(&block, 0).is_err());
    }
}
