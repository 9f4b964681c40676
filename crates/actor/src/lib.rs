//! The scripted agent behind the hidden `dogwatch actor` command. A script makes it print, work, idle, hang,
//! fork, flood and ignore signals. The examples and the demo use it to run without an API key, and the process
//! tests use it as an agent that misbehaves on purpose.
//!
//! `docs/internals/actor.md` describes the scripts; [`script::STEPS`] is the table of their steps. A script is parsed
//! completely before the first step is played. A mistake is reported with file, line and column, and the exit code
//! is 2. Output is not buffered. The actor has a single thread, so that it can fork.
//!
//! | module | |
//! |---|---|
//! | `cli` | the command line |
//! | `lex`, `parse`, `words` | from text to steps (pure) |
//! | `play` | runs the steps |
//! | `processes` | new processes |
//! | `flood`, `claude`, `out`, `work` | implementation of the steps |
//!
//! This crate only plays an agent. It is not involved in supervision.

mod claude;
mod cli;
mod error;
mod flood;
mod lex;
mod out;
mod parse;
mod play;
mod processes;
pub mod script;
mod text;
mod words;
mod work;

use cli::{Invocation, Play};
use error::Source;
use play::Actor;
use processes::SelfCommand;
use script::{Block, CLAUDE, STEPS, Stream};
use std::ffi::OsString;
use std::process::ExitCode;

const EXIT_USAGE: u8 = 2;

/// Runs the actor with its own arguments, those after `dogwatch actor` or after a bare `actor`.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let argv: Vec<OsString> = std::env::args_os().collect();
    let self_command = SelfCommand::new(&argv, &args);
    ExitCode::from(match Invocation::parse(args) {
        Ok(Invocation::Help) => write_message(Stream::Stdout, &help(), 0),
        Ok(Invocation::Detach(args)) => match processes::detach(&self_command, args) {
            Ok(()) => 0,
            Err(error) => write_message(Stream::Stderr, &format!("error: {error}\n"), play::EXIT_FAILED),
        },
        Ok(Invocation::Check(source)) => read(&source).map_or_else(|code| code, |_| 0),
        Ok(Invocation::Play(call)) => perform(call, self_command),
        Err(message) => write_message(Stream::Stderr, &format!("error: {message}\n"), EXIT_USAGE),
    })
}

/// Parses the script, or reports the mistake and returns the exit code.
fn read(source: &Source) -> Result<Block, u8> {
    parse::parse(&source.text).map_err(|m| write_message(Stream::Stderr, &m.shown(source), EXIT_USAGE))
}

fn perform(call: Play, self_command: SelfCommand) -> u8 {
    let script = match read(&call.source) {
        Ok(script) => script,
        Err(code) => return code,
    };
    if let Some(intermediate) = call.after {
        processes::wait_until_orphaned(intermediate);
    }
    let mut actor = Actor::new(call.source, self_command, call.args);
    actor.count = call.count;
    actor.epipe_ok = call.epipe_ok;
    actor.perform(&script)
}

/// Writes a message and returns the exit code. Write errors are ignored: the exit code still reports the failure.
fn write_message(to: Stream, message: &str, code: u8) -> u8 {
    let _ = out::write_all(out::descriptor(to), message.as_bytes());
    code
}

fn help() -> String {
    let mut help = String::from(
        "Plays a script as if it were a coding agent.\n\nUsage: actor SCRIPT [ARG]…\n       actor -e 'STEP; STEP' [ARG]…\n       actor --check SCRIPT\n\nSteps:\n",
    );
    let mut table = |lead: &str, rows: &[(&str, &str, &str)]| {
        for (name, syntax, what) in rows {
            let left = format!("{lead}{name} {syntax}");
            help.push_str(&format!("  {:<38} {what}\n", left.trim_end()));
        }
    };
    table("", STEPS);
    table("claude ", CLAUDE);
    help.push_str("\nPlaceholders: $pid $child $n $prompt $env:NAME $arg:1 $$\n");
    help
}
