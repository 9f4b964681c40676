//! Writes gigabytes of output from one prepared block.
//!
//! Each line of the block has a field for the number of the round, so that all lines and tool ids of a flood are
//! unique. Only that field is rewritten in each round, not the whole line.

use crate::claude::Session;
use crate::out::{Wrote, write_all};
use crate::script::Flood;
use std::io;
use std::os::fd::BorrowedFd;

/// The size of the block: it fits into the L2 cache together with the pipe buffer.
const BLOCK: usize = 256 * 1024;
/// The placeholder for the number of the round, which has the same width.
const FIELD: &str = "@@@@@@@@";

/// Writes a flood of `bytes` bytes. `round` continues over all floods of a process.
pub fn flood(kind: Flood, to: BorrowedFd<'_>, bytes: u64, round: &mut u64) -> io::Result<Wrote> {
    match kind {
        Flood::Lines => lines(to, bytes, round),
        Flood::Json => json(to, bytes, round),
        Flood::OneLine => one_line(to, bytes),
    }
}

fn one_line(to: BorrowedFd<'_>, bytes: u64) -> io::Result<Wrote> {
    let block = vec![b'x'; BLOCK];
    let mut left = bytes;
    while left > 0 {
        let part = part_of(&block, left);
        if write_all(to, part)? == Wrote::PipeClosed {
            return Ok(Wrote::PipeClosed);
        }
        left -= part.len() as u64;
    }
    Ok(Wrote::All)
}

fn part_of(block: &[u8], left: u64) -> &[u8] {
    &block[..usize::try_from(left).unwrap_or(usize::MAX).min(block.len())]
}

fn lines(to: BorrowedFd<'_>, bytes: u64, round: &mut u64) -> io::Result<Wrote> {
    let mut pattern = Pattern::of_text();
    let mut left = bytes;
    while left > 0 {
        pattern.stamp(round);
        let part = part_of(&pattern.block, left);
        left -= part.len() as u64;
        let wrote = match part.split_last() {
            // Cut the last line to the requested length, but keep its newline.
            Some((_, but_last)) if left == 0 => write_all(to, &[but_last, b"\n"].concat())?,
            _ => write_all(to, part)?,
        };
        if wrote == Wrote::PipeClosed {
            return Ok(wrote);
        }
    }
    Ok(Wrote::All)
}

fn json(to: BorrowedFd<'_>, bytes: u64, round: &mut u64) -> io::Result<Wrote> {
    let mut pattern = Pattern::of_json();
    let shortest = closing_line(0).len() as u64;
    let mut left = bytes;
    while left >= pattern.block.len() as u64 + shortest {
        pattern.stamp(round);
        left -= pattern.block.len() as u64;
        if write_all(to, &pattern.block)? == Wrote::PipeClosed {
            return Ok(Wrote::PipeClosed);
        }
    }
    pattern.stamp(round);
    let room = usize::try_from(left.saturating_sub(shortest)).unwrap_or(0);
    let whole = &pattern.block[..pattern.whole_lines_within(room)];
    if write_all(to, whole)? == Wrote::PipeClosed {
        return Ok(Wrote::PipeClosed);
    }
    write_all(to, closing_line(room - whole.len()).as_bytes())
}

/// Returns a message with `filling` bytes of text, which brings the flood to its requested length.
fn closing_line(filling: usize) -> String {
    let line = Session::named("closing-").message(&"z".repeat(filling));
    format!("{line}\n")
}

struct Pattern {
    block: Vec<u8>,
    fields: Vec<usize>,
}

impl Pattern {
    fn new(text: String) -> Pattern {
        let fields = text.match_indices(FIELD).map(|(at, _)| at).collect();
        Pattern { block: text.into_bytes(), fields }
    }

