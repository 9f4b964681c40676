//! The sessions of a run with their usage. No event ends a session whose supervisor was lost, so everything that adds up
//! sessions folds them here.

use super::event::{Event, Recorded, Usage};
use super::ids::NodeName;
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Wall};
use std::collections::BTreeMap;

/// A session, as far as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// The node.
    pub node: NodeName,
    /// The agent's index in the chain of agents.
    pub agent: u32,
    /// When its usage was recorded: by its start, its latest report or its end.
    pub at: Wall,
    /// How long it lasted. The record shows an interrupted session only until its last event.
    pub lasted: Dur,
    /// The usage.
    pub usage: Usage,
    /// The model, if it is known.
    pub model: Option<String>,
    /// The date of the price table, if the cost was computed.
    pub prices: Option<String>,
}

/// Finds the sessions of a run in its events.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    /// The open sessions and when they started. A node has one at a time.
    open: BTreeMap<NodeName, (Awake, Session)>,
}

impl Sessions {
    /// Takes the next event and returns the sessions that are over with it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    pub fn apply(&mut self, recorded: &Recorded) -> Vec<Session> {
        let (at, awake) = (recorded.at, recorded.awake_ms);
        if let Some((began, open)) = recorded.event.node().and_then(|node| self.open.get_mut(node)) {
            open.lasted = awake.since(*began);
        }
        match &recorded.event {
            Event::SessionStarted { node, agent, .. } => {
                let session = Session {
                    node: node.clone(),
                    agent: *agent,
                    at,
                    lasted: Dur::ZERO,
                    usage: Usage::default(),
                    model: None,
                    prices: None,
                };
                self.open.insert(node.clone(), (awake, session));
            }
            Event::Used { node, usage, .. } => {
                if let Some((_, open)) = self.open.get_mut(node) {
                    (open.at, open.usage) = (at, *usage);
                }
            }
            Event::SessionEnded(s) => {
                let open = self.open.remove(&s.node);
                return vec![Session {
                    node: s.node.clone(),
                    agent: open.map_or(0, |(_, open)| open.agent),
                    at,
                    lasted: s.duration_s,
                    usage: s.usage(),
                    model: s.model.clone(),
                    prices: s.prices.clone(),
                }];
            }
            Event::RunResumed(_) => return self.interrupt(),
            _ => {}
        }
        Vec::new()
    }

    /// Returns the sessions that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &Session> {
        self.open.values().map(|(_, session)| session)
    }

    /// Ends the open sessions, whose supervisor was lost, and returns them.
    fn interrupt(&mut self) -> Vec<Session> {
        std::mem::take(&mut self.open).into_values().map(|(_, session)| session).collect()
    }
}
