//! Keeps the last bytes of a text that arrives in pieces.

/// Keeps the last `MAX` bytes that were pushed. It uses at most twice that memory and copies each byte at most
/// twice.
#[derive(Debug, Default)]
pub struct TailBuffer<const MAX: usize> {
    bytes: Vec<u8>,
}

impl<const MAX: usize> TailBuffer<MAX> {
    /// Appends a piece.
    pub fn push(&mut self, piece: &[u8]) {
        if self.bytes.len() + piece.len() > 2 * MAX {
            self.make_room(piece.len());
        }
        self.bytes.extend_from_slice(&piece[piece.len().saturating_sub(MAX)..]);
    }

    /// Appends a line and its newline.
    pub fn push_line(&mut self, line: &[u8]) {
        if self.bytes.len() + line.len() < 2 * MAX {
            self.bytes.extend_from_slice(line);
            self.bytes.push(b'\n');
        } else {
            self.push(line);
            self.push(b"\n");
        }
    }

    #[cold]
    fn make_room(&mut self, coming: usize) {
        let keep = MAX.saturating_sub(coming).min(self.bytes.len());
        let from = self.bytes.len() - keep;
        self.bytes.copy_within(from.., 0);
        self.bytes.truncate(keep);
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the last bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.bytes.len().saturating_sub(MAX)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_for_any_pieces() {
        let all: Vec<u8> = (0..200).collect();
        for size in 1..=50 {
            let mut tail = TailBuffer::<20>::default();
            for (n, piece) in all.chunks(size).enumerate() {
                tail.push(piece);
                let seen = &all[..((n + 1) * size).min(all.len())];
                assert_eq!(tail.bytes(), &seen[seen.len().saturating_sub(20)..], "{size} {n}");
                assert!(tail.bytes.len() <= 40);
            }
        }
    }

    #[test]
    fn a_line_is_kept_like_its_bytes_and_a_newline() {
        for size in 0..=50 {
            let (mut lines, mut pieces) = (TailBuffer::<20>::default(), TailBuffer::<20>::default());
            for n in 0..60_u8 {
                let line = vec![n; size];
                lines.push_line(&line);
                pieces.push(&line);
                pieces.push(b"\n");
                assert_eq!(lines.bytes(), pieces.bytes(), "{size} {n}");
                assert!(lines.bytes.len() <= 40);
            }
        }
    }
}
