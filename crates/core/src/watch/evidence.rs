//! What was seen on each channel: how often, when last, with which gaps.

use crate::record::event::{Observation, words};
use crate::settings::Ttl;
use crate::time::dur::{Dur, Limit};
use crate::time::moment::Awake;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

words! {
    /// Where work can be seen.
    Channel { Stdout = "stdout", McpTool = "mcp_tool", Subagent = "subagent", Workspace = "workspace" }
}

/// The state of one channel at the moment of a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    pub channel: Channel,
    /// Seconds since the session's start; null if never seen.
    pub last_at: Option<f64>,
    pub age_seconds: Option<f64>,
    pub counter: u64,
}

/// The last gaps of a channel that its ttl is made from.
const GAPS: usize = 5;
/// A ttl that is made from gaps is never below this, and this many times the longest gap.
const TTL_FLOOR: Dur = Dur::from_secs(30);
const TTL_FACTOR: u64 = 3;

#[derive(Clone, Debug, Default)]
struct Seen {
    last: Option<Awake>,
    /// How far the clock of the session was ahead of the watch's then.
    ahead: u64,
    count: u64,
    gaps: VecDeque<u64>,
    /// The longest of them: asked far more often than one is added.
    longest: u64,
}

impl Seen {
    fn gap(&mut self, ms: u64) {
        if self.gaps.len() == GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back(ms);
        self.longest = self.gaps.iter().copied().max().unwrap_or(0);
    }
}

/// A stretch of progress, on the watch's own clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub channel: Channel,
    pub first: Awake,
    pub last: Awake,
    pub count: u64,
    pub max_gap_ms: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Channels([Seen; Channel::ALL.len()]);

impl Channels {
    /// Times are those of the watch, which stand still while nobody watched.
    pub fn observe(&mut self, piece: &Piece, ahead: u64) {
        let Piece { channel, first, last, count, max_gap_ms } = *piece;
        let seen = &mut self.0[channel as usize];
        seen.ahead = ahead;
        if let Some(before) = seen.last {
            seen.gap(first.since(before).as_millis());
        }
        if max_gap_ms > 0 {
            seen.gap(max_gap_ms);
        }
        seen.last = seen.last.max(Some(last));
        seen.count = seen.count.saturating_add(count);
    }

    pub fn last(&self, channel: Channel) -> Option<Awake> {
        self.0[channel as usize].last
    }

    /// How long this channel's evidence stays fresh.
    pub fn ttl(&self, channel: Channel, ttl: Ttl, idle: Limit) -> Dur {
        match ttl {
            Ttl::Fixed(d) => d,
            Ttl::Auto => {
                let auto = Dur::from_millis(self.0[channel as usize].longest)
                    .saturating_mul(TTL_FACTOR)
                    .max(TTL_FLOOR);
                idle.duration().map_or(auto, |idle| auto.min(idle))
            }
        }
    }

    /// The freshest channel; of equals the first: stdout is what people look for.
    pub fn freshest(&self) -> Option<Channel> {
        let seen = Channel::ALL.iter().filter_map(|c| Some((self.last(*c)?, *c)));
        seen.rev().max_by_key(|(last, _)| *last).map(|(_, c)| c)
    }

    pub fn summary(&self, started: Awake, now: Awake) -> Vec<Evidence> {
        Channel::ALL
            .iter()
            .map(|channel| {
                let Seen { last, ahead, count, .. } = &self.0[*channel as usize];
                Evidence {
                    channel: *channel,
                    last_at: last.map(|l| l.plus(Dur::from_millis(*ahead)).since(started).as_secs_f64()),
                    age_seconds: last.map(|l| now.since(l).as_secs_f64()),
                    counter: *count,
                }
            })
            .collect()
    }
}

impl Observation {
    /// A single piece of progress at one moment.
    pub fn single(channel: Channel, at: Awake) -> Observation {
        Observation { channel, first_ms: at, last_ms: at, count: 1, messages: 0, max_gap_ms: 0, digest: None }
    }
}
