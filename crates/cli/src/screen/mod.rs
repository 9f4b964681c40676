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
use std::io::IsTerminal;
use std::path::Path;

/// The front that fits where stdout goes.
pub fn choose(json: bool, run_dir: &Path) -> Box<dyn Front> {
    if json {
        return Box::new(json::Json::new(run_dir));
    }
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    if std::io::stdout().is_terminal() && !dumb {
        let colour = std::env::var_os("NO_COLOR").is_none();
        return Box::new(terminal::Terminal::new(run_dir, colour));
    }
    Box::new(lines::Lines::new(run_dir))
}
