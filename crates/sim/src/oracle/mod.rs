//! A second implementation of the watchdog's table, written from its description alone. It has no state: it derives every
//! verdict from the complete list of facts in the simplest way. It shares only the types of the facts with the real one.
//! It is slow on purpose.
//!
//! All times must be multiples of `CELL`, because waiting on children is counted cell by cell.
#![allow(clippy::wildcard_enum_match_arm, reason = "each row looks at a few facts")]

mod rows;

use dogwatch_core::settings::{Ttl, WatchPolicy};
use dogwatch_core::watch::{Channel, Fact, StopReason, ToolStarted};
use std::collections::{BTreeMap, BTreeSet};

/// The time grid, in milliseconds.
pub const CELL: u64 = 1_000;

/// The facts with their times in milliseconds since the session's start.
pub type TimedFacts = Vec<(u64, Fact)>;

/// The oracle's verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum OracleVerdict {
    /// The session must be stopped.
    Stop(StopReason),
    /// Continue, with a notice.
    Notice,
    /// Continue. The channels are those whose evidence lasts longest, if a stop is deferred.
    Continue(Vec<Channel>),
}

/// The oracle for one session.
pub struct Oracle<'a> {
    /// The limits.
    pub policy: &'a WatchPolicy,
    /// Whether the agent's output is structured.
    pub structured: bool,
    /// The known facts.
    pub facts: &'a [(u64, Fact)],
}

/// A stretch of progress in the watch's own time.
#[derive(Clone, Copy, Debug)]
struct Piece {
    channel: Channel,
    first: u64,
    last: u64,
    max_gap: u64,
}

/// A call in flight.
#[derive(Clone, Debug)]
struct Call {
    what: u64,
    since: u64,
    /// The number of the fact that started it.
    began: usize,
    cap: Option<u64>,
    delegates: bool,
    mcp: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tree {
    Untouched,
    Known(u64),
    /// An unknown state, different from every other.
    Unknown(usize),
}

/// A finished call with its result.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ended {
    what: u64,
    result: u64,
    ok: bool,
    tree: Tree,
}

/// A finished call with its position among the facts.
#[derive(Clone, Copy, Debug)]
struct Placed {
    at: u64,
    began: usize,
    number: usize,
    what: Ended,
}

impl<'a> Oracle<'a> {
    /// Returns the verdict at this moment from all facts.
    pub fn verdict(&self, now: u64) -> OracleVerdict {
        let now = now - self.frozen(self.facts.len());
        if let Some(reason) = self.first_row(now) {
            return OracleVerdict::Stop(reason);
        }
        match self.errors(now).1 {
            true => OracleVerdict::Notice,
            false => OracleVerdict::Continue(self.deferred_by(now)),
        }
    }

    fn first_row(&self, now: u64) -> Option<StopReason> {
        let fires = |reason, fired: bool| fired.then_some(reason);
        fires(StopReason::SessionCeilingExceeded, self.session(now))
            .or(fires(StopReason::ChildrenPersistTooLong, self.children(now)))
            .or(fires(StopReason::ErrorLoop, self.errors(now).0))
            .or(fires(StopReason::Repetition, self.repetition(now)))
            .or(fires(StopReason::ToolCeilingExceeded, self.tool(now)))
            .or(fires(StopReason::NoOutputAtStart, self.start(now)))
            .or(fires(StopReason::NoOutputDeadline, self.silence(now)))
            .or(fires(StopReason::HumanDeadlineExceeded, self.unanswered(now)))
    }

    /// Returns how long the clocks were stopped, from the first `n` facts.
    fn frozen(&self, n: usize) -> u64 {
        let spans = self.facts[..n].iter().map(|(_, fact)| match fact {
            Fact::Suspended { for_ms } => *for_ms,
            _ => 0,
        });
        spans.sum()
    }

