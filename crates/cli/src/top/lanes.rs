//! The activity of a run on a time axis: a lane per channel, and lanes for sessions, waits, checks and verdicts. The
//! lanes are folded from the events and bounded in size: when a lane is full, neighboring stretches are merged.

use dogwatch_core::record::event::{EndingKind, Event, Recorded, WaitWhy};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::{Channel, Fact};
use std::collections::{BTreeMap, BTreeSet};

/// The most stretches in a lane. Beyond that, neighbors are merged.
pub const MAX_STRETCHES: usize = 4096;
/// The largest gap between stretches that are merged from the start, in milliseconds.
const FIRST_GRAIN: i64 = 250;

/// A period of activity, in milliseconds of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch<K> {
    pub from: i64,
    pub to: i64,
    pub kind: K,
    /// The amount of activity.
    pub weight: u64,
}

/// The result of a session. A greater value is more important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Session {
    Interrupted,
    Idle,
    Completed,
    /// The session is running, or its result is not known yet.
    Open,
    Limited,
    Failed,
}

/// A mark at one moment. A greater value is more important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    MessageReceived,
    Resumed,
    Deferred,
    Recovery,
    Trouble,
    NeedsHuman,
    HardStop,
    Ended,
}

/// The result of checks. A greater value is more important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Checked {
    Passed,
    Open,
    Failed,
}

/// The stretches of one lane, in order of time.
#[derive(Clone, Debug)]
pub struct Lane<K> {
    stretches: Vec<Stretch<K>>,
    grain: i64,
}

impl<K> Default for Lane<K> {
    fn default() -> Lane<K> {
        Lane { stretches: Vec::new(), grain: FIRST_GRAIN }
    }
}

impl<K: Copy + Ord> Lane<K> {
    /// Adds a stretch that ended after all others. An event that was written late does not break the order.
    fn add(&mut self, from: i64, to: i64, kind: K, weight: u64) {
        let to = to.max(from);
        match self.stretches.last_mut() {
            Some(last) if last.kind == kind && from - last.to <= self.grain => {
                last.to = last.to.max(to);
                last.from = last.from.min(from);
                last.weight = last.weight.saturating_add(weight);
            }
            _ => self.stretches.push(Stretch { from, to, kind, weight }),
        }
        while self.stretches.len() > MAX_STRETCHES {
            self.thin();
        }
    }

    /// Doubles the grain and merges the neighbors within it. A merged stretch keeps the greater kind.
    fn thin(&mut self) {
        self.grain = self.grain.saturating_mul(2);
        let mut joined: Vec<Stretch<K>> = Vec::with_capacity(self.stretches.len());
        for next in self.stretches.drain(..) {
            match joined.last_mut() {
                Some(last) if next.from - last.to <= self.grain && next.to - last.from <= 2 * self.grain => {
                    last.to = last.to.max(next.to);
                    last.kind = last.kind.max(next.kind);
                    last.weight = last.weight.saturating_add(next.weight);
                }
                _ => joined.push(next),
            }
        }
        self.stretches = joined;
    }

    /// Returns the greatest kind and the total weight in each of the `width` columns of a window.
    pub fn columns(&self, from: i64, to: i64, width: usize) -> Vec<Option<(K, u64)>> {
        let mut columns: Vec<Option<(K, u64)>> = vec![None; width];
        if width == 0 || to <= from {
            return columns;
        }
        let scale = width as f64 / (to - from) as f64;
        let column = |at: i64| (((at - from) as f64 * scale).max(0.0) as usize).min(width - 1);
        for s in self.stretches.iter().filter(|s| s.to >= from && s.from < to) {
            let (first, last) = (column(s.from), column(s.to));
            let share = (s.weight / (last - first + 1) as u64).max(1);
            for cell in &mut columns[first..=last] {
                *cell = Some(match *cell {
                    Some((kind, weight)) => (kind.max(s.kind), weight.saturating_add(share)),
                    None => (s.kind, share),
                });
            }
        }
        columns
    }
}

