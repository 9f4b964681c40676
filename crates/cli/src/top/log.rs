//! Formats events as lines of a list, and keeps the evidence of verdicts.

use crate::screen::event_node::event_node;
use crate::screen::{Tone, words};
use dogwatch_core::record::event::{Event, IterationEnd, Recorded, WaitEndedBy};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::text::printable;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::{Channel, Evidence};
use std::collections::VecDeque;

/// The most lines to keep per run. Older lines are dropped.
pub const MAX_ENTRIES: usize = 5_000;
/// The longest line, in bytes.
const MAX_ENTRY_BYTES: usize = 500;

/// A line of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub seq: u64,
    pub at: Wall,
    pub tone: Tone,
    pub text: String,
    pub verdict: Option<Verdict>,
}

/// The evidence of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub evidence: Vec<Evidence>,
    pub active: Option<Channel>,
}

/// The lines of one run.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub entries: VecDeque<Entry>,
    /// The number of lines that were dropped.
    pub cut: u64,
    /// The run has several nodes, so lines start with the name of their node.
    graph: bool,
}

impl Log {
    /// Adds a recorded event to the list.
    pub fn apply(&mut self, recorded: &Recorded) {
        if let Event::RunStarted(started) = &recorded.event {
            self.graph = started.nodes.len() > 1;
        }
        let Some((tone, text)) = sentence(&recorded.event) else { return };
        let text = match node_of(&recorded.event) {
            Some(node) if self.graph => format!("{node}: {text}"),
            _ => text,
        };
        let verdict = match &recorded.event {
            Event::HardStop { evidence_summary, active_channel, .. }
            | Event::WatchdogContinue { evidence_summary, active_channel, .. } => {
                Some(Verdict { evidence: evidence_summary.clone(), active: *active_channel })
            }
            _ => None,
        };
        // The text may come from an agent, so it is cleaned before it reaches the terminal.
        let text = printable(&text).replace(['\n', '\t'], " ");
        let text = dogwatch_core::text::clip(&text, MAX_ENTRY_BYTES).to_owned();
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
            self.cut += 1;
        }
        self.entries.push_back(Entry { seq: recorded.seq, at: recorded.at, tone, text, verdict });
    }

    /// Returns the position of the entry with this sequence number, or of the last one before it.
    pub fn position(&self, seq: u64) -> usize {
        self.entries.partition_point(|e| e.seq <= seq).saturating_sub(1)
    }
}

/// Returns the node of an event, unless its line already names the node.
fn node_of(event: &Event) -> Option<&NodeName> {
    let says_so = matches!(event, Event::NodeTransition { .. } | Event::SnapshotTaken { .. });
    event_node(event).filter(|_| !says_so)
}

fn ended(word: &str, end: &IterationEnd) -> String {
    format!("iteration {} {}", end.iteration, words::ended(word, end.duration_s, Some(&end.because)))
}

