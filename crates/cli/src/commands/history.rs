use crate::error::Failure;
use crate::runs::{FoundRun, registered, runs_in, state_dir};
use crate::screen::{fit, paint, width};
use dogwatch_host::registry::MAX_LISTED;
use past::{Past, Project, Unreadable};
use std::io::IsTerminal;
use std::path::PathBuf;

mod past;
mod table;

/// Tell how the runs of this project went
///
/// Outcome, when, how long, iterations, flakes, tokens and cost of each, newest first, and the sums. What an
/// agent did not tell is said to be unknown. All of it comes from the records of the runs.
#[derive(clap::Args)]
pub struct Args {
    /// The runs of all projects of this user on this machine, with the sums of each
    #[arg(long, short)]
    all: bool,
    /// No more than the newest so many
    #[arg(long, short = 'n', value_name = "N", default_value_t = SHOWN,
          value_parser = clap::value_parser!(u64).range(1..=MAX_LISTED as u64))]
    limit: u64,
    /// As JSON (docs/history.md)
    #[arg(long)]
    json: bool,
    /// Where the project keeps its record, if not in .dogwatch
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    state_dir: Option<PathBuf>,
}

/// Enough for a screen.
const SHOWN: u64 = 20;
/// The columns of a line that goes to no terminal.
const OFF_TERMINAL: usize = 250;

pub fn run(args: &Args) -> Result<u8, Failure> {
    let runs: Vec<FoundRun> =
        if args.all { registered().collect() } else { runs_in(&state_dir(args.state_dir.as_deref()).runs()) };
    let limit = usize::try_from(args.limit).unwrap_or(MAX_LISTED);
    let history = History::read(&runs, limit);
    if args.json {
        return super::print_json(&history);
    }
    let terminal = std::io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let columns = if terminal { width() } else { OFF_TERMINAL };
    let lines = table::lines(&history, args.all);
    let text = lines.iter().map(|line| paint(colour, line.tone, &fit(&line.text, columns)) + "\n");
    super::print(text.collect::<String>().as_bytes())
}

/// What is told; the JSON has the same shape.
#[derive(serde::Serialize)]
struct History {
    runs: Vec<Past>,
    /// Sums over those runs.
    projects: Vec<Project>,
    /// Older runs that are not told of.
    left_out: usize,
    unreadable: Vec<Unreadable>,
}

impl History {
    fn read(runs: &[FoundRun], limit: usize) -> History {
        let left_out = runs.len().saturating_sub(limit);
        let mut history =
            History { runs: Vec::new(), projects: Vec::new(), left_out, unreadable: Vec::new() };
        for found in runs.iter().take(limit) {
            match found.view() {
                Ok(view) => history.runs.push(Past::of(&view, found)),
                Err(failure) => history.unreadable.push(Unreadable::of(found, &failure)),
            }
        }
        history.projects = Project::sums(&history.runs);
        history
    }
}
