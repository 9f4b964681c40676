//! `dogwatch` alone: the last night in ten lines.

use crate::error::Failure;
use crate::runs::{FoundRun, runs_in, state_dir};
use crate::screen::{Line, Tone, fit, paint, width, words};
use dogwatch_core::event::RunEnded;
use dogwatch_core::moment::Wall;
use dogwatch_core::status::{DoingStatus, State, Status};
use dogwatch_core::text::{one_line, printable};
use dogwatch_core::view::View;
use dogwatch_host::clock;
use std::io::IsTerminal;

/// With the line above and the line below them: ten.
const MAX_RUNS: usize = 8;
/// What is shown of an agent's last words.
const MAX_SAID: usize = 60;
/// The columns of a line that goes to no terminal.
const OFF_TERMINAL: usize = 200;

const NOTHING_YET: &str = "\
No run in this directory yet.
  dogwatch demo            see what it does, in half a minute, without a key
  dogwatch init my-loop    write a my-loop/RALPH.md to start from
  dogwatch run my-loop     loop its agent until something ends it
  dogwatch --help          everything else";

pub fn run() -> Result<u8, Failure> {
    let runs = runs_in(&state_dir(None).runs());
    if runs.is_empty() {
        return super::print(format!("{NOTHING_YET}\n").as_bytes());
    }
    let terminal = std::io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let columns = if terminal { width() } else { OFF_TERMINAL };
    let lines =
        tell(&runs).into_iter().map(|line| paint(colour, line.tone, &fit(&line.text, columns)) + "\n");
    super::print(lines.collect::<String>().as_bytes())
}

fn tell(runs: &[FoundRun]) -> Vec<Line> {
    let mut told = vec![head(runs.len())];
    told.extend(runs.iter().take(MAX_RUNS).map(|run| match run.view() {
        Ok(view) => line(&view, run),
        Err(_) => {
            let text = format!(
                "{}  its record cannot be read: `dogwatch status {}` says why",
                when(None),
                run.tail()
            );
            Line { tone: Tone::Bad, text }
        }
    }));
    let text = "`dogwatch status`, `dogwatch logs` and `dogwatch events` tell more of the first".to_owned();
    told.push(Line { tone: Tone::Quiet, text });
    told
}

fn head(runs: usize) -> Line {
    let which = if runs > MAX_RUNS {
        format!("the last {MAX_RUNS} of {runs} runs")
    } else {
        words::count(runs as u64, "run")
    };
    Line { tone: Tone::Head, text: format!("{which} here, newest first, times in UTC") }
}

fn line(view: &View, run: &FoundRun) -> Line {
    let status = Status::of(view, run.is_live().then(clock::now));
    let name = view.nodes.first().map_or("?", |n| n.name.as_str());
    let (tone, how) = how(&status, view, run);
    let parts = [counts(&status), words::span(status.supervised_s), why(view)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let text = format!("{}  {}  {name}  {how}  {}", when(status.started_at), run.tail(), parts.join(", "));
    Line { tone, text: printable(&text).replace('\n', " ") }
}

/// `11-15 20:15`
fn when(at: Option<Wall>) -> String {
    let at = at.map(|at| at.to_string()).unwrap_or_default();
    match (at.get(5..10), at.get(11..16)) {
        (Some(day), Some(time)) => format!("{day} {time}"),
        (_, _) => "??-?? ??:??".to_owned(),
    }
}

fn how(status: &Status, view: &View, run: &FoundRun) -> (Tone, String) {
    match (status.state, &view.ended) {
        (State::Ended, Some(end)) => (tone(end), end.outcome.to_string()),
        (State::Lost, _) => (Tone::Bad, format!("lost: `dogwatch resume {}` goes on with it", run.tail())),
        (State::Waiting, _) => (Tone::Plain, waiting(status)),
        (State::Paused, _) => (Tone::Plain, format!("paused: `dogwatch resume {}` goes on", run.tail())),
        (State::Asleep, _) => (Tone::Plain, format!("asleep: `dogwatch wake {}` continues it", run.tail())),
        (state, _) => (Tone::Plain, state.as_str().to_owned()),
    }
}

fn tone(end: &RunEnded) -> Tone {
    if end.exit_code == 0 { Tone::Good } else { Tone::Bad }
}

fn waiting(status: &Status) -> String {
    let until = status.nodes.iter().find_map(|node| match &node.doing {
        DoingStatus::Waiting { until: Some(until), why, .. } => Some((until.to_string(), *why)),
        _ => None,
    });
    match until {
        Some((until, why)) => {
            format!("waiting until {} ({})", until.get(11..19).unwrap_or(&until), words::wait(why))
        }
        None => "waiting".to_owned(),
    }
}

/// `12 iterations: 9 completed, 3 of them idle, 1 failed`
fn counts(status: &Status) -> String {
    let c = &status.counts;
    let some = |n: u64, word: &str| (n > 0).then(|| format!("{n} {word}"));
    let parts = [
        some(c.completed, "completed"),
        some(c.idle, "of them idle"),
        some(c.failed, "failed"),
        some(c.timed_out, "timed out"),
        some(c.interrupted, "interrupted"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let all = words::count(c.iterations, "iteration");
    if parts.is_empty() { all } else { format!("{all}: {}", parts.join(", ")) }
}

/// Why it ended; of one that goes on, or whose end needs no reason, the agent's last words.
fn why(view: &View) -> String {
    let said = view.nodes.iter().find_map(|n| n.last_session.as_ref()).map(|s| one_line(&s.said, MAX_SAID));
    let said = said.filter(|s| !s.is_empty()).map(|s| format!("\"{s}\""));
    match &view.ended {
        Some(end) if end.exit_code != 0 || said.is_none() => one_line(&end.reason, 2 * MAX_SAID),
        Some(_) | None => said.unwrap_or_default(),
    }
}
