//! A skimming parser for JSON lines: one pass, no copies, no recursion.
//!
//! A reader needs a few fields of a line that may have megabytes, so this parser does not build values. It visits the
//! requested fields and skips the rest; strings are decoded only on request. Skipped parts are checked for balanced
//! brackets and terminated strings only. A line with an error inside a skipped part is therefore accepted, while a
//! truncated line or one that is not JSON is rejected.

use dogwatch_core::text::clip;
use memchr::memchr2;

/// A position in a line. Once `broken`, it no longer moves and every request returns nothing.
pub struct Json<'a> {
    bytes: &'a [u8],
    at: usize,
    broken: bool,
}

impl<'a> Json<'a> {
    /// Visits the fields of a line that is an object. Returns false if it is not a valid object; `each` may then have
    /// been called for the fields before the error.
    pub fn object(line: &'a [u8], each: impl FnMut(&'a [u8], &mut Json<'a>)) -> bool {
        let mut json = Json { bytes: line, at: 0, broken: false };
        json.blanks();
        if json.peek() != Some(b'{') {
            return false;
        }
        json.fields(each);
        json.blanks();
        !json.broken && json.at == line.len()
    }

    /// Calls `each` with every key and the position of its value; a value that `each` does not read is skipped. If the
    /// current value is not an object, it is left in place for the caller to skip.
    pub fn fields(&mut self, mut each: impl FnMut(&'a [u8], &mut Json<'a>)) {
        if !self.enter(b'{', b'}') {
            return;
        }
        loop {
            let Some(key) = self.text() else { return self.fail() };
            self.blanks();
            if !self.eat(b':') {
                return self.fail();
            }
            self.element(|json| each(key.0, json));
            if self.leave(b'}') {
                return;
            }
        }
    }

    /// Visits the elements of an array, like `fields`.
    pub fn items(&mut self, mut each: impl FnMut(&mut Json<'a>)) {
        if !self.enter(b'[', b']') {
            return;
        }
        loop {
            self.element(&mut each);
            if self.leave(b']') {
                return;
            }
        }
    }

    /// Reads a string.
    pub fn text(&mut self) -> Option<Raw<'a>> {
        if self.broken || self.peek() != Some(b'"') {
            return None;
        }
        let start = self.at + 1;
        self.skip_string();
        (!self.broken).then(|| Raw(&self.bytes[start..self.at - 1]))
    }

    /// Returns the current value as written.
    pub fn span(&mut self) -> &'a [u8] {
        let start = self.at;
        if !self.broken {
            self.skip();
        }
        if self.broken { b"" } else { &self.bytes[start..self.at] }
    }

    /// Returns the kind of the current value, identified by its first byte.
    pub fn kind(&self) -> Option<u8> {
        self.peek().filter(|_| !self.broken)
    }

    /// Creates a parser for a single value instead of a line.
    pub fn value(bytes: &'a [u8]) -> Json<'a> {
        let mut json = Json { bytes, at: 0, broken: false };
        json.blanks();
        json
    }

    /// Reads a non-negative whole number.
    pub fn whole(&mut self) -> Option<u64> {
        self.scalar()?.parse().ok()
    }

    /// Reads a number.
    pub fn number(&mut self) -> Option<f64> {
        self.scalar()?.parse().ok().filter(|n: &f64| n.is_finite())
    }

    /// Reads a value and returns whether it is `true`.
    pub fn is_true(&mut self) -> bool {
        self.scalar() == Some("true")
    }

    /// Reads a value and returns whether it is `null`.
    pub fn is_null(&mut self) -> bool {
        self.scalar() == Some("null")
    }

    /// Reads an HTTP status.
    pub fn status(&mut self) -> Option<u16> {
        self.whole().and_then(|n| u16::try_from(n).ok()).filter(|n| (100..600).contains(n))
    }

    fn fail(&mut self) {
        self.broken = true;
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let here = !self.broken && self.peek() == Some(byte);
        self.at += usize::from(here);
        here
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Moves past `open` to the first element; false if there is none.
    fn enter(&mut self, open: u8, close: u8) -> bool {
        if !self.eat(open) {
            return false;
        }
        self.blanks();
        !self.eat(close)
    }

    fn element(&mut self, each: impl FnOnce(&mut Json<'a>)) {
        self.blanks();
        let start = self.at;
        if !self.broken {
            each(self);
        }
        if !self.broken && self.at == start {
            self.skip();
        }
    }

    /// Moves to the next element; true if there is none.
    fn leave(&mut self, close: u8) -> bool {
        self.blanks();
        if self.eat(b',') {
            self.blanks();
            return false;
        }
        if !self.eat(close) {
            self.fail();
        }
        true
    }

    fn skip(&mut self) {
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(b'{' | b'[') => self.skip_container(),
            Some(b't' | b'f' | b'n' | b'-' | b'0'..=b'9') => drop(self.scalar()),
            _ => self.fail(),
        }
    }

    /// Skips an object or array. Counts the depth instead of recursing, so deep nesting cannot overflow the stack.
    fn skip_container(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.skip_string();
                    if self.broken {
                        return;
                    }
                    continue;
                }
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth -= 1,
                Some(_) => {}
                None => return self.fail(),
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    fn skip_string(&mut self) {
        let mut at = self.at + 1;
        while let Some(found) = self.bytes.get(at..).and_then(find_quote_or_backslash) {
            at += found;
            if self.bytes[at] == b'"' {
                self.at = at + 1;
                return;
            }
            at += 2;
        }
        self.fail();
    }

    /// Reads `true`, `false`, `null` or a number as written.
    fn scalar(&mut self) -> Option<&'a str> {
        if self.broken || !matches!(self.peek(), Some(b't' | b'f' | b'n' | b'-' | b'0'..=b'9')) {
            return None;
        }
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| !is_scalar(*b)).unwrap_or(rest.len());
        let written = std::str::from_utf8(&rest[..end]).ok()?;
        if rest[0].is_ascii_alphabetic() && !matches!(written, "true" | "false" | "null") {
            self.fail();
            return None;
        }
        self.at += end;
        Some(written)
    }
}

