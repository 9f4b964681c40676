//! How the actor was called. Besides what people write there are options that an actor gives to the
//! processes it starts, see `kin`.

use crate::error::Source;
use crate::kin;
use std::ffi::{OsStr, OsString};
use std::str::FromStr;

pub enum Called {
    Help,
    /// Only whether the script is right.
    Check(Source),
    /// The process between parent and orphan, with what the orphan is to be called with.
    Away(Vec<OsString>),
    Play(Call),
}

#[derive(Default)]
pub struct Call {
    pub source: Source,
    /// After the script.
    pub args: Vec<OsString>,
    pub count: Option<u64>,
    pub epipe_ok: bool,
    /// Begins when this process is no longer the parent.
    pub after: Option<i32>,
}

impl Called {
    pub fn from(args: Vec<OsString>) -> Result<Called, String> {
        let mut call = Call::default();
        let mut args = args.into_iter();
        loop {
            let arg = args.next().ok_or("which script? `actor SCRIPT` or `actor -e 'STEPS'`")?;
            match arg.to_str() {
                Some("--help" | "-h") => return Ok(Called::Help),
                Some("--check") => return Ok(Called::Check(from_file(args.next())?)),
                Some(kin::AWAY) => return Ok(Called::Away(args.collect())),
                Some(kin::AFTER) => call.after = Some(number(kin::AFTER, args.next())?),
                Some(kin::COUNT) => call.count = Some(number(kin::COUNT, args.next())?),
                Some(kin::EPIPE_OK) => call.epipe_ok = true,
                Some("-e") => return Ok(call.play(inline(args.next())?, args)),
                Some("-") => return Err("a script cannot come from stdin: that is the prompt".into()),
                Some(flag) if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                Some(_) | None => return Ok(call.play(from_file(Some(arg))?, args)),
            }
        }
    }
}

impl Call {
    fn play(mut self, source: Source, args: impl Iterator<Item = OsString>) -> Called {
        self.source = source;
        self.args = args.collect();
        Called::Play(self)
    }
}

fn number<N: FromStr>(option: &str, value: Option<OsString>) -> Result<N, String> {
    let number = value.as_deref().and_then(OsStr::to_str).and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{option} needs a number"))
}

fn inline(text: Option<OsString>) -> Result<Source, String> {
    let text = text.ok_or("-e needs its steps")?;
    let text = text.into_string().map_err(|_| "-e: not UTF-8")?;
    Ok(Source { name: "-e".into(), text })
}

fn from_file(path: Option<OsString>) -> Result<Source, String> {
    let path = path.ok_or("--check needs a script")?;
    let name = path.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    Ok(Source { name, text })
}
