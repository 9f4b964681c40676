//! The output of `run`: lines for a file or pipe, a terminal with a live line, or JSON. All three show the same events.
//!
//! Output never blocks supervision. A separate thread writes it; lines that a stuck terminal does not accept are
//! dropped and counted. The record is always complete.

pub mod event_node;
mod json;
mod lines;
mod terminal;
pub mod words;
mod writer;

pub use lines::{Formatter, ScreenLine, Tone};
pub use terminal::{fit, paint, width};

use crate::color;
use dogwatch_host::driver::Reporter;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Output that could not be written, if any: shared by the thread that writes and the one that reports it.
#[derive(Clone, Default)]
pub struct Lost(Arc<OnceLock<io::Error>>);

impl Lost {
    /// Records the first error. A closed pipe is not an error: its reader has seen enough.
    fn note(&self, error: io::Error) {
        if error.kind() != io::ErrorKind::BrokenPipe {
            let _ = self.0.set(error);
        }
    }

    /// Returns the first error.
    pub fn error(&self) -> Option<&io::Error> {
        self.0.get()
    }
}

/// Returns the reporter that fits the destination of stdout.
pub fn choose(json: bool, run_dir: &Path, lost: Lost) -> Box<dyn Reporter> {
    if json {
        return Box::new(json::Json::new(run_dir, lost));
    }
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    if std::io::stdout().is_terminal() && !dumb {
        return Box::new(terminal::Terminal::new(run_dir, color::on_stdout()));
    }
    Box::new(lines::Lines::new(run_dir, lost, color::on_stdout()))
}
