//! The state of learned idling: how often work arrived, by age of the idle streak, hour of the week and phase of the hour.

use super::schedule::Schedule;
use super::{AGES, DAY, OLDEST, ONE, PHASE, PHASES, WEEK, age_class, class_end, hour_of_week, phase_of_hour};
use crate::time::moment::Wall;
use serde::{Deserialize, Serialize};

/// The share of the tables that is kept each day, in 1/65536: half of it is forgotten after 56 days.
const DECAY: u64 = 64_730;
/// The number of days after which nothing is left of the tables.
const FORGOTTEN_DAYS: u64 = 2_000;
/// The longest gap between two looks that is learned from.
const LONGEST_GAP: u64 = DAY;
/// The smallest number that is too large for a table. JSON readers keep integers below it exactly.
const TOO_LARGE: u64 = 1 << 53;
/// The number of arrivals from which a pattern is reported.
pub const MIN_ARRIVALS: u64 = 10;
/// The version of the recorded state.
const VERSION: u32 = 1;
/// How many days the state may be ahead of the clock. A state that is further ahead comes from a clock that was wrong.
const MAX_AHEAD_DAYS: u64 = 1;

/// Arrivals and the idle time in which they could have been seen, by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table<const N: usize> {
    /// The arrivals, in 1/65536.
    pub e: [u64; N],
    /// The idle time in milliseconds.
    pub x: [u64; N],
}

impl<const N: usize> Table<N> {
    const EMPTY: Table<N> = Table { e: [0; N], x: [0; N] };

    fn add(&mut self, class: usize, e: u64, x: u64) {
        self.e[class] = self.e[class].saturating_add(e);
        self.x[class] = self.x[class].saturating_add(x);
    }

    fn cells(&mut self) -> impl Iterator<Item = &mut u64> {
        self.e.iter_mut().chain(self.x.iter_mut())
    }

    fn read(e: &[u64], x: &[u64]) -> Option<Table<N>> {
        let table = Table { e: e.try_into().ok()?, x: x.try_into().ok()? };
        table.e.iter().chain(&table.x).all(|v| *v < TOO_LARGE).then_some(table)
    }
}

/// The pattern in which work arrives, as a loop has learned it. It does not depend on the loop's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// The UTC day, counted from 1970-01-01, to which the tables have decayed. Zero before the first gap.
    day: u64,
    /// The number of arrivals ever seen.
    pub(super) arrivals: u64,
    /// The ledger: how much worse than plain waits the learned ones may still be, in milliseconds. `None` is full.
    credit: Option<i64>,
    pub(super) age: Table<AGES>,
    pub(super) week: Table<WEEK>,
    pub(super) phase: Table<PHASES>,
}

/// The time between two looks of an idle streak. The earlier look found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When the later look happened, in milliseconds of the wall clock.
    pub end: i64,
    /// The length of the gap.
    pub length: u64,
    /// The age of the idle streak at the earlier look.
    pub age: u64,
    /// Local time minus UTC.
    pub offset_ms: i64,
    /// Whether the later look found work.
    pub found: bool,
}

/// The recorded form of the state. Readers ignore a state that they cannot use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LearnedState {
    /// The version of this form: 1.
    pub v: u32,
    /// The UTC day, counted from 1970-01-01, to which the tables have decayed.
    pub day: u64,
    /// The number of arrivals ever seen.
    pub arrivals: u64,
    /// The credit of the ledger in milliseconds, or null if it is full.
    pub credit: Option<i64>,
    /// Arrivals in 1/65536 for 14 ages of an idle streak.
    pub age_e: Vec<u64>,
    /// Idle milliseconds for the same ages.
    pub age_x: Vec<u64>,
    /// Arrivals in 1/65536 for the 168 local hours of the week, from Monday 00:00.
    pub week_e: Vec<u64>,
    /// Idle milliseconds for the same hours.
    pub week_x: Vec<u64>,
    /// Arrivals in 1/65536 for the 12 five-minute phases of the hour.
    pub phase_e: Vec<u64>,
    /// Idle milliseconds for the same phases.
    pub phase_x: Vec<u64>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals {
            day: 0,
            arrivals: 0,
            credit: None,
            age: Table::EMPTY,
            week: Table::EMPTY,
            phase: Table::EMPTY,
        }
    }
}

impl Arrivals {
    /// Returns whether no idle time has been seen yet.
    pub fn is_empty(&self) -> bool {
        self.age.x.iter().all(|x| *x == 0)
    }

    /// Returns the number of arrivals ever seen.
    pub fn count(&self) -> u64 {
        self.arrivals
    }

    /// Returns the credit of the ledger, in milliseconds, under these prices.
    pub fn credit(&self, schedule: &Schedule) -> i64 {
        self.credit.unwrap_or_else(|| schedule.bucket())
    }

