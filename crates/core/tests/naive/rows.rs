//! The rows, one function each, in the order of the table.

use super::{CELL, Ended, Oracle, Piece, Placed, Tree};
use dogwatch_core::settings::Ttl;
use dogwatch_core::watch::{Channel, Fact};
use std::collections::{BTreeMap, BTreeSet};

impl Oracle<'_> {
    /// Row 1: the session has lasted that long.
    pub(super) fn session(&self, now: u64) -> bool {
        self.policy.session.duration().is_some_and(|limit| now >= limit.as_millis())
    }

    /// Row 2: so much time was spent waiting on children without progress.
    pub(super) fn children(&self, now: u64) -> bool {
        let Some(limit) = self.policy.children.duration() else { return false };
        if (0..=self.told.len()).all(|n| !self.waits_after(n)) {
            return false;
        }
        let pieces = self.pieces();
        let cells = (0..now).step_by(usize::try_from(CELL).expect("small"));
        let waited: u64 = cells
            .filter(|s| {
                let n = self.told_by(*s);
                self.waits_after(n) && !Channel::ALL.iter().any(|c| self.is_fresh_at(&pieces, *c, *s, n))
            })
            .map(|s| CELL.min(now - s))
            .sum();
        waited >= limit.as_millis()
    }

    /// A delegating call open, a subagent started and not ended, or children alive in the last sample while
    /// no ordinary tool is in flight.
    fn waits_after(&self, n: usize) -> bool {
        let open = self.open(n);
        let ordinary = open.values().any(|call| !call.delegates);
        let children = self.samples(n).last().is_some_and(|(_, children, _)| *children > 0);
        self.delegates_after(n) || (children && !ordinary)
    }

    /// A delegating call is open, or a subagent has started and not ended.
    pub(super) fn delegates_after(&self, n: usize) -> bool {
        self.open(n).values().any(|call| call.delegates) || !self.subagents(n).is_empty()
    }

    /// The number of facts told by then.
    fn told_by(&self, s: u64) -> usize {
        self.facts().iter().filter(|(at, _)| *at <= s).count()
    }

    /// Fresh while age < ttl. What was told later of this moment counts too.
    fn is_fresh_at(&self, pieces: &[Piece], channel: Channel, s: u64, told: usize) -> bool {
        let so_far: Vec<Piece> =
            pieces.iter().filter(|p| p.channel == channel && p.first <= s).copied().collect();
        let Some(last) = so_far.last() else { return false };
        s < last.last || s - last.last < self.ttl(&so_far, told)
    }

    /// Row 4, and whether a notice is due at this very moment: the n-th error of one fingerprint in a
    /// streak; notice at 3.
    pub(super) fn errors(&self, now: u64) -> (bool, bool) {
        let (mut streaks, mut noticed) = (BTreeMap::<String, u32>::new(), None);
        let mut told = BTreeSet::new();
        // Where the last failure of each kind that was counted stands: calls that overlap it fail as one with it.
        let mut counted = BTreeMap::<String, usize>::new();
        for (n, (at, fact)) in self.facts().into_iter().enumerate() {
            if self.clears(n) {
                streaks.clear();
                counted.clear();
                noticed = None;
            }
            let error = match fact {
                Fact::Error { fingerprint } => Some(fingerprint.clone()),
                // A canceled call never ran.
                Fact::ToolEnded { canceled: true, .. } => None,
                // Once per tool id and fingerprint, and once for calls that overlap.
                Fact::ToolEnded { id, ok: false, error, heartbeat, .. } => {
                    let began = self.open(n).get(id).filter(|_| !heartbeat).map_or(n, |call| call.began);
                    let first = told.insert((id.clone(), error.clone()));
                    let overlaps = counted.get(error).is_some_and(|end| began < *end);
                    (first && !overlaps).then(|| {
                        counted.insert(error.clone(), n);
                        error.clone()
                    })
                }
                _ => None,
            };
            if let Some(error) = error {
                let count = streaks.entry(error).or_default();
                *count += 1;
                if *count == 3 {
                    noticed = Some(at);
                }
            }
        }
        let fires = self.policy.errors.is_some_and(|limit| streaks.values().any(|count| *count >= limit));
        (fires, noticed == Some(now))
    }

    /// Whether the n-th fact is a workspace change whose digest is new in this session (unknown = new), or
    /// an ok result whose (call, result) is.
    fn clears(&self, n: usize) -> bool {
        match &self.told[n].1 {
            Fact::Observed(o) if o.channel == Channel::Workspace => {
                let digests = self.told[..n].iter().filter_map(|(_, fact)| match fact {
                    Fact::Observed(o) if o.channel == Channel::Workspace => o.digest,
                    _ => None,
                });
                o.digest.is_none_or(|new| digests.clone().all(|old| old != new))
            }
            Fact::ToolEnded { heartbeat: true, .. } | Fact::ToolEnded { canceled: true, .. } => false,
            Fact::ToolEnded { id, ok: true, result, .. } => {
                let Some(call) = self.open(n).remove(id) else { return false };
                let same = |e: &&Ended| (e.what, e.result, e.ok) == (call.what, *result, true);
                !self.all_ended(n).iter().any(|placed| same(&&placed.what))
            }
            _ => false,
        }
    }

    /// The calls that ended among the first `n` facts, with when they did; of equal calls that overlap, and that nothing
    /// new lies between, the first.
    fn ended(&self, n: usize) -> Vec<(u64, Ended)> {
        let mut kept: Vec<Placed> = Vec::new();
        for call in self.all_ended(n) {
            if kept.iter().all(|other| other.number <= call.began) {
                kept.push(call);
                continue;
            }
            let cleared = (0..=call.number).rev().find(|k| self.clears(*k)).unwrap_or(0);
            let with_it = |other: &&Placed| other.number > call.began && other.number >= cleared;
            if !kept.iter().filter(with_it).any(|other| other.what == call.what) {
                kept.push(call);
            }
        }
        kept.into_iter().map(|call| (call.at, call.what)).collect()
    }

    fn all_ended(&self, n: usize) -> Vec<Placed> {
        let (mut ended, mut tree) = (Vec::new(), Tree::Untouched);
        for (k, (at, fact)) in self.facts().into_iter().take(n).enumerate() {
            match fact {
                Fact::Observed(o) if o.channel == Channel::Workspace => {
                    tree = o.digest.map_or(Tree::Unknown(k), Tree::Known);
                }
                // It is no call, whatever came of it.
                Fact::ToolEnded { heartbeat: true, .. } | Fact::ToolEnded { canceled: true, .. } => {}
                Fact::ToolEnded { id, ok, result, .. } => {
                    if let Some(call) = self.open(k).remove(id) {
                        let what = Ended { what: call.what, result: *result, ok: *ok, tree };
                        ended.push(Placed { at, began: call.began, number: k, what });
                    }
                }
                _ => {}
            }
        }
        ended
    }

    /// Row 5: a cycle of (call, normalised result, tree digest) of any period 1…8, n full times.
    pub(super) fn repetition(&self, now: u64) -> bool {
        let Some(times) = self.policy.cycles else { return false };
        let all = self.ended(self.told.len());
        // What clears a streak begins a new one; an ok result that is new is its first.
        let last_clear = (0..self.told.len()).rev().find(|n| self.clears(*n));
        let gone = last_clear.map_or(0, |n| self.ended(n).len());
        let calls = &all[gone..];
        (1..=8).any(|period| {
            let wanted = period * times as usize;
            let Some(window) = calls.len().checked_sub(wanted).map(|from| &calls[from..]) else {
                return false;
            };
            let cycle = |p: usize| (p..window.len()).all(|i| window[i].1 == window[i - p].1);
            // A cycle of one call is no cycle of two.
            if !cycle(period) || (1..period).any(cycle) {
                return false;
            }
            let polling = period == 1 && window[0].1.ok;
            !polling || self.polled_enough(calls, now)
        })
    }

    /// Polling: `poll` since the result changed.
    fn polled_enough(&self, calls: &[(u64, Ended)], now: u64) -> bool {
        let Some((_, last)) = calls.last() else { return false };
        let since = calls.iter().rev().take_while(|(_, e)| e == last).last().map_or(now, |(at, _)| *at);
        self.policy.poll.duration().is_some_and(|poll| now >= since + poll.as_millis())
    }

    /// Row 6: one tool call has been in flight that long with no other stdout progress meanwhile.
    pub(super) fn tool(&self, now: u64) -> bool {
        if self.asking().is_some() {
            return false;
        }
        let spoke = self.on(Channel::Stdout).iter().map(|p| p.last).max().unwrap_or(0);
        let open = self.open(self.told.len());
        open.values()
            .filter(|call| !call.delegates)
            .any(|call| call.cap.is_some_and(|cap| now >= call.since + cap && now >= spoke + cap))
    }

    /// Whether the agent has printed anything at all.
    fn printed(&self) -> bool {
        let printed = |fact: &Fact| match fact {
            Fact::Printed => true,
            Fact::ToolStarted(tool) => tool.heartbeat,
            _ => false,
        };
        !self.on(Channel::Stdout).is_empty() || self.told.iter().any(|(_, fact)| printed(fact))
    }

    /// Row 7: a structured agent has printed nothing at all: min(start, idle). Evidence defers it.
    pub(super) fn start(&self, now: u64) -> bool {
        let Some(idle) = self.policy.idle.duration() else { return false };
        let limit = self.policy.start.duration().map_or(idle, |start| start.min(idle)).as_millis();
        let nothing = self.structured && !self.printed() && self.asking().is_none();
        nothing && now >= limit && now >= self.evidence_until()
    }

    /// Row 8: at the later of (last stdout progress + idle) and, over the other channels, the greatest
    /// (last + ttl); no tool in flight; effort holds it until last progress + idle + tool.
    pub(super) fn silence(&self, now: u64) -> bool {
        let Some(deadline) = self.stdout_deadline() else { return false };
        let held = match self.policy.tool.duration() {
            Some(tool) if self.works() => deadline + tool.as_millis(),
            _ => deadline,
        };
        now >= held && now >= self.evidence_until()
    }

    /// When stdout alone has been silent for too long. Before any progress it counts from the start.
    fn stdout_deadline(&self) -> Option<u64> {
        let busy = self.open(self.told.len()).values().any(|call| !call.delegates) || self.asking().is_some();
        let spoke = self.on(Channel::Stdout).iter().map(|p| p.last).max().unwrap_or(0);
        let idle = self.policy.idle.duration()?.as_millis();
        (!busy).then_some(spoke + idle)
    }

    /// Row 9: it asks for a person, has not gone on since, and nobody has come for that long.
    pub(super) fn unanswered(&self, now: u64) -> bool {
        let limit = self.policy.human.duration().map(|limit| limit.as_millis());
        self.asking().zip(limit).is_some_and(|(since, limit)| now >= since + limit)
    }

    /// Since when it asks: the first question after the last progress on stdout.
    fn asking(&self) -> Option<u64> {
        let facts = self.facts();
        let went_on = facts.iter().rposition(|(_, fact)| match fact {
            Fact::Observed(o) => o.channel == Channel::Stdout,
            Fact::ToolStarted(tool) => !tool.heartbeat,
            Fact::ToolEnded { heartbeat, .. } => !heartbeat,
            _ => false,
        });
        let since = went_on.map_or(0, |n| n + 1);
        facts[since..].iter().find(|(_, f)| matches!(f, Fact::NeedsHuman { .. })).map(|(at, _)| *at)
    }

    /// CPU grew by at least 5 % of the time between the last two samples.
    fn works(&self) -> bool {
        self.works_after(self.told.len())
    }

    pub(super) fn works_after(&self, n: usize) -> bool {
        let samples = self.samples(n);
        let [.., (then, _, before), (at, _, used)] = &samples[..] else { return false };
        at > then && used.saturating_sub(*before) * 100 >= (at - then) * 5
    }

    fn others(&self) -> Vec<(u64, Channel)> {
        if matches!(self.policy.evidence_ttl, Ttl::Fixed(ttl) if ttl.as_millis() == 0) {
            return Vec::new();
        }
        let until = |channel: Channel| {
            let pieces = self.on(channel);
            Some((pieces.iter().map(|p| p.last).max()? + self.ttl(&pieces, self.told.len()), channel))
        };
        [Channel::McpTool, Channel::Subagent, Channel::Workspace].into_iter().filter_map(until).collect()
    }

    fn evidence_until(&self) -> u64 {
        self.others().into_iter().map(|(until, _)| until).max().unwrap_or(0)
    }

    /// The channels but for which silence would have ended it.
    pub(super) fn deferred_by(&self, now: u64) -> Vec<Channel> {
        let start = self.policy.start.duration().filter(|_| self.structured && !self.printed());
        let Some(deadline) = self.stdout_deadline() else { return Vec::new() };
        let deadline = start.map_or(deadline, |start| deadline.min(start.as_millis()));
        let until = self.evidence_until();
        if now < deadline || now >= until {
            return Vec::new();
        }
        self.others().into_iter().filter(|(u, _)| *u == until).map(|(_, channel)| channel).collect()
    }
}