    /// Returns every fact with its time on the watch's clock.
    fn watched_facts(&self) -> Vec<(u64, &'a Fact)> {
        let mut frozen = 0;
        let mut inner = |(at, fact): &'a (u64, Fact)| {
            if let Fact::Suspended { for_ms } = fact {
                frozen += for_ms;
            }
            (at - frozen, fact)
        };
        self.facts.iter().map(&mut inner).collect()
    }

    /// Returns all progress in the order of the facts.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let single = |channel, at| Piece { channel, first: at, last: at, max_gap: 0 };
        for (n, (at, fact)) in self.watched_facts().into_iter().enumerate() {
            match fact {
                Fact::Observed(o) => {
                    let frozen = self.frozen(n);
                    let (first, last) = (o.first_ms.0 - frozen, o.last_ms.0 - frozen);
                    pieces.push(Piece { channel: o.channel, first, last, max_gap: o.max_gap_ms });
                }
                // A heartbeat is not progress.
                Fact::ToolStarted(ToolStarted { heartbeat: true, .. })
                | Fact::ToolEnded { heartbeat: true, .. } => {}
                // A repeated line counts if the work tree changed or CPU was used since the last progress.
                Fact::Repeated => {
                    let last = |of| pieces.iter().filter(|p: &&Piece| p.channel == of).map(|p| p.last).max();
                    let spoke = last(Channel::Stdout).unwrap_or(0);
                    let moved = last(Channel::Workspace).is_some_and(|at| at > spoke);
                    let sampled = self.samples(n).last().is_some_and(|(at, ..)| *at > spoke);
                    if moved || (sampled && self.works_after(n)) {
                        pieces.push(single(Channel::Stdout, at));
                    }
                }
                Fact::ToolStarted(tool) => {
                    pieces.push(single(Channel::Stdout, at));
                    pieces.extend(tool.mcp.then(|| single(Channel::McpTool, at)));
                }
                Fact::ToolEnded { id, .. } => {
                    pieces.push(single(Channel::Stdout, at));
                    let mcp = self.open(n).get(id).is_some_and(|call| call.mcp);
                    pieces.extend(mcp.then(|| single(Channel::McpTool, at)));
                }
                _ => {}
            }
        }
        pieces
    }

    /// Returns how long evidence of these pieces stays fresh after the first `n` facts. While a delegating call or a
    /// subagent is open, this is the idle limit.
    fn ttl(&self, pieces: &[Piece], n: usize) -> u64 {
        if let Ttl::Fixed(ttl) = self.policy.evidence_ttl {
            return ttl.as_millis();
        }
        if let Some(idle) = self.policy.idle.duration().filter(|_| self.delegates_after(n)) {
            return idle.as_millis();
        }
        let mut gaps = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            if n > 0 {
                gaps.push(piece.first.saturating_sub(pieces[n - 1].last));
            }
            if piece.max_gap > 0 {
                gaps.push(piece.max_gap);
            }
        }
        let longest = gaps.iter().rev().take(5).copied().max().unwrap_or(0);
        let ttl = (3 * longest).max(30_000);
        self.policy.idle.duration().map_or(ttl, |idle| ttl.min(idle.as_millis()))
    }

    fn on(&self, channel: Channel) -> Vec<Piece> {
        self.pieces().into_iter().filter(|p| p.channel == channel).collect()
    }

    /// Returns the calls in flight after the first `n` facts. A second start is the same call with better data.
    fn open(&self, n: usize) -> BTreeMap<String, Call> {
        let mut open: BTreeMap<String, Call> = BTreeMap::new();
        for (k, (at, fact)) in self.watched_facts().into_iter().take(n).enumerate() {
            match fact {
                // A heartbeat is not a call.
                Fact::ToolStarted(t) if t.heartbeat => {}
                Fact::ToolEnded { heartbeat: true, .. } => {}
                Fact::ToolStarted(t) => {
                    let (since, began) = open.get(&t.id).map_or((at, k), |call| (call.since, call.began));
                    let declared = t.timeout.map(|d| d.as_millis() + 60_000);
                    let limit = match declared {
                        None => self.policy.tools.get(&t.name).copied().unwrap_or(self.policy.tool),
                        Some(_) => self.policy.tool,
                    };
                    let cap = limit.duration().map(|d| declared.unwrap_or(d.as_millis()));
                    let (what, delegates, mcp) = (t.call, t.delegates, t.mcp);
                    let call = Call { what, since, began, cap, delegates, mcp };
                    open.insert(t.id.clone(), call);
                }
                Fact::ToolEnded { id, .. } => {
                    open.remove(id);
                }
                _ => {}
            }
        }
        open
    }

    fn subagents(&self, n: usize) -> BTreeSet<String> {
        let mut live = BTreeSet::new();
        for (_, fact) in &self.facts[..n] {
            match fact {
                Fact::SubagentStarted { id } => {
                    live.insert(id.clone());
                }
                Fact::SubagentEnded { id } => {
                    live.remove(id);
                }
                _ => {}
            }
        }
        live
    }

    /// Returns the samples as (time, children, CPU time).
    fn samples(&self, n: usize) -> Vec<(u64, u32, u64)> {
        let sample = |(at, fact): (u64, &Fact)| match fact {
            Fact::Sampled { children, cpu_ms } => Some((at, *children, *cpu_ms)),
            _ => None,
        };
        self.watched_facts().into_iter().take(n).filter_map(sample).collect()
    }
}
