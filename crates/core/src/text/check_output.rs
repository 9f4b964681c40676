//! The output of a check: what it means, apart from what differs between two equal runs.

use crate::text::fingerprint;
use crate::text::one_line;

/// The most of a check's output that a summary shows, in bytes.
const MAX_SUMMARY: usize = 60;

/// Returns a hash of the output that ignores times, durations, ids and the order of lines. Test runners measure each
/// test and may run tests in any order. The first line of a `cut` text is skipped, because it may be incomplete.
pub fn digest(output: &str, cut: bool) -> u64 {
    let line = |line: &str| fingerprint::digest(without_durations(line).as_bytes());
    output
        .lines()
        .skip(usize::from(cut))
        .filter(|l| !l.trim().is_empty())
        .map(line)
        .fold(0, u64::wrapping_add)
}

/// Returns the last line of the output without its frame and its duration: `4 failed` from `=== 4 failed in 0.2s ===`.
pub fn summary(output: &str) -> String {
    let line = output.lines().rev().map(unframed).find(|line| line.chars().any(char::is_alphanumeric));
    let line = line.map(without_durations).unwrap_or_default();
    let line = unframed(line.trim_end_matches(&format!(" in {DURATION}")));
    one_line(line, MAX_SUMMARY)
}

const DURATION: &str = "<duration>";

/// The units that follow a number in a duration.
const UNITS: [&str; 15] = [
    "ns", "us", "µs", "ms", "s", "sec", "secs", "second", "seconds", "m", "min", "mins", "h", "minutes",
    "hours",
];

fn unframed(line: &str) -> &str {
    line.trim_matches(|c: char| c.is_whitespace() || "=-_*#~".contains(c))
}

/// Replaces durations by a placeholder and joins the words with single blanks.
fn without_durations(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let core = word.trim_matches(|c: char| "()[]{},;:.".contains(c));
        let after_number = words.last().is_some_and(|last| is_number(last.trim_start_matches(['(', '['])));
        if after_number && UNITS.contains(&core) {
            words.pop();
            words.push(DURATION.to_owned());
        } else if is_duration(core) {
            words.push(word.replacen(core, DURATION, 1));
        } else {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// Returns whether a word is a duration without blanks, like `0.12s`, `350ms` or `1m2s`.
fn is_duration(word: &str) -> bool {
    let mut rest = word;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let unit_end = rest[number..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| number + at);
        if number == 0 || !UNITS.contains(&&rest[number..unit_end]) {
            return false;
        }
        rest = &rest[unit_end..];
    }
    !word.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_durations_and_order_do_not_change_the_digest() {
        for (a, b) in [
            ("=== 4 failed in 0.12s ===", "=== 4 failed in 11.50s ==="),
            ("ok a (3 ms)\nok b (1m2s)", "ok b (950ms)\nok a (12 ms)"),
            ("at 20:15:33 no route", "at 20:15:34 no route"),
            ("Finished in 2.3 seconds", "Finished in 4 seconds"),
            ("1 failed\n\n", "1 failed"),
        ] {
            assert_eq!(digest(a, false), digest(b, false), "{a} | {b}");
        }
        assert_eq!(digest("cut here\n1 failed", true), digest("t here\n1 failed", true));
    }

    #[test]
    fn other_counts_names_and_lines_change_the_digest() {
        for (a, b) in [
            ("4 failed in 0.1s", "3 failed in 0.1s"),
            ("FAILED test_a", "FAILED test_b"),
            ("FAILED test_a", "FAILED test_a\nFAILED test_b"),
            ("line 12: expected 3 s", "line 13: expected 3 s"),
            ("x", ""),
        ] {
            assert_ne!(digest(a, false), digest(b, false), "{a} | {b}");
        }
    }

    #[test]
    fn a_summary_is_the_last_line_without_frame_and_duration() {
        for (output, wanted) in [
            ("test_a.py:3\n====== 4 failed in 0.12s ======\n\n", "4 failed"),
            ("error: could not compile `x` (lib)\n", "error: could not compile `x` (lib)"),
            ("a\n-----\n", "a"),
            ("", ""),
        ] {
            assert_eq!(summary(output), wanted);
        }
        assert!(summary(&"é".repeat(500)).len() <= MAX_SUMMARY + "…".len());
    }
}
