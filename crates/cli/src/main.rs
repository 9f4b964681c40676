//! The `dogwatch` binary: one file per command, and the screen.

mod commands;
mod desk;
mod detached;
mod drawing;
mod error;
mod kept;
mod loading;
mod render;
mod runs;
mod screen;
mod secrets;
mod supervise;
mod top;

use clap::{CommandFactory, Parser};
use commands::Command;
use error::Failure;
use std::process::ExitCode;

/// Keeps coding agents working while nobody watches.
///
/// dogwatch loops an agent over a prompt, ends what is stuck, backs off when something fails, leaves no
/// process behind and keeps a record that explains every decision.
#[derive(Parser)]
#[command(name = "dogwatch", version, about, long_about, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

const AFTER_HELP: &str = "\
Without a command it tells the last runs of this project.

Examples:
  dogwatch demo                     see all of it in half a minute, without a key
  dogwatch init my-loop             write a my-loop/RALPH.md to start from
  dogwatch run my-loop              loop the agent of my-loop/RALPH.md until something ends it
  dogwatch run my-loop -n 3         three iterations
  dogwatch check my-loop --explain  is the file right, and which settings are in force?
  dogwatch logs -f                  what the agent says, as it says it

Exit codes:
  0 ended as it should   1 work not done   2 bad usage or configuration, nothing started
  3 a budget or ceiling ended the run   4 another run holds this loop   5 internal error
  130 / 143 / 129 ended by INT / TERM / HUP";

fn main() -> ExitCode {
    // The keeper and the scripted agent are this same binary in other roles; they must be quick to start
    // and know nothing of the command line above.
    match std::env::args_os().nth(1) {
        Some(role) if role == dogwatch_host::keeper::ARGUMENT => return dogwatch_host::keeper::main(),
        Some(role) if role == dogwatch_host::snapshot::ARGUMENT => {
            return dogwatch_host::snapshot::main(std::env::args_os().skip(2));
        }
        Some(role) if role == dogwatch_host::worktree::ARGUMENT => {
            return dogwatch_host::worktree::main(std::env::args_os().skip(2));
        }
        Some(role) if role == dogwatch_host::notify::ARGUMENT => return dogwatch_host::notify::main(),
        Some(role) if role == "actor" => return dogwatch_actor::main(std::env::args_os().skip(2)),
        Some(_) | None => {}
    }
    match Cli::try_parse() {
        Ok(cli) => finish(cli.command.map_or_else(commands::tell_last, Command::run)),
        Err(error) => {
            // Help and version go to stdout with 0, mistakes to stderr with 2: clap knows which is which.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

fn finish(result: Result<u8, Failure>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}

/// The command line as clap sees it, for completions and the manual page.
fn command_line() -> clap::Command {
    Cli::command()
}