    /// Returns whether the state comes from a clock that was ahead of this one. It would not decay until then.
    pub fn is_ahead_of(&self, now: Wall) -> bool {
        let today = u64::try_from(now.0).unwrap_or(0) / DAY;
        self.day > today.saturating_add(MAX_AHEAD_DAYS)
    }

    /// Adds the time between two looks. An arrival is spread evenly over the gap. Ignores a gap that is empty, longer
    /// than a day, or before 1970.
    pub fn fold(&mut self, gap: Gap) {
        let Gap { end, length, offset_ms, found, .. } = gap;
        let age = gap.age.min(OLDEST);
        if length == 0 || length > LONGEST_GAP {
            return;
        }
        let begin = end.saturating_add(offset_ms).saturating_sub_unsigned(length);
        let (Ok(begin), Ok(end)) = (u64::try_from(begin), u64::try_from(end)) else { return };
        self.forget(end / DAY);
        self.arrivals = self.arrivals.saturating_add(u64::from(found));
        let mut a = 0;
        let mut before = 0;
        while a < length {
            let (class, local) = (age_class(age.saturating_add(a)), begin.saturating_add(a));
            let mut b = length.min(a + PHASE - local % PHASE);
            if let Some(end) = class_end(class) {
                b = b.min(end - age);
            }
            let (mut e, mut x) = (0, b - a);
            if found {
                let upto = ONE * b / length;
                e = upto - before;
                x = x * (2 * length - a - b) / (2 * length);
                before = upto;
            }
            self.age.add(class, e, x);
            self.week.add(hour_of_week(local), e, x);
            self.phase.add(phase_of_hour(local), e, x);
            a = b;
        }
    }

    /// Decays the tables to this day. A day in the past changes nothing.
    fn forget(&mut self, day: u64) {
        let steps = day.saturating_sub(self.day);
        if self.day > 0 && steps > 0 {
            let cells = self.age.cells().chain(self.week.cells()).chain(self.phase.cells());
            for cell in cells.filter(|cell| **cell > 0) {
                *cell = decayed(*cell, steps);
            }
        }
        self.day = self.day.max(day);
    }

    /// Settles the ledger after an idle streak that ended because there was work. Pays in what plain waits would have
    /// cost and a tenth of it, and takes out what the streak cost. `looks` counts the idle looks of the streak, `gap` is
    /// the time from the last of them to the look that found the work, and `age` is the age of the streak then.
    pub fn settle(&mut self, schedule: &Schedule, looks: u64, gap: u64, age: u64) {
        let arrived = age.saturating_sub(gap / 2).max(1);
        let plain = schedule.plain_cost(arrived);
        let paid_in = signed(plain.saturating_add(plain / 10));
        let used = schedule.look().saturating_mul(looks.saturating_sub(1)).saturating_add(gap - gap / 2);
        let credit = self.credit(schedule).saturating_add(paid_in).saturating_sub(signed(used));
        self.credit = Some(credit.min(schedule.bucket()));
    }

    /// Returns the recorded form of the state.
    pub fn recorded(&self) -> LearnedState {
        LearnedState {
            v: VERSION,
            day: self.day,
            arrivals: self.arrivals,
            credit: self.credit,
            age_e: self.age.e.to_vec(),
            age_x: self.age.x.to_vec(),
            week_e: self.week.e.to_vec(),
            week_x: self.week.x.to_vec(),
            phase_e: self.phase.e.to_vec(),
            phase_x: self.phase.x.to_vec(),
        }
    }

    /// Reads a recorded state. Returns `None` if it has another version, another shape, or numbers that no fold produces.
    pub fn read(state: &LearnedState) -> Option<Arrivals> {
        let credit_fits = state.credit.is_none_or(|credit| credit.unsigned_abs() < TOO_LARGE);
        let fits = state.v == VERSION && credit_fits && state.day < TOO_LARGE && state.arrivals < TOO_LARGE;
        Some(Arrivals {
            day: Some(state.day).filter(|_| fits)?,
            arrivals: state.arrivals,
            credit: state.credit,
            age: Table::read(&state.age_e, &state.age_x)?,
            week: Table::read(&state.week_e, &state.week_x)?,
            phase: Table::read(&state.phase_e, &state.phase_x)?,
        })
    }
}

fn decayed(mut value: u64, steps: u64) -> u64 {
    if steps > FORGOTTEN_DAYS {
        return 0;
    }
    for _ in 0..steps {
        // The product of the whole number would not fit.
        value = (value >> 16) * DECAY + (((value & 0xffff) * DECAY) >> 16);
    }
    value
}

/// Converts a number of milliseconds; the largest numbers saturate.
pub(super) fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
