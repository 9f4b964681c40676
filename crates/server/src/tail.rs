//! The journal read from where one was: whole lines only, in pieces of bounded size.

use serde::Deserialize;
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much is read at once. A caller who does not read costs about six times this.
const CHUNK: usize = 16 * 1024;
/// The longest line that is passed on; a journal has none that is longer.
const MAX_LINE: usize = 4 * 1024 * 1024;

pub(crate) struct Tail {
    file: File,
    /// The end of the last line that was given out. What follows is read anew each time: a line that could
    /// not be written whole is cut off again, and must not live on in a buffer.
    offset: u64,
    /// Nothing beyond this is read.
    until: u64,
    buf: Vec<u8>,
    /// Within a line that is too long to pass on.
    skipping: bool,
}

impl Tail {
    /// All that is ever written.
    pub fn follow(path: &Path) -> io::Result<Tail> {
        Ok(Tail::from(dogwatch_host::store::safe_file::read(path)?, 0))
    }

    /// What is there now, and no more, however fast it grows.
    pub fn up_to_now(path: &Path) -> io::Result<Tail> {
        let mut tail = Tail::follow(path)?;
        tail.until = tail.file.metadata()?.len();
        Ok(tail)
    }

    /// Whole lines from here on: `offset` is the end of a line that was read before.
    pub fn from(file: File, offset: u64) -> Tail {
        Tail { file, offset, until: u64::MAX, buf: Vec::new(), skipping: false }
    }

    /// The end of the last line that was given out.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes of the journal this reader has not seen.
    pub fn behind(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.offset))
    }

    /// The next whole lines, or `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let mut size = CHUNK;
        loop {
            let read = self.fill(size)?;
            if let Some(last) = self.buf[..read].iter().rposition(|b| *b == b'\n') {
                return Ok(Some(self.give_out(last + 1)));
            }
            if read < size {
                // The next event may be hours away.
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
        // A long line is rare: what it took is given back with the next piece.
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

/// What must be known of a line to pass it on.
#[derive(Debug, Deserialize)]
pub(crate) struct Head<'a> {
    pub seq: u64,
    #[serde(borrow)]
    pub event: Cow<'a, str>,
}

/// `None` if the line is no event: it is not passed on.
pub(crate) fn head(line: &[u8]) -> Option<Head<'_>> {
    let head: Head = serde_json::from_slice(line).ok()?;
    // A name goes onto a line of its own in a stream of events.
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
    fn only_whole_lines_are_given_out_and_each_once() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"one\ntwo\nthr").expect("writes");
        let mut tail = Tail::follow(file.path()).expect("opens");
        assert_eq!(all(&mut tail), ["one", "two"]);
        assert_eq!(all(&mut tail), [""; 0]);
        file.write_all(b"ee\n").expect("writes");
        assert_eq!(all(&mut tail), ["three"]);
    }

    #[test]
    fn a_line_that_was_cut_back_and_written_anew_is_read_anew() {
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
    fn what_is_written_after_the_question_is_not_part_of_the_answer() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"one\n").expect("writes");
        let mut tail = Tail::up_to_now(file.path()).expect("opens");
        file.write_all(b"two\n").expect("writes");
        assert_eq!(all(&mut tail), ["one"]);
    }

    #[test]
    fn a_line_that_is_no_event_has_no_head() {
        assert_eq!(head(br#"{"v":1,"seq":7,"event":"notice","x":[1]}"#).expect("reads").seq, 7);
        for line in
            [&b"{"[..], b"[]", br#"{"seq":1}"#, br#"{"seq":-1,"event":"a"}"#, br#"{"seq":1,"event":"a\nb"}"#]
        {
            assert!(head(line).is_none());
        }
    }
}
