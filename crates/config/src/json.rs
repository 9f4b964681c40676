//! Parses JSON into the same tree as YAML, with the span of every value.
//!
//! YAML is almost a superset of JSON. Files written by programs contain the exceptions: tabs, `\/` and
//! surrogate pairs.

use crate::document::{Entry, Node, Span, SyntaxError, Value};
use crate::limits::MAX_DEPTH;
use std::collections::BTreeSet;

const BOM: char = '\u{feff}';

/// Parses one document.
pub fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut reader = Reader { text, at: if text.starts_with(BOM) { BOM.len_utf8() } else { 0 } };
    let node = reader.value(0)?;
    reader.skip_blanks();
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.bad("unexpected text after the end of the document")),
    }
}

fn error(message: &str, span: Span) -> SyntaxError {
    SyntaxError { message: message.to_owned(), span: Some(span), help: None }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Returns an error at the next character.
    fn bad(&self, message: &str) -> SyntaxError {
        let len = self.text[self.at..].chars().next().map_or(0, char::len_utf8);
        error(message, self.at..self.at + len)
    }

    fn expected(&self, what: &str) -> SyntaxError {
        match self.text[self.at..].chars().next() {
            Some(c) => self.bad(&format!("expected {what}, found `{c}`")),
            None => self.bad(&format!("expected {what}, found the end of the file")),
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        self.skip_blanks();
        let start = self.at;
        if depth > MAX_DEPTH {
            return Err(self.bad("nested too deeply"));
        }
        let value = match self.peek() {
            Some(b'{') => self.map(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'a'..=b'z') => self.word()?,
            _ => return Err(self.expected("a value")),
        };
        Ok(Node::new(value, start..self.at))
    }

    fn map(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        self.at += 1;
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = BTreeSet::new();
        loop {
            self.skip_blanks();
            if entries.is_empty() && self.take(b'}') {
                return Ok(Value::Map(entries));
            }
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key in double quotes"));
            }
            let key = self.string()?;
            let key_span = start..self.at;
            if !seen.insert(key.clone()) {
                return Err(error(&format!("duplicate key `{key}`"), key_span));
            }
            self.skip_blanks();
            if !self.take(b':') {
                return Err(self.expected("`:`"));
            }
            entries.push(Entry { key, key_span, value: self.value(depth + 1)? });
            self.skip_blanks();
            if self.take(b'}') {
                return Ok(Value::Map(entries));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_blanks();
        if self.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_blanks();
            if self.take(b']') {
                return Ok(Value::List(items));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    fn word(&mut self) -> Result<Value, SyntaxError> {
        let rest = &self.text[self.at..];
        for (word, value) in
            [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))]
        {
            if rest.starts_with(word) && !rest[word.len()..].starts_with(|c: char| c.is_alphanumeric()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected("a value (strings need double quotes)"))
    }

    fn number(&mut self) -> Result<Value, SyntaxError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        let value = match text.parse::<i128>() {
            Ok(whole) => Some(Value::Int(whole)),
            Err(_) => text.parse::<f64>().ok().map(Value::Float),
        };
        value.ok_or_else(|| error(&format!("`{text}` is not a number"), start..self.at))
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            // Copy everything up to the next special character at once.
            let rest = &self.text[self.at..];
            let len = rest.bytes().position(|b| b == b'"' || b == b'\\' || b < b' ').unwrap_or(rest.len());
            out.push_str(&rest[..len]);
            self.at += len;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => {
                    return Err(self.bad("a string must end on the same line; write `\\n` for a line break"));
                }
                None => return Err(error("unclosed string", start..start + 1)),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let start = self.at;
        self.at += 2;
        let plain = match self.text.as_bytes().get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(start),
            _ => {
                self.at = start;
                return Err(self.bad("unknown escape sequence"));
            }
        };
        Ok(plain)
    }

    /// Parses `\u1234`, or a surrogate pair of two such escapes.
    fn code_point(&mut self, start: usize) -> Result<char, SyntaxError> {
        let bad = error("invalid Unicode escape", start..start + 2);
        let Some(first) = self.hex4() else { return Err(bad) };
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first).ok_or(bad);
        }
        let second = if self.take(b'\\') && self.take(b'u') { self.hex4() } else { None };
        let pair = second.filter(|second| first < 0xdc00 && (0xdc00..0xe000).contains(second));
        let point = pair.map(|second| 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
        point.and_then(char::from_u32).ok_or(bad)
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let all = digits.bytes().all(|b| b.is_ascii_hexdigit());
        self.at += 4;
        u32::from_str_radix(digits, 16).ok().filter(|_| all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_types_and_spans() {
        let text =
            "\u{feff}{\n\t\"a\": [1, -2.5e1, true, null],\r\n \"é\\/\": \"x\\u00e9\\ud83d\\ude00\\n\"}\n";
        let Value::Map(top) = parse(text).expect("is JSON").value else { panic!("a map") };
        let Value::List(items) = &top[0].value.value else { panic!("a list") };
        let values: Vec<&Value> = items.iter().map(|item| &item.value).collect();
        assert_eq!(values, [&Value::Int(1), &Value::Float(-25.0), &Value::Bool(true), &Value::Null]);
        assert_eq!(&text[items[1].span.clone()], "-2.5e1");
        assert_eq!((top[1].key.as_str(), &text[top[1].key_span.clone()]), ("é/", "\"é\\/\""));
        assert_eq!(top[1].value.value, Value::Text("xé😀\n".to_owned()));
        assert_eq!(parse("{}").expect("is JSON").value, Value::Map(Vec::new()));
        assert_eq!(parse(" [ ] ").expect("is JSON").value, Value::List(Vec::new()));
    }

    #[test]
    fn syntax_errors_have_a_message_and_a_place() {
        for (text, message, at) in [
            ("", "expected a value, found the end of the file", 0),
            ("{a: 1}", "expected a key in double quotes, found `a`", 1),
            ("{\"a\" 1}", "expected `:`, found `1`", 5),
            ("{\"a\": 1,}", "expected a key in double quotes, found `}`", 8),
            ("[1, ]", "expected a value, found `]`", 4),
            ("[1 2]", "expected `,` or `]`, found `2`", 3),
            ("{\"a\": 1 \"b\"}", "expected `,` or `}`, found `\"`", 8),
            ("{\"a\": 1, \"a\": 2}", "duplicate key `a`", 9),
            ("[nul]", "expected a value (strings need double quotes), found `n`", 1),
            ("[1-]", "`1-` is not a number", 1),
            ("[\"a]", "unclosed string", 1),
            ("[\"a\nb\"]", "a string must end on the same line; write `\\n` for a line break", 3),
            (r#"["\x"]"#, "unknown escape sequence", 2),
            (r#"["\ud83d"]"#, "invalid Unicode escape", 2),
            (r#"["\u12é"]"#, "invalid Unicode escape", 2),
            ("{} x", "unexpected text after the end of the document", 3),
        ] {
            let bad = parse(text).expect_err(text);
            let start = bad.span.map(|span| span.start);
            assert_eq!((bad.message.as_str(), start), (message, Some(at)), "{text:?}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH))).is_ok());
    }

    #[test]
    fn a_truncated_text_is_an_error_and_never_a_panic() {
        let text = "{\"é\": [1, \"\\u00e9\\ud83d\\ude00\\\\\", true, -1e5], \"b\": {\"c\": null}}";
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            assert!(parse(&text[..at]).is_err(), "{at}");
        }
    }
}
