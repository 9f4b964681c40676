//! Reads a file of JSON lines one by one, in bounded memory. Errors name the file and the line.

use crate::error::CliError;
use dogwatch_host::store::journal::{MAX_LINE, Tail};
use dogwatch_host::store::safe_file;
use std::path::Path;

/// An open file and its current line.
pub struct Lines {
    name: String,
    lines: Tail,
    number: u64,
    /// The last line, if it has no newline.
    torn: Vec<u8>,
}

impl Lines {
    /// Opens a regular file before its first line.
    pub fn open(path: &Path) -> Result<Lines, CliError> {
        let name = path.display().to_string();
        let cannot = |e: std::io::Error| {
            CliError::with_help(
                format!("cannot read {name}: {e}"),
                "FILE is a run's journal in .dogwatch/runs/, a timeline or an agent's transcript",
            )
        };
        let file = safe_file::read_named(path).map_err(cannot)?;
        Ok(Lines { name, lines: Tail::from(file, 0).in_large_pieces(), number: 0, torn: Vec::new() })
    }

    /// Reads the next line that is not blank, or returns `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<&[u8]>, CliError> {
        loop {
            if !std::mem::take(&mut self.torn).is_empty() {
                return Ok(None);
            }
            let cannot = |e| CliError::usage(format!("cannot read {}: {e}", self.name));
            if self.lines.next_line().map_err(cannot)?.is_none() {
                self.torn = self.lines.torn().map_err(cannot)?;
                if self.torn.is_empty() && self.lines.skipped() == 0 {
                    return Ok(None);
                }
            }
            self.number += 1;
            if self.lines.skipped() > 0 {
                return Err(self.invalid(&format!("longer than {MAX_LINE} bytes"), None));
            }
            if !self.current().trim_ascii().is_empty() {
                return Ok(Some(self.current()));
            }
        }
    }

    /// Returns the current line without its newline. Empty at the end.
    pub fn current(&self) -> &[u8] {
        if self.is_whole() { self.lines.current() } else { &self.torn }
    }

    /// Returns the number of the current line, which is 0 before the first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the current line ends with a newline. A torn line does not.
    pub fn is_whole(&self) -> bool {
        self.torn.is_empty()
    }

    /// Prefixes a message with the file name and the line number.
    pub fn located(&self, what: &str) -> String {
        format!("{}, line {}: {what}", self.name, self.number)
    }

    /// Returns an error about the current line.
    pub fn invalid(&self, what: &str, help: Option<String>) -> CliError {
        CliError::Usage { message: self.located(what), help }
    }
}
