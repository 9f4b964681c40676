//! Idle streaks: how long to wait when there is nothing to do, and when to stop waiting.

use crate::record::event::InputDigest;
use crate::settings::{IdlePolicy, StopAfter, Strategy};
use crate::time::dur::Dur;
use crate::time::moment::Boot;

/// A streak of consecutive idle iterations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdleStreak {
    /// The number of idle iterations.
    pub count: u64,
    /// When the first idle iteration ended.
    pub since: Option<Boot>,
    /// The part of the streak that passed under an earlier dogwatch process.
    pub before: Dur,
    /// The reason of the last idle iteration.
    pub reason: String,
    /// The number of consecutive iterations with that reason.
    pub same_reason: u64,
    /// Whether the last idle iteration did not call the agent.
    pub skipped: bool,
    /// The last wait, for strategies that derive the next one from it.
    pub last_delay: Dur,
    /// The input digest of the agent's last idle answer.
    pub input_digest: Option<InputDigest>,
    /// Waits of this streak that ended by a path that had changed while the agent worked.
    pub own_wakes: u32,
}

/// The number of times an agent may wake itself in a streak. An agent that changes a file that wakes it would
/// otherwise wake itself forever.
pub const MAX_OWN_WAKES: u32 = 2;

/// Returns a pseudo-random number for an event, from the run's seed and the event's number. It is the same in
/// every replay.
pub fn draw(seed: u64, seq: u64) -> u64 {
    // SplitMix64: one round is enough to spread neighboring numbers over all bits.
    let mut z = seed.wrapping_add(seq.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl IdleStreak {
    /// Adds an idle iteration to the streak.
    pub fn add(&mut self, at: Boot, reason: &str) {
        self.count = self.count.saturating_add(1);
        self.since.get_or_insert(at);
        if self.reason == reason {
            self.same_reason = self.same_reason.saturating_add(1);
        } else {
            self.reason = reason.to_owned();
            self.same_reason = 1;
        }
    }

    /// Returns the time since the end of the streak's first idle iteration, without unsupervised time.
    pub fn lasted(&self, now: Boot) -> Dur {
        self.before.saturating_add(self.since.map_or(Dur::ZERO, |s| now.since(s)))
    }
}

/// Returns the wait after the streak's n-th idle iteration, before `idle.max` shortens it. `random` comes from
/// [`draw`]; only jitter uses it. For `learned` this is the wait without any history.
pub fn delay(policy: &IdlePolicy, n: u64, last: Dur, random: u64) -> Dur {
    let base = policy.delay.as_millis() as f64;
    let ms = match policy.strategy {
        Strategy::Fixed => base,
        Strategy::Exponential | Strategy::Learned => {
            return exponential(policy.delay, policy.backoff, policy.max_delay, n);
        }
        Strategy::Fibonacci => base * fibonacci(n),
        Strategy::Decorrelated => {
            let top = (last.as_millis() as f64 * 3.0).max(base);
            base + (top - base) * (random as f64 / u64::MAX as f64)
        }
    };
    capped(ms, policy.max_delay)
}

/// Returns the n-th wait of a streak whose waits grow by a factor.
pub fn exponential(delay: Dur, backoff: f64, max_delay: Dur, n: u64) -> Dur {
    // Beyond 2^1000 every base exceeds every cap; the bound keeps the power finite and cheap.
    let doublings = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX).min(1000);
    capped(delay.as_millis() as f64 * backoff.powi(doublings), max_delay)
}

fn capped(ms: f64, cap: Dur) -> Dur {
    // Compare before converting: an infinite product must become the cap, not an overflow.
    if ms.is_nan() || ms >= cap.as_millis() as f64 { cap } else { Dur::from_millis(ms as u64) }
}

fn fibonacci(n: u64) -> f64 {
    let (mut a, mut b) = (1.0f64, 1.0f64);
    for _ in 1..n.min(1000) {
        (a, b) = (b, a + b);
    }
    a
}

/// Returns the number of idle iterations that counted toward a limit, if a limit is reached. A limit counts all
/// iterations of the streak, or only those with its reason.
pub fn count_reached(policy: &IdlePolicy, idle_streak: &IdleStreak) -> Option<u64> {
    match &policy.stop_after {
        StopAfter::Never => None,
        StopAfter::Count(n) => Some(idle_streak.count).filter(|count| *count >= u64::from(*n)),
        StopAfter::PerReason(limits) => {
            let reached = |(reason, n): &(String, u32)| {
                *reason == idle_streak.reason && idle_streak.same_reason >= u64::from(*n)
            };
            limits.iter().any(reached).then_some(idle_streak.same_reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(policy: &IdlePolicy, n: u64) -> u64 {
        delay(policy, n, Dur::ZERO, 0).as_millis() / 1000
    }

    #[test]
    fn origin_3_layer_1_the_wait_doubles_up_to_the_cap() {
        let policy = IdlePolicy::default();
        let waits: Vec<u64> = (1..=7).map(|n| seconds(&policy, n)).collect();
        assert_eq!(waits, [30, 60, 120, 240, 300, 300, 300]);
    }

    #[test]
    fn loop_64_the_delay_never_overflows_however_long_the_streak() {
        for strategy in Strategy::ALL.iter().copied() {
            let policy = IdlePolicy { strategy, backoff: 1e300, ..IdlePolicy::default() };
            for n in [1, 2, 1_000_000, u64::MAX] {
                let d = delay(&policy, n, Dur::from_millis(u64::MAX), u64::MAX);
                assert!(d <= policy.max_delay && d >= policy.delay, "{strategy:?} {n} {d}");
            }
        }
    }

    #[test]
    fn fixed_stays_and_fibonacci_grows_gently() {
        let fixed = IdlePolicy { strategy: Strategy::Fixed, ..IdlePolicy::default() };
        assert_eq!((1..=3).map(|n| seconds(&fixed, n)).collect::<Vec<_>>(), [30, 30, 30]);
        let fib = IdlePolicy { strategy: Strategy::Fibonacci, ..IdlePolicy::default() };
        assert_eq!((1..=7).map(|n| seconds(&fib, n)).collect::<Vec<_>>(), [30, 30, 60, 90, 150, 240, 300]);
    }

    #[test]
    fn jitter_stays_between_the_delay_and_three_times_the_last_wait() {
        let policy = IdlePolicy { strategy: Strategy::Decorrelated, ..IdlePolicy::default() };
        assert_eq!(delay(&policy, 2, Dur::from_secs(40), 0), Dur::from_secs(30));
        assert_eq!(delay(&policy, 2, Dur::from_secs(40), u64::MAX), Dur::from_secs(120));
        assert_eq!(delay(&policy, 1, Dur::ZERO, u64::MAX), Dur::from_secs(30));
    }

    #[test]
    fn origin_3_a_limit_per_reason_counts_only_that_reason_in_a_row() {
        let policy = IdlePolicy::default();
        let mut idle_streak = IdleStreak::default();
        for _ in 0..7 {
            idle_streak.add(Boot(0), "at_capacity");
        }
        idle_streak.add(Boot(0), "no_pending_tasks");
        assert_eq!(count_reached(&policy, &idle_streak), None);
        for _ in 0..7 {
            assert_eq!(count_reached(&policy, &idle_streak), None);
            idle_streak.add(Boot(0), "no_pending_tasks");
        }
        assert_eq!(
            count_reached(&policy, &idle_streak),
            Some(8),
            "the seven with a different reason do not count"
        );
        assert_eq!(idle_streak.count, 15);
    }
}
