//! Events as lines of a list, with the evidence of those that are verdicts.

use crate::screen::whose::whose;
use crate::screen::{Tone, words};
use dogwatch_core::event::{Event, IterationEnd, Recorded, WaitEndedBy};
use dogwatch_core::ids::NodeName;
use dogwatch_core::moment::Wall;
use dogwatch_core::text::printable;
use dogwatch_core::watch::{Channel, Evidence};
use std::collections::VecDeque;

/// The lines that are kept of a run; of a longer one the latest.
pub const MAX_ENTRIES: usize = 5_000;
/// Of one line.
const MAX_ENTRY_BYTES: usize = 500;

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub seq: u64,
    pub at: Wall,
    pub tone: Tone,
    pub text: String,
    pub verdict: Option<Verdict>,
}

/// What a verdict rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub evidence: Vec<Evidence>,
    pub active: Option<Channel>,
}

#[derive(Clone, Debug, Default)]
pub struct Log {
    pub entries: VecDeque<Entry>,
    /// Lines that are not kept any more.
    pub cut: u64,
    /// There is more than one node: lines say of which they speak.
    graph: bool,
}

impl Log {
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
        // Agents have a say in these lines: nothing of theirs reaches the terminal as it is.
        let text = printable(&text).replace(['\n', '\t'], " ");
        let text = dogwatch_core::text::clip(&text, MAX_ENTRY_BYTES).to_owned();
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
            self.cut += 1;
        }
        self.entries.push_back(Entry { seq: recorded.seq, at: recorded.at, tone, text, verdict });
    }

    /// Where the entry with this number stands, or the last before it.
    pub fn position(&self, seq: u64) -> usize {
        self.entries.partition_point(|e| e.seq <= seq).saturating_sub(1)
    }
}

/// The node that a line is about, if the line does not say so itself.
fn node_of(event: &Event) -> Option<&NodeName> {
    let says_so = matches!(event, Event::NodeTransition { .. } | Event::SnapshotTaken { .. });
    whose(event).filter(|_| !says_so)
}

fn ended(word: &str, end: &IterationEnd) -> String {
    format!("iteration {} {word} in {}: {}", end.iteration, words::span(end.duration_s), end.because)
}

