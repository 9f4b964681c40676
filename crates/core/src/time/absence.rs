//! Detects time in which dogwatch could not run: the host was suspended, the process was stopped, or it got no CPU
//! time.
//!
//! A thread calls [`Spans`] before and after it sleeps. The watchdog's clocks do not advance during the gaps that it
//! returns. Idle time is not a gap, and neither is a SIGCONT without a stop.

use crate::time::dur::Dur;
use crate::time::moment::{Awake, Moment};

/// Clock drift below this is not a suspend.
const HOST_SLEPT: Dur = Dur::from_secs(1);
/// A deadline missed by less than this is normal on a busy machine.
const STARVED: Dur = Dur::from_secs(1);

/// A span in which dogwatch could not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// How long the gap lasted.
    pub lasted: Dur,
    /// Whether the awake clock kept running, because the host itself was not suspended.
    pub unwatched: bool,
}

/// Finds the gaps of one thread that alternates between sleeping and running.
#[derive(Debug)]
pub struct Spans {
    /// The last stop that is already counted.
    counted: Option<Awake>,
    /// The last moment before the current sleep at which this thread is known to have run.
    ran: Awake,
    slept: Moment,
    due: Option<Awake>,
    woke: Moment,
    /// The last stop as known at wake-up.
    stop: Option<Awake>,
}

impl Spans {
    /// Starts to look for gaps.
    pub fn new(now: Moment) -> Spans {
        Spans { counted: None, ran: now.awake, slept: now, due: None, woke: now, stop: None }
    }

    /// Notes that the thread goes to sleep until `due`, or until an event wakes it.
    pub fn sleeps(&mut self, now: Moment, due: Option<Awake>) {
        (self.slept, self.due) = (now, due);
    }

    /// Notes that the thread woke up. `stop` is when the process was last stopped, read after `now`.
    ///
    /// Returns whether the process was interrupted. If it was, take its pending signals even if none was reported:
    /// after a stop, SIGCONT is one of them.
    pub fn woke(&mut self, now: Moment, stop: Option<Awake>) -> bool {
        (self.woke, self.stop) = (now, stop);
        stop != self.counted
    }

    /// Returns the gaps since the last call. Call it after taking signals; `continued` says whether SIGCONT was one of
    /// them.
    pub fn gaps(&mut self, continued: bool, now: Awake, stop: Option<Awake>) -> Vec<Gap> {
        let woke = self.woke;
        let boot = woke.boot.since(self.slept.boot);
        let host = boot.saturating_sub(woke.awake.since(self.slept.awake));
        let mut gaps = Vec::new();
        if host >= HOST_SLEPT {
            gaps.push(Gap { lasted: host, unwatched: false });
        }
        // A stop after wake-up may have a SIGCONT that was not taken yet. Such a stop is counted by the next call.
        let until = if self.stop == self.counted { now } else { woke.awake };
        let seen = if continued { stop } else { self.stop };
        let interrupted = seen.filter(|_| seen != self.counted);
        self.counted = seen;
        let away = match interrupted {
            Some(at) if continued => Some((at.max(self.ran), until)),
            // Frozen or traced: the end is unknown unless the thread missed a deadline.
            frozen => self.starved_since(frozen).map(|since| (since, woke.awake)),
        };
        self.ran = woke.awake;
        let lasted = away.map_or(Dur::ZERO, |(since, until)| until.since(since));
        if !lasted.is_zero() {
            gaps.push(Gap { lasted, unwatched: true });
        }
        gaps
    }

    /// Returns when the thread stopped getting CPU time, if it slept well past its deadline.
    fn starved_since(&self, frozen: Option<Awake>) -> Option<Awake> {
        let due = self.due?;
        let since = frozen.map_or(due, |at| at.min(due)).max(self.slept.awake);
        let late = self.woke.awake.since(due.max(self.slept.awake));
        (late >= STARVED).then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::default().plus(Dur::from_millis(ms))
    }

