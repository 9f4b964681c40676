//! What a person sees of a run, or a program with `--json`. All three are fed by the same events.
//!
//! Writing never blocks supervision: a thread of its own writes, and what a stuck terminal does not take
//! is dropped and counted; the record has it all.

mod json;
mod lines;
mod terminal;
pub mod whose;
pub mod words;
mod writer;

pub use lines::{Line, Teller, Tone};
pub use terminal::{fit, paint, width};

use dogwatch_host::driver::Front;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Output that could not be written, if any: shared by the thread that writes and the one that reports it.
#[derive(Clone, Default)]
pub struct Lost(Arc<OnceLock<io::Error>>);

impl Lost {
    /// A reader who has seen enough is no error.
    fn note(&self, error: io::Error) {
        if error.kind() != io::ErrorKind::BrokenPipe {
            // The first error says it all.
            let _ = self.0.set(error);
        }
    }

    pub fn error(&self) -> Option<&io::Error> {
        self.0.get()
    }
}

/// The front that fits where stdout goes.
pub fn choose(json: bool, run_dir: &Path, lost: Lost) -> Box<dyn Front> {
    if json {
        return Box::new(json::Json::new(run_dir, lost));
    }
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    if std::io::stdout().is_terminal() && !dumb {
        let colour = std::env::var_os("NO_COLOR").is_none();
        return Box::new(terminal::Terminal::new(run_dir, colour));
    }
    Box::new(lines::Lines::new(run_dir, lost))
}
