//! Judges learned limits on labeled turns: learns from the first half of each project and judges the second half.
//!
//! The directory has `labels.tsv`, with the columns `file`, `agent`, `truth` and `source`, and the timelines in `turns/`. The
//! files of a project are in order of their names. Only turns labeled `good` are used.

use crate::commands::replay::replay_timeline;
use crate::error::CliError;
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::watch::limits::{History, Kind, Sample};
use dogwatch_core::watch::{Needs, StopReason};
use dogwatch_host::prompt;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The largest table of labels, in bytes.
const MAX_LABELS: usize = 16 * 1024 * 1024;

/// A labeled turn.
struct Turn {
    file: String,
    agent: ReaderName,
    source: String,
}

/// The figures of the learned limits and of fixed ones, on the same turns.
#[derive(Debug, PartialEq, Serialize)]
pub struct Evaluated {
    /// The good turns that were learned from.
    trained: usize,
    /// The good turns that were judged.
    judged: usize,
    learned: Figures,
    standard: Figures,
}

/// The figures of one set of limits.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Figures {
    /// The good turns that silence or a tool call would have stopped.
    false_stops: usize,
    /// Their share in percent.
    false_percent: f64,
    /// The mean silence limit over the judged turns: how long a silent agent is waited for.
    mean_silence_s: f64,
    /// The mean limit of tool calls that declare no timeout: how long dogwatch waits for a hung call.
    mean_call_s: f64,
    /// The turns that were stopped, with the reason and the limit.
    stopped: Vec<String>,
    #[serde(skip)]
    calls: u64,
}

/// Reads the turns below a directory and judges them.
pub fn evaluate(dir: &Path) -> Result<Evaluated, CliError> {
    let (mut train, mut judge) = (Vec::new(), Vec::new());
    for mut turns in by_project(dir)?.into_values() {
        turns.sort_by(|a, b| a.file.cmp(&b.file));
        let late = turns.split_off(turns.len() / 2);
        train.append(&mut turns);
        judge.extend(late);
    }
    let samples = train.iter().map(|turn| sample(dir, turn)).collect::<Result<Vec<_>, _>>()?;
    let mut known: BTreeMap<(&str, &str), WatchPolicy> = BTreeMap::new();
    let (mut learned, mut standard) = (Figures::default(), Figures::default());
    for turn in &judge {
        let base = base(turn.agent);
        let policy = known.entry((&turn.source, turn.agent.as_str())).or_insert_with(|| {
            let mut policy = base.clone();
            for (key, estimate) in History::of(&samples, turn.agent, Some(&turn.source)).applied(&base) {
                if let Some(limit) = estimate.limit_s {
                    key.set(&mut policy, Limit::At(limit));
                }
            }
            policy
        });
        learned.add(dir, turn, policy)?;
        standard.add(dir, turn, &base)?;
    }
    learned.finish(judge.len());
    standard.finish(judge.len());
    Ok(Evaluated { trained: train.len(), judged: judge.len(), learned, standard })
}

/// Returns the limits that are learned from, with only silence and tool calls in force: the other rows do not follow from
/// sessions.
fn base(agent: ReaderName) -> WatchPolicy {
    let standard = WatchPolicy::for_reader(Profile::Standard, agent);
    WatchPolicy {
        session: Limit::Off,
        idle: standard.idle,
        start: standard.start,
        tool: standard.tool,
        ..standard.ceilings_only()
    }
}

fn sample(dir: &Path, turn: &Turn) -> Result<Sample, CliError> {
    let silent = WatchPolicy { idle: Limit::Off, tool: Limit::Off, ..base(turn.agent) };
    let needs = needs(dir, turn, silent)?.1;
    Ok(Sample { agent: turn.agent, place: turn.source.clone(), kind: Kind::Good, needs })
}

fn needs(dir: &Path, turn: &Turn, policy: WatchPolicy) -> Result<(Option<StopReason>, Needs), CliError> {
    let replayed = replay_timeline(&dir.join("turns").join(&turn.file), turn.agent, policy)?;
    Ok((replayed.summary.reason, replayed.needs.unwrap_or_default()))
}

impl Figures {
    fn add(&mut self, dir: &Path, turn: &Turn, policy: &WatchPolicy) -> Result<(), CliError> {
        let seconds = |limit: Limit| limit.duration().map_or(0.0, Dur::as_secs_f64);
        let (stop, needs) = needs(dir, turn, policy.clone())?;
        self.mean_silence_s += seconds(policy.idle);
        for (tool, calls) in &needs.tools {
            let limit = policy.tools.get(tool).copied().unwrap_or(policy.tool);
            self.calls += calls.calls;
            self.mean_call_s += seconds(limit) * calls.calls as f64;
        }
        if let Some(reason) = stop {
            self.false_stops += 1;
            self.stopped.push(format!("{} {reason}, silence limit {}", turn.file, policy.idle));
        }
        Ok(())
    }

    fn finish(&mut self, judged: usize) {
        let turns = judged.max(1) as f64;
        self.false_percent = self.false_stops as f64 * 100.0 / turns;
        self.mean_silence_s /= turns;
        self.mean_call_s /= self.calls.max(1) as f64;
    }
}

impl Evaluated {
    /// Formats the figures as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Learned from {} good turns, judged {} later ones\n          false stops  mean silence limit  mean call limit\n",
            self.trained, self.judged
        );
        for (name, figures) in [("learned", &self.learned), ("standard", &self.standard)] {
            let Figures { false_stops, false_percent, mean_silence_s, mean_call_s, .. } = figures;
            let stops = format!("{false_stops} ({false_percent:.2}%)");
            let _ = writeln!(text, "{name:<9} {stops:>11} {mean_silence_s:>18.0}s {mean_call_s:>15.0}s");
        }
        for stopped in &self.learned.stopped {
            let _ = writeln!(text, "  learned stopped {stopped}");
        }
        text
    }
}

/// Reads the labels and groups the good turns by project.
fn by_project(dir: &Path) -> Result<BTreeMap<String, Vec<Turn>>, CliError> {
    let path = dir.join("labels.tsv");
    let bad = |why: String| CliError::usage(format!("cannot read {}: {why}", path.display()));
    let text = prompt::read_at_most(&path, MAX_LABELS).map_err(|error| bad(error.to_string()))?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let column = |name: &str| {
        let at = header.iter().position(|column| *column == name);
        at.ok_or_else(|| bad(format!("it has no column `{name}`")))
    };
    let (file, agent, truth, source) =
        (column("file")?, column("agent")?, column("truth")?, column("source")?);
    let mut projects: BTreeMap<String, Vec<Turn>> = BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.split('\t').collect();
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        let agent = ReaderName::named(cell(agent));
        let Some(agent) = agent.filter(|_| cell(truth) == "good") else { continue };
        let turn = Turn { file: cell(file).to_owned(), agent, source: cell(source).to_owned() };
        projects.entry(turn.source.clone()).or_default().push(turn);
    }
    Ok(projects)
}
