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
//! | `lex`, `parse`, `words` | text to steps; pure |
//! | `play` | steps to deeds |
//! | `kin` | new processes |
//! | `flood`, `claude`, `out`, `work` | what the deeds are made of |
//!
//! This crate decides nothing about agents and is no part of supervising them.

mod claude;
mod error;
mod flood;
mod kin;
mod lex;
mod out;
mod parse;
mod play;
pub mod script;
mod text;
mod words;
mod work;

use error::Source;
use kin::Myself;
use play::Actor;
use script::{CLAUDE, STEPS, Stream};
use std::ffi::OsString;
use std::process::ExitCode;

const EXIT_USAGE: u8 = 2;

/// Runs the actor with its own arguments: those after `dogwatch actor`, or after a bare `actor`.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let argv: Vec<OsString> = std::env::args_os().collect();
    let myself = Myself::new(&argv, &args);
    ExitCode::from(match Called::from(args) {
        Ok(Called::Help) => complain(Stream::Stdout, &help(), 0),
        Ok(Called::Away(args)) => match kin::go_away(&myself, args) {
            Ok(()) => 0,
            Err(error) => complain(Stream::Stderr, &format!("Error: {error}\n"), play::EXIT_FAILED),
        },
        Ok(Called::Play(call)) => call.perform(myself),
        Err(message) => complain(Stream::Stderr, &format!("Error: {message}\n"), EXIT_USAGE),
    })
}

enum Called {
    Help,
    /// The process between parent and orphan, with what the orphan is to be called with.
    Away(Vec<OsString>),
    Play(Call),
}

struct Call {
    source: Source,
    args: Vec<OsString>,
    count: Option<u64>,
    epipe_ok: bool,
}

impl Called {
    fn from(args: Vec<OsString>) -> Result<Called, String> {
        if args.first().is_some_and(|arg| arg == kin::AWAY) {
            return Ok(Called::Away(args[1..].to_vec()));
        }
        let mut args = args.into_iter();
        let (mut count, mut epipe_ok) = (None, false);
        loop {
            let arg = args.next().ok_or("which script? `actor SCRIPT` or `actor -e 'STEPS'`")?;
            let source = match arg.to_str() {
                Some("--help" | "-h") => return Ok(Called::Help),
                Some(kin::COUNT) => {
                    count = args.next().and_then(|n| n.to_str()?.parse().ok());
                    continue;
                }
                Some(kin::EPIPE_OK) => {
                    epipe_ok = true;
                    continue;
                }
                Some("-e") => inline(args.next())?,
                Some("-") => return Err("a script cannot come from stdin: that is the prompt".into()),
                Some(flag) if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                _ => from_file(&arg)?,
            };
            return Ok(Called::Play(Call { source, args: args.collect(), count, epipe_ok }));
        }
    }
}

fn inline(text: Option<OsString>) -> Result<Source, String> {
    let text = text.ok_or("-e needs its steps")?;
    let text = text.into_string().map_err(|_| "-e: not UTF-8")?;
    Ok(Source { name: "-e".into(), text })
}

fn from_file(path: &OsString) -> Result<Source, String> {
    let name = path.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    Ok(Source { name, text })
}

impl Call {
    fn perform(self, myself: Myself) -> u8 {
        let script = match parse::parse(&self.source.text) {
            Ok(script) => script,
            Err(mistake) => return complain(Stream::Stderr, &mistake.shown(&self.source), EXIT_USAGE),
        };
        let mut actor = Actor::new(self.source, myself, self.args);
        actor.count = self.count;
        actor.epipe_ok = self.epipe_ok;
        actor.perform(&script)
    }
}

/// Says it; if nobody listens the code has to do.
fn complain(to: Stream, message: &str, code: u8) -> u8 {
    let _ = out::write_all(out::descriptor(to), message.as_bytes());
    code
}

fn help() -> String {
    let mut help = String::from(
        "Plays a script as if it were a coding agent.\n\nUsage: actor SCRIPT [ARG]…\n       actor -e 'STEP; STEP' [ARG]…\n\nSteps:\n",
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
