//! `dogwatch replay`: shows what a policy would have done with a recording.

mod policy;
mod read;
mod source;
mod table;
mod timeline;
mod transcript;

use crate::completing;
use crate::error::CliError;
use crate::runs::{Which, no_such_node, note};
use dogwatch_config::nearest;
use dogwatch_core::record::event::{Event, RunStarted};
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::watch::replay::{IterationName, JournalReplay, Replayed, SessionName};
use dogwatch_host::store::journal;
use policy::Chosen;
use read::Lines;
use serde_json::json;
use source::Source;
use std::path::{Path, PathBuf};

/// Show what the watchdog would have done with a recording
///
/// FILE is a run (its id or the end of its id), its journal (events.jsonl, or its directory), a timeline, a transcript of
/// Claude Code (~/.claude/projects/*/*.jsonl) or a rollout of Codex (~/.codex/sessions/**/rollout-*.jsonl). A timeline is
/// JSON lines in order of time, each {"t_ms": n, "line": "..."} or {"t_ms": n, "input": KIND, ...}. Each user turn of a
/// transcript is replayed separately. The command prints a line whenever the verdict changes, then a summary. See
/// docs/guide/replay.md.
///
/// A journal is evaluated under its own policy unless a flag changes it.
#[derive(clap::Args)]
pub struct Args {
    /// Run, journal of a run, timeline, or transcript of an agent
    #[arg(add = completing::runs_and_files())]
    file: PathBuf,
    /// Agent that printed the lines of a timeline: claude, codex, opencode, gemini or plain
    #[arg(long, value_name = "NAME", add = completing::words(ReaderName::NAMES))]
    agent: Option<String>,
    /// Watchdog limits to use: quick, standard or deep
    #[arg(long, value_name = "P", add = completing::words(&Profile::FIXED.map(Profile::as_str)))]
    profile: Option<String>,
    /// Override a key of the policy, e.g. --set watchdog.idle=5m
    #[arg(long = "set", value_name = "KEY=VALUE", add = completing::keys("watchdog."))]
    set: Vec<String>,
    /// Replay only the sessions of this node of a run
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Replay only this iteration of a run
    #[arg(long, short, value_name = "N")]
    iteration: Option<u64>,
    /// Read the policy from a dogwatch.toml
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Print the verdicts as JSON lines (docs/guide/replay.md)
    #[arg(long)]
    json: bool,
}

/// Runs `dogwatch replay` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let agent = args.agent.as_deref().map(reader).transpose()?;
    let chosen = Chosen::of(args.policy.as_deref(), args.profile.as_deref(), &args.set)?;
    let path = located(&args.file)?;
    let source = Source::of(&path)?;
    let mut lines = Lines::open(&path)?;
    let policy = |agent| chosen.over(&WatchPolicy::for_reader(Profile::Standard, agent), agent);
    let source_is_journal = matches!(source, Source::Journal);
    if !source_is_journal {
        args.refuse_selection(&path)?;
    }
    let replayed = match source {
        Source::Journal => from_journal(lines, &chosen, args.node.as_deref())?,
        Source::Timeline => {
            let spans = timeline::spans(Lines::open(&path)?)?;
            lines.next()?;
            let agent = agent.unwrap_or(ReaderName::Plain);
            vec![timeline::replay(lines, spans, agent, policy(agent), false)?]
        }
        Source::Transcript(format) => {
            if let Some(other) = agent.filter(|agent| *agent != format.agent()) {
                let (is, name) = (format.as_str(), path.display());
                return Err(CliError::with_help(
                    format!("{name} is {is}; --agent {} cannot read it", other.as_str()),
                    format!("omit --agent, or pass --agent {}", format.agent().as_str()),
                ));
            }
            transcript::replay(lines, format, &policy(format.agent()))?
        }
    };
    let replayed: Vec<Replayed> = replayed.into_iter().filter(|one| args.selects(one)).collect();
    if replayed.is_empty() && (args.node.is_some() || args.iteration.is_some()) {
        return Err(args.no_such_session());
    }
    if source_is_journal {
        report_differences(&replayed, chosen.is_own());
    }
    let text = if args.json { json_lines(&replayed)? } else { table::draw(&replayed) };
    super::print(text.as_bytes())
}

/// Replays a timeline and measures how much of each limit it used.
pub fn replay_timeline(path: &Path, agent: ReaderName, policy: WatchPolicy) -> Result<Replayed, CliError> {
    let spans = timeline::spans(Lines::open(path)?)?;
    let mut lines = Lines::open(path)?;
    lines.next()?;
    timeline::replay(lines, spans, agent, policy, true)
}

