//! A node's recorded attempts and hard stops: the input for decisions about checks and recovery.

use crate::record::event::{CheckResult, NodeAttempt, Pin, RecoveryPlanned};
use crate::record::ids::Iteration;
use crate::run::recovery::{Action, Class};
use crate::time::dur::Dur;
use crate::watch::{Evidence, StopReason};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The longest wait between two attempts.
const MAX_BACKOFF: Dur = Dur::from_secs(60);
/// The number of earlier hard stops that the prompt lists.
pub const MAX_TRIED: usize = 10;

/// The attempts of a node, as far as they affect the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempts {
    /// The number of attempts that count.
    pub count: u64,
    /// The number of failed attempts.
    pub failed: u64,
    /// All checks passed in the last attempt.
    pub converged: bool,
    /// The wait before the current iteration.
    pub backoff: Option<Dur>,
    /// The last results of the checks.
    pub last: Vec<CheckResult>,
    /// The last iteration was an attempt, and it failed.
    pub just_failed: bool,
    /// Pinned files that had changed at the last attempt.
    pub tampered: Vec<String>,
    /// The pinned files with their hashes from before the first iteration.
    pub pins: Option<Vec<Pin>>,
}

impl Attempts {
    /// Adds an attempt.
    pub fn add(&mut self, attempt: &NodeAttempt) {
        if !attempt.uncounted {
            self.count = self.count.saturating_add(1);
            self.failed += u64::from(!attempt.converged);
            self.just_failed = !attempt.converged;
        }
        self.converged = attempt.converged;
        self.backoff = None;
        self.last = attempt.results.clone();
    }

    /// Returns whether the node converged, but not at the first attempt.
    pub fn flaked(&self) -> bool {
        self.converged && self.failed > 0
    }

    /// Returns the checks that failed last.
    pub fn failing(&self) -> impl Iterator<Item = &CheckResult> {
        self.last.iter().filter(|r| r.rc != 0)
    }

    /// Returns the wait before the i-th attempt, i ≥ 2: 2 s, 4 s, 8 s … 60 s.
    pub fn wait(&self) -> Dur {
        doubling(self.count)
    }

    /// Returns the pinned files that were changed, removed or added.
    pub fn changed(&self, now: &[Pin]) -> Vec<String> {
        changed_pins(self.pins.as_deref().unwrap_or_default(), now)
    }
}

/// Returns the pinned files that were changed, removed or added.
pub fn changed_pins(was: &[Pin], now: &[Pin]) -> Vec<String> {
    let of = |pins: &[Pin]| -> BTreeMap<String, Option<String>> {
        pins.iter().map(|p| (p.path.clone(), p.sha256.clone())).collect()
    };
    let (was, now) = (of(was), of(now));
    let differs = |path: &&String| was.get(*path) != now.get(*path);
    let all: BTreeSet<&String> = was.keys().chain(now.keys()).collect();
    all.into_iter().filter(differs).cloned().collect()
}

fn doubling(n: u64) -> Dur {
    Dur::from_secs(1 << n.min(16)).min(MAX_BACKOFF)
}

/// Hard stops since the last completed iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recoveries {
    /// How much of `recovery.budget` is used.
    pub used: u32,
    /// The last hard stop.
    pub last: Option<Stopped>,
    /// The number of consecutive hard stops with the same reason and no progress between them.
    pub alike: u32,
    /// There was progress since the last hard stop.
    progress: bool,
    /// Descriptions of the hard stops, oldest first.
    pub tried: VecDeque<String>,
    /// The last iteration that has a recovery plan.
    pub planned: Option<Iteration>,
    /// Set if the next iteration gets the recovery prompt.
    pub due: Option<Class>,
}