/// Formats an event as one line. Returns `None` for events that only a replay needs.
fn sentence(event: &Event) -> Option<(Tone, String)> {
    Some(match event {
        Event::RunStarted(s) => (Tone::Head, format!("run {} started: {}", s.run, s.agent)),
        Event::RunResumed(s) => (Tone::Head, format!("run resumed by a new supervisor (pid {})", s.pid)),
        Event::NodeTransition { node, from, to, reason } => {
            let why = reason.as_ref().map_or_else(String::new, |r| format!(" ({r})"));
            (Tone::Quiet, format!("{node}: {from} → {to}{why}"))
        }
        Event::IterationStarted { iteration, cause, .. } => {
            (Tone::Head, format!("iteration {iteration} started ({cause})"))
        }
        Event::CommandFinished(c) => (Tone::Quiet, format!("command {}", words::command(c))),
        Event::SessionStarted { pid, argv, .. } => {
            (Tone::Plain, format!("session started (pid {pid}): {}", argv.join(" ")))
        }
        Event::NeedsHuman { what, .. } => (Tone::Bad, format!("{}: {what}", words::NEEDS_HUMAN)),
        Event::NeedsHumanEnded { by, .. } => (Tone::Quiet, format!("no human input needed any more ({by})")),
        Event::AgentRetrying { status, delay_s, .. } => (Tone::Quiet, words::retrying(*status, *delay_s)),
        Event::AgentDrifted { .. } => (Tone::Quiet, words::DRIFTED.to_owned()),
        Event::WatchdogContinue { deferred_by, .. } => {
            (Tone::Quiet, format!("idle timeout deferred by activity on {deferred_by}"))
        }
        Event::Suspended { for_s, .. } => (Tone::Quiet, format!("suspended for {for_s} (not counted)")),
        Event::MarkerSeen { state, .. } => (Tone::Plain, format!("agent state: {state}")),
        Event::HardStop { reason, message, .. } => (Tone::Bad, format!("hard stop: {message} [{reason}]")),
        Event::SessionSignalled { step, ended_by, .. } => {
            (Tone::Quiet, format!("{step} sent (by {ended_by})"))
        }
        Event::SessionEnded(s) => {
            let said = words::said(s);
            let said = if said.is_empty() { String::new() } else { format!(": \"{said}\"") };
            (Tone::Plain, format!("session ended, {}{said}", words::session(s)))
        }
        Event::SnapshotTaken { name, .. } => (Tone::Quiet, format!("snapshot taken: {name}")),
        Event::CheckTampered { files, .. } => {
            (Tone::Bad, format!("pinned files changed: {}", files.join(", ")))
        }
        Event::NodeAttempt(attempt) => {
            let failed = attempt.results.iter().filter(|r| r.rc != 0).map(|r| r.cmd.as_str());
            let failed: Vec<&str> = failed.collect();
            if attempt.converged {
                (Tone::Good, format!("{} passed", words::count(attempt.results.len() as u64, "check")))
            } else {
                (Tone::Bad, format!("checks failed: {}", failed.join("; ")))
            }
        }
        Event::IterationCompleted(end) => (Tone::Good, ended("completed", end)),
        Event::IterationIdle { end, reason, consecutive, skipped, .. } => {
            let called = if *skipped { ", agent not called" } else { "" };
            let nth = words::nth(*consecutive);
            (Tone::Quiet, format!("iteration {} idle ({nth} in a row, {reason}){called}", end.iteration))
        }
        Event::IterationFailed(end) => (Tone::Bad, ended("failed", end)),
        Event::IterationTimedOut(end) => (Tone::Bad, ended("timed out", end)),
        Event::IterationRateLimited { end, .. } => (Tone::Quiet, ended("rate limited", end)),
        Event::IterationAuthFailed(end) => (Tone::Bad, ended("not logged in", end)),
        Event::IterationInterrupted { end, .. } => (Tone::Bad, ended("interrupted", end)),
        Event::RecoveryPlanned(plan) => {
            (Tone::Plain, format!("recovery ({}): {}", plan.action, plan.because))
        }
        Event::PartialKept { file, .. } => (Tone::Plain, format!("partial result kept in {file}")),
        Event::WaitStarted { why, delay_s, .. } => {
            let long = delay_s.map_or_else(String::new, |d| format!(" for {}", words::length(d)));
            (Tone::Quiet, format!("waiting ({}){long}", words::wait(*why)))
        }
        Event::WaitEnded { by: WaitEndedBy::Timer, .. } => return None,
        Event::WaitEnded { by, .. } => (Tone::Plain, words::wait_ended(*by)),
        Event::RunSlept { reason, consecutive, .. } => (Tone::Plain, words::slept(reason, *consecutive)),
        Event::WakeRemembered { by, .. } => {
            (Tone::Quiet, format!("woken ({by}) during a session; the next wait will be skipped"))
        }
        Event::Paused {} => (Tone::Plain, "pause requested".to_owned()),
        Event::Unpaused {} => (Tone::Plain, "pause ended".to_owned()),
        Event::MessageReceived { text, from } => (Tone::Plain, format!("message: {}", from.label(text))),
        Event::Notice { kind, message } => (Tone::Quiet, format!("{message} [{kind}]")),
        Event::Trouble { kind, detail } => (Tone::Bad, format!("trouble: {detail} [{kind}]")),
        Event::Notified { key, how, ok, .. } => {
            let sent = if *ok { "sent" } else { "failed" };
            (Tone::Quiet, format!("notification {sent} by {how}: {key}"))
        }
        Event::RunEnded(end) => {
            let tone = if end.exit_code == 0 { Tone::Good } else { Tone::Bad };
            (tone, format!("ended: {}: {}, exit code {}", end.outcome, end.reason, end.exit_code))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::run::caller::Source;
    use dogwatch_core::time::moment::Moment;

    fn message(seq: u64, text: &str) -> Recorded {
        Recorded::new(
            seq,
            Moment::default(),
            Event::MessageReceived { text: text.to_owned(), from: Source::Operator },
        )
    }

    // promise: 8
    #[test]
    fn what_others_say_is_one_line_without_control() {
        let mut log = Log::default();
        log.apply(&message(1, "a\u{1b}[2Jb\nc\td\u{7}\u{202e}"));
        assert_eq!(log.entries[0].text, "operator message: ab c d\u{fffd}\u{fffd}");
        log.apply(&message(2, &"é".repeat(1000)));
        assert!(log.entries[1].text.len() <= MAX_ENTRY_BYTES);
    }

    #[test]
    fn a_long_run_keeps_its_latest_lines() {
        let mut log = Log::default();
        for seq in 1..=MAX_ENTRIES as u64 + 1 {
            log.apply(&message(seq, "x"));
        }
        assert_eq!((log.entries.len(), log.cut), (MAX_ENTRIES, 1));
        assert_eq!((log.position(2), log.position(0), log.position(u64::MAX)), (0, 0, MAX_ENTRIES - 1));
    }
}
