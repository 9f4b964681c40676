//! Captures the output of a command for the prompt: the beginning and the end, with the cut marked.

/// The most bytes kept per stream: half from the beginning, half from the end.
pub const COMMAND_CAP: usize = 256 * 1024;

/// The captured output of a command.
pub struct Capture {
    /// The captured stdout.
    pub stdout: HeadTail,
    /// The captured stderr.
    pub stderr: HeadTail,
}

impl Capture {
    /// Creates a capture that keeps `cap` bytes per stream.
    pub fn new(cap: usize) -> Capture {
        Capture { stdout: HeadTail::new(cap), stderr: HeadTail::new(cap) }
    }

    /// Returns the number of bytes received.
    pub fn seen(&self) -> u64 {
        self.stdout.seen + self.stderr.seen
    }

    /// Returns the number of bytes left out.
    pub fn cut(&self) -> u64 {
        self.stdout.cut() + self.stderr.cut()
    }

    /// Returns stdout, then stderr on a new line.
    pub fn text(&self) -> String {
        let mut text = self.stdout.text();
        let err = self.stderr.text();
        if !text.is_empty() && !err.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&err);
        text
    }
}

/// The first and the last bytes of a stream.
pub struct HeadTail {
    half: usize,
    head: Vec<u8>,
    /// The last bytes. Holds up to twice the needed amount, so that trimming is rare.
    tail: Vec<u8>,
    /// The number of bytes received.
    pub seen: u64,
}

impl HeadTail {
    fn new(cap: usize) -> HeadTail {
        HeadTail { half: cap / 2, head: Vec::new(), tail: Vec::new(), seen: 0 }
    }

    /// Appends bytes of the stream.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        let room = self.half - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        bytes = &rest[rest.len().saturating_sub(self.half)..];
        if self.tail.len() + bytes.len() > 2 * self.half {
            let keep = self.half.saturating_sub(bytes.len());
            self.tail.drain(..self.tail.len().saturating_sub(keep));
        }
        self.tail.extend_from_slice(bytes);
    }

    fn last(&self) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(self.half)..]
    }

    /// Returns the number of bytes left out between the beginning and the end.
    pub fn cut(&self) -> u64 {
        self.seen - (self.head.len() + self.last().len()) as u64
    }

    fn text(&self) -> String {
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(self.last()));
        match self.cut() {
            // A character may span both halves. Join them before decoding.
            0 => String::from_utf8_lossy(&[&self.head[..], self.last()].concat()).into_owned(),
            cut => format!("{head}\n[… {cut} bytes cut by dogwatch …]\n{tail}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(cap: usize, chunks: &[&[u8]]) -> (String, u64) {
        let mut c = Capture::new(cap);
        for chunk in chunks {
            c.stdout.push(chunk);
        }
        (c.text(), c.cut())
    }

    // promise: 4
    #[test]
    fn loop_39_output_is_capped_and_the_cut_is_marked() {
        assert_eq!(kept(8, &[b"1234567"]), ("1234567".into(), 0));
        assert_eq!(kept(8, &[b"12345678"]), ("12345678".into(), 0));
        assert_eq!(kept(8, &[b"123456789"]), ("1234\n[… 1 bytes cut by dogwatch …]\n6789".into(), 1));
        assert_eq!(
            kept(8, &[b"1", b"23456", b"7", b"89abcdefghijk"]).0,
            "1234\n[… 12 bytes cut by dogwatch …]\nhijk"
        );
    }

    #[test]
    fn a_character_that_spans_both_halves_is_preserved() {
        assert_eq!(kept(8, &["aaaé".as_bytes(), b"bb"]).0, "aaaébb");
    }

    #[test]
    fn loop_34_stdout_comes_before_stderr_with_a_newline_between() {
        let mut c = Capture::new(100);
        c.stderr.push(b"err\n");
        c.stdout.push(b"out");
        assert_eq!(c.text(), "out\nerr\n");
        let mut only = Capture::new(100);
        only.stderr.push(b"err");
        assert_eq!(only.text(), "err");
    }
}
