//! The command line of the actor. Some options are internal: an actor passes them to the processes that it starts,
//! see `processes`.

use crate::error::Source;
use crate::processes;
use std::ffi::{OsStr, OsString};
use std::str::FromStr;

/// A parsed command line.
pub enum Invocation {
    Help,
    /// Only check the script.
    Check(Source),
    /// Run as the intermediate process between parent and orphan, with the arguments for the orphan.
    Detach(Vec<OsString>),
    Play(Play),
}

/// The arguments for playing a script.
#[derive(Default)]
pub struct Play {
    pub source: Source,
    /// The arguments after the script.
    pub args: Vec<OsString>,
    pub count: Option<u64>,
    pub epipe_ok: bool,
    /// Wait until this process is no longer the parent.
    pub after: Option<i32>,
}

impl Invocation {
    /// Parses the actor's arguments and reads the script.
    pub fn parse(args: Vec<OsString>) -> Result<Invocation, String> {
        let mut call = Play::default();
        let mut args = args.into_iter();
        loop {
            let arg = args.next().ok_or("no script; use `actor SCRIPT` or `actor -e 'STEPS'`")?;
            match arg.to_str() {
                Some("--help" | "-h") => return Ok(Invocation::Help),
                Some("--check") => return Ok(Invocation::Check(from_file(args.next())?)),
                Some(processes::DETACH) => return Ok(Invocation::Detach(args.collect())),
                Some(processes::AFTER) => call.after = Some(number(processes::AFTER, args.next())?),
                Some(processes::COUNT) => call.count = Some(number(processes::COUNT, args.next())?),
                Some(processes::EPIPE_OK) => call.epipe_ok = true,
                Some("-e") => return Ok(call.play(inline(args.next())?, args)),
                Some("-") => return Err("cannot read the script from stdin, which is the prompt".into()),
                Some(flag) if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                Some(_) | None => return Ok(call.play(from_file(Some(arg))?, args)),
            }
        }
    }
}

impl Play {
    fn play(mut self, source: Source, args: impl Iterator<Item = OsString>) -> Invocation {
        self.source = source;
        self.args = args.collect();
        Invocation::Play(self)
    }
}

fn number<N: FromStr>(option: &str, value: Option<OsString>) -> Result<N, String> {
    let number = value.as_deref().and_then(OsStr::to_str).and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{option} needs a number"))
}

fn inline(text: Option<OsString>) -> Result<Source, String> {
    let text = text.ok_or("-e needs steps")?;
    let text = text.into_string().map_err(|_| "-e: not UTF-8")?;
    Ok(Source { name: "-e".into(), text })
}

fn from_file(path: Option<OsString>) -> Result<Source, String> {
    let path = path.ok_or("--check needs a script")?;
    let name = path.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    Ok(Source { name, text })
}
