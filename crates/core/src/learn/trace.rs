//! Recorded arrivals, and what plain and learned waits would have done with them.

use super::DAY;
use super::arrivals::{Arrivals, Gap, signed};
use super::schedule::Schedule;
use serde::Serialize;
use std::fmt;

/// How long a session works on what a look found, in milliseconds.
const SESSION: u64 = 600_000;
/// The longest time that a trace may cover, in days.
pub const MAX_TRACE_SPAN: u64 = 3_660;

/// Recorded arrivals of work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    start: i64,
    end: i64,
    /// From when on which offset of local time applies, in order of time.
    offsets: Vec<(i64, i64)>,
    /// The arrivals in order of time.
    arrivals: Vec<i64>,
}

/// Why a text is not a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTrace {
    /// This line is neither a header nor a time. Lines are counted from 1.
    Line(usize),
    /// The trace has no arrival and no `start` and `end`.
    Empty,
    /// The trace ends before it starts, or covers more than [`MAX_TRACE_SPAN`] days.
    Span,
}

impl fmt::Display for BadTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTrace::Line(n) => write!(f, "line {n} is neither a header nor a time in Unix seconds"),
            BadTrace::Empty => f.write_str("no arrivals, and no `# start:` and `# end:`"),
            BadTrace::Span => {
                write!(f, "the trace must end after its start, and within {MAX_TRACE_SPAN} days of it")
            }
        }
    }
}

/// The figures of a policy on a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// Empty looks per day.
    pub looks_per_day: f64,
    /// The mean time from an arrival to the look that found it, in seconds.
    pub mean_s: f64,
    /// The 95th percentile of that time, in seconds.
    pub p95_s: f64,
    #[serde(skip)]
    cost_per_day_s: f64,
}

/// The comparison of learned and plain waits on a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    #[serde(flatten)]
    /// The figures of learned waits.
    pub learned: Replayed,
    /// The same for plain waits.
    pub exponential: Replayed,
    /// The cost of the learned waits divided by the cost of the plain ones.
    pub cost_ratio: f64,
}

impl Trace {
    /// Parses a trace: one arrival per line in Unix seconds, and headers `# start:`, `# end:` and `# offset: FROM OFFSET`.
    /// Other headers and comments are ignored.
    pub fn parse(text: &str) -> Result<Trace, BadTrace> {
        let (mut start, mut end) = (None, None);
        let (mut offsets, mut arrivals) = (Vec::new(), Vec::new());
        for (n, line) in text.lines().enumerate() {
            let bad = || BadTrace::Line(n + 1);
            let time = |word: &str| millis(word).ok_or_else(bad);
            let line = line.trim();
            let Some(header) = line.strip_prefix('#') else {
                if !line.is_empty() {
                    arrivals.push(time(line)?);
                }
                continue;
            };
            let (name, value) = header.split_once(':').unwrap_or((header, ""));
            match name.trim() {
                "start" => start = Some(time(value)?),
                "end" => end = Some(time(value)?),
                "offset" => {
                    let (from, offset) = value.trim().split_once(' ').ok_or_else(bad)?;
                    offsets.push((time(from)?, time(offset)?));
                }
                _ => {}
            }
        }
        arrivals.sort_unstable();
        offsets.sort_unstable();
        let start = start.or(arrivals.first().copied()).ok_or(BadTrace::Empty)?;
        let end = end.or(arrivals.last().copied()).ok_or(BadTrace::Empty)?;
        let most = signed(MAX_TRACE_SPAN * DAY);
        if start < 0 || !(start..=start.saturating_add(most)).contains(&end) || start == end {
            return Err(BadTrace::Span);
        }
        Ok(Trace { start, end, offsets, arrivals })
    }

    /// Returns what learned and plain waits would have done. The first half of the days runs with plain waits and is
    /// learned from; the second half is judged.
    pub fn judge(&self, schedule: &Schedule) -> Judged {
        let (exponential, learned) = (self.replay(schedule, false), self.replay(schedule, true));
        let cost_ratio = match exponential.cost_per_day_s > 0.0 {
            true => learned.cost_per_day_s / exponential.cost_per_day_s,
            false => 1.0,
        };
        Judged { learned, exponential, cost_ratio }
    }

    fn offset_at(&self, now: i64) -> i64 {
        let after = self.offsets.partition_point(|(from, _)| *from <= now);
        after.checked_sub(1).map_or(0, |ix| self.offsets[ix].1)
    }

    /// Replays the trace. A look that finds work takes all of it, works for [`SESSION`] and looks again at once.
    fn replay(&self, schedule: &Schedule, learned: bool) -> Replayed {
        let day = signed(DAY);
        let half = self.start + (self.end - self.start) / day / 2 * day;
        let span = |from: i64, to: i64| u64::try_from(to - from).unwrap_or(0);
        let mut state = Arrivals::default();
        let (mut now, mut next, mut streak, mut since, mut last) = (self.start, 0, 0u64, 0, 0);
        let (mut waits, mut looks) = (Vec::new(), 0u64);
        while now < self.end {
            let offset_ms = self.offset_at(now);
            let fold = |state: &mut Arrivals, found| {
                state.fold(Gap {
                    end: now,
                    length: span(last, now),
                    age: span(since, last),
                    offset_ms,
                    found,
                });
            };
            let judged = now >= half;
            if let Some(first) = self.arrivals.get(next).copied().filter(|at| *at <= now) {
                next += self.arrivals[next..].partition_point(|at| *at <= now);
                if streak > 0 {
                    fold(&mut state, true);
                    if judged {
                        waits.push(span(first, now));
                        state.settle(schedule, streak, span(last, now), span(since, now));
                    }
                }
                streak = 0;
                now += signed(SESSION);
                continue;
            }
            streak += 1;
            looks += u64::from(judged);
            if streak > 1 {
                fold(&mut state, false);
            } else {
                since = now;
            }
            last = now;
            let wait = match learned && judged {
                true => state.decide(schedule, now, offset_ms, span(since, now), streak).wait.as_millis(),
                false => schedule.nth(streak),
            };
            now += signed(wait);
        }
        let days = span(half, self.end) as f64 / DAY as f64;
        replayed(waits, looks, days, schedule)
    }
}

fn replayed(mut waits: Vec<u64>, looks: u64, days: f64, schedule: &Schedule) -> Replayed {
    waits.sort_unstable();
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let total: u64 = waits.iter().sum();
    let p95 = waits.len().saturating_sub(1) * 95 / 100;
    Replayed {
        looks_per_day: looks as f64 / days,
        mean_s: if waits.is_empty() { 0.0 } else { seconds(total) / waits.len() as f64 },
        p95_s: waits.get(p95).copied().map_or(0.0, seconds),
        cost_per_day_s: seconds(schedule.look().saturating_mul(looks).saturating_add(total)) / days,
    }
}

/// Parses a number of seconds, with an optional fraction, as milliseconds.
fn millis(word: &str) -> Option<i64> {
    let (whole, fraction) = word.trim().split_once('.').unwrap_or((word.trim(), ""));
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let fraction: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(fraction)
}
