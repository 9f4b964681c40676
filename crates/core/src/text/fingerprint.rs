//! Texts without their volatile parts, to recognize similar texts.
//!
//! Times, ids, long hexadecimal and decimal numbers and temporary paths are replaced. Short codes stay, because `exit 3`
//! and `HTTP 529` distinguish failures. `fingerprint` returns such a text for people and for the record; `digest`
//! returns its hash for comparisons.

use crate::record::hash;
use crate::text::clip;

/// The longest text that is examined, and the longest fingerprint, in bytes.
const MAX_BYTES: usize = 400;
/// A hexadecimal number with at least this many digits is volatile.
const HEX_DIGITS: usize = 8;
/// A decimal number with at least this many digits is volatile.
const DECIMAL_DIGITS: usize = 7;

/// Only this many bytes at each end of a longer text are digested.
const END: usize = 32 * 1024;

/// Returns the fingerprint of a text; similar failures have the same fingerprint.
pub fn fingerprint(text: &str) -> String {
    let mut out = Vec::new();
    normalize(clip(text, MAX_BYTES).as_bytes(), &mut |piece| out.extend_from_slice(piece));
    clip(&String::from_utf8_lossy(&out), MAX_BYTES).to_owned()
}

/// Returns the fingerprint of the beginning and the end of a long text, since both describe the failure.
pub fn fingerprint_ends(text: &str) -> String {
    if text.len() <= MAX_BYTES {
        return fingerprint(text);
    }
    let half = (MAX_BYTES - " … ".len()) / 2;
    let head = fingerprint(clip(text, half));
    let tail = fingerprint(crate::watch::sign::tail(text, half));
    clip(&format!("{head} … {tail}"), MAX_BYTES).to_owned()
}

/// Returns a hash that is equal for similar texts. Only the two ends of a long text are read.
pub fn digest(text: &[u8]) -> u64 {
    let mut sum = 0;
    let mut add = |piece: &[u8]| sum = hash::mix(sum, hash::bytes(piece));
    if text.len() <= 2 * END {
        normalize(text, &mut add);
    } else {
        normalize(&text[..END], &mut add);
        let tail = &text[text.len() - END..];
        // Skip the first word: it may be cut, and at another place next time.
        let whole = tail.iter().position(u8::is_ascii_whitespace).unwrap_or(0);
        normalize(&tail[whole..], &mut add);
    }
    sum
}

/// Calls `out` with the pieces of the normalized text: words separated by one blank, with volatile parts replaced.
fn normalize(text: &[u8], out: &mut impl FnMut(&[u8])) {
    let mut rest = text.trim_ascii_start();
    let mut first = true;
    while !rest.is_empty() {
        let (length, plain) = word(rest);
        if !first {
            out(b" ");
        }
        first = false;
        if plain {
            out(&rest[..length])
        } else {
            normalize_word(&rest[..length], out)
        }
        rest = rest[length..].trim_ascii_start();
    }
}

/// Returns the length of the first word, and whether it has no volatile parts. Ids, times and numbers contain digits,
/// and paths contain slashes.
fn word(text: &[u8]) -> (usize, bool) {
    let mut plain = true;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c => return (at, plain),
            b'0'..=b'9' | b'/' => plain = false,
            _ => {}
        }
    }
    (text.len(), plain)
}

fn normalize_word(word: &[u8], out: &mut impl FnMut(&[u8])) {
    let mut at = 0;
    while at < word.len() {
        let rest = &word[at..];
        let starts = at == 0 || !is_inner(word[at - 1]);
        if starts && is_temporary(rest) {
            return out(b"<tmp>");
        }
        let run = token(rest);
        if run.is_empty() {
            out(&rest[..1]);
            at += 1;
        } else {
            normalize_token(run, out);
            at += run.len();
        }
    }
}

fn is_temporary(path: &[u8]) -> bool {
    path[0] == b'/'
        && ["/tmp/", "/var/tmp/", "/var/folders/", "/private/", "/dev/shm/"]
            .iter()
            .any(|t| path.starts_with(t.as_bytes()))
}

fn is_inner(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || is_joint(byte)
}

fn is_joint(byte: u8) -> bool {
    matches!(byte, b'-' | b':' | b'.' | b'_' | b'+')
}

/// Returns the longest prefix that could be one id, time or number.
fn token(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|b| !is_inner(*b)).unwrap_or(text.len());
    let trimmed = text[..end].iter().rposition(|b| !is_joint(*b)).map_or(0, |last| last + 1);
    &text[..trimmed]
}

