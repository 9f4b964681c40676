//! What is the same about two failures that look different: the text without its volatile parts.
//!
//! Stripped are times, ids, long hexadecimal and decimal numbers and temporary paths. Short codes stay:
//! `exit 3` and `HTTP 529` are what tells failures apart.

use crate::text::clip;

/// The longest text that is looked at, and the longest fingerprint.
const MAX_BYTES: usize = 400;
const HEX_DIGITS: usize = 8;
const DECIMAL_DIGITS: usize = 7;

/// Equal for failures that are alike.
pub fn fingerprint(text: &str) -> String {
    let mut out = String::new();
    for word in clip(text, MAX_BYTES).split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        normalise_word(word, &mut out);
    }
    clip(&out, MAX_BYTES).to_owned()
}

fn normalise_word(word: &str, out: &mut String) {
    let bare = word.trim_start_matches(['"', '\'', '`', '(', '[', '<', '=']);
    if ["/tmp/", "/var/tmp/", "/var/folders/", "/private/", "/dev/shm/"].iter().any(|t| bare.starts_with(t)) {
        out.push_str(&word[..word.len() - bare.len()]);
        out.push_str("<tmp>");
        return;
    }
    let mut rest = word;
    while let Some(c) = rest.chars().next() {
        let run = token(rest);
        if run.is_empty() {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.push_str(placeholder(run).unwrap_or(run));
            rest = &rest[run.len()..];
        }
    }
}

/// The longest start of the text that could be one id, time or number.
fn token(text: &str) -> &str {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.' | '_' | '+');
    let end = text.find(|c| !inner(c)).unwrap_or(text.len());
    text[..end].trim_end_matches(['-', ':', '.', '_', '+'])
}

fn placeholder(run: &str) -> Option<&'static str> {
    if is_time(run) {
        return Some("<time>");
    }
    if is_uuid(run) {
        return Some("<id>");
    }
    let digits = run.strip_prefix("0x").unwrap_or(run);
    if digits.len() >= DECIMAL_DIGITS && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Some("<n>");
    }
    let hex = digits.bytes().all(|b| b.is_ascii_hexdigit()) && digits.bytes().any(|b| b.is_ascii_digit());
    (hex && digits.len() >= HEX_DIGITS).then_some("<hex>")
}

/// Dates and clock times: only digits, `T`, `Z` and their separators, with a `:` or two `-` in them.
fn is_time(run: &str) -> bool {
    run.starts_with(|c: char| c.is_ascii_digit())
        && run.bytes().all(|b| b.is_ascii_digit() || b"T-:.Z+".contains(&b))
        && (run.matches(':').count() >= 2 || (run.len() >= 10 && run.matches('-').count() >= 2))
}

fn is_uuid(run: &str) -> bool {
    run.len() == 36
        && run.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volatile_parts_are_stripped() {
        for (a, b) in [
            ("at 2026-11-15T20:15:33.007Z failed", "at 2026-11-16T01:00:00Z failed"),
            ("[20:15:33] no route", "[20:15:34] no route"),
            ("request 7f3c2b1a-0d4e-4f5a-9b8c-1234567890ab", "request 00000000-0d4e-4f5a-9b8c-1234567890ab"),
            ("at 0x7ffdeadbeef0", "at 0x7ffdeadbee10"),
            ("commit 9fceb02d0ae598e9", "commit 1bceb02d0ae598e1"),
            ("pid 1234567 died", "pid 7654321 died"),
            ("open '/tmp/abc/x.json'", "open '/tmp/def/y.json'"),
        ] {
            assert_eq!(fingerprint(a), fingerprint(b));
            assert!(fingerprint(a).contains('<'), "{}", fingerprint(a));
        }
    }

    #[test]
    fn short_codes_and_words_stay() {
        for text in [
            "exit 3",
            "HTTP 529 overloaded",
            "line 12345",
            "E0308 mismatched types",
            "deadbeef cafe face",
            "v1.2.3",
        ] {
            assert_eq!(fingerprint(text), text);
        }
        assert_ne!(fingerprint("exit 3"), fingerprint("exit 4"));
    }

    // promise: 4
    #[test]
    fn a_fingerprint_is_bounded_whatever_the_text() {
        assert!(fingerprint(&"é ".repeat(10_000)).len() <= MAX_BYTES);
        assert_eq!(fingerprint(""), "");
    }
}
