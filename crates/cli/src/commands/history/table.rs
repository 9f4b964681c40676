//! Formats the history as a table.

use super::History;
use super::past::{Past, Project};
use crate::local;
use crate::screen::{ShownLine, Tone, shorten, words};
use dogwatch_core::record::status::State;
use dogwatch_core::text::one_line;
use dogwatch_host::clock;
use unicode_width::UnicodeWidthStr;

/// The longest loop name to show, in bytes.
const MAX_NAME: usize = 24;
/// How far the names of loops are shortened before another column is dropped, in columns.
const MIN_NAME: usize = 8;
const HEAD: [&str; 9] =
    ["started", "run", "loop", "outcome", "duration", "iterations", "flakes", "tokens", "cost"];
const STARTED: usize = 0;
const LOOP: usize = 2;
const FLAKES: usize = 6;
const TOKENS: usize = 7;
/// The columns to drop on a narrow terminal, in this order. A reader asks first how a run ended and what it cost.
const DROPPED: [usize; 4] = [FLAKES, TOKENS, LOOP, STARTED];
/// The space between two columns.
const GAP: &str = "  ";

/// Formats the history as lines of a table that fits into a terminal with this many columns.
pub fn lines(history: &History, all: bool, columns: usize) -> Vec<ShownLine> {
    if history.runs.is_empty() && history.unreadable.is_empty() {
        let here = if all { "on this machine" } else { "in this directory" };
        let text = format!("no runs {here} yet; start one with `dogwatch run DIR`");
        return vec![ShownLine { tone: Tone::Plain, text }];
    }
    let mut lines = table(history, columns);
    for broken in &history.unreadable {
        let text = format!("{}  cannot read its record: {}", broken.run, one_line(&broken.why, 200));
        lines.push(ShownLine { tone: Tone::Bad, text });
    }
    if history.left_out > 0 {
        let older = words::count(history.left_out as u64, "older run");
        let text = format!("{older} not listed and not in the totals; show more with `--limit N`");
        lines.push(ShownLine { tone: Tone::Quiet, text });
    }
    lines
}

fn table(history: &History, columns: usize) -> Vec<ShownLine> {
    let rows: Vec<(Tone, [String; 9])> = history.runs.iter().map(|run| (tone(run), cells(run))).collect();
    let mut heads = HEAD.map(str::to_owned);
    heads[STARTED] = format!("{} ({})", heads[STARTED], local::zone(clock::now().wall));
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|i| rows.iter().map(|(_, cells)| cells[i].width()).chain([heads[i].width()]).max().unwrap_or(0))
        .collect();
    let fitted = fitted(&widths, columns);
    let line = |cells: &[String; 9]| {
        let padded = fitted.iter().map(|(i, width)| pad(&shorten(&cells[*i], *width), *width));
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    let mut lines = vec![ShownLine { tone: Tone::Head, text: line(&heads) }];
    lines.extend(rows.iter().map(|(tone, cells)| ShownLine { tone: *tone, text: line(cells) }));
    lines
}

/// Returns the columns to show and their widths. The names of loops are shortened before any other column than the flakes
/// is dropped; all other columns are whole.
fn fitted(widths: &[usize], columns: usize) -> Vec<(usize, usize)> {
    let mut shown: Vec<(usize, usize)> = widths.iter().copied().enumerate().collect();
    for dropped in DROPPED {
        let sum: usize = shown.iter().map(|(_, width)| width).sum();
        let over = (sum + GAP.len() * shown.len().saturating_sub(1)).saturating_sub(columns);
        let has_flakes = shown.iter().any(|(i, _)| *i == FLAKES);
        let name = shown.iter_mut().find(|(i, _)| *i == LOOP && !has_flakes).map(|(_, width)| width);
        match name {
            _ if over == 0 => return shown,
            Some(width) if *width >= MIN_NAME + over => {
                *width -= over;
                return shown;
            }
            Some(_) | None => shown.retain(|(i, _)| *i != dropped),
        }
    }
    shown
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

/// Formats the totals of a project, which follow the table.
pub fn sums(project: &Project) -> Vec<ShownLine> {
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
    [(Tone::Plain, String::new()), (Tone::Head, first), (Tone::Plain, second)]
        .map(|(tone, text)| ShownLine {
            tone,
            text: dogwatch_core::text::printable(&text).replace('\n', " "),
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::history::past::{Figures, Sums};
    use dogwatch_core::record::event::Outcome;
    use dogwatch_core::record::ids::RunId;
    use dogwatch_core::record::view::Counts;
    use dogwatch_core::time::dur::Dur;
    use dogwatch_core::time::moment::Wall;

    fn history() -> History {
        let counts = Counts { iterations: 12, completed: 8, idle: 3, failed: 1, ..Counts::default() };
        let used = Figures { tokens: Some(1_234_567), cost_usd: Some(12.5), ..Figures::default() };
        let run = Past {
            run: RunId::new(Wall(0), [0; 4]),
            project: None,
            path: None,
            name: "fix-every-flaky-test".to_owned(),
            nodes: Vec::new(),
            state: State::Ended,
            outcome: Some(Outcome::Clean),
            reason: None,
            exit_code: Some(0),
            verified: Some(true),
            started_at: Some(Wall(0)),
            duration_s: Dur::from_secs(125),
            sums: Sums { counts, used, ..Sums::default() },
        };
        History { runs: vec![run], projects: Vec::new(), left_out: 0, unreadable: Vec::new() }
    }

    #[test]
    fn a_narrow_history_drops_flakes_then_shortens_the_loop_then_drops_tokens_and_keeps_the_cost() {
        let history = history();
        let full = table(&history, usize::MAX).iter().map(|line| line.text.width()).max().unwrap_or(0);
        let has = |columns: usize| {
            let lines = table(&history, columns);
            assert!(lines.iter().all(|line| line.text.width() <= columns), "{columns}: {lines:?}");
            let text = &lines[1].text;
            for whole in ["clean", "2m 05s", "12 (3 idle, 1 failed)", "$12.50"] {
                assert!(text.contains(whole), "no {whole:?} in {columns} columns: {text}");
            }
            let heads = &lines[0].text;
            (heads.contains("flakes"), text.contains("fix-every-flaky-test"), heads.contains("tokens"))
        };
        assert_eq!(has(full), (true, true, true));
        assert_eq!(has(full - 1), (false, true, true));
        assert_eq!(has(full - "flakes  ".len() - 1), (false, false, true));
        let shortest = full - "flakes  ".len() - ("fix-every-flaky-test".len() - MIN_NAME);
        assert_eq!(has(shortest), (false, false, true));
        assert_eq!(has(shortest - 1), (false, false, false));
        assert_eq!(has(80), (false, false, false));
        assert_eq!(has(54), (false, false, false), "without the start and the loop");
    }

    #[test]
    fn every_column_that_remains_is_whole_however_narrow_the_terminal_is() {
        let lines = table(&history(), 1);
        assert!(lines[1].text.contains("12 (3 idle, 1 failed)") && lines[1].text.ends_with("$12.50"));
    }
}
