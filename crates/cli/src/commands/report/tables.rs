//! The sections of a report that consist of rows: facts, timeline, waits, cost and snapshots.

use super::Report;
use super::markdown::{cell, code, escaped, lines, plain};
use crate::local::{self, clock};
use crate::screen::words;
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::summary::{Idle, Kept, Row, Turn, What};
use dogwatch_core::record::view::{Counts, NodeView, Used};
use dogwatch_core::record::words::{Sentence, Tone};
use dogwatch_core::text::shell::quote;
use dogwatch_core::time::moment::Moment;
use dogwatch_host::store::home;

impl Report {
    /// Returns the end of the reported time.
    pub fn now(&self) -> Moment {
        if self.live { dogwatch_host::clock::now() } else { self.view().supervised_last() }
    }

    /// Returns `iteration 3`, preceded by the node if the run has several.
    pub fn turn(&self, node: &NodeName, iteration: Iteration) -> String {
        format!("{}iteration {iteration}", self.node(node))
    }

    /// Returns the name of a node, or nothing if the run has only one.
    fn node(&self, node: &NodeName) -> String {
        if self.view().nodes.len() > 1 { format!("{} ", code(node.as_str())) } else { String::new() }
    }
}

/// Returns the table of basic facts about the run.
pub fn facts(report: &Report) -> String {
    let Some(started) = &report.view().started else { return String::new() };
    let view = report.view();
    let end = if view.is_over() { local::full(view.last.wall) } else { "-".to_owned() };
    let rows = [
        ("loop file", cell(&started.path)),
        ("work directory", cell(&started.work_dir)),
        ("agent", cell(&started.agent)),
        ("started", local::full(view.began.wall)),
        ("ended", end),
        ("record", cell(&report.found.dir.display().to_string())),
        ("dogwatch", escaped(&started.dogwatch)),
    ];
    let rows = rows.map(|(name, value)| format!("| {name} | {value} |\n"));
    format!("| | |\n|---|---|\n{}", rows.concat())
}