    /// Returns the milliseconds counted for one sleep from `slept` until `woke` with the given deadline and stop.
    fn gaps(spans: &mut Spans, slept: u64, due: u64, woke: u64, stop: Option<u64>, continued: bool) -> u64 {
        let stop = stop.map(Awake);
        spans.sleeps(at(slept), Some(Awake(due)));
        spans.woke(at(woke), stop);
        let found = spans.gaps(continued, Awake(woke + 2), stop);
        assert!(found.iter().all(|gap| gap.unwatched));
        found.iter().map(|gap| gap.lasted.as_millis()).sum()
    }

    #[test]
    fn a_stop_counts_from_its_beginning_until_the_process_runs_again() {
        let mut spans = Spans::new(at(0));
        assert_eq!(gaps(&mut spans, 10, 90_000, 9_000, Some(7_900), true), 1_100);
        assert_eq!(
            gaps(&mut spans, 9_010, 90_000, 9_100, Some(7_900), true),
            0,
            "a SIGCONT without a stop does not count"
        );
        assert_eq!(gaps(&mut spans, 9_110, 90_000, 9_200, Some(9_150), true), 50);
    }

    #[test]
    fn a_stop_before_the_thread_went_to_sleep_counts_in_full() {
        let mut spans = Spans::new(at(0));
        assert_eq!(gaps(&mut spans, 100, 90_000, 200, None, false), 0);
        // The thread runs until 250 and is stopped. SIGCONT is pending when it sleeps at 3 s.
        assert_eq!(gaps(&mut spans, 3_000, 90_000, 3_000, Some(250), true), 2_750);
    }

    #[test]
    fn a_stop_between_waking_up_and_taking_the_signals_counts_once() {
        let mut spans = Spans::new(at(0));
        spans.sleeps(at(100), None);
        spans.woke(at(200), None);
        let gap = Gap { lasted: Dur::from_millis(1_800), unwatched: true };
        assert_eq!(spans.gaps(true, Awake(2_010), Some(Awake(210))), [gap]);
        // If its SIGCONT was not taken yet, the next call counts the stop.
        spans.sleeps(at(2_020), None);
        spans.woke(at(2_030), Some(Awake(210)));
        assert_eq!(spans.gaps(false, Awake(4_000), Some(Awake(2_040))), []);
        spans.sleeps(at(4_000), None);
        assert!(spans.woke(at(4_001), Some(Awake(2_040))));
        let gap = Gap { lasted: Dur::from_millis(1_961), unwatched: true };
        assert_eq!(spans.gaps(true, Awake(4_001), Some(Awake(2_040))), [gap]);
    }

    #[test]
    fn a_missed_deadline_counts_as_time_without_cpu() {
        let mut spans = Spans::new(at(0));
        assert_eq!(gaps(&mut spans, 100, 5_000, 5_900, None, false), 0, "a busy machine");
        assert_eq!(gaps(&mut spans, 6_000, 8_000, 11_000, None, false), 3_000);
        assert_eq!(gaps(&mut spans, 30_000, 20_000, 30_001, None, false), 0, "the thread itself was busy");
        // A container freezer: it begins at 32 s and lasts past the deadline.
        assert_eq!(gaps(&mut spans, 31_000, 40_000, 52_000, Some(32_000), false), 20_000);
        // A freeze that ended before the deadline has no known length.
        assert_eq!(gaps(&mut spans, 53_000, 60_000, 60_000, Some(54_000), false), 0);
        assert_eq!(
            gaps(&mut spans, 61_000, 90_000, 62_000, Some(54_000), true),
            0,
            "a later SIGCONT does not count"
        );
    }

    #[test]
    fn host_suspend_is_reported_as_watched() {
        let mut spans = Spans::new(at(0));
        spans.sleeps(at(100), None);
        let mut woke = at(200);
        woke.boot = woke.boot.plus(Dur::from_secs(60));
        spans.woke(woke, None);
        let gap = Gap { lasted: Dur::from_secs(60), unwatched: false };
        assert_eq!(spans.gaps(false, Awake(201), None), [gap]);
    }
}