    /// Creates lines of 30 to 130 bytes, like those of typical programs.
    fn of_text() -> Pattern {
        const WORDS: [&str; 8] =
            ["compiling", "test", "crates/core", "ok", "warning:", "retrying", "in", "0.42s"];
        let mut text = String::with_capacity(BLOCK + 256);
        let mut line = 0usize;
        while text.len() < BLOCK {
            text.push_str(&format!("{FIELD}.{line:04}"));
            for i in 0..4 + line % 13 {
                text.push(' ');
                text.push_str(WORDS[(line * 5 + i * 3) % WORDS.len()]);
            }
            text.push('\n');
            line += 1;
        }
        Pattern::new(text)
    }

    /// Creates messages, calls and results of 0.3 to 4 kB, in the mix of a busy session.
    fn of_json() -> Pattern {
        let mut session = Session::named(FIELD);
        let mut text = String::with_capacity(BLOCK + 8192);
        let mut size = 0usize;
        while text.len() < BLOCK {
            // A stride that is coprime to the range visits every size.
            size = (size + 997) % 3_300;
            let filling = "lorem ipsum ".repeat(1 + size / 12);
            // A result contains its text twice, as in the recordings.
            let half = &filling[..filling.len() / 2];
            let printed = [
                session.message(&filling),
                session.call("Bash", "make test"),
                session.reply(!size.is_multiple_of(7), half),
            ];
            printed.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        }
        Pattern::new(text)
    }

    fn stamp(&mut self, round: &mut u64) {
        let number = format!("{:08}", *round % 100_000_000);
        for at in &self.fields {
            self.block[*at..*at + FIELD.len()].copy_from_slice(number.as_bytes());
        }
        *round += 1;
    }

    fn whole_lines_within(&self, room: usize) -> usize {
        part_of(&self.block, room as u64).iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;

    fn flooded(kind: Flood, bytes: u64) -> Vec<u8> {
        let mut file = tempfile::tempfile().expect("a file");
        assert_eq!(flood(kind, file.as_fd(), bytes, &mut 0).expect("writes"), Wrote::All);
        let mut all = Vec::new();
        file.rewind().expect("rewinds");
        file.read_to_end(&mut all).expect("reads");
        all
    }

    #[test]
    fn a_flood_has_exactly_the_requested_length() {
        let block = BLOCK as u64;
        for bytes in [0, 1, 2, 100, block - 1, block, block + 1, 3 * block + 17] {
            for kind in [Flood::Lines, Flood::OneLine] {
                assert_eq!(flooded(kind, bytes).len() as u64, bytes, "{kind:?}");
            }
        }
        let shortest = closing_line(0).len() as u64;
        for bytes in [shortest, shortest + 1, 5_000, block, block + shortest, 3 * block + 17] {
            assert_eq!(flooded(Flood::Json, bytes).len() as u64, bytes);
        }
        assert_eq!(flooded(Flood::Json, 1).len() as u64, shortest, "at least one line");
    }

    #[test]
    fn flood_lines_are_unique_and_the_last_is_complete() {
        let text = String::from_utf8(flooded(Flood::Lines, 3 * BLOCK as u64 + 17)).expect("text");
        assert!(text.ends_with('\n'));
        let mut lines: Vec<&str> = text.lines().collect();
        let count = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), count);
    }

    #[test]
    fn one_line_has_no_newline() {
        assert!(!flooded(Flood::OneLine, 2 * BLOCK as u64).contains(&b'\n'));
    }

    #[test]
    fn json_flood_lines_are_valid_and_tool_ids_are_unique() {
        let text = String::from_utf8(flooded(Flood::Json, 3 * BLOCK as u64 + 17)).expect("text");
        let mut ids = Vec::new();
        let mut sizes = Vec::new();
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).expect("JSON");
            assert!(matches!(value["type"].as_str(), Some("assistant" | "user")));
            let block = &value["message"]["content"][0];
            ids.extend(block["id"].as_str().map(str::to_owned));
            sizes.push(line.len());
        }
        let calls = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), calls);
        sizes.pop();
        assert!(
            sizes.iter().all(|s| (250..4_500).contains(s)),
            "{:?} {:?}",
            sizes.iter().min(),
            sizes.iter().max()
        );
        assert!(sizes.iter().any(|s| *s > 3_500));
    }
}