/// Returns the file to replay. A name that is not a file selects a run by its id or the end of its id.
fn located(file: &Path) -> Result<PathBuf, CliError> {
    if file.is_dir() {
        return Ok(file.join(journal::FILE));
    }
    match file.to_str() {
        Some(name) if !file.exists() && !name.contains('/') => {
            let found = Which::new(Some(name.to_owned()), None).find();
            found.map(|run| run.dir.join(journal::FILE)).map_err(|_| {
                CliError::with_help(
                    format!("no file and no run `{name}`"),
                    "`dogwatch ps --all` lists the runs on this machine",
                )
            })
        }
        _ => Ok(file.to_owned()),
    }
}

/// Returns the reader with this name, or an error that suggests the nearest one.
fn reader(name: &str) -> Result<ReaderName, CliError> {
    let known = ReaderName::named(name);
    known.ok_or_else(|| {
        let all = ReaderName::NAMES;
        let help = match nearest(name, all.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the known agents are {}", all.join(", ")),
        };
        CliError::with_help(format!("unknown agent `{name}` in --agent"), help)
    })
}

/// Replays the sessions of a journal.
fn from_journal(mut lines: Lines, chosen: &Chosen, node: Option<&str>) -> Result<Vec<Replayed>, CliError> {
    let other =
        (!chosen.is_own()).then_some(|own: &WatchPolicy, reader: ReaderName| chosen.over(own, reader));
    let mut replay = JournalReplay::new(other);
    while lines.next()?.is_some() {
        match dogwatch_codec::read(lines.current()) {
            Ok(recorded) => {
                if let Event::RunStarted(started) = &recorded.event {
                    check_node(started, node)?;
                }
                replay.take(&recorded);
            }
            // The supervisor died while it wrote this line.
            Err(_) if !lines.is_whole() => note(&lines.located("skipped a torn last line")),
            Err(error) => return Err(lines.invalid(&format!("not an event: {error}"), None)),
        }
    }
    Ok(replay.finish())
}

/// Returns an error for a node that the run does not have: no session would be replayed, and none would differ.
fn check_node(started: &RunStarted, wanted: Option<&str>) -> Result<(), CliError> {
    let nodes = &started.nodes;
    match wanted.filter(|wanted| nodes.iter().all(|node| node.as_str() != *wanted)) {
        None => Ok(()),
        Some(unknown) => {
            let names: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
            Err(no_such_node(&started.run, unknown, format!("its nodes: {}", names.join(", "))))
        }
    }
}

/// Notes on stderr how the replay differs from what happened.
fn report_differences(replayed: &[Replayed], own: bool) {
    let mut differing = replayed.iter().flat_map(|session| &session.differing).peekable();
    if differing.peek().is_none() {
        note(match own {
            true => "the replayed verdicts match the record",
            false => "this policy would have stopped the same sessions, for the same reasons",
        });
    }
    differing.for_each(|difference| note(difference));
}

impl Args {
    /// Returns an error for a flag that selects sessions of a run, because other recordings do not name nodes.
    fn refuse_selection(&self, path: &Path) -> Result<(), CliError> {
        let flags = [("--node", self.node.is_some()), ("--iteration", self.iteration.is_some())];
        match flags.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(CliError::with_help(
                format!("{flag} selects sessions of a run, and {} is not the journal of one", path.display()),
                format!("omit {flag}"),
            )),
        }
    }

    /// Returns the error for a selection that no session matches: nothing would be replayed, and nothing would differ.
    fn no_such_session(&self) -> CliError {
        let node = self.node.as_ref().map(|node| format!(" of node `{node}`")).unwrap_or_default();
        let iteration =
            self.iteration.map(|iteration| format!(" in iteration {iteration}")).unwrap_or_default();
        CliError::with_help(
            format!("the run has no session{node}{iteration}"),
            "without --node and --iteration, `dogwatch replay` lists the sessions of the run",
        )
    }

    /// Returns whether a session belongs to the selected node and iteration.
    fn selects(&self, replayed: &Replayed) -> bool {
        let Some(SessionName::Iteration(IterationName { node, iteration })) = &replayed.summary.session
        else {
            return true;
        };
        self.node.as_deref().is_none_or(|wanted| wanted == node.as_str())
            && self.iteration.is_none_or(|wanted| wanted == iteration.0)
    }
}

/// Formats verdicts and summaries as JSON lines.
fn json_lines(replayed: &[Replayed]) -> Result<String, CliError> {
    let mut text = String::new();
    for session in replayed {
        for line in &session.lines {
            text += &super::json_line(line)?;
            text.push('\n');
        }
        text += &super::json_line(&json!({ "summary": session.summary }))?;
        text.push('\n');
    }
    Ok(text)
}
