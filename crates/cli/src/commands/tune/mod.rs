//! `dogwatch tune`: proposes watchdog limits from the recorded sessions.

mod evaluate;
mod sessions;
mod text;

use crate::error::{CliError, warn};
use crate::runs::{FoundRun, registered, runs_in, state_dir};
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::watch::limits::{Estimate, History, Key, Kind, Sample, Trial, confidence};
use dogwatch_host::store::sessions::{Imported, MAX_UPDATE, SessionIndex, import};
use serde::Serialize;
use sessions::Recordings;
use std::path::PathBuf;

/// Propose watchdog limits from the recorded sessions
///
/// Measures how long good sessions were silent and how long their tool calls took, estimates how far the tail of these
/// times reaches, and proposes limits. It then replays the recorded sessions under the proposed limits and shows how many
/// good ones they would have stopped, and how much sooner they would have stopped the stuck ones. It loosens
/// limits once there are 30 good sessions, and tightens them once there are 300. It changes nothing: copy the limits you
/// want into dogwatch.toml, or set `profile: learned`. See docs/guide/replay.md.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  dogwatch tune           propose limits for this project
  dogwatch tune --import  also learn from Claude Code and Codex transcripts
  dogwatch tune --all     use the runs of all your projects")]
pub struct Args {
    /// Use the runs of all your projects on this machine
    #[arg(long, short)]
    all: bool,
    /// Read the transcripts of Claude Code and Codex on this machine first
    #[arg(long)]
    import: bool,
    /// Number of runs to replay, newest first
    #[arg(long, short = 'n', value_name = "N", default_value_t = RUNS, value_parser = clap::value_parser!(u64).range(1..=MAX_RUNS))]
    limit: u64,
    /// Learn from the first half of labeled turns and judge the second half
    #[arg(long, value_name = "DIR", conflicts_with_all = ["all", "import", "state_dir"])]
    evaluate: Option<PathBuf>,
    /// Print the proposal as JSON (docs/guide/replay.md)
    #[arg(long)]
    json: bool,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    state_dir: Option<PathBuf>,
}

impl Args {
    /// Returns whether the command adds sessions to what dogwatch learns from.
    pub fn imports(&self) -> bool {
        self.import
    }
}

/// The default number of runs to replay.
const RUNS: u64 = 100;
/// The largest number of runs to replay.
const MAX_RUNS: u64 = 1000;

/// The proposal, in the shape of the JSON output.
#[derive(Serialize)]
struct Tuned {
    runs: usize,
    /// The number of older runs and of unreadable records.
    runs_left_out: usize,
    /// What an import read.
    #[serde(skip_serializing_if = "Option::is_none")]
    imported: Option<Imported>,
    /// Why a part of the sessions is not used.
    notices: Vec<String>,
    good: usize,
    stuck: usize,
    /// The stops that a person labeled wrong.
    wrong: usize,
    unclear: usize,
    agents: Vec<Tuning>,
}

/// The proposal for one agent.
#[derive(Serialize)]
struct Tuning {
    agent: ReaderName,
    /// Its good sessions on this machine, and in this project.
    good: usize,
    here: usize,
    limits: Vec<Estimate>,
    /// The effect of all proposed limits together on the replayed sessions.
    trial: Trial,
    /// How sure the rate of false stops is.
    confidence: String,
}

