//! Protection against crash loops: growing waits, and a circuit breaker.

use crate::settings::ErrorPolicy;
use crate::text::figures::count;
use crate::time::dur::Dur;
use crate::time::moment::Boot;
use std::collections::VecDeque;

/// The longest wait after a failure.
const MAX_WAIT: Dur = Dur::from_secs(60);
/// A session that fails within this time counts as an instant failure.
const INSTANT: Dur = Dur::from_secs(5);

/// The failed sessions since the last good one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failures {
    /// The number of consecutive failures, which determines the wait.
    pub in_row: u32,
    /// The most recent ones, at most `ErrorPolicy::max`.
    recent: VecDeque<Failure>,
}

#[derive(Clone, Debug, PartialEq)]
struct Failure {
    at: Boot,
    fingerprint: String,
    instant: bool,
}

impl Failures {
    /// Moves the failures to the clock of a new supervisor, whose boot clock may be another one. The time without a
    /// supervisor does not count.
    pub fn resume(&mut self, last: Boot, now: Boot) {
        for failure in &mut self.recent {
            failure.at = Boot(now.0.saturating_sub(last.since(failure.at).as_millis()));
        }
    }

    /// The most failures that are remembered, whatever the policy.
    pub const MAX_REMEMBERED: usize = 1000;

    /// Adds a failure of a session that lasted `session`.
    pub fn add(&mut self, at: Boot, fingerprint: &str, session: Dur) {
        self.in_row = self.in_row.saturating_add(1);
        if self.recent.len() == Failures::MAX_REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(Failure {
            at,
            fingerprint: fingerprint.to_owned(),
            instant: session < INSTANT,
        });
    }

    /// Returns the number of remembered failures within `window` before `now`.
    pub fn within(&self, window: Dur, now: Boot) -> u64 {
        self.recent.iter().filter(|f| now.since(f.at) <= window).count() as u64
    }

    /// Forgets all failures.
    pub fn clear(&mut self) {
        *self = Failures::default();
    }

    /// Returns the wait after the last failure: 1 s, 2 s, 4 s … 60 s.
    pub fn wait(&self) -> Dur {
        let doublings = self.in_row.saturating_sub(1).min(16);
        Dur::from_secs(1 << doublings).min(MAX_WAIT)
    }

    /// Returns the reason if the circuit is open: `max` failures within the window are identical or instant.
    pub fn open_circuit(&self, policy: &ErrorPolicy, now: Boot) -> Option<String> {
        let window = || self.recent.iter().filter(|f| now.since(f.at) <= policy.window);
        let last = self.recent.back()?;
        let alike = window().filter(|f| f.fingerprint == last.fingerprint).count() as u64;
        let instant = window().filter(|f| f.instant).count() as u64;
        let max = u64::from(policy.max);
        if alike >= max {
            let alike = count(alike, "identical failure");
            return Some(format!("{alike} within {}: {}", policy.window, last.fingerprint));
        }
        (instant >= max).then(|| {
            let sessions = count(instant, "session");
            format!("{sessions} failed within {INSTANT} of their start, in {}", policy.window)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: ErrorPolicy = ErrorPolicy { max: 5, window: Dur::from_mins(5) };

    #[test]
    fn the_wait_doubles_up_to_a_minute() {
        let mut f = Failures::default();
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                f.add(Boot(0), "x", Dur::ZERO);
                f.wait().as_millis() / 1000
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn five_identical_failures_open_the_circuit_and_four_do_not() {
        let mut f = Failures::default();
        for n in 0..5u64 {
            assert_eq!(f.open_circuit(&POLICY, Boot(n * 60_000)), None);
            f.add(Boot(n * 60_000), "exit 1", Dur::from_secs(50));
        }
        assert!(
            f.open_circuit(&POLICY, Boot(240_000)).is_some_and(|why| why.contains("5 identical failures"))
        );
    }

    #[test]
    fn different_failures_open_it_only_if_they_are_instant() {
        let mut slow = Failures::default();
        let mut quick = Failures::default();
        for n in 0..5u64 {
            slow.add(Boot(n), &format!("exit {n}"), Dur::from_secs(5));
            quick.add(Boot(n), &format!("exit {n}"), Dur::from_millis(4_999));
        }
        assert_eq!(slow.open_circuit(&POLICY, Boot(9)), None);
        assert!(quick.open_circuit(&POLICY, Boot(9)).is_some());
    }

    #[test]
    fn failures_outside_the_window_do_not_count() {
        let mut f = Failures::default();
        for n in 0..5u64 {
            f.add(Boot(n * 76_000), "exit 1", Dur::ZERO);
        }
        assert_eq!(f.open_circuit(&POLICY, Boot(304_000)), None);
    }

    // promise: 4
    #[test]
    fn the_remembered_failures_are_bounded() {
        let mut f = Failures::default();
        for n in 0..(Failures::MAX_REMEMBERED as u64 + 1) {
            f.add(Boot(n), "x", Dur::ZERO);
        }
        assert_eq!(f.recent.len(), Failures::MAX_REMEMBERED);
    }
}
