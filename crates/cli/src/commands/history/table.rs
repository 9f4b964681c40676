//! Formats the history as a table.

use super::History;
use super::past::{Past, Project};
use crate::local;
use crate::screen::{ShownLine, Tone, words};
use dogwatch_core::record::status::State;
use dogwatch_core::text::one_line;
use dogwatch_host::clock;
use unicode_width::UnicodeWidthStr;

/// The longest loop name to show, in bytes.
const MAX_NAME: usize = 24;
const HEAD: [&str; 9] =
    ["started", "run", "loop", "outcome", "duration", "iterations", "flakes", "tokens", "cost"];

/// Formats the history as lines of a table.
pub fn lines(history: &History, all: bool) -> Vec<ShownLine> {
    if history.runs.is_empty() && history.unreadable.is_empty() {
        let here = if all { "on this machine" } else { "in this directory" };
        let text = format!("no runs {here} yet; start one with `dogwatch run DIR`");
        return vec![ShownLine { tone: Tone::Plain, text }];
    }
    let mut lines = table(history);
    for broken in &history.unreadable {
        let text = format!("{}  cannot read its record: {}", broken.run, one_line(&broken.why, 200));
        lines.push(ShownLine { tone: Tone::Bad, text });
    }
    if history.left_out > 0 {
        let older = words::count(history.left_out as u64, "older run");
        let text = format!("{older} not listed and not in the totals; show more with `--limit N`");
        lines.push(ShownLine { tone: Tone::Quiet, text });
    }
    for project in &history.projects {
        lines.push(ShownLine { tone: Tone::Plain, text: String::new() });
        lines.extend(sums(project));
    }
    lines
}

fn table(history: &History) -> Vec<ShownLine> {
    let rows: Vec<(Tone, [String; 9])> = history.runs.iter().map(|run| (tone(run), cells(run))).collect();
    let mut heads = HEAD.map(str::to_owned);
    heads[0] = format!("{} ({})", heads[0], local::zone(clock::now().wall));
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|i| rows.iter().map(|(_, cells)| cells[i].width()).chain([heads[i].width()]).max().unwrap_or(0))
        .collect();
    let line = |cells: &[String; 9]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| pad(cell, *width));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![ShownLine { tone: Tone::Head, text: line(&heads) }];
    lines.extend(rows.iter().map(|(tone, cells)| ShownLine { tone: *tone, text: line(cells) }));
    lines
}

fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

fn tone(run: &Past) -> Tone {
    match (run.exit_code, run.state) {
        (Some(0), _) => Tone::Good,
        (Some(_), _) | (None, State::Lost) => Tone::Bad,
        (None, _) => Tone::Plain,
    }
}

fn cells(run: &Past) -> [String; 9] {
    let name = one_line(&run.name, MAX_NAME);
    let tail = run.run.as_str().rsplit('-').next().unwrap_or_default();
    let used = run.sums.used.used();
    [
        run.started_at.map_or_else(|| "?".to_owned(), local::short),
        tail.to_owned(),
        name,
        outcome(run),
        words::span(run.duration_s),
        iterations(run),
        run.outcome.map_or_else(|| "-".to_owned(), |_| run.sums.flake_retries.to_string()),
        figure(words::tokens(&used)),
        figure(words::cost(&used)),
    ]
}

fn outcome(run: &Past) -> String {
    match run.outcome {
        Some(outcome) => words::outcome(outcome, run.verified != Some(false)),
        None => run.state.as_str().to_owned(),
    }
}

/// Formats the iterations of a run as `12 (3 idle, 1 failed)`. An open iteration of a lost run is one of them.
fn iterations(run: &Past) -> String {
    let c = &run.sums.counts;
    let some = |n: u64, word: &str| (n > 0).then(|| format!("{n} {word}"));
    let open = run.sums.unfinished;
    let parts = [
        some(c.idle, "idle"),
        some(c.failed, "failed"),
        some(c.timed_out, "timed out"),
        some(open, "unfinished"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let all = c.iterations + open;
    if parts.is_empty() { all.to_string() } else { format!("{all} ({})", parts.join(", ")) }
}

/// Shortens a figure for a column whose title names the unit.
fn figure(text: String) -> String {
    let short = text.replace(" tokens", "");
    match short.as_str() {
        "tokens unknown" | "cost unknown" => "unknown".to_owned(),
        "no" | "no tokens" | "no cost" => "-".to_owned(),
        _ => short,
    }
}

fn sums(project: &Project) -> Vec<ShownLine> {
    let how: Vec<String> = project.outcomes.iter().map(|(word, n)| format!("{n} {word}")).collect();
    let (c, open) = (&project.sums.counts, project.sums.unfinished);
    let used = project.sums.used.used();
    let first = format!("{}: {} ({})", project.project, words::count(project.runs, "run"), how.join(", "));
    let second = format!(
        "  {} in {}, {} failed{}{}, {}; {}; {}",
        words::count(c.iterations + open, "iteration"),
        words::span(project.duration_s),
        c.failed,
        if c.timed_out > 0 { format!(", {} timed out", c.timed_out) } else { String::new() },
        if open > 0 { format!(", {open} unfinished") } else { String::new() },
        words::count(project.sums.flake_retries, "flake"),
        words::tokens(&used),
        words::cost(&used),
    );
    [(Tone::Head, first), (Tone::Plain, second)]
        .map(|(tone, text)| ShownLine {
            tone,
            text: dogwatch_core::text::printable(&text).replace('\n', " "),
        })
        .into()
}
