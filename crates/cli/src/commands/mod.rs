//! The commands, one file each: its arguments with their help, then what it does.

mod check;
mod completions;
mod man;
mod run;

use crate::error::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    Run(run::Args),
    Check(check::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

impl Command {
    /// Does it; answers the exit code.
    pub fn run(self) -> Result<u8, Failure> {
        match self {
            Command::Run(args) => run::run(args),
            Command::Check(args) => check::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    }
}

/// Prints to stdout. A reader who has seen enough (`| head`) is no error.
fn print(bytes: &[u8]) -> Result<u8, Failure> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().write_all(bytes) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::internal(format!("cannot print: {e}"))),
        Ok(()) | Err(_) => Ok(0),
    }
}
