//! Refusals of a service, and when they end.

use crate::record::event::words;
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use serde::{Deserialize, Serialize};

words! {
    /// The kinds of refusals.
    LimitKind {
        /// A quota of the account is used up; it resets at a fixed time.
        RateLimit = "rate_limit",
        /// The service is overloaded; the end is not known.
        Overload = "overload",
    }
}

/// The start of the year 2200 in milliseconds; a later time is invalid.
const MAX_WALL: i64 = 7_258_118_400_000;

/// A refusal of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The kind of refusal.
    pub kind: LimitKind,
    /// When it ends, if the service says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resets_at: Option<ResetsAt>,
    /// The service's message, clipped.
    pub text: String,
}

/// When a refusal ends, as precisely as the service says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetsAt {
    /// At a moment.
    At(Wall),
    /// After a duration, counted from the message.
    In(Dur),
    /// At a time of day.
    Clock(Clock),
}

/// A time of day, with or without a date. It means the next such moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The month and the day, if given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub date: Option<(u8, u8)>,
    /// The year, if given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub year: Option<i16>,
    /// The hour, 0 to 23.
    pub hour: u8,
    /// The minute, 0 to 59.
    pub minute: u8,
    /// The name of the time zone, if given; otherwise it is that of the machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub zone: Option<String>,
}

impl ResetsAt {
    /// Converts seconds or milliseconds since 1970.
    pub fn from_epoch(number: u64) -> Option<ResetsAt> {
        const MS_FROM: u64 = 100_000_000_000;
        let ms = if number < MS_FROM { number.saturating_mul(1_000) } else { number };
        i64::try_from(ms).ok().filter(|ms| *ms < MAX_WALL).map(|ms| ResetsAt::At(Wall(ms)))
    }

    /// Parses a time in RFC 3339.
    pub fn from_rfc3339(text: &str) -> Option<ResetsAt> {
        Wall::from_rfc3339(text).map(ResetsAt::At)
    }

    /// Returns the moment that a message received `now` means. `offset` returns how many seconds a time zone is ahead of
    /// UTC at a moment: `None` is the machine's zone, and an unknown zone returns `None`.
    pub fn resolve(&self, now: Wall, offset: impl Fn(Option<&str>, Wall) -> Option<i32>) -> Option<Wall> {
        match self {
            ResetsAt::At(wall) => Some(*wall),
            ResetsAt::In(dur) => Some(now.plus(*dur)),
            ResetsAt::Clock(clock) => clock.resolve(now, offset),
        }
    }
}

impl Clock {
    fn resolve(&self, now: Wall, offset: impl Fn(Option<&str>, Wall) -> Option<i32>) -> Option<Wall> {
        let zone = self.zone.as_deref();
        let ahead = offset(zone, now).or_else(|| offset(None, now))?;
        let today = local(now, ahead)?.date();
        let first = self.civil(today)?;
        let next = match self.date {
            None => first.checked_add(jiff::Span::new().days(1)),
            Some(_) if self.year.is_none() => first.checked_add(jiff::Span::new().years(1)),
            Some(_) => Ok(first),
        };
        // The offset may have changed by then.
        let wall = |civil| {
            let guess = to_wall(civil, ahead)?;
            to_wall(civil, offset(zone, guess).unwrap_or(ahead))
        };
        let first = wall(first)?;
        if first.0 > now.0 { Some(first) } else { wall(next.ok()?) }
    }

    fn civil(&self, today: jiff::civil::Date) -> Option<jiff::civil::DateTime> {
        let (month, day) = self.date.unwrap_or((today.month().unsigned_abs(), today.day().unsigned_abs()));
        let date = jiff::civil::Date::new(
            self.year.unwrap_or(today.year()),
            i8::try_from(month).ok()?,
            i8::try_from(day).ok()?,
        );
        let time =
            jiff::civil::Time::new(i8::try_from(self.hour).ok()?, i8::try_from(self.minute).ok()?, 0, 0);
        Some(date.ok()?.to_datetime(time.ok()?))
    }
}

fn local(now: Wall, ahead: i32) -> Option<jiff::civil::DateTime> {
    let at = jiff::Timestamp::from_millisecond(now.0).ok()?;
    Some(jiff::tz::Offset::from_seconds(ahead).ok()?.to_datetime(at))
}

fn to_wall(civil: jiff::civil::DateTime, ahead: i32) -> Option<Wall> {
    let at = jiff::tz::Offset::from_seconds(ahead).ok()?.to_timestamp(civil).ok()?;
    Some(Wall(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-15 18:00:00 UTC.
    const NOW: Wall = Wall(1_794_765_600_000);
    const HOUR: i64 = 3_600_000;

    fn ahead(zone: Option<&str>, _: Wall) -> Option<i32> {
        match zone {
            None => Some(0),
            Some("Asia/Tokyo") => Some(9 * 3600),
            Some(_) => None,
        }
    }

    fn resolved(resets: ResetsAt) -> Option<i64> {
        resets.resolve(NOW, ahead).map(|wall| wall.0 - NOW.0)
    }

    fn clock(hour: u8, minute: u8) -> Clock {
        Clock { hour, minute, ..Clock::default() }
    }

    #[test]
    fn loop_46_a_reset_time_is_resolved_in_every_format() {
        assert_eq!(resolved(ResetsAt::At(Wall(NOW.0 + 5))), Some(5));
        assert_eq!(resolved(ResetsAt::In(Dur::from_mins(5))), Some(300_000));
        assert_eq!(resolved(ResetsAt::Clock(clock(21, 30))), Some(3 * HOUR + HOUR / 2));
        assert_eq!(resolved(ResetsAt::Clock(clock(18, 0))), Some(24 * HOUR), "the next such moment");
        assert_eq!(resolved(ResetsAt::Clock(clock(3, 0))), Some(9 * HOUR), "that is tomorrow");
        let tokyo = Clock { zone: Some("Asia/Tokyo".into()), ..clock(4, 0) };
        assert_eq!(resolved(ResetsAt::Clock(tokyo)), Some(HOUR));
        let nowhere = Clock { zone: Some("Not/AZone".into()), ..clock(19, 0) };
        assert_eq!(resolved(ResetsAt::Clock(nowhere)), Some(HOUR), "better than nothing");
    }

    #[test]
    fn a_date_is_this_years_or_the_next() {
        let on = |month, day, year| Clock { date: Some((month, day)), year, ..clock(18, 0) };
        assert_eq!(resolved(ResetsAt::Clock(on(11, 17, None))), Some(48 * HOUR));
        assert_eq!(resolved(ResetsAt::Clock(on(11, 14, None))), Some(364 * 24 * HOUR));
        assert_eq!(resolved(ResetsAt::Clock(on(11, 16, Some(2026)))), Some(24 * HOUR));
        assert_eq!(resolved(ResetsAt::Clock(on(11, 14, Some(2026)))), Some(-24 * HOUR), "it is over");
    }

    #[test]
    fn an_invalid_time_has_no_moment() {
        for bad in [clock(24, 0), clock(3, 60), Clock { date: Some((13, 1)), ..clock(1, 0) }] {
            assert_eq!(resolved(ResetsAt::Clock(bad)), None);
        }
        assert!(ResetsAt::In(Dur::LONGEST).resolve(Wall(i64::MAX), ahead).is_some());
    }
}