/// A session that the watchdog stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopped {
    /// The iteration that was stopped.
    pub iteration: Iteration,
    /// The rule that fired.
    pub reason: StopReason,
    /// The reason as a sentence for people.
    pub message: String,
    /// The evidence at that moment.
    pub evidence: Vec<Evidence>,
    /// The status with which a service had refused, if the agent was silent because it waited for that service.
    pub refused: Option<u16>,
}

impl Recoveries {
    /// Adds a hard stop.
    pub fn stopped(&mut self, stopped: Stopped) {
        // A refusal is not the agent's fault and has its own budget.
        if stopped.refused.is_some() {
            self.last = Some(stopped);
            return;
        }
        let same = self.last.as_ref().is_some_and(|last| last.reason == stopped.reason);
        self.alike = if same && !self.progress { self.alike.saturating_add(1) } else { 1 };
        self.progress = false;
        self.used = self.used.saturating_add(1);
        if self.tried.len() == MAX_TRIED {
            self.tried.pop_front();
        }
        self.tried.push_back(format!("iteration {}: {}", stopped.iteration, stopped.message));
        self.last = Some(stopped);
    }

    /// Notes progress since the last hard stop.
    pub fn progressed(&mut self) {
        self.progress = true;
    }

    /// Notes a recovery plan.
    pub fn planned(&mut self, plan: &RecoveryPlanned) {
        self.planned = Some(plan.iteration);
        match plan.action {
            Action::Retry => self.due = Some(plan.class),
            Action::NextAgent => {
                self.due = Some(plan.class);
                self.alike = 0;
            }
            Action::Wait | Action::Stop => {}
        }
    }

    /// Refills the budget after a completed iteration.
    pub fn refill(&mut self) {
        *self = Recoveries { planned: self.planned, ..Recoveries::default() };
    }

    /// Returns the wait after a hard stop.
    pub fn wait(&self) -> Dur {
        doubling(u64::from(self.used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(iteration: u64, reason: StopReason) -> Stopped {
        Stopped {
            iteration: Iteration(iteration),
            reason,
            message: "silent".into(),
            evidence: Vec::new(),
            refused: None,
        }
    }

    #[test]
    fn the_wait_before_the_second_attempt_is_two_seconds_and_never_more_than_a_minute() {
        let waits: Vec<u64> =
            (1..9).map(|count| Attempts { count, ..Attempts::default() }.wait().as_millis() / 1000).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn hard_stops_are_alike_only_if_consecutive_and_without_progress() {
        let mut r = Recoveries::default();
        r.stopped(stop(1, StopReason::NoOutputDeadline));
        r.stopped(stop(2, StopReason::NoOutputDeadline));
        assert_eq!((r.used, r.alike), (2, 2));
        r.progressed();
        r.stopped(stop(3, StopReason::NoOutputDeadline));
        assert_eq!((r.used, r.alike), (3, 1));
        r.stopped(stop(4, StopReason::ErrorLoop));
        assert_eq!((r.used, r.alike), (4, 1));
        r.refill();
        assert_eq!((r.used, r.alike, r.last.is_none()), (0, 0, true));
    }

    #[test]
    fn the_list_of_hard_stops_is_bounded() {
        let mut r = Recoveries::default();
        (0..50).for_each(|i| r.stopped(stop(i, StopReason::ErrorLoop)));
        assert_eq!(r.tried.len(), MAX_TRIED);
        assert_eq!(r.tried.back().map(String::as_str), Some("iteration 49: silent"));
    }

    #[test]
    fn a_pinned_file_counts_as_changed_if_it_differs_is_missing_or_is_new() {
        let pin = |path: &str, sha: &str| Pin { path: path.into(), sha256: Some(sha.into()) };
        let was = vec![pin("a", "1"), pin("b", "2"), pin("c", "3")];
        let attempts = Attempts { pins: Some(was.clone()), ..Attempts::default() };
        assert!(attempts.changed(&was).is_empty());
        assert_eq!(attempts.changed(&[pin("a", "1"), pin("b", "9"), pin("d", "4")]), ["b", "c", "d"]);
    }
}
