//! The destination of `logs`: colored or plain lines, or the agent's raw bytes.

use super::super::json_line;
use super::record::IterationRecord;
use crate::color;
use crate::error::CliError;
use crate::screen::{ShownLine, paint};
use dogwatch_core::record::ids::{Iteration, NodeName};
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

/// Prints lines, JSON or raw bytes to stdout.
pub struct Out {
    pub raw: bool,
    /// The iteration that the following lines belong to, for JSON output.
    json: Option<(Option<NodeName>, Iteration)>,
    color: bool,
}

/// A line as JSON.
#[derive(serde::Serialize)]
struct JsonLine<'a> {
    node: &'a Option<NodeName>,
    iteration: Iteration,
    tone: &'a str,
    text: &'a str,
}

impl Out {
    /// Returns the output for stdout. Refuses raw bytes on a terminal.
    pub fn choose(raw: bool, json: bool) -> Result<Out, CliError> {
        if raw && std::io::stdout().is_terminal() {
            return Err(CliError::with_help(
                "--raw does not write to a terminal: the agent's output may contain control sequences",
                "omit --raw, or redirect the output: `dogwatch logs --raw | less`",
            ));
        }
        Ok(Out { raw, json: json.then(Default::default), color: color::on_stdout() })
    }

    /// Notes the iteration that the following lines belong to.
    pub fn begin(&mut self, seen: &IterationRecord) {
        if let Some(place) = &mut self.json {
            *place = (Some(seen.node.clone()), seen.iteration);
        }
    }

    /// Prints a line. Raw output consists of the agent's bytes only, so it omits all lines.
    pub fn line(&mut self, line: &ShownLine) -> Result<(), Stop> {
        self.lines(std::slice::from_ref(line))
    }

    /// Prints lines, unless the output is raw.
    pub fn lines(&mut self, lines: &[ShownLine]) -> Result<(), Stop> {
        if self.raw || lines.is_empty() {
            return Ok(());
        }
        let shown = |line: &ShownLine| match &self.json {
            None => paint(self.color, line.tone, &line.text),
            Some((node, iteration)) => {
                let (iteration, tone, text) = (*iteration, line.tone.as_str(), line.text.as_str());
                // A line of texts and numbers always serializes.
                json_line(&JsonLine { node, iteration, tone, text }).unwrap_or_default()
            }
        };
        let text: String = lines.iter().map(|line| shown(line) + "\n").collect();
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
