//! What was seen on each channel, and how old it is.

use crate::event::{Observation, words};
use crate::moment::Awake;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// Where work can be seen.
    Channel { Stdout = "stdout", McpTool = "mcp_tool", Subagent = "subagent", Workspace = "workspace" }
}

/// The state of one channel at the moment of a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub channel: Channel,
    /// Seconds since the session's start; null if never seen.
    pub last_at: Option<f64>,
    pub age_seconds: Option<f64>,
    pub counter: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    last: Option<Awake>,
    count: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Channels([Seen; Channel::ALL.len()]);

impl Channels {
    pub fn observe(&mut self, seen: &Observation) {
        let slot = &mut self.0[seen.channel as usize];
        slot.last = slot.last.max(Some(seen.last_ms));
        slot.count = slot.count.saturating_add(seen.count);
    }

    pub fn freshest(&self) -> Option<Channel> {
        let seen = Channel::ALL.iter().filter_map(|c| Some((self.0[*c as usize].last?, *c)));
        // Of equals the first channel counts: stdout is what people look for.
        seen.rev().max_by_key(|(last, _)| *last).map(|(_, c)| c)
    }

    pub fn summary(&self, started: Awake, now: Awake) -> Vec<Evidence> {
        Channel::ALL
            .iter()
            .map(|channel| {
                let Seen { last, count } = self.0[*channel as usize];
                Evidence {
                    channel: *channel,
                    last_at: last.map(|l| l.since(started).as_secs_f64()),
                    age_seconds: last.map(|l| now.since(l).as_secs_f64()),
                    counter: count,
                }
            })
            .collect()
    }
}
