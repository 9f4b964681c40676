//! Text with placeholders: what a step prints, writes or takes for a path.
//!
//! The pieces are known when the script has been read; their values only when the step is played.

/// One part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes, not characters: `"\xff"` must come out as one byte.
    Bytes(Vec<u8>),
    /// `$pid`: of the process that plays the step.
    Pid,
    /// `$child`: pid of the latest `child { … }`.
    Child,
    /// `$n`: what `counter` counted.
    Count,
    /// `$prompt`: all of stdin.
    Prompt,
    /// `$env:NAME`, empty when unset.
    Env(String),
    /// `$arg:N`, from 1, empty when absent.
    Arg(usize),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Vec<Piece>);

impl Text {
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    pub fn push(&mut self, piece: Piece) {
        match (self.0.last_mut(), piece) {
            (Some(Piece::Bytes(last)), Piece::Bytes(more)) => last.extend(more),
            (_, piece) => self.0.push(piece),
        }
    }

    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.push(Piece::Bytes(bytes.to_vec()));
    }

    /// The text itself, if nothing in it waits for its value.
    pub fn plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Bytes(bytes)] => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Several words as one text, `between` each two of them.
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
