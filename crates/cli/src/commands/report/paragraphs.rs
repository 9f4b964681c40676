//! The sections of a report that consist of sentences and lists.

use super::Report;
use super::markdown::{code, escaped, fenced, lines, plain};
use crate::local::clock;
use crate::screen::words;
use dogwatch_core::record::event::{CheckResult, NodeAttempt, NodeState};
use dogwatch_core::record::summary::{Attempted, Judged, Judgement, Row, What};
use dogwatch_core::record::view::NodeView;
use dogwatch_core::run::ending::Ending;
use dogwatch_host::store::home;

/// The most nodes to name.
const MAX_NODES: usize = 20;

/// Returns the title of the report.
pub fn title(report: &Report) -> String {
    let name = report.view().started.as_ref().map_or("?", |started| started.name());
    format!("Run {} of {}", report.found.id, escaped(name))
}

/// Returns a verdict in words.
pub fn verdict(judged: &Judged) -> String {
    match &judged.verdict {
        Judgement::Deferred { by } => format!("continued because of activity on {by}"),
        Judgement::HardStop { reason, message, .. } => format!("{message} [{reason}]"),
    }
}

/// Lists the verdicts of the watchdog.
pub fn verdicts(report: &Report) -> String {
    lines(&report.summary.verdicts, |judged| one_verdict(report, judged), |n| format!("\n… {n} more …\n\n"))
}

fn one_verdict(report: &Report, judged: &Judged) -> String {
    let what = match &judged.verdict {
        Judgement::Deferred { .. } => plain(&verdict(judged)),
        Judgement::HardStop { recoverable, .. } => {
            let suffix = if *recoverable { "" } else { ", not recoverable" };
            format!("**hard stop**{suffix}: {}", plain(&verdict(judged)))
        }
    };
    let mut text =
        format!("- {} {}: {what}\n", clock(judged.at), report.turn(&judged.node, judged.iteration));
    for e in &judged.evidence {
        let seen = match (e.last_at, e.age_seconds) {
            (Some(at), Some(age)) => {
                format!("last seen at {at:.1} s ({age:.1} s before the verdict), {} in total", e.counter)
            }
            (_, _) => "never seen".to_owned(),
        };
        let active = if judged.active_channel == Some(e.channel) { " (active)" } else { "" };
        text.push_str(&format!("  - {}{active}: {seen}\n", escaped(e.channel.as_str())));
    }
    text
}

/// Lists the failed checks of an attempt in a line.
pub fn failing(attempt: &NodeAttempt) -> String {
    let names: Vec<String> =
        failed_checks(attempt).map(|r| format!("{} ({})", code(&r.cmd), rc(r))).collect();
    format!("failing checks: {}", names.join(", "))
}

/// Returns the checks of an attempt that failed.
fn failed_checks(attempt: &NodeAttempt) -> impl Iterator<Item = &CheckResult> {
    attempt.results.iter().filter(|result| result.rc != 0)
}

/// Returns the result of a check in words.
fn rc(result: &CheckResult) -> String {
    match (result.timed_out, result.rc) {
        (true, _) => "timed out".to_owned(),
        (false, 0) => "passed".to_owned(),
        (false, rc) => format!("exit {rc}"),
    }
}

/// Lists the check results of every iteration, then the output of the checks that still fail.
pub fn checks(report: &Report) -> String {
    let mut text =
        lines(&report.summary.attempts, |a| one_attempt(report, a), |n| format!("\n… {n} more …\n\n"));
    for attempt in report.summary.failing.values().take(MAX_NODES) {
        for result in failed_checks(attempt) {
            let Some(tail) = &result.tail else { continue };
            let cut = if result.truncated { ", end of its output" } else { "" };
            let which = report.turn(&attempt.node, attempt.iteration);
            text.push_str(&format!("\n{} after {which}{cut}:\n\n{}", code(&result.cmd), fenced(tail)));
        }
    }
    text
}

