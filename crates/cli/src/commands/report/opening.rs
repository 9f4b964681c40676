//! The summary at the top of a report: what was asked, what was done, what it cost, and what needs attention.

use super::Report;
use super::markdown::{code, escaped, plain};
use super::paragraphs::{failing, row_of_trouble, verdict};
use super::tables::{counts, spent};
use crate::screen::words;
use dogwatch_core::record::event::{NodeState, Outcome, RunEnded};
use dogwatch_core::record::ids::Iteration;
use dogwatch_core::record::view::NodeView;
use dogwatch_core::run::ending::Ending;
use dogwatch_core::time::dur::Dur;
use dogwatch_host::prompt;
use dogwatch_host::store::home;

/// The most nodes to name.
const MAX_NODES: usize = 20;
/// The most bytes of a prompt to read for its first line.
const MAX_PROMPT: usize = 1024 * 1024;

/// Returns the summary as Markdown.
pub fn summary(report: &Report) -> String {
    let lines = rows(report).map(|(title, text)| format!("**{title}**: {text}"));
    // In Markdown, two trailing spaces are a line break.
    lines.join("  \n") + "\n"
}

/// Returns the titles and texts of the summary without markup.
pub fn plain_rows(report: &Report) -> Vec<(&'static str, String)> {
    rows(report).into_iter().map(|(title, text)| (title, unmarked(&text))).collect()
}

fn rows(report: &Report) -> [(&'static str, String); 4] {
    [
        ("Asked", asked(report)),
        ("Result", result(report)),
        ("Cost", cost(report)),
        ("Needs attention", attention(report)),
    ]
}

/// Removes escapes and emphasis from Markdown. Code keeps its backticks, which are readable as they are.
fn unmarked(markdown: &str) -> String {
    let mut out = String::with_capacity(markdown.len());
    let mut in_code = false;
    let mut chars = markdown.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '`' => {
                in_code = !in_code;
                out.push(c);
            }
            '\\' if !in_code => out.extend(chars.next()),
            '*' if !in_code && chars.peek() == Some(&'*') => {
                chars.next();
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns the first line of the prompt, or the nodes of a graph.
pub fn asked(report: &Report) -> String {
    let view = report.view();
    let [node] = view.nodes.as_slice() else {
        let names: Vec<String> = view.nodes.iter().take(MAX_NODES).map(|n| code(n.name.as_str())).collect();
        let more = view.nodes.len().saturating_sub(MAX_NODES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return format!("{}: {}{more}.", words::count(view.nodes.len() as u64, "node"), names.join(", "));
    };
    let file = home::iteration_dir(&report.found.dir, &node.name, Iteration(1)).join("prompt.md");
    let text = prompt::read_at_most(&file, MAX_PROMPT).unwrap_or_default();
    let first = text.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
    match first {
        Some(line) => format!("\u{201c}{}\u{201d}", plain(line)),
        None => "the prompt is not in the record.".to_owned(),
    }
}

/// Returns how the run ended, what it changed, and the agent's last message.
fn result(report: &Report) -> String {
    let lasted = words::span(report.view().supervised(report.now().boot));
    let how = match &report.view().ended {
        Some(end) => {
            format!("**{}** after {lasted}: {}{}", words::result(end), plain(&end.reason), verified(end))
        }
        None if report.live => format!("**running** for {lasted} so far"),
        None => format!("**lost** after {lasted}: the run has not ended"),
    };
    let changed = report.changes.in_words().map_or_else(String::new, |changed| format!("; {changed}"));
    let said = match report.view().nodes.as_slice() {
        [node] => {
            report.summary.last_sessions.get(&node.name).map(words::said).filter(|said| !said.is_empty())
        }
        _ => None,
    };
    let said = said.map_or_else(String::new, |said| {
        format!("; the agent says: \"{}\"", plain(said.trim_end_matches('.')))
    });
    format!("{how}{changed}{said}.")
}

fn verified(end: &RunEnded) -> &'static str {
    match (end.outcome, end.verified) {
        (_, true) => " (verified by checks)",
        (Outcome::Clean | Outcome::CleanWithFlake, false) => " (no checks, so not verified)",
        (_, false) => "",
    }
}

fn cost(report: &Report) -> String {
    let view = report.view();
    let waited = report.summary.waits.iter().fold(Dur::ZERO, |sum, waits| sum.saturating_add(waits.lasted));
    let waited =
        if waited > Dur::ZERO { format!(", of it {} waiting", words::span(waited)) } else { String::new() };
    let lasted = words::span(view.supervised(report.now().boot));
    format!("{}; {lasted}{waited}; {}.", counts(&view.totals(), report.unfinished()), spent(&report.spent()))
}

fn attention(report: &Report) -> String {
    let summary = &report.summary;
    let mut parts = Vec::new();
    if report.view().ended.is_none() && !report.live {
        parts.push(format!("the supervisor died; continue the run with `dogwatch resume {}`", report.tail()));
    }
    let failed: Vec<&NodeView> = failed_nodes(report).collect();
    if report.view().nodes.len() > 1 && !failed.is_empty() {
        let names: Vec<String> = failed.iter().take(MAX_NODES).map(|n| escaped(n.name.as_str())).collect();
        parts.push(format!("not done: {}", names.join(", ")));
    }
    parts.extend(summary.failing.values().take(MAX_NODES).map(failing));
    parts.extend(report.view().nodes.iter().filter_map(|n| failed_iterations(report, n)).take(MAX_NODES));
    if let Some(last) = summary.hard_stops().last() {
        let count = words::count(summary.hard_stops().count() as u64, "hard stop");
        parts.push(format!("{count}, latest: {}", plain(&verdict(last))));
    }
    if let Some(row) = summary.troubles.iter().last() {
        let count = words::count(summary.troubles.count(), "problem");
        parts.push(format!("{count}, latest: {}", row_of_trouble(row)));
    }
    if let Some(problem) = &report.record_problem {
        parts.push(format!("**{}**", plain(problem)));
    }
    if parts.is_empty() { "nothing.".to_owned() } else { format!("{}.", parts.join("; ")) }
}

/// Returns the failed iterations of a node, unless it has completed one since.
fn failed_iterations(report: &Report, node: &NodeView) -> Option<String> {
    let has_failed = matches!(node.last.ending, Some(Ending::Failed | Ending::AuthFailed));
    let last = node.last.end.as_ref().filter(|_| has_failed)?;
    let count = words::count(node.counts.failed, "failed iteration");
    let which = report.turn(&node.name, last.iteration);
    Some(format!("{count}, latest: {which}: {}", plain(last.because.trim_end_matches('.'))))
}

fn failed_nodes(report: &Report) -> impl Iterator<Item = &NodeView> {
    report.view().nodes.iter().filter(|n| matches!(n.state, NodeState::Failed | NodeState::Blocked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_without_markup_keeps_the_words_of_the_agent() {
        let text = format!("**clean**: {}; {}", plain("a*b_c [x]"), code("grep '\\.rs' *"));
        assert_eq!(unmarked(&text), "clean: a*b_c [x]; `grep '\\.rs' *`");
    }
}
