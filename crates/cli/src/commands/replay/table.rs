//! Formats a replay as a table.

use crate::screen::words;
use dogwatch_core::text::printable;
use dogwatch_core::watch::replay::{IterationName, Replayed, SessionName, Summary, VerdictChange};
use std::fmt::Write;

/// Returns one line per change of the verdict and one per end of a session.
pub fn draw(replayed: &[Replayed]) -> String {
    let mut text = String::new();
    for session in replayed {
        let _ = match &session.summary.session {
            Some(SessionName::Iteration(IterationName { node, iteration })) => {
                writeln!(text, "{node}, iteration {iteration}")
            }
            Some(SessionName::Turn { turn }) => writeln!(text, "turn {turn}"),
            None => Ok(()),
        };
        for line in &session.lines {
            let _ = writeln!(text, "{:>10}  {:<9}  {}", clock(line.at_s), line.verdict, about(line));
        }
        let _ = writeln!(text, "{:>10}  {}", clock(session.summary.ended_at_s), end(&session.summary));
    }
    printable(&text).into_owned()
}

/// Formats a time as hours, minutes, seconds and tenths.
fn clock(seconds: f64) -> String {
    let tenths = (seconds * 10.0).floor() as u64;
    let (s, minutes) = (tenths / 10 % 60, tenths / 600);
    format!("{}:{:02}:{s:02}.{}", minutes / 60, minutes % 60, tenths % 10)
}

/// Returns the reason of a verdict and its message or evidence.
fn about(line: &VerdictChange) -> String {
    match (line.reason, line.deferred_by, &line.message) {
        (Some(reason), _, Some(message)) => format!("{reason}  {message}"),
        (None, Some(channel), _) => {
            let fresh = line.evidence_summary.iter().find(|e| e.channel == channel);
            let age = fresh.and_then(|e| e.age_seconds).unwrap_or(0.0);
            format!("deferred by {channel}, seen {age:.1}s ago")
        }
        (_, None, message) => message.clone().unwrap_or_default(),
        (Some(reason), Some(_), None) => reason.to_string(),
    }
}

/// Returns the outcome of a session and its counts.
fn end(summary: &Summary) -> String {
    let outcome = summary.outcome.unwrap_or("not ended");
    let reason = summary.reason.map(|reason| format!(" by {reason}")).unwrap_or_default();
    let counts = [(summary.messages, "message"), (summary.tools, "tool"), (summary.errors, "error")];
    format!("{outcome}{reason}; {}", counts.map(|(n, one)| words::count(n, one)).join(", "))
}