/// All lanes of a run.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// The first and the last event.
    pub first: Option<i64>,
    pub last: i64,
    pub channels: [Lane<()>; Channel::ALL.len()],
    pub sessions: Lane<Session>,
    pub waits: Lane<usize>,
    pub checks: Lane<Checked>,
    pub marks: Lane<Mark>,
    /// The start times of running sessions.
    open_sessions: BTreeMap<NodeName, i64>,
    /// Sessions that have ended but whose result is not known yet.
    ended_sessions: BTreeMap<NodeName, (i64, i64)>,
    open_waits: BTreeMap<NodeName, (i64, WaitWhy)>,
    open_checks: BTreeMap<NodeName, i64>,
    mcp_calls: BTreeSet<String>,
}

/// The most MCP calls without an end to remember.
const MAX_CALLS: usize = 256;

impl Lanes {
    /// Adds a recorded event to the lanes.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    pub fn apply(&mut self, recorded: &Recorded) {
        let at = recorded.at.0.max(self.last);
        self.first.get_or_insert(at);
        if let Some((kind, end)) = recorded.event.ending() {
            self.over(&end.node, session(kind));
        }
        match &recorded.event {
            Event::SessionStarted { node, .. } => {
                self.open_sessions.insert(node.clone(), at);
            }
            Event::SessionEnded(s) => {
                if let Some(from) = self.open_sessions.remove(&s.node) {
                    self.ended_sessions.insert(s.node.clone(), (from, at));
                }
            }
            Event::WaitStarted { node, why, .. } => {
                self.wait_over(node, at);
                self.open_waits.insert(node.clone(), (at, *why));
            }
            Event::WaitEnded { node, .. } => self.wait_over(node, at),
            Event::ChecksStarted { node, .. } => {
                self.open_checks.insert(node.clone(), at);
            }
            Event::NodeAttempt(attempt) => {
                let from = self.open_checks.remove(&attempt.node).unwrap_or(at);
                let kind = if attempt.converged { Checked::Passed } else { Checked::Failed };
                self.checks.add(from, at, kind, 1);
            }
            Event::Observed { seen, .. } | Event::Fact { fact: Fact::Observed(seen), .. } => {
                let wall = |ms: Awake| at - millis(recorded.awake_ms.since(ms));
                self.seen(seen.channel, wall(seen.first_ms), wall(seen.last_ms), seen.count);
            }
            Event::Fact { fact, .. } => self.fact(at, fact),
            Event::RunResumed(_) => self.resumed(at),
            Event::RunEnded(_) => {
                self.close(at);
                self.mark(at, Mark::Ended);
            }
            event => {
                if let Some(mark) = mark_of(event) {
                    self.mark(at, mark);
                }
            }
        }
        self.last = at;
    }

    /// Returns the lanes at this moment, with open stretches extended up to it.
    pub fn at(&self, now: i64) -> Lanes {
        let mut lanes = self.clone();
        let now = now.max(self.last);
        for from in self.open_sessions.values() {
            lanes.sessions.add(*from, now, Session::Open, 1);
        }
        for (from, to) in self.ended_sessions.values() {
            lanes.sessions.add(*from, *to, Session::Open, 1);
        }
        for (from, why) in self.open_waits.values() {
            lanes.waits.add(*from, now, *why as usize, 1);
        }
        for from in self.open_checks.values() {
            lanes.checks.add(*from, now, Checked::Open, 1);
        }
        lanes
    }

    fn over(&mut self, node: &NodeName, how: Session) {
        if let Some((from, to)) = self.ended_sessions.remove(node) {
            self.sessions.add(from, to, how, 1);
        }
    }

    fn wait_over(&mut self, node: &NodeName, at: i64) {
        if let Some((from, why)) = self.open_waits.remove(node) {
            self.waits.add(from, at, why as usize, 1);
        }
    }

    /// Adds a fact. The start and end of a tool are progress on stdout, and on `mcp_tool` if it is an MCP tool. A
    /// heartbeat is not progress.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    fn fact(&mut self, at: i64, fact: &Fact) {
        match fact {
            fact if fact.is_heartbeat() => {}
            Fact::ToolStarted(tool) => {
                self.seen(Channel::Stdout, at, at, 1);
                if tool.mcp {
                    self.seen(Channel::McpTool, at, at, 1);
                    if self.mcp_calls.len() < MAX_CALLS {
                        self.mcp_calls.insert(tool.id.clone());
                    }
                }
            }
            Fact::ToolEnded { id, .. } => {
                self.seen(Channel::Stdout, at, at, 1);
                if self.mcp_calls.remove(id) {
                    self.seen(Channel::McpTool, at, at, 1);
                }
            }
            Fact::SubagentStarted { .. } | Fact::SubagentEnded { .. } => {
                self.seen(Channel::Subagent, at, at, 1);
            }
            _ => {}
        }
    }

    fn seen(&mut self, channel: Channel, from: i64, to: i64, count: u64) {
        self.channels[channel as usize].add(from, to, (), count);
    }

    fn mark(&mut self, at: i64, mark: Mark) {
        self.marks.add(at, at, mark, 1);
    }

    /// Closes everything that was open when the previous supervisor was lost, at its last event.
    fn resumed(&mut self, at: i64) {
        self.close(self.last);
        self.mark(at, Mark::Resumed);
    }

    fn close(&mut self, at: i64) {
        for (_, from) in std::mem::take(&mut self.open_sessions) {
            self.sessions.add(from, at, Session::Interrupted, 1);
        }
        for (_, (from, to)) in std::mem::take(&mut self.ended_sessions) {
            self.sessions.add(from, to, Session::Interrupted, 1);
        }
        for (_, (from, why)) in std::mem::take(&mut self.open_waits) {
            self.waits.add(from, at, why as usize, 1);
        }
        self.mcp_calls.clear();
        self.open_checks.clear();
    }
}

