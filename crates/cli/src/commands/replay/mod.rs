//! `dogwatch replay`: what a policy would have done with a recording.

mod policy;
mod read;
mod table;
mod timeline;

use crate::error::Failure;
use dogwatch_config::nearest;
use dogwatch_core::event::Recorded;
use dogwatch_core::replay::{JournalReplay, Replayed};
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_host::journal;
use policy::Chosen;
use read::Lines;
use serde_json::json;
use std::path::PathBuf;

/// Show what the watchdog would have done with a recording
///
/// FILE is a run's journal (its events.jsonl, or the directory it lies in), or a timeline: JSON lines in
/// order of time, each {"t_ms": n, "line": "..."} or {"t_ms": n, "input": KIND, ...}. A line is printed
/// whenever the verdict changes, then a summary; see docs/replay.md.
///
/// A journal is judged by the policy it was written under, unless a flag gives another one.
#[derive(clap::Args)]
pub struct Args {
    /// A run's journal or a timeline
    file: PathBuf,
    /// Which agent printed the lines of a timeline: claude, codex, opencode, gemini or plain
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// A set of watchdog limits: quick, standard or deep
    #[arg(long, value_name = "P")]
    profile: Option<String>,
    /// Set a key of the policy, e.g. --set watchdog.idle=5m
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Take the policy from a dogwatch.toml
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// As JSON lines (docs/replay.md)
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let agent = args.agent.as_deref().map(reader).transpose()?;
    let chosen = Chosen::of(args.policy.as_deref(), args.profile.as_deref(), &args.set)?;
    let path = if args.file.is_dir() { args.file.join(journal::FILE) } else { args.file.clone() };
    let mut lines = Lines::open(&path)?;
    let replayed = match lines.next()? {
        Some(first) if is_event(first) => from_journal(lines, &chosen)?,
        Some(_) | None => {
            let agent = agent.unwrap_or(ReaderName::Plain);
            let policy = chosen.over(&WatchPolicy::for_reader(Profile::Standard, agent), agent);
            vec![timeline::replay(lines, agent, policy)?]
        }
    };
    let text = if args.json { json_lines(&replayed)? } else { table::draw(&replayed) };
    super::print(text.as_bytes())
}

fn reader(name: &str) -> Result<ReaderName, Failure> {
    let known = ReaderName::ALL.into_iter().find(|reader| reader.as_str() == name);
    known.ok_or_else(|| {
        let all = ReaderName::ALL.map(ReaderName::as_str);
        let hint = match nearest(name, all) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it is one of {}", all.join(", ")),
        };
        Failure::with_hint(format!("--agent: there is no agent `{name}`"), hint)
    })
}

/// A journal's first line is an event, a timeline's has a time.
fn is_event(line: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Head {
        #[serde(rename = "v")]
        _v: u32,
        #[serde(rename = "event")]
        _event: serde::de::IgnoredAny,
    }
    serde_json::from_slice::<Head>(line).is_ok()
}

fn from_journal(mut lines: Lines, chosen: &Chosen) -> Result<Vec<Replayed>, Failure> {
    let other =
        (!chosen.is_own()).then_some(|own: &WatchPolicy, reader: ReaderName| chosen.over(own, reader));
    let mut replay = JournalReplay::new(other);
    loop {
        match serde_json::from_slice::<Recorded>(lines.current()) {
            Ok(recorded) => replay.take(&recorded),
            // A line that was being written when its writer died.
            Err(_) if !lines.is_whole() => eprintln_note(&lines.says("a torn last line is left out")),
            Err(error) => return Err(lines.wrong(&format!("not an event: {error}"), None)),
        }
        if lines.next()?.is_none() {
            break;
        }
    }
    let replayed = replay.finish();
    for difference in replayed.iter().flat_map(|session| &session.differing) {
        eprintln_note(difference);
    }
    Ok(replayed)
}

/// A word to people beside the output.
fn eprintln_note(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "Note: {}", dogwatch_core::text::printable(text));
}

fn json_lines(replayed: &[Replayed]) -> Result<String, Failure> {
    let internal = |e: serde_json::Error| Failure::internal(e.to_string());
    let mut text = String::new();
    for session in replayed {
        for line in &session.lines {
            text += &serde_json::to_string(line).map_err(internal)?;
            text.push('\n');
        }
        text += &serde_json::to_string(&json!({ "summary": session.summary })).map_err(internal)?;
        text.push('\n');
    }
    Ok(text)
}
