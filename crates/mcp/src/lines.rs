//! Splits bytes into lines in bounded memory, and finds the request id in an unreadable line.

use serde_json::Value;
use std::collections::VecDeque;

/// How much of the beginning and of the end of an oversized line is kept, in bytes.
const KEPT: usize = 1024;

/// One line of input, without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputLine {
    Whole(Vec<u8>),
    TooLong { head: Vec<u8>, tail: Vec<u8> },
}

impl InputLine {
    /// Returns whether the line is empty or only white space.
    pub fn is_blank(&self) -> bool {
        matches!(self, InputLine::Whole(bytes) if bytes.trim_ascii().is_empty())
    }
}

/// A line splitter with a maximum line length.
#[derive(Debug)]
pub struct Lines {
    max: usize,
    /// The unfinished line, unless it is too long.
    open: Vec<u8>,
    /// The beginning and the end of an unfinished line that is too long.
    long: Option<(Vec<u8>, VecDeque<u8>)>,
    ready: VecDeque<InputLine>,
}

impl Lines {
    /// Creates a splitter for lines of at most `max` bytes.
    pub fn new(max: usize) -> Lines {
        Lines { max, open: Vec::new(), long: None, ready: VecDeque::new() }
    }

    /// Returns the maximum line length in bytes.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns whether the unfinished line already exceeds the maximum.
    pub fn is_too_long(&self) -> bool {
        self.long.is_some()
    }

    /// Returns the next complete line.
    pub fn next(&mut self) -> Option<InputLine> {
        self.ready.pop_front()
    }

    /// Adds input.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.take(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = match self.long.take() {
                Some((head, tail)) => InputLine::TooLong { head, tail: tail.into() },
                None => InputLine::Whole(std::mem::take(&mut self.open)),
            };
            self.ready.push_back(line);
        }
        self.take(bytes);
    }

    fn take(&mut self, bytes: &[u8]) {
        if let Some((_, tail)) = &mut self.long {
            keep_end(tail, bytes);
        } else if self.open.len() + bytes.len() <= self.max {
            self.open.extend_from_slice(bytes);
        } else {
            let mut tail = VecDeque::with_capacity(KEPT);
            keep_end(&mut tail, &self.open);
            keep_end(&mut tail, bytes);
            let mut head = std::mem::take(&mut self.open);
            head.extend_from_slice(&bytes[..bytes.len().min(KEPT)]);
            head.truncate(KEPT);
            head.shrink_to_fit();
            self.long = Some((head, tail));
        }
    }
}

fn keep_end(tail: &mut VecDeque<u8>, bytes: &[u8]) {
    tail.extend(&bytes[bytes.len().saturating_sub(KEPT)..]);
    tail.drain(..tail.len().saturating_sub(KEPT));
}

/// Returns the request id of an unreadable line, if the beginning or the end of the line contains it. JSON
/// writers put the id before the parameters, or last.
pub fn id_of(line: &InputLine) -> Option<Value> {
    let (head, tail) = match line {
        InputLine::Whole(bytes) => {
            (&bytes[..bytes.len().min(KEPT)], &bytes[bytes.len().saturating_sub(KEPT)..])
        }
        InputLine::TooLong { head, tail } => (head.as_slice(), tail.as_slice()),
    };
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    let before = head.split(r#""params""#).next().unwrap_or("");
    // Without parameters the whole line is the head. Ignore an id inside a nested object.
    let first = before.find(r#""id""#).filter(|at| before[..*at].matches('{').count() == 1);
    first.and_then(|at| scalar(&before[at + 4..])).map(|(id, _)| id).or_else(|| {
        let at = tail.rfind(r#""id""#)?;
        let (id, rest) = scalar(&tail[at + 4..])?;
        let rest: String = rest.chars().filter(|c| !c.is_whitespace()).collect();
        matches!(rest.as_str(), "}" | r#","jsonrpc":"2.0"}"#).then_some(id)
    })
}

/// Parses the number or string after a colon, and returns it with the rest of the text.
fn scalar(text: &str) -> Option<(Value, &str)> {
    let text = text.trim_start().strip_prefix(':')?.trim_start();
    let end = match text.strip_prefix('"') {
        Some(quoted) => quoted.find('"')? + 2,
        None => text.find(|c: char| !c.is_ascii_digit() && c != '-')?,
    };
    let (id, rest) = text.split_at(end);
    Some((serde_json::from_str(id).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn split(max: usize, pieces: &[&str]) -> Vec<InputLine> {
        let mut lines = Lines::new(max);
        for piece in pieces {
            lines.push(piece.as_bytes());
        }
        std::iter::from_fn(|| lines.next()).collect()
    }

    fn whole(text: &str) -> InputLine {
        InputLine::Whole(text.into())
    }

    #[test]
    fn splits_lines_across_chunks() {
        assert_eq!(split(9, &["ab", "c\nde", "\n\nhalf"]), [whole("abc"), whole("de"), whole("")]);
    }

    #[test]
    fn truncates_lines_beyond_the_limit() {
        assert_eq!(split(3, &["abc\n"]), [whole("abc")]);
        assert_eq!(
            split(3, &["ab", "cd\nxy\n"]),
            [InputLine::TooLong { head: "abcd".into(), tail: "abcd".into() }, whole("xy")]
        );
    }

    #[test]
    fn an_endless_line_uses_bounded_memory() {
        let mut lines = Lines::new(10_000);
        for _ in 0..10_000 {
            lines.push(&[b'x'; 10_000]);
        }
        let (head, tail) = lines.long.as_ref().expect("too long");
        assert!(
            head.capacity() <= 2 * KEPT && tail.capacity() <= 8 * KEPT,
            "{} {}",
            head.capacity(),
            tail.capacity()
        );
        lines.push(b"\nnext\n");
        assert!(matches!(lines.next(), Some(InputLine::TooLong { .. })));
        assert_eq!(lines.next(), Some(whole("next")));
    }

    #[test]
    fn finds_the_id_of_an_unreadable_request() {
        let padding = "x".repeat(5_000);
        for (line, id) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"a":"{padding}"}}}}"#),
                Some(json!(7)),
            ),
            (
                format!(r#"{{"method":"m","params":{{"a":"{padding}"}},"jsonrpc":"2.0","id":"q-1"}}"#),
                Some(json!("q-1")),
            ),
            (
                format!(r#"{{"method":"m","params":{{"a":"{padding}"}},"id":3,"jsonrpc":"2.0"}}"#),
                Some(json!(3)),
            ),
            (format!(r#"{{"method":"m","params":{{"id":9,"a":"{padding}"}}}}"#), None),
            (format!(r#"{{"method":"m","params":{{"a":"{padding}","id":9}}}}"#), None),
            ("garbage".to_owned(), None),
        ] {
            let mut lines = Lines::new(100);
            lines.push(line.as_bytes());
            lines.push(b"\n");
            assert_eq!(
                id_of(&lines.next().expect("a line")),
                id,
                "too long: {}",
                &line[..40.min(line.len())]
            );
            assert_eq!(
                id_of(&InputLine::Whole(line.clone().into())),
                id,
                "whole: {}",
                &line[..40.min(line.len())]
            );
        }
    }
}
