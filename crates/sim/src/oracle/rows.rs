//! The rows, one function each, in the order of the table.

use super::{CELL, Ended, Oracle, Piece, Placed, Tree};
use dogwatch_core::settings::Ttl;
use dogwatch_core::watch::{Channel, Fact};
use std::collections::{BTreeMap, BTreeSet};

impl Oracle<'_> {
    /// Row 1: the session reached its ceiling.
    pub(super) fn session(&self, now: u64) -> bool {
        self.policy.session.duration().is_some_and(|limit| now >= limit.as_millis())
    }

    /// Row 2: the agent waited on children without progress for too long.
    pub(super) fn children(&self, now: u64) -> bool {
        let Some(limit) = self.policy.children.duration() else { return false };
        if (0..=self.facts.len()).all(|n| !self.waits_after(n)) {
            return false;
        }
        let pieces = self.pieces();
        let cells = (0..now).step_by(usize::try_from(CELL).expect("small"));
        let waited: u64 = cells
            .filter(|s| {
                let n = self.known_by(*s);
                self.waits_after(n) && !Channel::ALL.iter().any(|c| self.is_fresh_at(&pieces, *c, *s, n))
            })
            .map(|s| CELL.min(now - s))
            .sum();
        waited >= limit.as_millis()
    }

    /// Returns whether the agent waits on children: a delegating call or a subagent is open, or the last sample has live
    /// children while no ordinary call is in flight.
    fn waits_after(&self, n: usize) -> bool {
        let open = self.open(n);
        let ordinary = open.values().any(|call| !call.delegates);
        let children = self.samples(n).last().is_some_and(|(_, children, _)| *children > 0);
        self.delegates_after(n) || (children && !ordinary)
    }

    /// Returns whether a delegating call or a subagent is open.
    pub(super) fn delegates_after(&self, n: usize) -> bool {
        self.open(n).values().any(|call| call.delegates) || !self.subagents(n).is_empty()
    }

    /// Returns the number of facts up to this moment.
    fn known_by(&self, s: u64) -> usize {
        self.watched_facts().iter().filter(|(at, _)| *at <= s).count()
    }

    /// Returns whether a channel is fresh: the age is less than the ttl. Later records about this moment count too.
    fn is_fresh_at(&self, pieces: &[Piece], channel: Channel, s: u64, known: usize) -> bool {
        let so_far: Vec<Piece> =
            pieces.iter().filter(|p| p.channel == channel && p.first <= s).copied().collect();
        let Some(last) = so_far.last() else { return false };
        s < last.last || s - last.last < self.ttl(&so_far, known)
    }

    /// Row 4: the same fingerprint occurred too often. Also returns whether a notice is due at exactly this moment, which
    /// is at the third error.
    pub(super) fn errors(&self, now: u64) -> (bool, bool) {
        let (mut streaks, mut noticed) = (BTreeMap::<String, u32>::new(), None);
        let mut seen = BTreeSet::new();
        // The position of the last counted failure of each kind. Calls that overlap it count as the same failure.
        let mut counted = BTreeMap::<String, usize>::new();
        for (n, (at, fact)) in self.watched_facts().into_iter().enumerate() {
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
                    let first = seen.insert((id.clone(), error.clone()));
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

    /// Returns whether the n-th fact is new in this session: a work tree change with a new or unknown digest, or a
    /// successful result with a new pair of call and result.
    fn clears(&self, n: usize) -> bool {
        match &self.facts[n].1 {
            Fact::Observed(o) if o.channel == Channel::Workspace => {
                let digests = self.facts[..n].iter().filter_map(|(_, fact)| match fact {
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

    /// Returns the calls that ended among the first `n` facts, with their times. Of equal calls that overlap, with nothing
    /// new between them, only the first is included.
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
        for (k, (at, fact)) in self.watched_facts().into_iter().take(n).enumerate() {
            match fact {
                Fact::Observed(o) if o.channel == Channel::Workspace => {
                    tree = o.digest.map_or(Tree::Unknown(k), Tree::Known);
                }
                // A heartbeat is not a call.
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

    /// Row 5: a cycle of (call, normalized result, tree digest) with a period of 1 to 8 was repeated n times.
    pub(super) fn repetition(&self, now: u64) -> bool {
        let Some(times) = self.policy.cycles else { return false };
        let all = self.ended(self.facts.len());
        // A fact that clears the history starts a new one; a new successful result is its first call.
        let last_clear = (0..self.facts.len()).rev().find(|n| self.clears(*n));
        let gone = last_clear.map_or(0, |n| self.ended(n).len());
        let calls = &all[gone..];
        (1..=8).any(|period| {
            let wanted = period * times as usize;
            let Some(window) = calls.len().checked_sub(wanted).map(|from| &calls[from..]) else {
                return false;
            };
            let cycle = |p: usize| (p..window.len()).all(|i| window[i].1 == window[i - p].1);
            // A cycle of one call is not a cycle of two.
            if !cycle(period) || (1..period).any(cycle) {
                return false;
            }
            let polling = period == 1 && window[0].1.ok;
            !polling || self.polled_enough(calls, now)
        })
    }

    /// Returns whether polling returned the same result for the length of `poll`.
    fn polled_enough(&self, calls: &[(u64, Ended)], now: u64) -> bool {
        let Some((_, last)) = calls.last() else { return false };
        let since = calls.iter().rev().take_while(|(_, e)| e == last).last().map_or(now, |(at, _)| *at);
        self.policy.poll.duration().is_some_and(|poll| now >= since + poll.as_millis())
    }

    /// Row 6: a tool call was in flight for too long without progress on stdout.
    pub(super) fn tool(&self, now: u64) -> bool {
        if self.asking().is_some() {
            return false;
        }
        let spoke = self.on(Channel::Stdout).iter().map(|p| p.last).max().unwrap_or(0);
        let open = self.open(self.facts.len());
        open.values()
            .filter(|call| !call.delegates)
            .any(|call| call.cap.is_some_and(|cap| now >= call.since + cap && now >= spoke + cap))
    }

    /// Returns whether the agent has printed anything at all.
    fn printed(&self) -> bool {
        let printed = |fact: &Fact| match fact {
            Fact::Printed => true,
            Fact::ToolStarted(tool) => tool.heartbeat,
            _ => false,
        };
        !self.on(Channel::Stdout).is_empty() || self.facts.iter().any(|(_, fact)| printed(fact))
    }

    /// Row 7: a structured agent printed nothing for min(start, idle). Evidence defers it.
    pub(super) fn start(&self, now: u64) -> bool {
        let Some(idle) = self.policy.idle.duration() else { return false };
        let limit = self.policy.start.duration().map_or(idle, |start| start.min(idle)).as_millis();
        let nothing = self.structured && !self.printed() && self.asking().is_none();
        nothing && now >= limit && now >= self.evidence_until()
    }

    /// Row 8: fires at the later of (last stdout progress + idle) and the greatest (last + ttl) of the other channels,
    /// with no tool in flight. Effort extends it to last progress + idle + tool.
    pub(super) fn silence(&self, now: u64) -> bool {
        let Some(deadline) = self.stdout_deadline() else { return false };
        let held = match self.policy.tool.duration() {
            Some(tool) if self.works() => deadline + tool.as_millis(),
            _ => deadline,
        };
        now >= held && now >= self.evidence_until()
    }

    /// Returns when stdout alone has been silent for too long, counted from its last progress or the start.
    fn stdout_deadline(&self) -> Option<u64> {
        let busy =
            self.open(self.facts.len()).values().any(|call| !call.delegates) || self.asking().is_some();
        let spoke = self.on(Channel::Stdout).iter().map(|p| p.last).max().unwrap_or(0);
        let idle = self.policy.idle.duration()?.as_millis();
        (!busy).then_some(spoke + idle)
    }

    /// Row 9: the agent asked for a person, made no progress since, and got no answer in time.
    pub(super) fn unanswered(&self, now: u64) -> bool {
        let limit = self.policy.human.duration().map(|limit| limit.as_millis());
        self.asking().zip(limit).is_some_and(|(since, limit)| now >= since + limit)
    }

    /// Returns when the agent asked: the first question after the last progress on stdout.
    fn asking(&self) -> Option<u64> {
        let facts = self.watched_facts();
        let went_on = facts.iter().rposition(|(_, fact)| match fact {
            Fact::Observed(o) => o.channel == Channel::Stdout,
            Fact::ToolStarted(tool) => !tool.heartbeat,
            Fact::ToolEnded { heartbeat, .. } => !heartbeat,
            _ => false,
        });
        let since = went_on.map_or(0, |n| n + 1);
        facts[since..].iter().find(|(_, f)| matches!(f, Fact::NeedsHuman { .. })).map(|(at, _)| *at)
    }

    /// Returns whether the CPU time grew by at least 5 % of the time between the last two samples.
    fn works(&self) -> bool {
        self.works_after(self.facts.len())
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
            Some((pieces.iter().map(|p| p.last).max()? + self.ttl(&pieces, self.facts.len()), channel))
        };
        [Channel::McpTool, Channel::Subagent, Channel::Workspace].into_iter().filter_map(until).collect()
    }

    fn evidence_until(&self) -> u64 {
        self.others().into_iter().map(|(until, _)| until).max().unwrap_or(0)
    }

    /// Returns the channels without which silence would have stopped the session.
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
