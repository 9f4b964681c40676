//! The forecast for the coming hours, from a loop's history.

use super::arrivals::Arrivals;
use super::decide::Basis;
use super::looks::{History, Savings};
use super::schedule::Schedule;
use crate::settings::{IdlePolicy, Strategy};
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use serde::{Deserialize, Serialize};

/// The number of looks that a forecast plans ahead.
const MAX_LOOKS: usize = 12;

/// When work is expected, and when the loop will look for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Forecast {
    /// The node's name.
    pub node: String,
    /// When work usually arrives and when the next look is, as one line for people.
    pub explanation: String,
    /// The strategy of the loop: only with `learned` do the looks follow the history.
    pub strategy: Strategy,
    /// The basis of the next wait.
    pub basis: Basis,
    /// The number of arrivals ever seen.
    pub arrivals: u64,
    /// Local time minus UTC, in seconds.
    pub utc_offset_s: i64,
    /// The time by which work is more likely than not to have arrived. Null if no pattern is known.
    pub expected_at: Option<Wall>,
    /// The looks that follow if none of them finds work.
    pub looks: Vec<ForecastLook>,
    /// Arrivals per hour of idle time, relative to the busiest hour, from 0 to 8: for each of the 168 local hours of the
    /// week, from Monday 00:00.
    pub week: Vec<u8>,
    /// What the idle streaks cost, and what plain waits would have cost.
    pub saved: Savings,
}

/// A planned look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForecastLook {
    /// When the loop looks.
    pub at: Wall,
    /// The wait before it, in seconds.
    pub wait_s: Dur,
}

/// The point from which a forecast is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock.
    pub wall: Wall,
    /// Local time minus UTC, in milliseconds.
    pub offset_ms: i64,
    /// The age of the idle streak in progress.
    pub age: Dur,
    /// The number of idle looks of that streak, or zero.
    pub looks: u64,
    /// The end of the wait in progress.
    pub until: Option<Wall>,
    /// Whether the last look did not call the agent.
    pub skipped: bool,
}

impl Forecast {
    /// Returns the forecast for a node with this idle policy.
    pub fn new(node: &str, history: &History, policy: &IdlePolicy, now: Now) -> Forecast {
        let arrivals = &history.arrivals;
        let schedule = Schedule::of(policy, now.skipped);
        let (looks, basis, line) = plan(arrivals, &schedule, now);
        Forecast {
            node: node.to_owned(),
            explanation: line,
            strategy: policy.strategy,
            basis,
            arrivals: arrivals.count(),
            utc_offset_s: now.offset_ms / 1_000,
            expected_at: arrivals.expected_at(now.wall, now.offset_ms),
            looks,
            week: arrivals.levels().to_vec(),
            saved: history.savings,
        }
    }
}

/// Plans the next looks under the assumption that none of them finds work.
fn plan(arrivals: &Arrivals, schedule: &Schedule, now: Now) -> (Vec<ForecastLook>, Basis, String) {
    let mut looks = Vec::new();
    let (mut at, mut age, mut count) = (now.wall, now.age, now.looks.max(1));
    let mut first = None;
    for _ in 0..MAX_LOOKS {
        let mut decided = arrivals.decide(schedule, at.0, now.offset_ms, age.as_millis(), count);
        if let (None, Some(until)) = (&first, now.until) {
            // The first wait is already in progress.
            decided.wait = Dur::from_millis(u64::try_from(until.0 - at.0).unwrap_or(0));
        }
        if first.is_none() {
            first = Some((decided.basis, arrivals.explain(decided, at.0, now.offset_ms)));
        }
        (at, age, count) = (at.plus(decided.wait), age.saturating_add(decided.wait), count.saturating_add(1));
        looks.push(ForecastLook { at, wait_s: decided.wait });
    }
    let (basis, line) = first.unwrap_or((Basis::Plain, String::new()));
    (looks, basis, line)
}