/// Finds the next quote or backslash. Most runs are short, and for those a call of `memchr` costs more than the search
/// itself, so the first bytes are checked in words of eight.
#[inline]
fn find_quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    const NEAR: usize = 4;
    let (words, _) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().take(NEAR).enumerate() {
        let word = u64::from_le_bytes(*word);
        let hits = zero_bytes(word ^ repeat(b'"')) | zero_bytes(word ^ repeat(b'\\'));
        if hits != 0 {
            return Some(8 * at + hits.trailing_zeros() as usize / 8);
        }
    }
    let seen = 8 * words.len().min(NEAR);
    memchr2(b'"', b'\\', &bytes[seen..]).map(|found| seen + found)
}

const fn repeat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Sets the high bit of each zero byte. Bytes above the lowest zero byte may be marked wrongly.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeat(0x01)) & !word & repeat(0x80)
}

fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// A string as written, without its quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw<'a>(pub &'a [u8]);

impl<'a> Raw<'a> {
    /// Returns whether the string contains only white space, literal or escaped.
    pub fn is_blank(self) -> bool {
        let mut rest = self.0;
        loop {
            rest = match rest {
                [] => return true,
                [b' ' | b'\t', tail @ ..] | [b'\\', b'n' | b'r' | b't', tail @ ..] => tail,
                _ => return false,
            };
        }
    }

    /// Decodes the string.
    pub fn decode(self) -> String {
        unescape(self.0)
    }

    /// Decodes the beginning of the string, at most `max` bytes.
    pub fn decode_head(self, max: usize) -> String {
        clip(&unescape(&self.0[..self.0.len().min(max)]), max).to_owned()
    }
}

/// Decodes any string. Invalid escapes, invalid characters and unpaired surrogates, which agents do print, become `�`.
pub fn unescape(raw: &[u8]) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        text.push_str(&String::from_utf8_lossy(&rest[..at]));
        rest = escape(&rest[at + 1..], &mut text);
    }
    text.push_str(&String::from_utf8_lossy(rest));
    text
}

/// Decodes one escape after a backslash; returns the rest.
fn escape<'a>(rest: &'a [u8], text: &mut String) -> &'a [u8] {
    let Some((&kind, after)) = rest.split_first() else {
        text.push(char::REPLACEMENT_CHARACTER);
        return rest;
    };
    let plain = match kind {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'"' | b'\\' | b'/' => char::from(kind),
        b'u' => return unicode(after, text),
        _ => {
            text.push(char::REPLACEMENT_CHARACTER);
            return after;
        }
    };
    text.push(plain);
    after
}