/// Normalizes a token. It may be volatile as a whole or have volatile parts: `req_7f3c2b1a`, `log-2026-11-15`.
fn normalize_token(run: &[u8], out: &mut impl FnMut(&[u8])) {
    let mut at = 0;
    while at < run.len() {
        let rest = &run[at..];
        let time = time(rest);
        if time > 0 {
            out(b"<time>");
            at += time;
            continue;
        }
        if rest.len() >= 36 && is_uuid(&rest[..36]) {
            out(b"<id>");
            at += 36;
            continue;
        }
        let part = rest.iter().position(|b| is_joint(*b)).unwrap_or(rest.len());
        out(placeholder(&rest[..part]).unwrap_or(&rest[..part]));
        at += part;
        if at < run.len() {
            out(&run[at..=at]);
            at += 1;
        }
    }
}

fn placeholder(part: &[u8]) -> Option<&'static [u8]> {
    let digits = part.strip_prefix(b"0x").unwrap_or(part);
    if digits.len() >= DECIMAL_DIGITS && digits.iter().all(u8::is_ascii_digit) {
        return Some(b"<n>");
    }
    let hex = digits.len() >= HEX_DIGITS
        && digits.iter().all(u8::is_ascii_hexdigit)
        && digits.iter().any(u8::is_ascii_digit);
    hex.then_some(b"<hex>")
}

/// Returns the length of the date or time at the start of the text, or 0. It consists of digits, `T`, `Z` and
/// separators, contains two `:` or two `-`, and no letter follows it.
fn time(text: &[u8]) -> usize {
    if !text.first().is_some_and(u8::is_ascii_digit) {
        return 0;
    }
    let of_time = |b: &u8| b.is_ascii_digit() || b"T-:.Z+".contains(b);
    let end = text.iter().position(|b| !of_time(b)).unwrap_or(text.len());
    let length = text[..end].iter().rposition(|b| !is_joint(*b)).map_or(0, |last| last + 1);
    let count = |wanted: u8| text[..length].iter().filter(|b| **b == wanted).count();
    let is_separate = text.get(length).is_none_or(|b| is_joint(*b));
    let is_time = is_separate && (count(b':') >= 2 || (length >= 10 && count(b'-') >= 2));
    if is_time { length } else { 0 }
}

fn is_uuid(run: &[u8]) -> bool {
    run.iter().enumerate().all(|(i, b)| match i {
        8 | 13 | 18 | 23 => *b == b'-',
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

    #[test]
    fn loop_27_volatile_parts_are_stripped_within_words_too() {
        for (text, wanted) in [
            ("request req_7f3c2b1a99 failed", "request req_<hex> failed"),
            ("key=12345678, path=/tmp/a1/b", "key=<n>, path=<tmp>"),
            ("log-2026-11-15T20:15:33Z.txt", "log-<time>.txt"),
            ("id:7f3c2b1a-0d4e-4f5a-9b8c-1234567890ab!", "id:<id>!"),
            ("run_1794765819208_0", "run_<n>_0"),
            ("src/main.rs:12:34: error[E0308]", "src/main.rs:12:34: error[E0308]"),
            ("  two\n\tlines ", "two lines"),
        ] {
            assert_eq!(fingerprint(text), wanted);
        }
    }

    #[test]
    fn loop_27_digests_are_equal_exactly_for_texts_that_are_alike() {
        let digest = |text: &str| digest(text.as_bytes());
        assert_eq!(digest("at 20:15:33\nin /tmp/a/b  ok"), digest("at 21:00:00 in /tmp/c ok"));
        for other in ["exit 4", "exit  33", "exit", "3 exit", "exit3"] {
            assert_ne!(digest("exit 3"), digest(other), "{other}");
        }
        let long = |first: &str, last: &str| digest(&format!("{first} {} {last}", "x ".repeat(100_000)));
        assert_eq!(long("a", "b"), long("a", "b"));
        assert_ne!(long("a", "b"), long("b", "b"));
        assert_ne!(long("a", "b"), long("a", "c"));
    }

    #[test]
    fn both_ends_of_a_long_text_are_in_its_fingerprint() {
        let long = format!("first {} last", "x ".repeat(1_000));
        let print = fingerprint_ends(&long);
        assert!(
            print.starts_with("first ") && print.ends_with(" last") && print.len() <= MAX_BYTES,
            "{print}"
        );
    }

    // promise: 4
    #[test]
    fn a_fingerprint_is_bounded_whatever_the_text() {
        assert!(fingerprint(&"é ".repeat(10_000)).len() <= MAX_BYTES);
        assert_eq!(fingerprint(""), "");
    }
}
