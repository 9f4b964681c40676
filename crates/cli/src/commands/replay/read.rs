//! Reads a file of JSON lines one by one, in bounded memory. Errors name the file and the line.

use crate::error::Failure;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The longest line in bytes. Recordings have no longer lines, because an agent's line is cut at a quarter of this.
const MAX_LINE: u64 = 16 * 1024 * 1024;

/// An open file and its current line.
pub struct Lines {
    name: String,
    reader: BufReader<File>,
    line: Vec<u8>,
    number: u64,
    whole: bool,
}

impl Lines {
    /// Opens a regular file before its first line.
    pub fn open(path: &Path) -> Result<Lines, Failure> {
        let name = path.display().to_string();
        let cannot = |e: std::io::Error| {
            Failure::with_help(
                format!("cannot read {name}: {e}"),
                "FILE is a run's journal in .dogwatch/runs/, a timeline or an agent's transcript",
            )
        };
        let file = File::open(path).map_err(cannot)?;
        if !file.metadata().map_err(cannot)?.is_file() {
            return Err(Failure::usage(format!("{name} is not a file")));
        }
        let reader = BufReader::with_capacity(256 * 1024, file);
        Ok(Lines { name, reader, line: Vec::new(), number: 0, whole: true })
    }

    /// Reads the next line that is not blank, or returns `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        loop {
            self.line.clear();
            let read = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut self.line);
            let read = read.map_err(|e| Failure::usage(format!("cannot read {}: {e}", self.name)))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.whole = self.line.pop_if(|b| *b == b'\n').is_some();
            if read as u64 == MAX_LINE && !self.whole {
                return Err(self.invalid(&format!("longer than {MAX_LINE} bytes"), None));
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(&self.line));
            }
        }
    }

    /// Returns the current line without its newline.
    pub fn current(&self) -> &[u8] {
        &self.line
    }

    /// Returns the number of the current line, which is 0 before the first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the current line ends with a newline. A torn line does not.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Prefixes a message with the file name and the line number.
    pub fn located(&self, what: &str) -> String {
        format!("{}, line {}: {what}", self.name, self.number)
    }

    /// Returns an error about the current line.
    pub fn invalid(&self, what: &str, help: Option<String>) -> Failure {
        Failure::Usage { message: self.located(what), help }
    }
}