fn unicode<'a>(rest: &'a [u8], text: &mut String) -> &'a [u8] {
    let Some((first, after)) = hex4(rest) else {
        text.push(char::REPLACEMENT_CHARACTER);
        return rest;
    };
    if let Some(pair) = after.strip_prefix(br"\u")
        && let Some((second, behind)) = hex4(pair)
        && let (0xd800..0xdc00, 0xdc00..0xe000) = (first, second)
    {
        let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        text.push(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
        return behind;
    }
    text.push(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
    after
}

fn hex4(rest: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, after) = rest.split_at_checked(4)?;
    let value = digits.iter().try_fold(0, |sum, d| Some(sum * 16 + char::from(*d).to_digit(16)?))?;
    Some((value, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(line: &[u8]) -> Option<Vec<String>> {
        let mut keys = Vec::new();
        Json::object(line, |key, _| keys.push(Raw(key).decode())).then_some(keys)
    }

    #[test]
    fn objects_are_visited_and_everything_else_is_rejected() {
        for (line, wanted) in [
            (r#"{}"#, Some("")),
            (r#" { "a" : 1 , "b":[{},[]],"c":"}" } "#, Some("a b c")),
            (r#"{"a":"\"}","b":"\\"}"#, Some("a b")),
            (r#"{"a":-1.5e+3,"b":true,"c":null}"#, Some("a b c")),
            (r#"[1]"#, None),
            (r#""text""#, None),
            (r#"42"#, None),
            (r#""#, None),
            (r#"{"#, None),
            (r#"{"a"}"#, None),
            (r#"{"a":}"#, None),
            (r#"{"a":1,}"#, None),
            (r#"{"a":tru}"#, None),
            (r#"{"a":[1}"#, None),
            (r#"{"a":[1}}"#, Some("a")), // The error is inside a skipped part.
            (r#"{"a":"\"}"#, None),
            (r#"{'a':1}"#, None),
            (r#"{a:1}"#, None),
            (r#"{"a":1} x"#, None),
            (r#"{"a":1}{"b":2}"#, None),
        ] {
            let wanted = wanted.map(|keys| keys.split_terminator(' ').map(str::to_owned).collect());
            assert_eq!(keys(line.as_bytes()), wanted, "{line}");
        }
    }

    #[test]
    fn nesting_of_any_depth_is_skipped() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        assert!(keys(format!(r#"{{"a":{deep}}}"#).as_bytes()).is_some());
        let deep = r#"{"a":"#.repeat(1_000_000);
        assert!(keys(deep.as_bytes()).is_none());
    }

    #[test]
    fn a_value_of_an_unexpected_kind_is_ignored() {
        let line = br#"{"a":"1","b":1,"c":[true],"d":{"e":"f"},"g":-1,"h":1e999}"#;
        let mut seen = Vec::new();
        assert!(Json::object(line, |key, json| match key {
            b"a" => seen.push(json.whole().is_none()),
            b"b" => seen.push(json.text().is_none()),
            b"c" => seen.push(!json.is_true()),
            b"d" => json.items(|_| panic!("no array")),
            b"g" => seen.push(json.whole().is_none()),
            _ => seen.push(json.number().is_none()),
        }));
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn strings_are_read_as_serde_reads_them() {
        for raw in ["", "plain", r#"a\n\t\"\\\/\b\f\r"#, r"\u00e9\u20AC", r"\ud83d\ude00!", "ünï😀"] {
            let wanted: String = serde_json::from_str(&format!("\"{raw}\"")).expect("these are strings");
            assert_eq!(Raw(raw.as_bytes()).decode(), wanted);
        }
    }

    #[test]
    fn strings_that_strict_parsers_reject_are_decoded() {
        for (raw, wanted) in [
            (r"half \ud83d pair", "half \u{fffd} pair"),
            (r"\ude00\ud83d\u0041", "\u{fffd}\u{fffd}A"),
            (r"\x", "\u{fffd}"),
            (r"\u12", "\u{fffd}12"),
            (r"end\", "end\u{fffd}"),
        ] {
            assert_eq!(Raw(raw.as_bytes()).decode(), wanted, "{raw}");
        }
        assert_eq!(Raw(b"a\xffb").decode(), "a\u{fffd}b");
    }

    #[test]
    fn the_end_of_a_string_is_found_at_every_distance() {
        for length in 0..100 {
            let line = format!(r#"{{"{}":"{}\"é","z":0}}"#, "k".repeat(length), "v".repeat(length));
            assert_eq!(keys(line.as_bytes()), Some(vec!["k".repeat(length), "z".to_owned()]), "{line}");
        }
    }

    #[test]
    fn escaped_white_space_is_blank() {
        for (raw, blank) in [("", true), (r" \n\t ", true), ("x", false), (r"\\", false), (r" \n.", false)] {
            assert_eq!(Raw(raw.as_bytes()).is_blank(), blank, "{raw}");
        }
    }
}
