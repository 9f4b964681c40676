//! Decodes the bytes that a terminal sends into keys.

/// A key that `top` understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Char(char),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-L.
    Redraw,
    /// Ctrl-Z.
    Suspend,
}

/// The longest escape sequence to wait for, in bytes. All known sequences are shorter.
const MAX_SEQUENCE: usize = 32;

/// Turns bytes into keys. A sequence may arrive in pieces.
#[derive(Debug, Default)]
pub struct Keys {
    pending: Vec<u8>,
}

impl Keys {
    /// Adds bytes from the terminal and returns the complete keys.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while let Some((used, key)) = first(&self.pending) {
            self.pending.drain(..used);
            keys.extend(key);
        }
        if self.pending.len() > MAX_SEQUENCE {
            self.pending.clear();
        }
        keys
    }

    /// Returns whether the last bytes may be the start of a sequence.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Ends the wait for the rest of a sequence. A lone escape byte is the Escape key.
    pub fn settle(&mut self) -> Option<Key> {
        let alone = self.pending == [ESC];
        self.pending.clear();
        alone.then_some(Key::Escape)
    }
}

const ESC: u8 = 0x1b;

/// Returns the first key and its length in bytes, or `None` if the sequence is incomplete.
fn first(bytes: &[u8]) -> Option<(usize, Option<Key>)> {
    match *bytes.first()? {
        ESC => escape(bytes),
        0x03 => Some((1, Some(Key::Interrupt))),
        0x1a => Some((1, Some(Key::Suspend))),
        0x0c => Some((1, Some(Key::Redraw))),
        b'\r' | b'\n' => Some((1, Some(Key::Enter))),
        0x20..0x7f => Some((1, Some(Key::Char(char::from(bytes[0]))))),
        0..0x20 | 0x7f => Some((1, None)),
        0x80.. => letter(bytes),
    }
}

/// Decodes a multi-byte character. Invalid bytes are skipped one by one.
fn letter(bytes: &[u8]) -> Option<(usize, Option<Key>)> {
    let length = match bytes[0] {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return Some((1, None)),
    };
    let whole = bytes.get(..length)?;
    match std::str::from_utf8(whole) {
        Ok(text) => Some((length, text.chars().next().map(Key::Char))),
        Err(_) => Some((1, None)),
    }
}

fn escape(bytes: &[u8]) -> Option<(usize, Option<Key>)> {
    match bytes.get(1)? {
        b'O' => Some((3, by_letter(*bytes.get(2)?))),
        b'[' => {
            let length = bytes[2..].iter().position(|b| (0x40..0x7f).contains(b))?;
            let (numbers, last) = (&bytes[2..2 + length], bytes[2 + length]);
            let key = if last == b'~' { by_number(numbers) } else { by_letter(last) };
            Some((length + 3, key))
        }
        // The Escape key, followed by another key.
        _ => Some((1, Some(Key::Escape))),
    }
}

fn by_letter(last: u8) -> Option<Key> {
    match last {
        b'A' => Some(Key::Up),
        b'B' => Some(Key::Down),
        b'C' => Some(Key::Right),
        b'D' => Some(Key::Left),
        b'H' => Some(Key::Home),
        b'F' => Some(Key::End),
        _ => None,
    }
}

fn by_number(numbers: &[u8]) -> Option<Key> {
    match numbers {
        b"1" | b"7" => Some(Key::Home),
        b"4" | b"8" => Some(Key::End),
        b"5" => Some(Key::PageUp),
        b"6" => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_whole_and_in_pieces() {
        let all = b"j\x1b[A\x1bOB\x1b[5~\x1b[1;5C\r\x03\xc3\xa9?";
        let expected = [
            Key::Char('j'),
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::Right,
            Key::Enter,
            Key::Interrupt,
            Key::Char('é'),
            Key::Char('?'),
        ];
        assert_eq!(Keys::default().take(all), expected);
        let mut keys = Keys::default();
        let one_by_one: Vec<Key> = all.iter().flat_map(|b| keys.take(&[*b])).collect();
        assert_eq!(one_by_one, expected);
    }

    #[test]
    fn a_lone_escape_byte_is_the_escape_key() {
        let mut keys = Keys::default();
        assert_eq!((keys.take(b"\x1b"), keys.is_waiting()), (vec![], true));
        assert_eq!((keys.settle(), keys.is_waiting()), (Some(Key::Escape), false));
        assert_eq!(keys.take(b"\x1bq"), [Key::Escape, Key::Char('q')]);
    }

    #[test]
    fn invalid_bytes_are_skipped_and_not_kept() {
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"\xff\x80\x00\x1b[99~\x1b[?1;2cx"), [Key::Char('x')]);
        keys.take(b"\x1b[");
        keys.take(&[b'1'; MAX_SEQUENCE]);
        assert!(!keys.is_waiting());
        assert_eq!(keys.take(b"y"), [Key::Char('y')]);
    }
}
