//! Reads the lines of a journal, also while it grows. Every reader of a journal uses it, so all have the same limit.

use super::MAX_LINE;
use crate::store::safe_file;
use dogwatch_core::record::event::{FORMAT, Recorded};
use serde::Deserialize;
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How many bytes are read at once. A client of the server that does not read costs about six times this.
const CHUNK: usize = 16 * 1024;
/// How many bytes are read at once by a reader that reads a whole journal.
const LARGE_CHUNK: usize = 256 * 1024;

/// A reader that remembers its position in a journal. It returns whole lines only.
pub struct Tail {
    file: File,
    /// The end of the last line that was returned. An incomplete line after it is read again each time: the journal
    /// may truncate that line, so it must not survive in a buffer.
    offset: u64,
    /// Reading stops at this offset.
    until: u64,
    chunk: usize,
    buf: Vec<u8>,
    /// The whole lines in `buf` that were not returned yet.
    ready: Range<usize>,
    /// The line in `buf` that was returned last.
    line: Range<usize>,
    /// Inside a line that is too long.
    skipping: bool,
    skipped: u64,
}

impl Tail {
    /// Opens a journal and reads everything that is ever appended to it.
    pub fn follow(path: &Path) -> io::Result<Tail> {
        Ok(Tail::from(safe_file::read(path)?, 0))
    }

    /// Opens a journal and reads only up to its current end, even if it grows.
    pub fn up_to_now(path: &Path) -> io::Result<Tail> {
        let mut tail = Tail::follow(path)?;
        tail.until = tail.file.metadata()?.len();
        Ok(tail)
    }

    /// Reads whole lines from `offset`, which must be the end of a line.
    pub fn from(file: File, offset: u64) -> Tail {
        Tail {
            file,
            offset,
            until: u64::MAX,
            chunk: CHUNK,
            buf: Vec::new(),
            ready: 0..0,
            line: 0..0,
            skipping: false,
            skipped: 0,
        }
    }

    /// Reads in larger pieces, for a caller that reads the whole file at once.
    pub fn in_large_pieces(self) -> Tail {
        Tail { chunk: LARGE_CHUNK, ..self }
    }

    /// Returns the end of the last line that was returned.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the current length of the file.
    pub fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns how many bytes of the journal have not been returned yet.
    pub fn behind(&self) -> io::Result<u64> {
        Ok(self.length()?.saturating_sub(self.offset))
    }

    /// Returns how many lines were longer than [`MAX_LINE`]. They are skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the next whole lines, or `None` at the end.
    pub fn next_lines(&mut self) -> io::Result<Option<&[u8]>> {
        if self.ready.is_empty() && !self.fill()? {
            return Ok(None);
        }
        let lines = std::mem::take(&mut self.ready);
        self.offset += lines.len() as u64;
        Ok(Some(&self.buf[lines]))
    }

    /// Returns the next whole line without its newline, or `None` at the end.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line = 0..0;
        if self.ready.is_empty() && !self.fill()? {
            return Ok(None);
        }
        let length = memchr::memchr(b'\n', &self.buf[self.ready.clone()]);
        let length = length.expect("`ready` ends with a newline");
        self.line = self.ready.start..self.ready.start + length;
        self.ready.start = self.line.end + 1;
        self.offset += length as u64 + 1;
        Ok(Some(self.current()))
    }

    /// Returns the line that `next_line` returned last. Empty at the end.
    pub fn current(&self) -> &[u8] {
        &self.buf[self.line.clone()]
    }

    /// Returns the incomplete line at the end of the file, which is empty if there is none.
    pub fn torn(&mut self) -> io::Result<Vec<u8>> {
        let left = usize::try_from(self.behind()?).unwrap_or(usize::MAX);
        let read = self.read(left.min(MAX_LINE))?;
        let mut torn = std::mem::take(&mut self.buf);
        (self.ready, self.line) = (0..0, 0..0);
        torn.truncate(read);
        Ok(torn)
    }

    /// Reads until there is a whole line. Returns false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let mut size = self.chunk;
        loop {
            let read = self.read(size)?;
            if let Some(last) = memchr::memrchr(b'\n', &self.buf[..read]) {
                let mut start = 0;
                if std::mem::take(&mut self.skipping) {
                    start = memchr::memchr(b'\n', &self.buf).map_or(0, |end| end + 1);
                    self.offset += start as u64;
                }
                self.ready = start..last + 1;
                if self.ready.is_empty() {
                    size = self.chunk;
                    continue;
                }
                return Ok(true);
            }
            if read < size {
                // Free the buffer: the next event may be hours away.
                self.buf = Vec::new();
                return Ok(false);
            }
            if size >= MAX_LINE || self.skipping {
                self.skipped += u64::from(!std::mem::replace(&mut self.skipping, true));
                self.offset += read as u64;
                size = self.chunk;
            } else {
                size = (size * 4).min(MAX_LINE);
            }
        }
    }

    fn read(&mut self, size: usize) -> io::Result<usize> {
        let size = size.min(usize::try_from(self.until.saturating_sub(self.offset)).unwrap_or(usize::MAX));
        // Release the memory of a long line with the next piece, because long lines are rare.
        self.buf.resize(size, 0);
        self.buf.shrink_to(self.chunk);
        let mut read = 0;
        while read < size {
            match self.file.read_at(&mut self.buf[read..], self.offset + read as u64) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}

/// The fields of a line that are needed to pass it on.
#[derive(Debug, Deserialize)]
pub struct Head<'a> {
    /// The sequence number.
    pub seq: u64,
    /// The kind of event.
    #[serde(borrow)]
    pub event: Cow<'a, str>,
}

