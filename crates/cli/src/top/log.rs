//! Formats events as lines of a list, and keeps the evidence of verdicts.

use crate::local;
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::words::{Style, Tone, Weight};
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
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    pub fn apply(&mut self, recorded: &Recorded) {
        if let Event::RunStarted(started) = &recorded.event {
            self.graph = started.nodes.len() > 1;
        }
        let sentence = local::sentence(&recorded.event, Style::Full);
        if sentence.weight == Weight::Progress {
            return;
        }
        let text = match recorded.event.node().filter(|_| self.graph) {
            Some(node) => printable(&format!("{node}: {}", sentence.text)).into_owned(),
            None => sentence.text,
        };
        let verdict = match &recorded.event {
            Event::HardStop { evidence_summary, active_channel, .. }
            | Event::WatchdogContinue { evidence_summary, active_channel, .. } => {
                Some(Verdict { evidence: evidence_summary.clone(), active: *active_channel })
            }
            _ => None,
        };
        let text = dogwatch_core::text::clip(&text, MAX_ENTRY_BYTES).to_owned();
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
            self.cut += 1;
        }
        self.entries.push_back(Entry {
            seq: recorded.seq,
            at: recorded.at,
            tone: sentence.tone,
            text,
            verdict,
        });
    }

    /// Returns the position of the entry with this sequence number, or of the last one before it.
    pub fn position(&self, seq: u64) -> usize {
        self.entries.partition_point(|e| e.seq <= seq).saturating_sub(1)
    }
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
    fn foreign_text_is_one_line_without_control_characters() {
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
