//! The scripted agent behind the hidden `dogwatch actor`: a program that prints, works, idles, hangs,
//! forks, floods and ignores signals, as a script tells it. The examples and the demo run on it without
//! any API key, and the process tests use it as the agent that misbehaves on purpose.
//!
//! `docs/actor.md` describes the scripts; [`script::STEPS`] is the table of their steps. A script is
//! read completely before the first step is played: what is wrong with it is said with file, line and
//! column, exit 2. Nothing is buffered between steps. One thread, so that it may fork.
//!
//! | module | |
//! |---|---|
//! | `cli` | the command line |
//! | `lex`, `parse`, `words` | text to steps; pure |
//! | `play` | steps to deeds |
//! | `processes` | new processes |
//! | `flood`, `claude`, `out`, `work` | what the deeds are made of |
//!
//! This crate decides nothing about agents and is no part of supervising them.

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

/// Runs the actor with its own arguments: those after `dogwatch actor`, or after a bare `actor`.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let argv: Vec<OsString> = std::env::args_os().collect();
    let self_command = SelfCommand::new(&argv, &args);
    ExitCode::from(match Invocation::parse(args) {
        Ok(Invocation::Help) => write_message(Stream::Stdout, &help(), 0),
        Ok(Invocation::Detach(args)) => match processes::detach(&self_command, args) {
            Ok(()) => 0,
            Err(error) => write_message(Stream::Stderr, &format!("Error: {error}\n"), play::EXIT_FAILED),
        },
        Ok(Invocation::Check(source)) => read(&source).map_or_else(|code| code, |_| 0),
        Ok(Invocation::Play(call)) => perform(call, self_command),
        Err(message) => write_message(Stream::Stderr, &format!("Error: {message}\n"), EXIT_USAGE),
    })
}

/// The script, or the exit code after saying what is wrong with it.
fn read(source: &Source) -> Result<Block, u8> {
    parse::parse(&source.text).map_err(|m| write_message(Stream::Stderr, &m.shown(source), EXIT_USAGE))
}

fn perform(call: Play, self_command: SelfCommand) -> u8 {
    let script = match read(&call.source) {
        Ok(script) => script,
        Err(code) => return code,
    };
    if let Some(between) = call.after {
        processes::wait_until_orphaned(between);
    }
    let mut actor = Actor::new(call.source, self_command, call.args);
    actor.count = call.count;
    actor.epipe_ok = call.epipe_ok;
    actor.perform(&script)
}

/// Says it; if nobody listens the code has to do.
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
