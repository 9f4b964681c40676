//! Text with placeholders: the output of a step, the content of a file, or a path.
//!
//! The pieces are known after parsing, their values only when the step is played.

/// One part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Literal bytes, not characters: `"\xff"` is one byte.
    Bytes(Vec<u8>),
    /// `$pid`: the pid of the process that plays the step.
    Pid,
    /// `$child`: the pid of the latest `child { … }`.
    Child,
    /// `$n`: the value of `counter`.
    Count,
    /// `$prompt`: the whole of stdin.
    Prompt,
    /// `$env:NAME`, empty when unset.
    Env(String),
    /// `$arg:N`, from 1, empty when absent.
    Arg(usize),
}

/// A sequence of pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Vec<Piece>);

impl Text {
    /// Returns the pieces.
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Appends a piece, merging adjacent literal bytes.
    pub fn push(&mut self, piece: Piece) {
        match (self.0.last_mut(), piece) {
            (Some(Piece::Bytes(last)), Piece::Bytes(more)) => last.extend(more),
            (_, piece) => self.0.push(piece),
        }
    }

    /// Appends literal bytes.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.push(Piece::Bytes(bytes.to_vec()));
    }

    /// Returns the text if it has no placeholders.
    pub fn plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Bytes(bytes)] => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Joins words with the separator `between`.
    pub fn join<'a>(words: impl IntoIterator<Item = &'a Text>, between: &[u8]) -> Text {
        let mut joined = Text::default();
        for (i, word) in words.into_iter().enumerate() {
            if i > 0 {
                joined.push_bytes(between);
            }
            word.0.iter().cloned().for_each(|piece| joined.push(piece));
        }
        joined
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(vec![Piece::Bytes(text.as_bytes().to_vec())])
    }
}
