use crate::color;
use crate::error::CliError;
use crate::runs::{FoundRun, registered, runs_here};
use crate::screen::{ShownLine, paint, shorten, width};
use dogwatch_host::store::registry::MAX_LISTED;
use groups::{By, Grouped};
use past::{Past, Project, Unreadable};
use std::io::IsTerminal;
use std::path::PathBuf;

mod groups;
mod past;
mod table;

/// List the runs of this project with outcome and cost
///
/// Shows outcome, start time, duration, iterations, flakes, tokens and cost of each run, newest first, and the
/// totals. Tokens and cost are `unknown` where the agent did not report them. With --by, adds up the sessions of all runs.
#[derive(clap::Args)]
pub struct Args {
    /// List the runs of all your projects on this machine, with totals per project
    #[arg(long, short)]
    all: bool,
    /// Number of runs to list, newest first
    #[arg(long, short = 'n', value_name = "N", default_value_t = SHOWN,
          value_parser = clap::value_parser!(u64).range(1..=MAX_LISTED as u64))]
    limit: u64,
    /// Add up all sessions by day, agent, model or loop instead of listing runs
    #[arg(long, value_name = "WHAT", conflicts_with = "limit")]
    by: Option<By>,
    /// Print the history as JSON (docs/guide/watching-runs.md)
    #[arg(long)]
    json: bool,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    state_dir: Option<PathBuf>,
}

/// The number of runs listed by default.
const SHOWN: u64 = 20;
/// The longest line when stdout is not a terminal, in columns.
const OFF_TERMINAL: usize = 250;

/// Runs `dogwatch history` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let runs: Vec<FoundRun> =
        if args.all { registered().collect() } else { runs_here(args.state_dir.as_deref())? };
    if let Some(by) = args.by {
        let grouped = Grouped::read(&runs[..runs.len().min(MAX_LISTED)], by);
        return if args.json { super::print_json(&grouped) } else { print_lines(&grouped.lines()) };
    }
    let limit = usize::try_from(args.limit).unwrap_or(MAX_LISTED);
    let history = History::read(&runs, limit);
    if args.json {
        return super::print_json(&history);
    }
    print_lines(&table::lines(&history, args.all, columns()))?;
    let sums = history.projects.iter().flat_map(table::sums);
    super::print_text(&sums.map(|line| painted(&line)).collect::<String>())
}

/// Returns the length of the longest line to print.
fn columns() -> usize {
    if std::io::stdout().is_terminal() { width() } else { OFF_TERMINAL }
}

fn print_lines(lines: &[ShownLine]) -> Result<u8, CliError> {
    let columns = columns();
    let cut = lines.iter().map(|line| ShownLine { tone: line.tone, text: shorten(&line.text, columns) });
    super::print(cut.map(|line| painted(&line)).collect::<String>().as_bytes())
}

fn painted(line: &ShownLine) -> String {
    paint(color::on_stdout(), line.tone, &line.text) + "\n"
}

/// The history to print; also the shape of the JSON output.
#[derive(serde::Serialize)]
struct History {
    runs: Vec<Past>,
    /// Totals over those runs, per project.
    projects: Vec<Project>,
    /// The number of older runs that are not listed.
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
