//! Decides whether a line is new: it differs from the last few lines after volatile parts are removed.
//!
//! Removing volatile parts costs more than reading, so it is done only when it can change the result. A line that
//! repeats byte for byte is old. Progress is a moment, and all lines of one chunk have the same moment, so only the
//! first new line of a chunk matters. The lines after it are stored as they are, in case the next chunk must be
//! compared with them. So a flood costs one copy per line, and an agent that prints the same line with a changing
//! timestamp does not count as busy.

use crate::reader::is_blank;
use dogwatch_core::record::hash;
use dogwatch_core::text::fingerprint::digest;

/// How many lines are remembered.
const LAST: usize = 8;
/// How much of a line is normalized; the rest is compared as written.
const HEAD: usize = 1024;

/// The last few lines of an agent.
#[derive(Debug, Default)]
pub struct Novelty {
    last: [KnownLine; LAST],
    /// The hashes of the last lines as written; a place is `None` until a line takes it.
    written: [Option<u64>; LAST],
    next: usize,
    /// Whether the caller announces chunks, and whether the current one has had a new line.
    chunked: bool,
    fresh: bool,
    /// How often the last line was repeated.
    repeats: usize,
}

#[derive(Debug, Default)]
struct KnownLine {
    /// The hash of the normalized line, computed on demand.
    alike: Option<u64>,
    /// The beginning of the line, kept to compute that hash.
    head: Vec<u8>,
    rest: u64,
}

impl KnownLine {
    fn set(&mut self, line: &[u8]) {
        let (head, rest) = line.split_at(line.len().min(HEAD));
        self.head.clear();
        self.head.extend_from_slice(head);
        self.rest = if rest.is_empty() { 0 } else { hash::bytes(rest) };
        self.alike = None;
    }

    fn alike(&mut self) -> u64 {
        let (head, rest) = (&self.head, self.rest);
        *self.alike.get_or_insert_with(|| hash::mix(digest(head), rest))
    }
}

impl Novelty {
    /// Declares that the following lines have the same moment.
    pub fn begin_chunk(&mut self) {
        (self.chunked, self.fresh) = (true, false);
    }

    /// Returns whether this line is new. Blank lines never are, and are not remembered.
    pub fn is_new(&mut self, line: &[u8]) -> bool {
        if is_blank(line) {
            return false;
        }
        let written = Some(hash::bytes(line));
        let repeats_last = self.written[(self.next + LAST - 1) % LAST] == written;
        self.repeats = if repeats_last { self.repeats + 1 } else { 0 };
        if self.repeats >= LAST {
            // Only this line is remembered already.
            return false;
        }
        let repeated = self.written.contains(&written);
        self.written[self.next] = written;
        self.last[self.next].set(line);
        let new = !repeated && ((self.chunked && self.fresh) || self.differs());
        self.next = (self.next + 1) % LAST;
        self.fresh |= new;
        new
    }

    /// Returns how many bytes at the start are repetitions of the only line that is remembered. Reading them would change
    /// nothing, except that the last one is left to be read: an old line may count after a pause.
    pub fn repeats(&self, bytes: &[u8]) -> usize {
        let line = &self.last[(self.next + LAST - 1) % LAST].head;
        let unit = line.len() + 1;
        let whole = bytes.len() / unit * unit;
        let known = self.repeats >= LAST && line.len() < HEAD && whole > unit;
        let is_repeated = known
            && bytes.starts_with(line)
            && bytes[line.len()] == b'\n'
            && bytes[unit..whole] == bytes[..whole - unit];
        if is_repeated { whole - unit } else { 0 }
    }

    /// Compares the line that was just stored with all others.
    fn differs(&mut self) -> bool {
        let at = self.next;
        let alike = self.last[at].alike();
        let known = self.last.iter_mut().zip(&self.written).enumerate();
        known
            .filter(|(n, (_, written))| *n != at && written.is_some())
            .all(|(_, (seen, _))| seen.alike() != alike)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn novel(lines: &[&str]) -> Vec<bool> {
        let mut novelty = Novelty::default();
        lines.iter().map(|line| novelty.is_new(line.as_bytes())).collect()
    }

    #[test]
    fn watchdog_4_blank_lines_are_not_new() {
        assert_eq!(novel(&["", "  ", "\t", "a", ""]), [false, false, false, true, false]);
    }

    #[test]
    fn a_line_that_differs_only_in_its_time_is_not_new() {
        assert_eq!(
            novel(&["[20:15:33] waiting", "[20:15:34] waiting", "[20:15:35] done"]),
            [true, false, true]
        );
    }

    #[test]
    fn a_line_is_compared_with_the_last_eight() {
        let lines: Vec<String> = (0..9).map(|n| format!("line {n}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let with = |again: &'static str| *novel(&[&lines[..], &[again]].concat()).last().expect("not empty");
        assert!(with("line 0"), "it was nine lines ago");
        assert!(!with("line 1") && !with("line 8"));
    }

    #[test]
    fn a_chunk_has_one_new_line_and_the_next_chunk_is_compared_with_all_of_it() {
        let mut novelty = Novelty::default();
        novelty.begin_chunk();
        assert!(novelty.is_new(b"[20:15:33] waiting"));
        assert!(novelty.is_new(b"[20:15:34] waiting"), "lines after the first new one are not compared");
        assert!(!novelty.is_new(b"[20:15:34] waiting"), "the line is identical");
        novelty.begin_chunk();
        assert!(!novelty.is_new(b"[20:15:35] waiting"));
        assert!(!novelty.is_new(b"[20:15:36] waiting"));
        assert!(novelty.is_new(b"[20:15:37] done"));
    }

    #[test]
    fn a_long_line_that_differs_only_at_its_end_is_new() {
        let long = "x".repeat(100_000);
        assert_eq!(
            novel(&[&long, &format!("{long}1"), &format!("{long}2"), &long]),
            [true, true, true, false]
        );
    }
}
