//! Reads the journal incrementally: whole lines only, in pieces of bounded size.

use serde::Deserialize;
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How many bytes are read at once. A client that does not read costs about six times this.
const CHUNK: usize = 16 * 1024;
/// The longest line that is passed on; the journal has no longer ones.
const MAX_LINE: usize = 4 * 1024 * 1024;

/// A reader that remembers its position in the journal.
pub(crate) struct Tail {
    file: File,
    /// The end of the last line that was returned. The bytes after it are read again each time: the journal may
    /// truncate an incomplete line, which must not survive in a buffer.
    offset: u64,
    /// Reading stops at this offset.
    until: u64,
    buf: Vec<u8>,
    /// Inside a line that is too long to pass on.
    skipping: bool,
}

impl Tail {
    /// Opens a journal and reads everything that is ever appended to it.
    pub fn follow(path: &Path) -> io::Result<Tail> {
        Ok(Tail::from(dogwatch_host::store::safe_file::read(path)?, 0))
    }

    /// Opens a journal and reads only up to its current end, even if it grows.
    pub fn up_to_now(path: &Path) -> io::Result<Tail> {
        let mut tail = Tail::follow(path)?;
        tail.until = tail.file.metadata()?.len();
        Ok(tail)
    }

    /// Reads whole lines from `offset`, which must be the end of a line.
    pub fn from(file: File, offset: u64) -> Tail {
        Tail { file, offset, until: u64::MAX, buf: Vec::new(), skipping: false }
    }

    /// Returns the end of the last line that was returned.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns how many bytes of the journal have not been read yet.
    pub fn behind(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.offset))
    }

    /// Returns the next whole lines, or `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let mut size = CHUNK;
        loop {
            let read = self.fill(size)?;
            if let Some(last) = self.buf[..read].iter().rposition(|b| *b == b'\n') {
                return Ok(Some(self.give_out(last + 1)));
            }
            if read < size {
                // Free the buffer: the next event may be hours away.
                self.buf = Vec::new();
                return Ok(None);
            }
            if size >= MAX_LINE {
                self.skipping = true;
                self.offset += read as u64;
                size = CHUNK;
            } else {
                size *= 4;
            }
        }
    }

    fn give_out(&mut self, end: usize) -> &[u8] {
        self.offset += end as u64;
        let mut start = 0;
        if std::mem::take(&mut self.skipping) {
            start = self.buf.iter().position(|b| *b == b'\n').map_or(end, |p| p + 1);
        }
        &self.buf[start..end]
    }

    fn fill(&mut self, size: usize) -> io::Result<usize> {
        let size = size.min(usize::try_from(self.until.saturating_sub(self.offset)).unwrap_or(usize::MAX));
        // Release the memory of a long line with the next piece, because long lines are rare.
        self.buf.resize(size, 0);
        self.buf.shrink_to(CHUNK);
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
pub(crate) struct Head<'a> {
    pub seq: u64,
    #[serde(borrow)]
    pub event: Cow<'a, str>,
}

/// Parses the head of an event; `None` if the line is not an event, which is then skipped.
pub(crate) fn head(line: &[u8]) -> Option<Head<'_>> {
    let head: Head = serde_json::from_slice(line).ok()?;
    // The name must fit on one line of an SSE stream.
    head.event.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_').then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn all(tail: &mut Tail) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(piece) = tail.next().expect("reads") {
            lines.extend(std::str::from_utf8(piece).expect("is text").lines().map(str::to_owned));
        }
        lines
    }

    #[test]
    fn only_whole_lines_are_returned_and_each_once() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"one\ntwo\nthr").expect("writes");
        let mut tail = Tail::follow(file.path()).expect("opens");
        assert_eq!(all(&mut tail), ["one", "two"]);
        assert_eq!(all(&mut tail), [""; 0]);
        file.write_all(b"ee\n").expect("writes");
        assert_eq!(all(&mut tail), ["three"]);
    }

    #[test]
    fn a_truncated_and_rewritten_line_is_read_again() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"one\nhalf of it").expect("writes");
        let mut tail = Tail::follow(file.path()).expect("opens");
        assert_eq!(all(&mut tail), ["one"]);
        file.as_file().set_len(4).expect("cuts");
        std::fs::OpenOptions::new()
            .append(true)
            .open(file.path())
            .and_then(|mut f| f.write_all(b"another\n"))
            .expect("writes");
        assert_eq!(all(&mut tail), ["another"]);
    }

    // promise: 4
    #[test]
    fn lines_around_the_limits_are_whole_and_one_beyond_is_passed_over() {
        for length in [CHUNK - 1, CHUNK, CHUNK + 1, 4 * CHUNK, MAX_LINE - 1, MAX_LINE, MAX_LINE + 1] {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            let long = "x".repeat(length - 1);
            file.write_all(format!("a\n{long}\nb\n").as_bytes()).expect("writes");
            let lines = all(&mut Tail::follow(file.path()).expect("opens"));
            let expected = if length <= MAX_LINE { vec!["a", &long, "b"] } else { vec!["a", "b"] };
            assert!(lines == expected, "{length}: {} lines", lines.len());
        }
    }

    #[test]
    fn lines_appended_after_opening_are_not_returned() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"one\n").expect("writes");
        let mut tail = Tail::up_to_now(file.path()).expect("opens");
        file.write_all(b"two\n").expect("writes");
        assert_eq!(all(&mut tail), ["one"]);
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