fn millis(d: Dur) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

fn session(kind: EndingKind) -> Session {
    match kind {
        EndingKind::Completed => Session::Completed,
        EndingKind::Idle => Session::Idle,
        EndingKind::Failed | EndingKind::TimedOut | EndingKind::AuthFailed => Session::Failed,
        EndingKind::RateLimited => Session::Limited,
        EndingKind::Interrupted => Session::Interrupted,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
fn mark_of(event: &Event) -> Option<Mark> {
    Some(match event {
        Event::HardStop { .. } => Mark::HardStop,
        Event::WatchdogContinue { .. } => Mark::Deferred,
        Event::NeedsHuman { .. } => Mark::NeedsHuman,
        Event::Trouble { .. } => Mark::Trouble,
        Event::RecoveryPlanned(_) => Mark::Recovery,
        Event::MessageReceived { .. } => Mark::MessageReceived,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_merges_neighbors_and_keeps_the_total_weight() {
        let mut lane = Lane::default();
        for n in 0..3 * MAX_STRETCHES as i64 {
            lane.add(n * 1000, n * 1000 + 10, n % 2 == 0, 1);
        }
        assert!(lane.stretches.len() <= MAX_STRETCHES);
        let weight: u64 = lane.stretches.iter().map(|s| s.weight).sum();
        assert_eq!(weight, 3 * MAX_STRETCHES as u64);
        assert_eq!(lane.stretches[0].from, 0);
    }

    #[test]
    fn a_column_shows_the_greatest_kind_in_it() {
        let mut lane = Lane::default();
        lane.add(0, 1_000, Mark::MessageReceived, 1);
        lane.add(1_000, 1_000, Mark::HardStop, 1);
        lane.add(9_000, 9_000, Mark::Deferred, 1);
        let kinds: Vec<Option<Mark>> =
            lane.columns(0, 10_000, 5).into_iter().map(|c| c.map(|(kind, _)| kind)).collect();
        assert_eq!(kinds, [Some(Mark::HardStop), None, None, None, Some(Mark::Deferred)]);
        assert_eq!(lane.columns(20_000, 30_000, 3), [None; 3]);
        assert_eq!(lane.columns(5, 5, 3), [None; 3]);
        assert_eq!(lane.columns(0, 10, 0), []);
    }
}