fn one_attempt(report: &Report, attempted: &Attempted) -> String {
    let attempt = &attempted.attempt;
    let how = if attempt.converged { "passed" } else { "**failed**" };
    let counts = if attempt.uncounted { " (not counted)" } else { "" };
    let waited = match attempt.backoff_s {
        Some(backoff) => format!(", {} after the previous attempt", words::span(backoff)),
        None => String::new(),
    };
    let which = report.turn(&attempt.node, attempt.iteration);
    let took = words::span(attempt.duration_s);
    let mut text = format!("- {} {which}: {how} in {took}{waited}{counts}\n", clock(attempted.at));
    for result in &attempt.results {
        let flaky = if result.flaky { ", flaky: failed, then passed on the same work tree" } else { "" };
        let took = words::span(result.duration_s);
        let last = result.tail.as_deref().filter(|_| result.rc != 0);
        let last = last.map_or_else(String::new, |line| format!(": {}", plain(line)));
        text.push_str(&format!("  - {} {} in {took}{flaky}{last}\n", code(&result.cmd), rc(result)));
    }
    text
}

/// Lists the troubles.
pub fn troubles(report: &Report) -> String {
    let line = |row: &Row| format!("- {} {}\n", clock(row.at), row_of_trouble(row));
    lines(&report.summary.troubles, line, |n| format!("\n… {n} more …\n\n"))
}

/// Returns a problem in words.
pub fn row_of_trouble(row: &Row) -> String {
    match &row.what {
        What::Event { sentence, .. } => {
            plain(sentence.text.strip_prefix("trouble: ").unwrap_or(&sentence.text))
        }
        What::Turn(_) | What::Idle(_) | What::Waited { .. } => String::new(),
    }
}

/// Lists the nodes that are not done, with the agent's last message and the files that hold its work.
pub fn left(report: &Report) -> String {
    let done = |n: &&NodeView| n.state == NodeState::Done && n.iteration.0 > 0;
    let nodes: Vec<&NodeView> =
        report.view().nodes.iter().filter(|n| n.iteration.0 > 0 && !done(n)).take(MAX_NODES).collect();
    let mut text: String = nodes.iter().map(|node| left_by(report, node)).collect();
    for turn in report.summary.open.values().take(MAX_NODES) {
        let how = if report.live { "is running" } else { "was running when the supervisor died" };
        text.push_str(&format!("- {} {how}\n", report.turn(&turn.node, turn.iteration)));
    }
    text
}

fn left_by(report: &Report, node: &NodeView) -> String {
    let mut text = format!("- {}, {}", code(node.name.as_str()), node.state);
    // That the agent completed its last iteration does not explain why the node is not done.
    let end = node.last.end.as_ref().filter(|_| node.last.ending != Some(Ending::Completed));
    let why = [
        node.reason.as_deref().map(plain),
        end.map(|end| plain(&end.because)),
        report.summary.failing.get(&node.name).map(failing),
    ];
    let why: Vec<String> = why.into_iter().flatten().collect();
    if !why.is_empty() {
        text.push_str(&format!(": {}", why.join("; ")));
    }
    text.push('\n');
    if let Some(partial) = report.summary.partials.get(&node.name) {
        let file = report.found.dir.join(&partial.file);
        text.push_str(&format!("  partial result: {}\n", code(&file.display().to_string())));
    }
    let Some(session) = report.summary.last_sessions.get(&node.name) else { return text };
    if !session.said.is_empty() {
        text.push_str("  The agent's last message:\n\n");
        text.push_str(&indented(&fenced(&session.said)));
    }
    let dir = home::iteration_dir(&report.found.dir, &node.name, session.iteration);
    let kept = ["prompt.md", "stdout", "stderr"];
    let there: Vec<String> = kept.iter().filter(|f| dir.join(f).exists()).map(|f| code(f)).collect();
    if !there.is_empty() {
        text.push_str(&format!("\n  {} in {}\n", there.join(", "), code(&dir.display().to_string())));
    }
    let last = report.summary.snapshots.iter().rev().find(|s| s.node == node.name);
    if let Some(snapshot) = last {
        text.push_str(&format!("  work tree: {}\n", code(&snapshot.name)));
    }
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
