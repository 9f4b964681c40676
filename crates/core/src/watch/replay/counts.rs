//! Counts the facts of one session.

use crate::record::hash;
use crate::watch::{Fact, MAX_REMEMBERED};
use std::collections::BTreeSet;

/// The counts of a session so far.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The number of messages.
    pub messages: u64,
    /// The number of tool calls.
    pub tools: u64,
    /// The number of errors.
    pub errors: u64,
    /// The calls in flight, by the hash of their ids.
    open: BTreeSet<u64>,
    failures: BTreeSet<u64>,
}

impl Counts {
    /// Counts a fact that the watchdog has taken.
    pub fn note(&mut self, fact: &Fact) {
        match fact {
            Fact::Observed(seen) => self.messages = self.messages.saturating_add(seen.messages),
            Fact::ToolStarted(tool) => {
                self.tools += u64::from(self.open.insert(hash::bytes(tool.id.as_bytes())));
            }
            Fact::ToolEnded { id, ok, error, canceled, .. } => {
                let id = hash::bytes(id.as_bytes());
                self.open.remove(&id);
                let failure = || hash::mix(id, hash::bytes(error.as_bytes()));
                if self.failures.len() >= MAX_REMEMBERED {
                    self.failures.clear();
                }
                self.errors += u64::from(!ok && !canceled && self.failures.insert(failure()));
            }
            Fact::Error { .. } => self.errors += 1,
            Fact::Printed
            | Fact::Repeated
            | Fact::SubagentStarted { .. }
            | Fact::SubagentEnded { .. }
            | Fact::Sampled { .. }
            | Fact::NeedsHuman { .. }
            | Fact::Suspended { .. } => {}
        }
    }
}