/// Parses the head of an event; `None` if the line is not an event.
pub fn head(line: &[u8]) -> Option<Head<'_>> {
    let head: Head = serde_json::from_slice(line).ok()?;
    // The name must fit on one line of an SSE stream.
    head.event.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_').then_some(head)
}

/// The problem with a line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// The line is not an event.
    #[error("not an event: {0}")]
    NotAnEvent(String),
    /// The line has a newer format.
    #[error("written by a newer dogwatch (format {0}, this one reads up to {FORMAT})")]
    Newer(u32),
    /// Lines are missing.
    #[error("event {found} follows event {last}: lines are missing")]
    Gap {
        /// The last sequence number before the gap.
        last: u64,
        /// The sequence number after the gap.
        found: u64,
    },
    /// The line is longer than the limit.
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
}

/// Parses the event that follows event `last`. Also returns the hash of the previous line that it contains.
pub fn parse(line: &[u8], last: u64) -> Result<(Recorded, String), BadLine> {
    let newer = |v: u32| if v > FORMAT { Err(BadLine::Newer(v)) } else { Ok(()) };
    let bad = |e: serde_json::Error| BadLine::NotAnEvent(e.to_string());
    let head = match dogwatch_codec::Head::of(line) {
        Ok(head) => head,
        Err(error) => {
            dogwatch_codec::version(line).map_or(Ok(()), newer)?;
            return Err(bad(error));
        }
    };
    newer(head.v)?;
    let recorded = head.read(line).map_err(bad)?;
    match recorded.seq {
        found if Some(found) == last.checked_add(1) => Ok((recorded, head.prev.into_owned())),
        found => Err(BadLine::Gap { last, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).expect("is text")
    }

    fn by_line(tail: &mut Tail) -> Vec<String> {
        std::iter::from_fn(|| tail.next_line().expect("reads").map(text)).collect()
    }

    fn by_piece(tail: &mut Tail) -> Vec<String> {
        let all: String = std::iter::from_fn(|| tail.next_lines().expect("reads").map(text)).collect();
        all.lines().map(str::to_owned).collect()
    }

    #[test]
    fn only_whole_lines_are_returned_and_each_once() {
        for all in [by_line, by_piece] {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            file.write_all(b"one\n\ntwo\nthr").expect("writes");
            let mut tail = Tail::follow(file.path()).expect("opens");
            assert_eq!(all(&mut tail), ["one", "", "two"]);
            assert_eq!((all(&mut tail), tail.offset(), tail.behind().ok()), (vec![], 9, Some(3)));
            assert_eq!(tail.torn().expect("reads"), b"thr");
            file.write_all(b"ee\n").expect("writes");
            assert_eq!(all(&mut tail), ["three"]);
            assert!(tail.torn().expect("reads").is_empty());
        }
    }

    #[test]
    fn a_truncated_and_rewritten_line_is_read_again() {
        for all in [by_line, by_piece] {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            file.write_all(b"one\nhalf of it").expect("writes");
            let mut tail = Tail::follow(file.path()).expect("opens");
            assert_eq!(all(&mut tail), ["one"]);
            file.as_file().set_len(4).expect("cuts");
            let again = std::fs::OpenOptions::new().append(true).open(file.path());
            again.and_then(|mut f| f.write_all(b"another\n")).expect("writes");
            assert_eq!(all(&mut tail), ["another"]);
        }
    }

    // promise: 4
    #[test]
    fn lines_around_the_limits_are_whole_and_one_beyond_is_passed_over() {
        for length in [CHUNK - 1, CHUNK, CHUNK + 1, 4 * CHUNK, MAX_LINE - 1, MAX_LINE, MAX_LINE + 1] {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            let long = "x".repeat(length - 1);
            file.write_all(format!("a\n{long}\nb\n").as_bytes()).expect("writes");
            for all in [by_line, by_piece] {
                for large in [false, true] {
                    let tail = Tail::follow(file.path()).expect("opens");
                    let mut tail = if large { tail.in_large_pieces() } else { tail };
                    let lines = all(&mut tail);
                    let fits = length <= MAX_LINE;
                    let expected = if fits { vec!["a", &long, "b"] } else { vec!["a", "b"] };
                    assert!(lines == expected, "{length}: {} lines", lines.len());
                    assert_eq!(tail.skipped(), u64::from(!fits));
                }
            }
        }
    }

    #[test]
    fn lines_appended_after_opening_are_not_returned() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"one\n").expect("writes");
        let mut tail = Tail::up_to_now(file.path()).expect("opens");
        file.write_all(b"two\n").expect("writes");
        assert_eq!(by_line(&mut tail), ["one"]);
    }

    #[test]
    fn a_line_that_is_not_an_event_has_no_head() {
        assert_eq!(head(br#"{"v":1,"seq":7,"event":"notice","x":[1]}"#).expect("reads").seq, 7);
        for line in
            [&b"{"[..], b"[]", br#"{"seq":1}"#, br#"{"seq":-1,"event":"a"}"#, br#"{"seq":1,"event":"a\nb"}"#]
        {
            assert!(head(line).is_none());
        }
    }
}
