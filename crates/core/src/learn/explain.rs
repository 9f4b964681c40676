//! The learned pattern, in words and as a chart.

use super::arrivals::{Arrivals, MIN_ARRIVALS};
use super::decide::{Basis, IdleWait, Seasons};
use super::{HOUR, ONE, PHASE, PHASES, WEEK, hour_of_week, local};
use crate::time::dur::Dur;
use crate::time::moment::Wall;

/// The days of the week, from Monday.
pub const DAYS: [&str; 7] =
    ["Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays"];
/// A window of at least this many hours is reported as "at any hour".
const ANY_HOUR: usize = 18;
/// How far ahead work is predicted.
const FAR: u64 = 7 * 24 * HOUR;
/// The expected number of arrivals, in 1/65536, from which one is more likely than not: ln 2.
const LIKELY: u64 = 45_426;
/// Why a wait is plain although there is a history.
const GUARDED: &str = "learned waits have done worse than plain ones lately; using plain waits";

impl Arrivals {
    /// Returns the share of arrivals in each hour of the day, on these days.
    fn by_hour(&self, days: &[usize]) -> [u64; 24] {
        std::array::from_fn(|hour| days.iter().map(|day| self.week.e[day * 24 + hour]).sum())
    }

    /// Returns whether enough arrivals are known for a pattern.
    pub fn has_pattern(&self) -> bool {
        self.arrivals >= MIN_ARRIVALS && self.week.e.iter().sum::<u64>() >= 4 * ONE
    }

    /// Returns one line that says when work usually arrives.
    pub fn pattern(&self) -> String {
        if !self.has_pattern() {
            return format!("work arrived {} times yet: too few for a pattern", self.arrivals);
        }
        let (days, on) = self.days();
        let (start, length) = window(&self.by_hour(days));
        let when = match length >= ANY_HOUR {
            true => "at any hour".to_owned(),
            false => format!("{start:02}:00-{:02}:00", (start + length) % 24),
        };
        let mut line = format!("work usually arrives {when} {on}");
        let phases = &self.phase.e;
        let top = (0..PHASES).rev().max_by_key(|p| phases[*p]).unwrap_or(0);
        if phases[top] * 10 >= phases.iter().sum::<u64>() * 6 {
            line.push_str(&format!(", mostly at :{:02}-:{:02}", top * 5, (top * 5 + 5) % 60));
        }
        line
    }

    /// Returns the days on which work arrives, and their name.
    fn days(&self) -> (&'static [usize], String) {
        const EACH: [[usize; 1]; 7] = [[0], [1], [2], [3], [4], [5], [6]];
        let per_day: [u64; 7] = std::array::from_fn(|day| self.week.e[day * 24..day * 24 + 24].iter().sum());
        let (week, weekend): (u64, u64) = (per_day[..5].iter().sum(), per_day[5..].iter().sum());
        let top = (0..7).rev().max_by_key(|day| per_day[*day]).unwrap_or(0);
        if per_day[top] * 10 >= (week + weekend) * 8 {
            (&EACH[top], format!("on {}", DAYS[top]))
        } else if weekend * 5 * 4 < week * 2 {
            // A day of the weekend has less than a quarter of a weekday.
            (&[0, 1, 2, 3, 4], "on weekdays".to_owned())
        } else if week * 2 * 4 < weekend * 5 {
            (&[5, 6], "at weekends".to_owned())
        } else {
            (&[0, 1, 2, 3, 4, 5, 6], "every day".to_owned())
        }
    }

    /// Returns why an idle wait is as long as it is, in a few words.
    pub fn reason(&self, basis: Basis) -> String {
        match basis {
            Basis::Guard => GUARDED.to_owned(),
            Basis::Plain => "nothing learned yet".to_owned(),
            Basis::Learned => self.pattern(),
        }
    }

    /// Returns one line that explains the next look.
    pub fn explain(&self, wait: IdleWait, now: i64, offset_ms: i64) -> String {
        let at = clock(local(now, offset_ms).saturating_add(wait.wait.as_millis()));
        format!("{}; next look {at}", self.reason(wait.basis))
    }

    /// Returns the arrivals per hour of idle time for each hour of the week, in 1/65536, from Monday 00:00.
    pub fn rates(&self) -> [u64; WEEK] {
        std::array::from_fn(|w| {
            let (e, x) = (u128::from(self.week.e[w]), u128::from(self.week.x[w]));
            let rate = (e * u128::from(HOUR)).checked_div(x).unwrap_or(0);
            u64::try_from(rate).unwrap_or(u64::MAX)
        })
    }

    /// Returns the rates as levels from 0 to 8, relative to the busiest hour.
    pub fn levels(&self) -> [u8; WEEK] {
        let rates = self.rates();
        let top = u128::from(rates.iter().copied().max().unwrap_or(0).max(1));
        rates.map(|rate| u8::try_from((u128::from(rate) * 8).div_ceil(top)).unwrap_or(8))
    }

    /// Returns the time by which work is more likely than not to have arrived, or `None` if no pattern is known or it is
    /// more than a week away. Only the hours of the pattern count: the estimate of the others is never zero, and a quiet
    /// night would add up to an arrival before the office opens.
    pub fn expected_at(&self, now: Wall, offset_ms: i64) -> Option<Wall> {
        let mut seasons = Seasons::new(self);
        let (all_e, all_x) = seasons.all();
        if !self.has_pattern() || all_x == 0 {
            return None;
        }
        let begin = local(now.0, offset_ms);
        let days = self.days().0;
        let (start, length) = window(&self.by_hour(days));
        let is_usual = |at: u64| {
            let hour = hour_of_week(at);
            length >= ANY_HOUR || (days.contains(&(hour / 24)) && (hour % 24 + 24 - start) % 24 < length)
        };
        // Arrivals in 1/65536, with 32 more bits for the small share of five minutes.
        let (mut sum, mut u) = (0u128, 0);
        while u < FAR {
            let at = begin + u;
            let (hour, phase) = seasons.at(at);
            let v = u + PHASE - at % PHASE;
            let season = if is_usual(at) { u128::from(hour) * u128::from(phase) } else { 0 };
            sum += (u128::from(v - u) * u128::from(all_e) * season) / u128::from(all_x);
            if sum >= u128::from(LIKELY) << 32 {
                return Some(now.plus(Dur::from_millis(v)));
            }
            u = v;
        }
        None
    }
}

/// Returns the start and the length of the shortest window that holds nine tenths of the arrivals. Of several the one with
/// the most arrivals counts.
fn window(hours: &[u64; 24]) -> (usize, usize) {
    let need: u64 = hours.iter().sum::<u64>() * 9;
    for length in 1..24 {
        let sum = |start: usize| (0..length).map(|i| hours[(start + i) % 24]).sum::<u64>();
        let best = (0..24).rev().max_by_key(|start| sum(*start)).unwrap_or(0);
        if sum(best) * 10 >= need {
            return (best, length);
        }
    }
    (0, 24)
}

/// Formats the hour and the minute of a local time.
fn clock(local: u64) -> String {
    format!("{:02}:{:02}", local / HOUR % 24, local / 60_000 % 60)
}
