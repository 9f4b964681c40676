//! Byte chunks to lines, in bounded memory and linear time, whatever comes.

use memchr::memchr;

/// A longer line is cut. The longest that a CLI was seen to print is 129 KB; a tool that reads a picture
/// can make one of a few MB.
pub const MAX_LINE: usize = 4 * 1024 * 1024;

/// A carry buffer that has grown beyond this is given back once its line is delivered.
const KEEP: usize = 256 * 1024;

/// One line without its end (`\n` or `\r\n`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub bytes: &'a [u8],
    /// The line was longer than the maximum; `bytes` is its beginning.
    pub cut: bool,
}

/// Cuts a stream of chunks at newlines. A line that lies within one chunk is not copied.
#[derive(Debug)]
pub struct Splitter {
    max: usize,
    /// The line that has begun, at most `max + 1` bytes of it: one more than may be delivered, because a
    /// `\r` before the newline does not count.
    carry: Vec<u8>,
    /// The line that has begun is longer than `carry`.
    overflowed: bool,
}

impl Default for Splitter {
    fn default() -> Splitter {
        Splitter::new()
    }
}

impl Splitter {
    pub fn new() -> Splitter {
        Splitter::with_max(MAX_LINE)
    }

    pub fn with_max(max: usize) -> Splitter {
        Splitter { max, carry: Vec::new(), overflowed: false }
    }

    /// Delivers every line that this chunk completes.
    pub fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        let mut rest = chunk;
        if self.has_begun() {
            let Some(end) = memchr(b'\n', rest) else { return self.keep(rest) };
            self.keep(&rest[..end]);
            self.deliver(&mut each);
            rest = &rest[end + 1..];
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', rest) {
            each(line(&rest[start..end], self.max, false));
            start = end + 1;
        }
        self.keep(&rest[start..]);
    }

    /// The stream has ended: delivers a last line that has no newline.
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

/// The line in `raw`, which is only its beginning if `overflowed`.
fn line(raw: &[u8], max: usize, overflowed: bool) -> Line<'_> {
    let whole = if overflowed { raw } else { raw.strip_suffix(b"\r").unwrap_or(raw) };
    Line { bytes: &whole[..whole.len().min(max)], cut: overflowed || whole.len() > max }
}
