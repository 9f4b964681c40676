//! Learned idling: when work arrives, how long to wait for it, and how to explain that.
//!
//! All arithmetic is on integers, so the same events give the same waits on every machine. Times are milliseconds.
//!
//! - `arrivals`: the state, three additive tables and a ledger;
//! - `schedule`: the plain exponential waits, and the prices of looks and of waiting;
//! - `decide`: the wait after an idle look;
//! - `looks`: the fold of a journal's events into the state;
//! - `explain`: the pattern, the chart and the expected time in words;
//! - `forecast`: the forecast for the coming hours, from a loop's history;
//! - `trace`: what the rule would have done with recorded arrivals.

mod arrivals;
mod decide;
mod explain;
mod forecast;
mod looks;
mod schedule;
mod trace;

pub use arrivals::{Arrivals, Gap, LearnedState, MIN_ARRIVALS};
pub use decide::{Basis, IdleWait};
pub use explain::DAYS;
pub use forecast::{Forecast, ForecastLook, Now};
pub use looks::{History, Savings};
pub use schedule::Schedule;
pub use trace::{BadTrace, Judged, MAX_TRACE_SPAN, Replayed, Trace};

/// One arrival in the tables, which count in 1/65536.
const ONE: u64 = 1 << 16;
/// The number of age classes of an idle streak.
const AGES: usize = 14;
/// The hours of a week.
const WEEK: usize = 168;
/// The five-minute phases of an hour.
const PHASES: usize = 12;
/// Five minutes: the grid on which gaps are cut.
const PHASE: u64 = 300_000;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 86_400_000;
/// The oldest idle streak that is distinguished from older ones.
const OLDEST: u64 = crate::time::dur::Dur::LONGEST.as_millis();

/// Returns the age class of an idle streak. Class k ends at 30 s · (2^(k+1) − 1); the last class has no end.
fn age_class(age: u64) -> usize {
    let doublings = (age / 30_000 + 1).ilog2() as usize;
    doublings.min(AGES - 1)
}

/// Returns the age at which a class ends, or `None` for the last class.
fn class_end(class: usize) -> Option<u64> {
    (class < AGES - 1).then(|| 30_000 * ((1 << (class + 1)) - 1))
}

/// Returns the hour of the week of a local time. Hour 0 is Monday 00:00; 1970-01-01 was a Thursday.
fn hour_of_week(local: u64) -> usize {
    ((local / HOUR + 72) % WEEK as u64) as usize
}

/// Returns the five-minute phase of the hour of a local time.
fn phase_of_hour(local: u64) -> usize {
    (local % HOUR / PHASE) as usize
}

/// Returns the local time of a wall-clock time, as milliseconds since the epoch. Times before 1970 become zero.
fn local(wall: i64, offset_ms: i64) -> u64 {
    u64::try_from(wall.saturating_add(offset_ms)).unwrap_or(0)
}
