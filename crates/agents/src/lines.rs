//! Splits byte chunks into lines, in bounded memory and linear time for any input.

use memchr::memchr;

/// The longest line; longer ones are cut. The longest line seen from a CLI has 129 KB, but a tool that reads a picture
/// can print a few MB.
pub const MAX_LINE: usize = 4 * 1024 * 1024;

/// A carry buffer that has grown beyond this size is freed once its line is delivered.
const KEEP: usize = 256 * 1024;

/// One line without its line ending (`\n` or `\r\n`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The content of the line.
    pub bytes: &'a [u8],
    /// The line was longer than the maximum; `bytes` is its beginning.
    pub cut: bool,
}

/// Splits a stream of chunks at newlines. A line within one chunk is not copied.
#[derive(Debug)]
pub struct Splitter {
    max: usize,
    /// The incomplete line, at most `max + 1` bytes of it: one more than may be delivered, because a `\r` before the
    /// newline does not count.
    carry: Vec<u8>,
    /// The incomplete line is longer than `carry`.
    overflowed: bool,
}

impl Default for Splitter {
    fn default() -> Splitter {
        Splitter::new()
    }
}

impl Splitter {
    /// Creates a splitter with the default maximum.
    pub fn new() -> Splitter {
        Splitter::with_max(MAX_LINE)
    }

    /// Creates a splitter that cuts lines longer than `max` bytes.
    pub fn with_max(max: usize) -> Splitter {
        Splitter { max, carry: Vec::new(), overflowed: false }
    }

    /// Delivers every line that this chunk completes.
    pub fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        let rest = self.complete(chunk, &mut each);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', rest) {
            each(line(&rest[start..end], self.max, false));
            start = end + 1;
        }
        self.keep(&rest[start..]);
    }

    /// Delivers an incomplete line if this chunk completes it. Returns the part of the chunk after that line.
    pub fn complete<'a>(&mut self, chunk: &'a [u8], mut each: impl FnMut(Line<'_>)) -> &'a [u8] {
        if !self.has_begun() {
            return chunk;
        }
        let Some(end) = memchr(b'\n', chunk) else {
            self.keep(chunk);
            return &[];
        };
        self.keep(&chunk[..end]);
        self.deliver(&mut each);
        &chunk[end + 1..]
    }

    /// Handles the end of the stream: delivers a last line without a newline.
    pub fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if self.has_begun() {
            self.deliver(&mut each);
        }
    }

    fn has_begun(&self) -> bool {
        !self.carry.is_empty()
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = (self.max + 1).saturating_sub(self.carry.len());
        self.carry.extend_from_slice(&piece[..piece.len().min(room)]);
        self.overflowed |= piece.len() > room;
    }

    fn deliver(&mut self, each: &mut impl FnMut(Line<'_>)) {
        each(line(&self.carry, self.max, self.overflowed));
        self.overflowed = false;
        if self.carry.capacity() > KEEP { self.carry = Vec::new() } else { self.carry.clear() }
    }
}

/// Returns the line in `raw`, which is only its beginning if `overflowed`.
fn line(raw: &[u8], max: usize, overflowed: bool) -> Line<'_> {
    let whole = if overflowed { raw } else { raw.strip_suffix(b"\r").unwrap_or(raw) };
    Line { bytes: &whole[..whole.len().min(max)], cut: overflowed || whole.len() > max }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Returns all lines of a stream that arrives in chunks of the given sizes, repeated.
    fn split(stream: &[u8], max: usize, sizes: &[usize]) -> Vec<(Vec<u8>, bool)> {
        let mut splitter = Splitter::with_max(max);
        let mut lines = Vec::new();
        let mut rest = stream;
        for size in sizes.iter().cycle() {
            let (chunk, behind) = rest.split_at(rest.len().min(*size));
            splitter.feed(chunk, |line| lines.push((line.bytes.to_vec(), line.cut)));
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        splitter.finish(|line| lines.push((line.bytes.to_vec(), line.cut)));
        lines
    }

    fn whole(lines: &[&str]) -> Vec<(Vec<u8>, bool)> {
        lines.iter().map(|line| (line.as_bytes().to_vec(), false)).collect()
    }

    #[test]
    fn lines_end_with_lf_or_crlf_and_the_last_may_lack_both() {
        assert_eq!(split(b"a\nb\r\n\n\r\nc", 10, &[100]), whole(&["a", "b", "", "", "c"]));
        assert_eq!(split(b"a\r\rb\r", 10, &[100]), whole(&["a\r\rb"]));
        assert_eq!(split(b"", 10, &[100]), whole(&[]));
        assert_eq!(split(b"a\n", 10, &[100]), whole(&["a"]));
    }

    // promise: 4
    #[test]
    fn a_line_is_whole_up_to_the_limit_and_cut_once_beyond_it() {
        for end in ["\n", "\r\n", ""] {
            for (length, kept, cut) in [(7, 7, false), (8, 8, false), (9, 8, true), (100, 8, true)] {
                let stream = format!("{}{end}", "x".repeat(length));
                for size in 1..=12 {
                    let wanted = vec![("x".repeat(kept).into_bytes(), cut)];
                    assert_eq!(split(stream.as_bytes(), 8, &[size]), wanted, "{length} {end:?} {size}");
                }
            }
        }
    }

    #[test]
    fn lines_after_a_cut_line_are_whole() {
        assert_eq!(split(b"123456789\nok\n", 4, &[3]), [(b"1234".to_vec(), true), (b"ok".to_vec(), false)]);
    }

    #[test]
    fn any_chunking_gives_the_same_lines() {
        let stream = b"one\r\ntwo\n\n{\"a\":1}\r\r\n\xff\xfe\nlonger than the limit\r\n\nno end\r";
        let wanted = split(stream, 10, &[stream.len()]);
        for first in 1..=stream.len() {
            for second in 1..=7 {
                assert_eq!(split(stream, 10, &[first, second, 1]), wanted, "{first} {second}");
            }
        }
    }

    // promise: 4
    #[test]
    fn a_line_of_a_gigabyte_costs_no_more_than_the_limit() {
        let mut splitter = Splitter::with_max(64 * 1024);
        let chunk = vec![b'x'; 1024 * 1024];
        for _ in 0..1024 {
            splitter.feed(&chunk, |_| panic!("the line has not ended"));
            assert!(splitter.carry.capacity() <= 2 * 64 * 1024 + 2);
        }
        let mut lines = 0;
        splitter.feed(b"\n", |line| lines += usize::from(line.cut));
        assert_eq!(lines, 1);
    }

    #[test]
    fn a_grown_carry_buffer_is_freed() {
        let mut splitter = Splitter::new();
        splitter.feed(&vec![b'x'; MAX_LINE], |_| {});
        splitter.feed(b"\n", |line| assert!(!line.cut));
        assert!(splitter.carry.capacity() <= KEEP);
    }
}
