//! Loop detection: the same error repeatedly (row 4), and the same calls with the same results in a cycle of up to eight
//! calls (row 5).
//!
//! Both are cleared only by something new: a state of the work tree that this session has not had, or a successful result
//! that this call has not returned. Messages clear nothing.
//!
//! Calls that overlap in time are one step of the agent, because it saw none of their results when it made them. Equal
//! failures of such calls count once, and so do equal calls with equal results.

use crate::record::hash;
use crate::time::dur::Limit;
use crate::time::moment::Awake;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The longest cycle that is detected, in calls.
pub const MAX_PERIOD: usize = 8;
/// The number of equal errors that causes a notice.
pub const NOTICE_AT: u32 = 3;
/// The most results and states that are remembered per session. A session with more new ones is not in a loop.
pub const MAX_REMEMBERED: usize = 100_000;
/// The most different errors that are counted at once.
const MAX_FINGERPRINTS: usize = 1_000;
/// The most calls that are kept: the longest cycle, with the highest configurable count.
const MAX_CALLS: usize = MAX_PERIOD * 100;

/// The counts of equal errors.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors {
    streak: BTreeMap<String, Streak>,
    /// The last error that reached the count for a notice, and when.
    pub noticed: Option<(Awake, String)>,
    /// The failures of tool calls that were counted, once per call and fingerprint.
    of_tools: BTreeSet<u64>,
}

/// The count of one error.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    count: u32,
    /// The end of the last call that was counted, in the order of all starts and ends.
    ended: u64,
}

/// The start and the end of a call, as positions in the order of all starts and ends of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub began: u64,
    pub ended: u64,
}

impl Errors {
    /// Counts an error outside of a tool call.
    pub fn add(&mut self, at: Awake, fingerprint: &str) {
        self.count(at, fingerprint, None);
    }

    fn count(&mut self, at: Awake, fingerprint: &str, call: Option<Span>) {
        if self.streak.len() >= MAX_FINGERPRINTS && !self.streak.contains_key(fingerprint) {
            self.streak.clear();
        }
        let streak = self.streak.entry(fingerprint.to_owned()).or_default();
        if let Some(call) = call {
            if call.began < streak.ended {
                return;
            }
            streak.ended = call.ended;
        }
        streak.count = streak.count.saturating_add(1);
        if streak.count == NOTICE_AT {
            self.noticed = Some((at, fingerprint.to_owned()));
        }
    }

    /// Counts the failure of a call, unless it was already reported or a parallel call failed in the same way.
    pub fn add_of_tool(&mut self, at: Awake, id: &str, fingerprint: &str, call: Span) {
        let key = hash::mix(hash::bytes(id.as_bytes()), hash::bytes(fingerprint.as_bytes()));
        if self.of_tools.len() >= MAX_REMEMBERED || self.of_tools.insert(key) {
            self.count(at, fingerprint, Some(call));
        }
    }

    fn clear(&mut self) {
        self.streak.clear();
        self.noticed = None;
    }

    /// Returns an error that reached the limit, with its count.
    pub fn reached(&self, limit: Option<u32>) -> Option<(&str, u32)> {
        let limit = limit?;
        self.streak.iter().find(|(_, s)| s.count >= limit).map(|(text, s)| (text.as_str(), s.count))
    }
}

/// A finished call: the call, its result, and the state of the work tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    what: u64,
    result: u64,
    ok: bool,
    tree: u64,
}

/// The history of a session that loops are detected in.
#[derive(Clone, Debug, Default)]
pub(super) struct Loops {
    pub errors: Errors,
    calls: VecDeque<Call>,
    /// The end of each call, in the order of all starts and ends.
    ends: VecDeque<u64>,
    /// When the last call last differed from the call before it.
    changed: Option<Awake>,
    results: BTreeSet<(u64, u64)>,
    trees: BTreeSet<u64>,
    tree: u64,
}

/// A detected cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    pub period: usize,
    pub times: u32,
}

impl Loops {
    /// Notes a change of the work tree. An unknown state counts as new.
    pub fn workspace(&mut self, digest: Option<u64>) {
        let new = match digest {
            Some(d) => self.trees.len() >= MAX_REMEMBERED || self.trees.insert(d),
            None => true,
        };
        self.tree = digest.unwrap_or(self.tree.wrapping_add(1));
        if new {
            self.clear();
        }
    }

    /// Notes the end of a call. A successful result that is new clears the history.
    pub fn ended(&mut self, at: Awake, what: u64, result: u64, ok: bool, span: Span) {
        let call = Call { what, result, ok, tree: self.tree };
        let overlapping =
            self.calls.iter().zip(&self.ends).rev().take_while(|(_, ended)| span.began < **ended);
        if overlapping.into_iter().any(|(other, _)| *other == call) {
            return;
        }
        let new = ok && (self.results.len() >= MAX_REMEMBERED || self.results.insert((what, result)));
        if new {
            self.clear();
        }
        if self.calls.back() != Some(&call) {
            self.changed = Some(at);
        }
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
            self.ends.pop_front();
        }
        self.calls.push_back(call);
        self.ends.push_back(span.ended);
    }

    fn clear(&mut self) {
        self.errors.clear();
        self.calls.clear();
        self.ends.clear();
    }

    /// Returns the shortest cycle that was repeated `cycles` times. Polling, which is one successful call repeated, must
    /// also have returned the same result for the length of `poll`.
    pub fn cycle(&self, now: Awake, cycles: Option<u32>, poll: Limit) -> Option<Cycle> {
        let times = cycles?.max(1);
        let polling = self.calls.back().is_some_and(|c| c.ok);
        let patient = polling && self.poll_due(poll).is_none_or(|due| now < due);
        let fires = |period: &usize| match period {
            1 => self.repeats(1, times) && !patient,
            // A cycle of one call is not a cycle of two; otherwise `poll` would have no effect.
            _ => self.repeats(*period, times) && !self.all_same(period.saturating_mul(times as usize)),
        };
        (1..=MAX_PERIOD).find(fires).map(|period| Cycle { period, times })
    }

    fn all_same(&self, last: usize) -> bool {
        let mut calls = self.calls.iter().rev().take(last);
        let newest = calls.next();
        calls.all(|call| Some(call) == newest)
    }

    /// Returns when polling has lasted too long, if the agent polls now.
    pub fn polling_until(&self, cycles: Option<u32>, poll: Limit) -> Option<Awake> {
        let polling = self.calls.back().is_some_and(|c| c.ok) && self.repeats(1, cycles?.max(1));
        if polling { self.poll_due(poll) } else { None }
    }

    /// Returns when polling becomes a loop. With `poll` off it never does.
    fn poll_due(&self, poll: Limit) -> Option<Awake> {
        Some(self.changed?.plus(poll.duration()?))
    }

    /// Returns whether the last calls are `times` repetitions of a cycle of this period.
    fn repeats(&self, period: usize, times: u32) -> bool {
        let wanted = period.saturating_mul(times as usize);
        if self.calls.len() < wanted || wanted > MAX_CALLS {
            return false;
        }
        let from = self.calls.len() - wanted;
        (from + period..self.calls.len()).all(|i| self.calls[i] == self.calls[i - period])
    }
}
