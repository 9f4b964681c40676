//! Keeps the end of a check's output for the agent's next prompt and for the record.

use dogwatch_core::run::job::OutputTail;

/// The last bytes of both streams of a check.
#[derive(Default)]
pub struct Tails {
    /// The end of stdout.
    pub stdout: LastBytes,
    /// The end of stderr.
    pub stderr: LastBytes,
}

impl Tails {
    /// Returns the number of bytes received.
    pub fn seen(&self) -> u64 {
        self.stdout.seen + self.stderr.seen
    }

    /// Returns the end of stderr followed by stdout: whole characters within the limit.
    pub fn tail(&self) -> OutputTail {
        let both = [self.stderr.bytes(), self.stdout.bytes()].concat();
        let mut kept = &both[both.len().saturating_sub(OutputTail::MAX_BYTES)..];
        let mut truncated = self.seen() > kept.len() as u64;
        if truncated {
            // Drop the rest of a character whose beginning was cut.
            let rest = kept.iter().take(3).take_while(|byte| (**byte & 0xC0) == 0x80).count();
            kept = &kept[rest..];
        }
        let text = String::from_utf8_lossy(kept);
        // Invalid bytes became longer replacement characters.
        let from = text.ceil_char_boundary(text.len().saturating_sub(OutputTail::MAX_BYTES));
        truncated |= from > 0;
        OutputTail { text: text[from..].to_owned(), truncated }
    }
}

/// The last bytes of a stream.
#[derive(Default)]
pub struct LastBytes {
    /// Holds up to twice the needed amount, so that trimming is rare.
    held: Vec<u8>,
    /// The number of bytes received.
    pub seen: u64,
}

impl LastBytes {
    /// Appends bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(OutputTail::MAX_BYTES)..];
        if self.held.len() + bytes.len() > 2 * OutputTail::MAX_BYTES {
            let keep = OutputTail::MAX_BYTES - bytes.len();
            self.held.drain(..self.held.len().saturating_sub(keep));
        }
        self.held.extend_from_slice(bytes);
    }

    fn bytes(&self) -> &[u8] {
        &self.held[self.held.len().saturating_sub(OutputTail::MAX_BYTES)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = OutputTail::MAX_BYTES;

    fn tail(stderr: &[u8], stdout: &[u8]) -> OutputTail {
        let mut tails = Tails::default();
        // Push odd-sized chunks, as pipes deliver them.
        stdout.chunks(1000).for_each(|piece| tails.stdout.push(piece));
        stderr.chunks(7).for_each(|piece| tails.stderr.push(piece));
        tails.tail()
    }

    // promise: 4
    #[test]
    fn a_tail_is_bounded_and_marked_when_bytes_were_cut() {
        for (bytes, kept, truncated) in [(MAX - 1, MAX - 1, false), (MAX, MAX, false), (MAX + 1, MAX, true)] {
            let got = tail(b"", &vec![b'x'; bytes]);
            assert_eq!((got.text.len(), got.truncated), (kept, truncated));
        }
        let flood = tail(&vec![b'e'; 1_000_000], &vec![b'o'; 3_000_000]);
        assert_eq!((flood.text.len(), flood.truncated), (MAX, true));
    }

    #[test]
    fn stderr_comes_before_stdout_and_is_the_first_to_be_cut() {
        assert_eq!(tail(b"err\n", b"out\n").text, "err\nout\n");
        let got = tail(&[b'e'; 100], &vec![b'o'; MAX - 10]);
        assert!(got.text.starts_with("eeeeeeeeeeo") && got.truncated);
    }

    #[test]
    fn a_character_at_the_cut_is_dropped_as_a_whole() {
        let got = tail(b"", "é".repeat(MAX).as_bytes());
        assert_eq!(got.text, "é".repeat(MAX / 2));
        let odd = tail(b"", format!("x{}", "€".repeat(MAX)).as_bytes());
        assert!(odd.text.chars().all(|c| c == '€') && odd.text.len() <= MAX, "{}", odd.text.len());
    }

    #[test]
    fn invalid_bytes_do_not_exceed_the_limit() {
        let got = tail(b"", &vec![0xff; MAX]);
        assert!(got.text.len() <= MAX && got.truncated);
        assert!(got.text.chars().all(|c| c == '\u{fffd}'));
    }
}
