//! The age of a run or a node as the watchdog counts it: awake time under supervision.

use crate::time::dur::Dur;
use crate::time::moment::Awake;

/// Awake time, summed over the intervals in which it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedTime {
    /// The sum of the finished intervals.
    before: Dur,
    /// The start of the open interval, if there is one.
    since: Option<Awake>,
}

impl WatchedTime {
    /// Starts an interval.
    pub fn start(&mut self, at: Awake) {
        self.stop(at);
        self.since = Some(at);
    }

    /// Ends the open interval.
    pub fn stop(&mut self, at: Awake) {
        self.before = self.lasted(at);
        self.since = None;
    }

    /// Ends the open interval at `last`, when the supervisor was lost, and starts a new one at `at`. The awake clock
    /// may have restarted in between.
    pub fn resume(&mut self, last: Awake, at: Awake) {
        if self.since.is_some() {
            self.stop(last);
            self.since = Some(at);
        }
    }

    /// Subtracts time in which dogwatch could not run from the open interval.
    pub fn take_out(&mut self, span: Dur) {
        self.since = self.since.map(|since| since.plus(span));
    }

    /// Returns the total up to `now`.
    pub fn lasted(&self, now: Awake) -> Dur {
        self.before.saturating_add(self.since.map_or(Dur::ZERO, |since| now.since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up_without_the_time_between_them() {
        let mut time = WatchedTime::default();
        assert_eq!(time.lasted(Awake(500)), Dur::ZERO);
        time.start(Awake(1_000));
        time.resume(Awake(4_000), Awake(200));
        assert_eq!(time.lasted(Awake(1_200)), Dur::from_secs(4));
        time.take_out(Dur::from_millis(600));
        assert_eq!(time.lasted(Awake(1_200)), Dur::from_millis(3_400));
        time.stop(Awake(1_200));
        time.resume(Awake(1_200), Awake(9_000));
        assert_eq!(time.lasted(Awake(90_000)), Dur::from_millis(3_400));
    }
}