/// Runs `dogwatch tune` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    if let Some(dir) = &args.evaluate {
        let evaluated = evaluate::evaluate(dir)?;
        return if args.json { super::print_json(&evaluated) } else { super::print_text(&evaluated.text()) };
    }
    let runs: Vec<FoundRun> =
        if args.all { registered().collect() } else { runs_in(&state_dir(args.state_dir.as_deref()).runs()) };
    let mut index = SessionIndex::of_user();
    let others: Vec<FoundRun> = registered().filter(|run| !runs.contains(run)).collect();
    index.add_runs(runs.iter().chain(&others).map(|run| run.dir.as_path()), MAX_UPDATE);
    let imported = args.import.then(|| import(&mut index, &transcript_dirs(), MAX_UPDATE));
    if let Err(error) = index.save() {
        warn(&format!("cannot save the index of sessions: {error}"));
    }
    let samples = index.samples();
    if runs.is_empty() && samples.is_empty() {
        return Err(CliError::with_help(
            "no recorded sessions to learn from",
            "start a loop with `dogwatch run`, or pass --import to read the transcripts of Claude Code and Codex",
        ));
    }
    let place = (!args.all).then(|| place(&runs));
    let recordings = Recordings::read(&runs, index.transcripts(place.as_deref()), args.limit);
    let tuned = tune(&samples, place.as_deref(), &recordings, imported, std::mem::take(&mut index.problems));
    if args.json { super::print_json(&tuned) } else { super::print_text(&text::text(&tuned)) }
}

/// Returns the directory whose sessions are those of this project: the one in which its newest run works.
fn place(runs: &[FoundRun]) -> String {
    let started = runs.first().and_then(|run| run.view().ok()?.started);
    let here = || std::env::current_dir().unwrap_or_default().display().to_string();
    started.map_or_else(here, |started| started.work_dir)
}

/// Returns where the agents keep their transcripts.
fn transcript_dirs() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let of = |variable: &str, default: &str| {
        let set = std::env::var_os(variable).filter(|dir| !dir.is_empty()).map(PathBuf::from);
        set.unwrap_or_else(|| home.join(default))
    };
    vec![of("CLAUDE_CONFIG_DIR", ".claude").join("projects"), of("CODEX_HOME", ".codex").join("sessions")]
}

/// The results for the sessions of one agent.
struct Known {
    agent: ReaderName,
    estimates: Vec<(Key, Estimate)>,
    good: usize,
    here: usize,
}

fn tune(
    samples: &[Sample],
    place: Option<&str>,
    recordings: &Recordings,
    imported: Option<Imported>,
    notices: Vec<String>,
) -> Tuned {
    let own = recordings.replay(None);
    let count = |kind| own.iter().filter(|session| Kind::of(session) == kind).count();
    let mut agents: Vec<Known> = Vec::new();
    for agent in ReaderName::ALL.iter().copied() {
        let history = History::of(samples, agent, place);
        let (good, here) = history.good();
        if here > 0 {
            agents.push(Known { agent, estimates: history.all(&recordings.policy(agent)), good, here });
        }
    }
    let proposed = |policy: &WatchPolicy, agent: ReaderName| {
        let mut policy = policy.clone();
        let known = agents.iter().find(|known| known.agent == agent);
        for (key, estimate) in known.iter().flat_map(|known| &known.estimates) {
            if let Some(limit) = estimate.limit_s {
                key.set(&mut policy, dogwatch_core::time::dur::Limit::At(limit));
            }
        }
        policy
    };
    let other = recordings.replay(Some(&proposed));
    let tunings = agents.iter().map(|Known { agent, estimates, good, here }| {
        let of_agent = |at: &usize| own[*at].agent == Some(*agent);
        let at: Vec<usize> = (0..own.len().min(other.len())).filter(of_agent).collect();
        let own: Vec<_> = at.iter().map(|at| own[*at].clone()).collect();
        let other: Vec<_> = at.iter().map(|at| other[*at].summary.clone()).collect();
        let trial = Trial::of(&own, &other, |_| true);
        Tuning {
            agent: *agent,
            good: *good,
            here: *here,
            limits: estimates.iter().map(|(_, estimate)| estimate.clone()).collect(),
            confidence: confidence(trial.good_stopped, trial.good),
            trial,
        }
    });
    Tuned {
        runs: recordings.runs(),
        runs_left_out: recordings.left_out,
        imported,
        notices,
        good: count(Kind::Good),
        stuck: count(Kind::Stopped),
        wrong: count(Kind::WronglyStopped),
        unclear: count(Kind::Unclear),
        agents: tunings.collect(),
    }
}
