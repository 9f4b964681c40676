//! Joins the pieces of a journal to lines.

use dogwatch_host::store::journal::MAX_LINE;

/// The journal of a job, as far as it was read.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The next sequence number of the stream to read.
    pub next: u64,
    /// The bytes of the journal that were taken.
    taken: u64,
    partial: Vec<u8>,
}

/// The effect of a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// These lines are complete now, without their newlines.
    Lines(Vec<Vec<u8>>),
    /// The journal was rewritten; read all of it again.
    Again,
}

impl Pieces {
    /// Takes a piece of the journal: its sequence number in the stream, its offset in the journal, and its bytes.
    pub fn take(&mut self, sequence: u64, offset: u64, bytes: &[u8]) -> Taken {
        let end = offset + bytes.len() as u64;
        if offset > self.taken || (offset < self.taken && end > self.taken) {
            *self = Pieces::default();
            // A piece in the middle of the journal cannot be read without those before it.
            return Taken::Again;
        }
        self.next = sequence + 1;
        // A piece that was sent twice.
        if offset < self.taken {
            return Taken::Lines(Vec::new());
        }
        self.taken = end;
        self.partial.extend_from_slice(bytes);
        let mut lines = Vec::new();
        if let Some(last) = self.partial.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.partial.split_off(last + 1);
            let whole = std::mem::replace(&mut self.partial, rest);
            lines = whole[..last].split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        }
        // No journal has such a line.
        self.partial.truncate(MAX_LINE);
        Taken::Lines(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Taken {
        Taken::Lines(texts.iter().map(|text| text.as_bytes().to_vec()).collect())
    }

    #[test]
    fn pieces_are_joined_to_lines_and_a_repeated_one_adds_nothing() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.take(7, 0, b"one\ntw"), lines(&["one"]));
        assert_eq!(pieces.take(9, 6, b"o\nthree\n"), lines(&["two", "three"]));
        assert_eq!(pieces.next, 10);
        assert_eq!(pieces.take(10, 6, b"o\nthree\n"), lines(&[]));
        assert_eq!(pieces.take(11, 14, b"four\n"), lines(&["four"]));
    }

    #[test]
    fn a_gap_or_a_rewritten_part_means_reading_again() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.take(1, 0, b"one\n"), lines(&["one"]));
        assert_eq!(pieces.take(2, 9, b"three\n"), Taken::Again);
        assert_eq!(pieces.next, 0);
        assert_eq!(pieces.take(1, 0, b"one\n"), lines(&["one"]));
        assert_eq!(pieces.take(3, 2, b"e\ntwo\n"), Taken::Again);
    }
}