/// Formats counts as `12 iterations: 9 completed (3 idle), 1 failed`.
pub fn counts(c: &Counts, unfinished: u64) -> String {
    let some = |n: u64, word: &str| (n > 0).then(|| format!("{n} {word}"));
    let idle = if c.idle > 0 { format!(" ({} idle)", c.idle) } else { String::new() };
    let parts: Vec<String> = [
        some(c.completed, &format!("completed{idle}")),
        some(c.failed, "failed"),
        some(c.timed_out, "timed out"),
        some(c.interrupted, "interrupted"),
        some(unfinished, "unfinished"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let all = words::count(c.ended() + unfinished, "iteration");
    if parts.is_empty() { all } else { format!("{all}: {}", parts.join(", ")) }
}

/// Formats tokens and cost. The number of sessions that did not report them is included.
pub fn spent(used: &Used) -> String {
    format!("{}, {}", words::tokens(used), words::cost(used))
}

/// Lists the iterations and other events in order of time.
pub fn timeline(report: &Report) -> String {
    let mut day = String::new();
    let line = |row: &Row| format!("- {} {}\n", clock(row.at), what(report, &row.what));
    let text = lines(&report.summary.timeline, line, |n| format!("\n… {n} more …\n\n"));
    if let Some(first) = report.summary.timeline.iter().next() {
        day = format!("Starts on {}; times are in {}.\n\n", local::date(first.at), local::zone(first.at));
    }
    day + &text
}

fn what(report: &Report, what: &What) -> String {
    match what {
        What::Event { node, iteration, sentence } => {
            let which = match (node, iteration) {
                (Some(node), Some(iteration)) => format!("{}: ", report.turn(node, *iteration)),
                (Some(node), None) => report.node(node),
                (None, _) => String::new(),
            };
            format!("{which}{}", emphasized(sentence))
        }
        What::Turn(turn) => one_turn(report, turn),
        What::Idle(idle) => idle_row(report, idle),
        What::Waited { node, why, lasted, by } => {
            format!("{}{}", report.node(node), escaped(&words::waited(*why, *lasted, *by)))
        }
    }
}

/// Formats a sentence in Markdown. The part of bad news before the colon is bold.
pub fn emphasized(sentence: &Sentence) -> String {
    match (sentence.tone, sentence.text.split_once(": ")) {
        (Tone::Bad, Some((head, rest))) => format!("**{}**: {}", escaped(head), escaped(rest)),
        (Tone::Bad, None) => format!("**{}**", escaped(&sentence.text)),
        (Tone::Plain | Tone::Head | Tone::Good | Tone::Quiet, _) => escaped(&sentence.text),
    }
}

fn one_turn(report: &Report, turn: &Turn) -> String {
    let mut text = format!("{} ({})", report.turn(&turn.node, turn.iteration), escaped(turn.cause.as_str()));
    if let Some(end) = &turn.end {
        let (tone, word) = words::ending(end.how);
        let word = if tone == Tone::Bad { format!("**{word}**") } else { word.to_owned() };
        text.push_str(&format!(" {}", words::ended_after(&word, end.lasted, Some(&plain(&end.because)))));
    }
    match &turn.session {
        Some(session) => {
            text.push_str(&format!("; {}", escaped(&words::session(session))));
            text.extend(words::killed(session).map(|killed| format!("; {}", escaped(&killed))));
            if !session.said.is_empty() {
                text.push_str(&format!("; \"{}\"", plain(&words::said(session))));
            }
        }
        // A lost supervisor records no end of the session.
        None if turn.called => {}
        None => text.push_str("; the agent was not called"),
    }
    text
}

fn idle_row(report: &Report, idle: &Idle) -> String {
    let node = report.node(&idle.node);
    let which = if idle.count == 1 {
        format!("{node}iteration {}", idle.first)
    } else {
        format!("{node}iterations {} to {}", idle.first, idle.last)
    };
    let skipped = if idle.skipped > 0 {
        format!(", {} without calling the agent", idle.skipped)
    } else {
        String::new()
    };
    let until = if idle.count == 1 { String::new() } else { format!(", until {}", clock(idle.until)) };
    format!("{which} idle ({}){skipped}{until}", plain(&idle.reason))
}

/// Returns the table of waits by reason.
pub fn waits(report: &Report) -> String {
    let rows: String = report
        .summary
        .waits
        .iter()
        .filter(|w| w.count > 0)
        .map(|w| {
            let why = words::wait(w.why);
            let planned = w.planned.map_or_else(|| "-".to_owned(), words::span);
            format!("| {why} | {} | {planned} | {} | {} |\n", w.count, words::span(w.lasted), w.woken)
        })
        .collect();
    if rows.is_empty() {
        rows
    } else {
        format!("| reason | count | planned | real | ended early |\n|---|---|---|---|---|\n{rows}")
    }
}

/// Returns the files that agents saved, the newest of each name.
pub fn artifacts(report: &Report) -> String {
    let nodes = report.view().nodes.iter();
    let saved = nodes.flat_map(|node| node.work.artifacts.iter().map(|saved| (&node.name, saved)));
    let rows: String = saved
        .take(MAX_ROWS)
        .map(|(node, saved)| {
            let dir = home::artifacts_dir(&report.found.dir, node, saved.iteration);
            let file = dir.join(&saved.name).display().to_string();
            let which = report.turn(node, saved.iteration);
            format!("| {} | {which} | {} | {} |\n", cell(&saved.name), words::size(saved.bytes), cell(&file))
        })
        .collect();
    if rows.is_empty() {
        return rows;
    }
    format!("| name | saved in | size | file |\n|---|---|---|---|\n{rows}")
}

/// Returns the cost of each node and of the whole run.
pub fn cost(report: &Report) -> String {
    let nodes = &report.view().nodes;
    let row =
        |name: &str, used: &Used| format!("| {name} | {} | {} |\n", words::tokens(used), words::cost(used));
    let used = |n: &&NodeView| n.iteration.0 > 0;
    let mut rows = String::new();
    if nodes.len() > 1 {
        let of = |n: &NodeView| if report.is_lost() { n.spent_when_lost() } else { n.usage.ended };
        rows.extend(nodes.iter().filter(used).take(MAX_ROWS).map(|n| row(&cell(n.name.as_str()), &of(n))));
    }
    rows.push_str(&row("total", &report.spent()));
    format!("| node | tokens | cost |\n|---|---|---|\n{rows}")
}

/// The most nodes or artifacts to list in a table.
const MAX_ROWS: usize = 200;

/// Returns the table of snapshots.
pub fn snapshots(report: &Report) -> String {
    if report.summary.snapshots.is_empty() {
        return String::new();
    }
    let run = report.tail();
    let row = |s: &Kept| {
        let skipped = if s.skipped > 0 { format!(", {} skipped", s.skipped) } else { String::new() };
        let of = if report.view().nodes.len() > 1 {
            format!(" --node {}", quote(s.node.as_str()))
        } else {
            String::new()
        };
        let commands = if s.iteration.0 == 0 {
            String::new()
        } else {
            let n = s.iteration;
            format!(
                "{}, {}",
                cell(&format!("dogwatch diff {run} {n}{of}")),
                cell(&format!("dogwatch undo {run} {n}{of}"))
            )
        };
        format!("| {} | {} | {}{skipped} | {commands} |\n", clock(s.at), cell(&s.name), s.files)
    };
    let rows = lines(&report.summary.snapshots, row, |n| format!("| … | {n} more | | |\n"));
    format!("| time | ref | files | show, undo |\n|---|---|---|---|\n{rows}")
}