/// An event in one line; none for those that only a replay needs.
fn sentence(event: &Event) -> Option<(Tone, String)> {
    Some(match event {
        Event::RunStarted(s) => (Tone::Head, format!("run {} began: {}", s.run, s.agent)),
        Event::RunResumed(s) => (Tone::Head, format!("a new dogwatch (pid {}) took the run up", s.pid)),
        Event::NodeTransition { node, from, to, reason } => {
            let why = reason.as_ref().map_or_else(String::new, |r| format!(" ({r})"));
            (Tone::Quiet, format!("{node}: {from} → {to}{why}"))
        }
        Event::IterationStarted { iteration, cause, .. } => {
            (Tone::Head, format!("iteration {iteration} began ({cause})"))
        }
        Event::CommandFinished(c) => (Tone::Quiet, format!("command {}", words::command(c))),
        Event::SessionStarted { pid, argv, .. } => {
            (Tone::Plain, format!("session began (pid {pid}): {}", argv.join(" ")))
        }
        Event::NeedsHuman { what, .. } => (Tone::Bad, format!("needs a person: {what}")),
        Event::NeedsHumanEnded { by, .. } => (Tone::Quiet, format!("needs a person no more ({by})")),
        Event::AgentRetrying { status, .. } => {
            let status = status.map_or_else(String::new, |s| format!(" after status {s}"));
            (Tone::Quiet, format!("its CLI tries again{status}"))
        }
        Event::AgentDrifted { .. } => (Tone::Quiet, "most of its lines are unknown".to_owned()),
        Event::WatchdogContinue { deferred_by, .. } => {
            (Tone::Quiet, format!("silence would have ended it; {deferred_by} deferred that"))
        }
        Event::Suspended { for_s } => (Tone::Quiet, format!("nobody watched for {for_s}; it does not count")),
        Event::MarkerSeen { state, .. } => (Tone::Plain, format!("the agent says {state}")),
        Event::HardStop { reason, message, .. } => (Tone::Bad, format!("hard stop: {message} [{reason}]")),
        Event::SessionSignalled { step, ended_by, .. } => {
            (Tone::Quiet, format!("{step} sent (by {ended_by})"))
        }
        Event::SessionEnded(s) => {
            let said = words::said(s);
            let said = if said.is_empty() { String::new() } else { format!(": \"{said}\"") };
            (Tone::Plain, format!("session ended, {}{said}", words::session(s)))
        }
        Event::SnapshotTaken { name, .. } => (Tone::Quiet, format!("work tree kept as {name}")),
        Event::CheckTampered { files, .. } => {
            (Tone::Bad, format!("what the checks rest on was changed: {}", files.join(", ")))
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
            let called = if *skipped { ", the agent was not called" } else { "" };
            let nth = words::nth(*consecutive);
            (Tone::Quiet, format!("iteration {} idle ({nth} in a row, {reason}){called}", end.iteration))
        }
        Event::IterationFailed(end) => (Tone::Bad, ended("failed", end)),
        Event::IterationTimedOut(end) => (Tone::Bad, ended("timed out", end)),
        Event::IterationRateLimited { end, .. } => (Tone::Quiet, ended("rate limited", end)),
        Event::IterationAuthFailed(end) => (Tone::Bad, ended("refused at login", end)),
        Event::IterationInterrupted { end, .. } => (Tone::Bad, ended("interrupted", end)),
        Event::RecoveryPlanned(plan) => {
            (Tone::Plain, format!("recovery ({}): {}", plan.action, plan.because))
        }
        Event::PartialKept { file, .. } => (Tone::Plain, format!("what there is was kept in {file}")),
        Event::WaitStarted { why, delay_s, .. } => {
            let long = delay_s.map_or_else(String::new, |d| format!(" for {}", words::length(d)));
            (Tone::Quiet, format!("waiting ({}){long}", words::wait(*why)))
        }
        Event::WaitEnded { by: WaitEndedBy::Timer, .. } => return None,
        Event::WaitEnded { by, .. } => (Tone::Plain, format!("woken ({by})")),
        Event::RunSlept { reason, consecutive, .. } => (Tone::Plain, words::slept(reason, *consecutive)),
        Event::WakeRemembered { by, .. } => {
            (Tone::Quiet, format!("woken ({by}) while at work: the next wait ends at once"))
        }
        Event::Paused {} => (Tone::Plain, "asked to pause".to_owned()),
        Event::Unpaused {} => (Tone::Plain, "the pause was lifted".to_owned()),
        Event::Told { text } => (Tone::Plain, format!("told: {text}")),
        Event::Notice { kind, message } => (Tone::Quiet, format!("{message} [{kind}]")),
        Event::Trouble { kind, detail } => (Tone::Bad, format!("trouble: {detail} [{kind}]")),
        Event::Notified { key, how, ok, .. } => {
            let not = if *ok { "" } else { "not " };
            (Tone::Quiet, format!("{not}told by {how}: {key}"))
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
    use dogwatch_core::moment::Moment;

    fn told(seq: u64, text: &str) -> Recorded {
        Recorded::new(seq, Moment::default(), Event::Told { text: text.to_owned() })
    }

    // promise: 8
    #[test]
    fn what_others_say_is_one_line_without_control() {
        let mut log = Log::default();
        log.apply(&told(1, "a\u{1b}[2Jb\nc\td\u{7}\u{202e}"));
        assert_eq!(log.entries[0].text, "told: ab c d\u{fffd}\u{fffd}");
        log.apply(&told(2, &"é".repeat(1000)));
        assert!(log.entries[1].text.len() <= MAX_ENTRY_BYTES);
    }

    #[test]
    fn of_a_long_run_the_latest_lines_are_kept() {
        let mut log = Log::default();
        for seq in 1..=MAX_ENTRIES as u64 + 1 {
            log.apply(&told(seq, "x"));
        }
        assert_eq!((log.entries.len(), log.cut), (MAX_ENTRIES, 1));
        assert_eq!((log.position(2), log.position(0), log.position(u64::MAX)), (0, 0, MAX_ENTRIES - 1));
    }
}
