//! Where the lines go: a terminal in colour, a file or pipe plain, or every byte as it was.

use crate::error::Failure;
use crate::screen::{Line, paint};
use std::io::{ErrorKind, IsTerminal, Write};

/// Why there is nothing more to show.
pub enum Stop {
    NobodyReads,
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

pub struct Out {
    pub raw: bool,
    colour: bool,
}

impl Out {
    pub fn choose(raw: bool) -> Result<Out, Failure> {
        let terminal = std::io::stdout().is_terminal();
        if raw && terminal {
            return Err(Failure::with_hint(
                "--raw does not write to a terminal: what an agent prints may steer it",
                "leave --raw out, or send it to a file or a program: `dogwatch logs --raw | less`",
            ));
        }
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        Ok(Out { raw, colour: terminal && !dumb && std::env::var_os("NO_COLOR").is_none() })
    }

    /// A line of ours or of the agent's; raw output has only the agent's bytes.
    pub fn line(&mut self, line: &Line) -> Result<(), Stop> {
        self.lines(std::slice::from_ref(line))
    }

    pub fn lines(&mut self, lines: &[Line]) -> Result<(), Stop> {
        if self.raw || lines.is_empty() {
            return Ok(());
        }
        let text: String =
            lines.iter().flat_map(|l| [paint(self.colour, l.tone, &l.text), "\n".to_owned()]).collect();
        write(text.as_bytes())
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        write(bytes)
    }
}

fn write(bytes: &[u8]) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Stop::NobodyReads),
        Err(e) => Err(Stop::Failed(Failure::internal(format!("cannot print: {e}")))),
    }
}
