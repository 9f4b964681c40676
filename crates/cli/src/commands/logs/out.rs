//! The destination of `logs`: colored or plain lines, or the agent's raw bytes.

use crate::color;
use crate::error::CliError;
use crate::screen::{ScreenLine, paint};
use std::io::{ErrorKind, IsTerminal, Write};

/// Why the output stops.
pub enum Stop {
    /// The reader of stdout is gone.
    Closed,
    Failed(CliError),
}

impl From<CliError> for Stop {
    fn from(failure: CliError) -> Stop {
        Stop::Failed(failure)
    }
}

/// Prints lines or raw bytes to stdout.
pub struct Out {
    pub raw: bool,
    color: bool,
}

impl Out {
    /// Returns the output for stdout. Refuses raw bytes on a terminal.
    pub fn choose(raw: bool) -> Result<Out, CliError> {
        if raw && std::io::stdout().is_terminal() {
            return Err(CliError::with_help(
                "--raw does not write to a terminal: the agent's output may contain control sequences",
                "omit --raw, or redirect the output: `dogwatch logs --raw | less`",
            ));
        }
        Ok(Out { raw, color: color::on_stdout() })
    }

    /// Prints a line. Raw output consists of the agent's bytes only, so it omits all lines.
    pub fn line(&mut self, line: &ScreenLine) -> Result<(), Stop> {
        self.lines(std::slice::from_ref(line))
    }

    /// Prints lines, unless the output is raw.
    pub fn lines(&mut self, lines: &[ScreenLine]) -> Result<(), Stop> {
        if self.raw || lines.is_empty() {
            return Ok(());
        }
        let text: String =
            lines.iter().flat_map(|l| [paint(self.color, l.tone, &l.text), "\n".to_owned()]).collect();
        write(text.as_bytes())
    }

    /// Prints raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        write(bytes)
    }
}

fn write(bytes: &[u8]) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Stop::Closed),
        Err(e) => Err(Stop::Failed(CliError::internal(format!("cannot write to stdout: {e}")))),
    }
}
