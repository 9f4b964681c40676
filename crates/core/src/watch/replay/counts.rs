//! Counts the facts of one session.

use crate::record::hash;
use crate::watch::{Channel, Fact, MAX_REMEMBERED};
use std::collections::{BTreeMap, BTreeSet};

/// The counts of a session so far.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The number of messages.
    pub messages: u64,
    /// The number of tool calls.
    pub tools: u64,
    /// The number of errors.
    pub errors: u64,
    /// How often each kind of limit was exercised.
    pub exercised: Exercised,
    subagents: u64,
    delegating_calls: u64,
    /// The calls in flight, by the hash of their ids, and whether they delegate.
    open: BTreeMap<u64, bool>,
    failures: BTreeSet<u64>,
}

/// How often a session exercised each kind of limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exercised {
    /// The gaps between two records of progress on stdout, without an ordinary call in flight.
    pub gaps: u64,
    /// The ordinary calls that ended.
    pub calls: u64,
    /// The delegating calls, or subagents, that ended.
    pub delegations: u64,
    /// Whether a structured agent printed its first line.
    pub started: bool,
}

impl Counts {
    /// Counts a fact that the watchdog has taken.
    pub fn note(&mut self, fact: &Fact) {
        match fact {
            Fact::Printed => self.exercised.started = true,
            Fact::Observed(seen) => {
                self.messages = self.messages.saturating_add(seen.messages);
                self.note_gap(seen.channel == Channel::Stdout);
            }
            Fact::ToolStarted(tool) => {
                self.note_gap(!tool.heartbeat);
                let new = self.open.insert(hash::bytes(tool.id.as_bytes()), tool.delegates).is_none();
                self.tools += u64::from(new);
            }
            Fact::ToolEnded { id, ok, error, heartbeat, canceled, .. } => {
                self.note_gap(!heartbeat);
                let id = hash::bytes(id.as_bytes());
                match self.open.remove(&id) {
                    Some(true) => self.delegating_calls += 1,
                    Some(false) => self.exercised.calls += u64::from(!heartbeat),
                    None => {}
                }
                let failure = || hash::mix(id, hash::bytes(error.as_bytes()));
                if self.failures.len() >= MAX_REMEMBERED {
                    self.failures.clear();
                }
                self.errors += u64::from(!ok && !canceled && self.failures.insert(failure()));
            }
            Fact::Error { .. } => self.errors += 1,
            Fact::SubagentEnded { .. } => self.subagents += 1,
            Fact::Repeated
            | Fact::SubagentStarted { .. }
            | Fact::Sampled { .. }
            | Fact::NeedsHuman { .. }
            | Fact::Suspended { .. } => {}
        }
        // Some agents report both a subagent and the call that started it.
        self.exercised.delegations = self.subagents.max(self.delegating_calls);
    }

    /// Counts a gap that progress on stdout ended. With an ordinary call in flight, `idle` did not apply to the gap.
    fn note_gap(&mut self, progress: bool) {
        let in_flight = self.open.values().any(|delegates| !delegates);
        self.exercised.gaps += u64::from(progress && !in_flight);
    }
}
