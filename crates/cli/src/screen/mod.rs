//! The output of `run`: lines for a file or pipe, a terminal with a live line, or JSON. All three show the same events.
//!
//! Output never blocks supervision. A separate thread writes it; lines that a stuck terminal does not accept are
//! dropped and counted. The record is always complete.

mod json;
mod lines;
mod output;
mod terminal;
mod wrap;
mod writer;

pub use dogwatch_core::record::words::{ShownLine, Tone};
pub use lines::Formatter;
pub use terminal::{fit, paint, shorten, width};
pub use wrap::wrap_for;

/// The words and figures that all commands share.
pub mod words {
    pub use dogwatch_core::record::words::*;
    pub use dogwatch_core::text::figures::*;
}

use crate::color;
use dogwatch_host::driver::Reporter;
use output::Outputs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use writer::Screen;

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

/// What a run prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    /// The events, as JSON lines.
    Json,
    /// How iterations and the run end, and problems.
    Quiet,
    /// A block of lines per iteration.
    #[default]
    Normal,
    /// Also the agent's output, and the details: sessions, snapshots, deferred timeouts.
    Verbose,
}

/// The flags that select what a run prints.
#[derive(clap::Args)]
pub struct ShowFlags {
    /// Print only the events, as JSON lines on stdout
    #[arg(long)]
    json: bool,
    /// Print only how iterations and the run end, and problems
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Also print the agent's output and details: sessions, snapshots, deferred timeouts
    #[arg(long, short, conflicts_with_all = ["json", "quiet"])]
    verbose: bool,
}

impl ShowFlags {
    /// Returns what to print.
    pub fn show(&self) -> Show {
        match (self.json, self.quiet, self.verbose) {
            (true, _, _) => Show::Json,
            (false, true, _) => Show::Quiet,
            (false, false, true) => Show::Verbose,
            (false, false, false) => Show::Normal,
        }
    }
}

/// Returns the reporter that fits the destination of stdout.
pub fn choose(show: Show, run_dir: &Path, lost: Lost) -> Box<dyn Reporter> {
    if show == Show::Json {
        return Box::new(json::Json::new(run_dir, lost));
    }
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    let terminal = std::io::stdout().is_terminal();
    let formatter = Formatter::new(run_dir, show);
    // A terminal that was closed has lost no data.
    let screen = Screen::new(if terminal { Lost::default() } else { lost }, color::on_stdout());
    let outputs = (show == Show::Verbose).then(|| Arc::new(Outputs::new(screen.clone())));
    if terminal && !dumb {
        return Box::new(terminal::Terminal::new(formatter, screen, outputs));
    }
    Box::new(lines::Lines::new(formatter, screen, outputs))
}
