//! How long a run or a node has lasted as the watchdog counts it: awake time under supervision.

use crate::time::dur::Dur;
use crate::time::moment::Awake;

/// Awake time, added up over the stretches in which it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedTime {
    /// The sum of the finished stretches.
    before: Dur,
    /// Where the present stretch began, if one is open.
    since: Option<Awake>,
}

impl WatchedTime {
    pub fn start(&mut self, at: Awake) {
        self.stop(at);
        self.since = Some(at);
    }

    pub fn stop(&mut self, at: Awake) {
        self.before = self.lasted(at);
        self.since = None;
    }

    /// The supervisor was lost at `last` and is back at `at`. The clock may be another one by now.
    pub fn resume(&mut self, last: Awake, at: Awake) {
        if self.since.is_some() {
            self.stop(last);
            self.since = Some(at);
        }
    }

    /// Removes time in which dogwatch could not run from the open stretch.
    pub fn take_out(&mut self, span: Dur) {
        self.since = self.since.map(|since| since.plus(span));
    }

    pub fn lasted(&self, now: Awake) -> Dur {
        self.before.saturating_add(self.since.map_or(Dur::ZERO, |since| now.since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_add_up_without_the_time_between_them() {
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
