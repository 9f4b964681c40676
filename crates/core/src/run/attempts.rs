//! A node's recorded attempts and hard stops: the input for decisions about checks and recovery.

use crate::record::event::{CheckResult, NodeAttempt, Pin, RecoveryPlanned};
use crate::record::hash;
use crate::record::ids::Iteration;
use crate::run::recovery::{Action, Class};
use crate::settings::AttemptPolicy;
use crate::text::check_output;
use crate::time::dur::Dur;
use crate::watch::{Evidence, StopReason};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The longest wait between two attempts.
const MAX_BACKOFF: Dur = Dur::from_secs(60);
/// The number of earlier hard stops that the prompt lists.
pub const MAX_TRIED: usize = 10;
/// The number of states of the work tree that a node remembers, to recognize progress.
const MAX_TREES: usize = 4096;
/// A notice follows each time this many attempts were not charged, because they made progress.
pub const UNCHARGED_NOTICE: u64 = 20;

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
    /// The number of attempts since the last one with progress.
    pub stalled: u64,
    /// The number of attempts that were not charged because they made progress.
    pub uncharged: u64,
    /// A check passed on the same work tree that it had failed on.
    same_tree_pass: bool,
    /// Hashes of the states that the work tree had, oldest first.
    trees: VecDeque<u64>,
    /// The state of the work tree at the last attempt, if it is known.
    last_tree: Option<u64>,
}

impl Attempts {
    /// Adds an attempt.
    pub fn add(&mut self, attempt: &NodeAttempt) {
        let tree = attempt.tree.as_deref().map(tree_hash);
        let passed_now = |was: &CheckResult| {
            was.rc != 0 && attempt.results.iter().any(|now| now.cmd == was.cmd && now.rc == 0)
        };
        self.same_tree_pass |= attempt.results.iter().any(|result| result.flaky)
            || (tree.is_some() && tree == self.last_tree && self.last.iter().any(passed_now));
        if !attempt.uncounted {
            self.count = self.count.saturating_add(1);
            self.failed += u64::from(!attempt.converged);
            self.just_failed = !attempt.converged;
            self.stalled = if attempt.progress { 0 } else { self.stalled.saturating_add(1) };
            self.uncharged = self.uncharged.saturating_add(u64::from(attempt.progress));
        }
        if let Some(tree) = &attempt.tree {
            self.tree_seen(tree);
        }
        self.last_tree = tree;
        self.converged = attempt.converged;
        self.backoff = None;
        self.last = attempt.results.clone();
    }

    /// Remembers a state of the work tree.
    pub fn tree_seen(&mut self, tree: &str) {
        let tree = tree_hash(tree);
        if self.trees.contains(&tree) {
            return;
        }
        if self.trees.len() == MAX_TREES {
            self.trees.pop_front();
        }
        self.trees.push_back(tree);
    }

    /// Returns whether the work tree has not had this state before in this run.
    pub fn is_new_tree(&self, tree: &str) -> bool {
        !self.trees.contains(&tree_hash(tree))
    }

    /// Returns whether other checks fail than in the last attempt, or the same checks with another output.
    pub fn fails_differently(&self, results: &[CheckResult]) -> bool {
        self.count == 0 || failures(&self.last) != failures(results)
    }

    /// Returns whether a check had to be repeated for the node to converge. With `seed` every failed attempt counts;
    /// with `progress` only a check that failed and passed on the same work tree.
    pub fn flaked(&self, policy: AttemptPolicy) -> bool {
        self.converged
            && match policy {
                AttemptPolicy::Seed => self.failed > 0,
                AttemptPolicy::Progress => self.same_tree_pass,
            }
    }

    /// Returns the checks that failed last.
    pub fn failing(&self) -> impl Iterator<Item = &CheckResult> {
        self.last.iter().filter(|r| r.rc != 0)
    }

    /// Returns the wait before the next attempt: 2 s, 4 s, 8 s … 60 s. With `progress` it grows only with attempts in a
    /// row without progress, and there is none after progress.
    pub fn wait(&self, policy: AttemptPolicy) -> Option<Dur> {
        let charged = match policy {
            AttemptPolicy::Seed => self.count,
            AttemptPolicy::Progress => self.stalled,
        };
        (charged > 0).then(|| doubling(charged))
    }

    /// Returns the pinned files that were changed, removed or added.
    pub fn changed(&self, now: &[Pin]) -> Vec<String> {
        changed_pins(self.pins.as_deref().unwrap_or_default(), now)
    }

    /// Returns the pinned files that were changed or removed while the checks ran. Files that checks add, such as
    /// caches and reports, do not count.
    pub fn changed_by_checks(&self, now: &[Pin]) -> Vec<String> {
        let was = self.pins.as_deref().unwrap_or_default();
        let known: BTreeSet<&str> = was.iter().map(|pin| pin.path.as_str()).collect();
        changed_pins(was, now).into_iter().filter(|path| known.contains(path.as_str())).collect()
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

fn tree_hash(tree: &str) -> u64 {
    hash::bytes(tree.as_bytes())
}

/// Returns the failing checks, each with a hash of its normalized output.
fn failures(results: &[CheckResult]) -> BTreeMap<&str, u64> {
    let output = |r: &CheckResult| check_output::digest(r.tail.as_deref().unwrap_or(""), r.truncated);
    results.iter().filter(|r| r.rc != 0).map(|r| (r.cmd.as_str(), output(r))).collect()
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
        let secs = |wait: Option<Dur>| wait.map_or(0, Dur::as_millis) / 1000;
        let seed = |count| Attempts { count, ..Attempts::default() }.wait(AttemptPolicy::Seed);
        let progress =
            |stalled| Attempts { count: 50, stalled, ..Attempts::default() }.wait(AttemptPolicy::Progress);
        let waits = [0, 2, 4, 8, 16, 32, 60, 60, 60];
        assert_eq!((0..9).map(|n| secs(seed(n))).collect::<Vec<_>>(), waits);
        assert_eq!((0..9).map(|n| secs(progress(n))).collect::<Vec<_>>(), waits);
    }

    #[test]
    fn the_number_of_remembered_trees_is_bounded() {
        let mut attempts = Attempts::default();
        (0..2 * MAX_TREES).for_each(|n| attempts.tree_seen(&n.to_string()));
        assert_eq!(attempts.trees.len(), MAX_TREES);
        assert!(attempts.is_new_tree("0") && !attempts.is_new_tree(&(2 * MAX_TREES - 1).to_string()));
    }

    #[test]
    fn hard_stops_repeat_only_if_consecutive_and_without_progress() {
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
