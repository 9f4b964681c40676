//! Going round in circles: the same error again and again (row 4), the same calls with the same results in a
//! cycle of any period up to eight (row 5).
//!
//! Both are cleared only by something new: a state of the work tree that this session has not had, or an ok
//! result that this call has not given. Talk clears nothing.
//!
//! Calls that overlap in time are one step of the agent: it saw none of their results when it made them. Equal failures
//! of such calls count once, and so do equal calls with equal results.

use crate::record::hash;
use crate::time::dur::Limit;
use crate::time::moment::Awake;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The longest cycle that is looked for.
pub const MAX_PERIOD: usize = 8;
/// A streak of an error is worth a notice at this number.
pub const NOTICE_AT: u32 = 3;
/// What is remembered of a session; a session that shows more new things than this is not in a loop.
pub const MAX_REMEMBERED: usize = 100_000;
/// Different errors in one streak.
const MAX_FINGERPRINTS: usize = 1_000;
/// The most calls that are held: the longest cycle, as often as anybody may ask for.
const MAX_CALLS: usize = MAX_PERIOD * 100;

/// The same errors in a streak.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors {
    streak: BTreeMap<String, Streak>,
    /// When an error last made its streak worth a notice, and which.
    pub noticed: Option<(Awake, String)>,
    /// The failures of tools that were counted: each once per call and kind of failure.
    of_tools: BTreeSet<u64>,
}

/// One error in a streak.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    count: u32,
    /// The end of the last call that was counted.
    ended: u64,
}

/// When a call began and ended, in the order of all starts and ends of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub began: u64,
    pub ended: u64,
}

impl Errors {
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

    /// Counts the failure of a call, unless the stream has reported it before or a parallel call failed alike.
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

    /// The error that has come so often.
    pub fn reached(&self, limit: Option<u32>) -> Option<(&str, u32)> {
        let limit = limit?;
        self.streak.iter().find(|(_, s)| s.count >= limit).map(|(text, s)| (text.as_str(), s.count))
    }
}

/// A finished call: what was asked, what came of it, in which state of the work tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    what: u64,
    result: u64,
    ok: bool,
    tree: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Loops {
    pub errors: Errors,
    calls: VecDeque<Call>,
    /// The end of each of them, in the order of all starts and ends.
    ends: VecDeque<u64>,
    /// When the last call's result last differed from the one before it of the same call.
    changed: Option<Awake>,
    results: BTreeSet<(u64, u64)>,
    trees: BTreeSet<u64>,
    tree: u64,
}

/// A cycle that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    pub period: usize,
    pub times: u32,
}

impl Loops {
    /// The work tree changed; an unknown state is a new one.
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

    /// The shortest cycle that has gone round so often. Polling, one ok call again and again, must also have
    /// seen nothing new for the length of `poll`.
    pub fn cycle(&self, now: Awake, cycles: Option<u32>, poll: Limit) -> Option<Cycle> {
        let times = cycles?.max(1);
        let polling = self.calls.back().is_some_and(|c| c.ok);
        let patient = polling && self.poll_due(poll).is_none_or(|due| now < due);
        let fires = |period: &usize| match period {
            1 => self.goes_round(1, times) && !patient,
            // A cycle of one call is none of two, or no polling would be left alone.
            _ => self.goes_round(*period, times) && !self.all_same(period.saturating_mul(times as usize)),
        };
        (1..=MAX_PERIOD).find(fires).map(|period| Cycle { period, times })
    }

    fn all_same(&self, last: usize) -> bool {
        let mut calls = self.calls.iter().rev().take(last);
        let newest = calls.next();
        calls.all(|call| Some(call) == newest)
    }

    /// When polling, if that is what is going on, has lasted too long.
    pub fn polling_until(&self, cycles: Option<u32>, poll: Limit) -> Option<Awake> {
        let polling = self.calls.back().is_some_and(|c| c.ok) && self.goes_round(1, cycles?.max(1));
        if polling { self.poll_due(poll) } else { None }
    }

    /// With `poll` off polling is never a loop.
    fn poll_due(&self, poll: Limit) -> Option<Awake> {
        Some(self.changed?.plus(poll.duration()?))
    }

    fn goes_round(&self, period: usize, times: u32) -> bool {
        let wanted = period.saturating_mul(times as usize);
        if self.calls.len() < wanted || wanted > MAX_CALLS {
            return false;
        }
        let from = self.calls.len() - wanted;
        (from + period..self.calls.len()).all(|i| self.calls[i] == self.calls[i - period])
    }
}
