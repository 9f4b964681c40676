//! Going round in circles: the same error again and again (row 4), the same calls with the same results in a
//! cycle of any period up to eight (row 5).
//!
//! Both are cleared only by something new: a state of the work tree that this session has not had, or an ok
//! result that this call has not given. Talk clears nothing.

use crate::dur::Limit;
use crate::hash;
use crate::moment::Awake;
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
    streak: BTreeMap<String, u32>,
    /// When an error last made its streak worth a notice, and which.
    pub noticed: Option<(Awake, String)>,
    /// The failures of tools that were counted: each once per call and kind of failure.
    of_tools: BTreeSet<u64>,
}

impl Errors {
    pub fn add(&mut self, at: Awake, fingerprint: &str) {
        if self.streak.len() >= MAX_FINGERPRINTS && !self.streak.contains_key(fingerprint) {
            self.streak.clear();
        }
        let count = self.streak.entry(fingerprint.to_owned()).or_default();
        *count = count.saturating_add(1);
        if *count == NOTICE_AT {
            self.noticed = Some((at, fingerprint.to_owned()));
        }
    }

    /// A stream may tell the end of a call twice.
    pub fn add_of_tool(&mut self, at: Awake, id: &str, fingerprint: &str) {
        let key = hash::mix(hash::bytes(id.as_bytes()), hash::bytes(fingerprint.as_bytes()));
        if self.of_tools.len() >= MAX_REMEMBERED || self.of_tools.insert(key) {
            self.add(at, fingerprint);
        }
    }

    fn clear(&mut self) {
        self.streak.clear();
        self.noticed = None;
    }

    /// The error that has come so often.
    pub fn reached(&self, limit: Option<u32>) -> Option<(&str, u32)> {
        let limit = limit?;
        self.streak.iter().find(|(_, n)| **n >= limit).map(|(text, n)| (text.as_str(), *n))
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

    pub fn ended(&mut self, at: Awake, what: u64, result: u64, ok: bool) {
        let new = ok && (self.results.len() >= MAX_REMEMBERED || self.results.insert((what, result)));
        if new {
            self.clear();
        }
        let call = Call { what, result, ok, tree: self.tree };
        if self.calls.back() != Some(&call) {
            self.changed = Some(at);
        }
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(call);
    }

    fn clear(&mut self) {
        self.errors.clear();
        self.calls.clear();
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
