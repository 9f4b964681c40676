//! The evidence on each channel: how often progress was seen, when last, and with which gaps.

use crate::record::event::{Observation, words};
use crate::settings::Ttl;
use crate::time::dur::{Dur, Limit};
use crate::time::moment::Awake;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

words! {
    /// A channel on which work can be seen.
    #[derive(Default)]
    Channel {
        /// The agent's own output.
        #[default]
        Stdout = "stdout",
        /// Calls to MCP tools.
        McpTool = "mcp_tool",
        /// The agent's subagents.
        Subagent = "subagent",
        /// Changes of the work tree.
        Workspace = "workspace",
    }
}

/// The state of one channel at the moment of a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// The channel.
    pub channel: Channel,
    /// The time of the last progress, in seconds since the session's start. Null if there was none.
    pub last_at: Option<f64>,
    /// The age of the last progress in seconds. Null if there was none.
    pub age_seconds: Option<f64>,
    /// The number of pieces of progress.
    pub counter: u64,
}

/// The number of recent gaps that determine an automatic ttl.
const GAPS: usize = 5;
/// The shortest automatic ttl.
const TTL_FLOOR: Dur = Dur::from_secs(30);
/// An automatic ttl is this many times the longest recent gap.
const TTL_FACTOR: u64 = 3;

/// The evidence on one channel.
#[derive(Clone, Debug, Default)]
struct ChannelEvidence {
    last: Option<Awake>,
    /// How far the awake clock was ahead of the watch's clock at that time, in milliseconds.
    ahead: u64,
    count: u64,
    gaps: VecDeque<u64>,
    /// The longest of the gaps, cached because it is read far more often than a gap is added.
    longest: u64,
}

impl ChannelEvidence {
    fn gap(&mut self, ms: u64) {
        if self.gaps.len() == GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back(ms);
        self.longest = self.gaps.iter().copied().max().unwrap_or(0);
    }
}

/// A stretch of progress in the watch's own time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub channel: Channel,
    pub first: Awake,
    pub last: Awake,
    pub count: u64,
    pub max_gap_ms: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Channels([ChannelEvidence; Channel::ALL.len()]);

impl Channels {
    /// Adds a stretch of progress, in the watch's own time.
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

    /// Returns how long the evidence on a channel stays fresh.
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

    /// Returns the channel with the most recent evidence; the first of equals, so that stdout is preferred.
    pub fn freshest(&self) -> Option<Channel> {
        let seen = Channel::ALL.iter().filter_map(|c| Some((self.last(*c)?, *c)));
        seen.rev().max_by_key(|(last, _)| *last).map(|(_, c)| c)
    }

    pub fn summary(&self, started: Awake, now: Awake) -> Vec<Evidence> {
        Channel::ALL
            .iter()
            .map(|channel| {
                let ChannelEvidence { last, ahead, count, .. } = &self.0[*channel as usize];
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
    /// Creates the observation of a single piece of progress.
    pub fn single(channel: Channel, at: Awake) -> Observation {
        Observation { channel, first_ms: at, last_ms: at, count: 1, messages: 0, max_gap_ms: 0, digest: None }
    }
}
