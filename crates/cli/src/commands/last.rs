//! `dogwatch` without a command: the latest runs of this project in ten lines.

use crate::color;
use crate::error::CliError;
use crate::local;
use crate::runs::{FoundRun, runs_here};
use crate::screen::{ShownLine, Tone, paint, shorten, width, words};
use dogwatch_core::record::event::RunEnded;
use dogwatch_core::record::status::{DoingStatus, State, Status};
use dogwatch_core::record::view::View;
use dogwatch_core::text::{one_line, printable};
use dogwatch_core::time::moment::Wall;
use dogwatch_host::clock;
use std::io::IsTerminal;

/// The most runs to list. With the first and the last line that makes ten lines.
const MAX_RUNS: usize = 8;
/// The most of an agent's last message to show, in bytes.
const MAX_SHOWN: usize = 60;
/// The longest line when stdout is not a terminal, in columns.
const OFF_TERMINAL: usize = 200;

const NOTHING_YET: &str = "\
No runs in this directory yet.
  dogwatch demo            watch a short demo; no API key needed
  dogwatch init my-loop    write my-loop/RALPH.md, a loop file to start from
  dogwatch run my-loop     run the loop until you stop it
  dogwatch --help          show all commands";

/// Runs `dogwatch` without arguments and returns the exit code.
pub fn run() -> Result<u8, CliError> {
    let mut runs = runs_here(None)?;
    // A run that is still alive matters most, however many runs have ended since it started.
    runs.sort_by_cached_key(|run| !run.is_live());
    if runs.is_empty() {
        return super::print_text(&format!("{NOTHING_YET}\n"));
    }
    let columns = if std::io::stdout().is_terminal() { width() } else { OFF_TERMINAL };
    let color = color::on_stdout();
    let lines =
        list(&runs).into_iter().map(|line| paint(color, line.tone, &shorten(&line.text, columns)) + "\n");
    super::print(lines.collect::<String>().as_bytes())
}

fn list(runs: &[FoundRun]) -> Vec<ShownLine> {
    let mut lines = vec![head(runs.len())];
    lines.extend(runs.iter().take(MAX_RUNS).map(|run| match run.view() {
        Ok(view) => line(&view, run),
        Err(_) => {
            let text =
                format!("{}  cannot read its record; `dogwatch status {}` shows why", when(None), run.tail());
            ShownLine { tone: Tone::Bad, text }
        }
    }));
    let text = "more about the latest run: `dogwatch report`, `diff`, `status`, `logs`, `events`".to_owned();
    lines.push(ShownLine { tone: Tone::Quiet, text });
    lines
}

fn head(runs: usize) -> ShownLine {
    let which = if runs > MAX_RUNS {
        format!("the last {MAX_RUNS} of {runs} runs")
    } else {
        words::count(runs as u64, "run")
    };
    let zone = local::zone(clock::now().wall);
    ShownLine {
        tone: Tone::Head,
        text: format!("{which} in this directory, live ones first, then the newest; times in {zone}"),
    }
}

fn line(view: &View, run: &FoundRun) -> ShownLine {
    let status = Status::of(view, run.is_live().then(clock::now));
    let name = view.started.as_ref().map_or("?", |started| started.name());
    let (tone, how) = how(&status, view, run);
    let parts = [
        words::iterations_with(&status.counts, status.unfinished),
        words::span(status.supervised_s),
        why(view),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let text = format!("{}  {}  {name}  {how}  {}", when(status.started_at), run.tail(), parts.join(", "));
    ShownLine { tone, text: printable(&text).replace('\n', " ") }
}

/// Formats a time as `11-15 20:15`.
fn when(at: Option<Wall>) -> String {
    at.map_or_else(|| "??-?? ??:??".to_owned(), local::short)
}

fn how(status: &Status, view: &View, run: &FoundRun) -> (Tone, String) {
    if let Some(pid) = run.stopped_process() {
        return (Tone::Bad, format!("suspended; continue with `kill -CONT {pid}`"));
    }
    match (status.state, &view.ended) {
        (State::Ended, Some(end)) => (tone(end), words::outcome(end.outcome, end.verified)),
        (State::Lost, _) => (Tone::Bad, format!("lost; continue with `dogwatch resume {}`", run.tail())),
        (State::Waiting, _) => (Tone::Plain, waiting(status)),
        (State::Paused, _) => {
            (Tone::Plain, format!("paused; continue with `dogwatch resume {}`", run.tail()))
        }
        (State::Asleep, _) => (Tone::Plain, format!("asleep; continue with `dogwatch wake {}`", run.tail())),
        (state, _) => (Tone::Plain, state.as_str().to_owned()),
    }
}

fn tone(end: &RunEnded) -> Tone {
    if end.exit_code == 0 { Tone::Good } else { Tone::Bad }
}

fn waiting(status: &Status) -> String {
    let until = status.nodes.iter().find_map(|node| {
        let DoingStatus::Waiting { until, why, .. } = &node.doing else { return None };
        until.map(|until| (local::clock(until), *why))
    });
    match until {
        Some((until, why)) => {
            format!("waiting until {until} ({})", words::wait(why))
        }
        None => "waiting".to_owned(),
    }
}

/// Returns the reason of a failed run. For a successful or unfinished run, returns the agent's last message if there
/// is one.
fn why(view: &View) -> String {
    let said = view.last_session().map(|session| one_line(&session.said, MAX_SHOWN));
    let said = said.filter(|s| !s.is_empty()).map(|s| format!("\"{s}\""));
    match &view.ended {
        Some(end) if end.exit_code != 0 || said.is_none() => {
            one_line(&local::times(&end.reason), 2 * MAX_SHOWN)
        }
        Some(_) | None => said.unwrap_or_default(),
    }
}
