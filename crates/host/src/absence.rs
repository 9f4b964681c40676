//! Detects time in which dogwatch could not run. See [`Spans`] for the calculation.

use crate::clock;
use crate::sys::StopClock;
use dogwatch_core::time::absence::Spans;
use dogwatch_core::time::moment::Awake;

pub use dogwatch_core::time::absence::Gap;

/// The clock that knows when this process was last stopped.
#[derive(Debug)]
pub struct Stops(StopClock);

impl Stops {
    /// Starts the clock.
    pub fn start() -> Stops {
        Stops(StopClock::start())
    }

    /// Returns when this process was last stopped, if it ever was.
    pub fn last(&self) -> Option<Awake> {
        let at = self.0.last_stop()?;
        u64::try_from(at.as_millis()).ok().map(Awake)
    }
}

/// Finds the gaps of one thread that alternates between sleeping and running.
#[derive(Debug)]
pub struct Absence {
    stops: Stops,
    spans: Spans,
}

impl Absence {
    /// Starts to watch for gaps.
    pub fn new() -> Absence {
        Absence { stops: Stops::start(), spans: Spans::new(clock::now()) }
    }

    /// Records that the thread goes to sleep until `due`, or until an event wakes it.
    pub fn sleeps(&mut self, due: Option<Awake>) {
        self.spans.sleeps(clock::now(), due);
    }

    /// Records that the thread woke up. Call it first after waking. Returns whether the process was interrupted.
    pub fn woke(&mut self) -> bool {
        // Read the clock first: a stop that the next line does not see began after this moment.
        let now = clock::now();
        self.spans.woke(now, self.stops.last())
    }

    /// Returns the gaps since the last call. Call it after taking signals; `continued` says whether SIGCONT was one
    /// of them.
    pub fn gaps(&mut self, continued: bool) -> Vec<Gap> {
        let stop = self.stops.last();
        self.spans.gaps(continued, clock::awake(), stop)
    }
}
