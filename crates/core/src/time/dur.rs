//! Spans of time: whole milliseconds, never negative, never overflowing.
//!
//! `Dur` is the only duration type inside dogwatch; `Limit` is a duration that may be off. Both are parsed at
//! the edge from user input (`30s`, `1h30m`, `90`) and displayed in the same format.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

const MS_PER_S: u64 = 1_000;
const MS_PER_M: u64 = 60 * MS_PER_S;
const MS_PER_H: u64 = 60 * MS_PER_M;
const MS_PER_D: u64 = 24 * MS_PER_H;

/// A span of time in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dur(u64);

impl Dur {
    /// The empty duration.
    pub const ZERO: Dur = Dur(0);
    /// The longest duration that is accepted: ten years. Anything longer is a typing error.
    pub const LONGEST: Dur = Dur(3650 * MS_PER_D);

    /// Returns a duration of this many milliseconds.
    pub const fn from_millis(ms: u64) -> Dur {
        Dur(ms)
    }

    /// Returns a duration of this many seconds.
    pub const fn from_secs(s: u64) -> Dur {
        Dur(s.saturating_mul(MS_PER_S))
    }

    /// Returns a duration of this many minutes.
    pub const fn from_mins(m: u64) -> Dur {
        Dur(m.saturating_mul(MS_PER_M))
    }

    /// Returns a duration of this many hours.
    pub const fn from_hours(h: u64) -> Dur {
        Dur(h.saturating_mul(MS_PER_H))
    }

    /// Returns the duration in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the duration in seconds, with a fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / MS_PER_S as f64
    }

    /// Returns whether the duration is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Adds another duration; the sum saturates instead of overflowing.
    pub const fn saturating_add(self, other: Dur) -> Dur {
        Dur(self.0.saturating_add(other.0))
    }

    /// Subtracts another duration; the difference is never below zero.
    pub const fn saturating_sub(self, other: Dur) -> Dur {
        Dur(self.0.saturating_sub(other.0))
    }

    /// Multiplies the duration; the product saturates instead of overflowing.
    pub const fn saturating_mul(self, factor: u64) -> Dur {
        Dur(self.0.saturating_mul(factor))
    }

    /// Returns `n` percent of the duration.
    pub const fn percent(self, n: u64) -> Dur {
        Dur(self.0.saturating_mul(n) / 100)
    }

    /// Converts a number of seconds, as written in YAML or on the command line. Rejects negative and non-finite
    /// numbers and durations over [`Dur::LONGEST`].
    pub fn from_secs_f64(secs: f64) -> Result<Dur, DurError> {
        if !secs.is_finite() {
            return Err(DurError::NotADuration);
        }
        if secs < 0.0 {
            return Err(DurError::Negative);
        }
        if secs > Dur::LONGEST.as_secs_f64() {
            return Err(DurError::TooLong);
        }
        Ok(Dur((secs * MS_PER_S as f64).round() as u64))
    }
}

impl From<Dur> for std::time::Duration {
    fn from(d: Dur) -> Self {
        std::time::Duration::from_millis(d.0)
    }
}

impl From<std::time::Duration> for Dur {
    fn from(d: std::time::Duration) -> Self {
        Dur(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The reason a text is not a valid duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurError {
    /// The text has none of the accepted forms.
    NotADuration,
    /// The duration is below zero.
    Negative,
    /// The duration exceeds [`Dur::LONGEST`].
    TooLong,
}

impl DurError {
    /// The accepted forms, for the hint under an error.
    pub const FORMS: &'static str =
        "a number of seconds, or e.g. `200ms`, `30s`, `5m`, `6h`, `1d`, `1.5h`, `1h30m`";
}

impl fmt::Display for DurError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DurError::NotADuration => "not a duration",
            DurError::Negative => "a duration cannot be negative",
            DurError::TooLong => "longer than ten years",
        })
    }
}

impl std::error::Error for DurError {}

impl FromStr for Dur {
    type Err = DurError;

    fn from_str(text: &str) -> Result<Dur, DurError> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix('-') {
            // `-5s` gets a more specific error than `-abc`.
            return Err(if rest.parse::<Dur>().is_ok() {
                DurError::Negative
            } else {
                DurError::NotADuration
            });
        }
        if is_decimal(text) {
            return Dur::from_secs_f64(text.parse().map_err(|_| DurError::NotADuration)?);
        }
        let mut rest = text;
        let mut total = 0.0f64;
        let mut last_unit = u64::MAX;
        while !rest.is_empty() {
            let digits =
                rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(DurError::NotADuration)?;
            let (number, tail) = rest.split_at(digits);
            let (unit, tail) = split_unit(tail).ok_or(DurError::NotADuration)?;
            // Units must get smaller: `1h30m` is valid; `30m1h` and `1h1h` are typing errors.
            if !is_decimal(number) || unit >= last_unit {
                return Err(DurError::NotADuration);
            }
            last_unit = unit;
            total += number.parse::<f64>().map_err(|_| DurError::NotADuration)? * unit as f64;
            rest = tail;
        }
        if text.is_empty() {
            return Err(DurError::NotADuration);
        }
        Dur::from_secs_f64(total / MS_PER_S as f64)
    }
}

fn is_decimal(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && text.bytes().filter(|b| *b == b'.').count() <= 1
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", MS_PER_S), ("m", MS_PER_M), ("h", MS_PER_H), ("d", MS_PER_D)];
    UNITS.iter().find_map(|(name, ms)| Some((*ms, text.strip_prefix(name)?)))
}

/// Formats the exact duration with the largest units that fit: `1h30m`, `1m30s` for 90 s, `200ms`.
impl fmt::Display for Dur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut left = self.0;
        for (name, ms) in [("d", MS_PER_D), ("h", MS_PER_H), ("m", MS_PER_M), ("s", MS_PER_S), ("ms", 1)] {
            if left >= ms {
                write!(f, "{}{name}", left / ms)?;
                left %= ms;
            }
        }
        Ok(())
    }
}

/// Serializes the duration as a number of seconds.
impl Serialize for Dur {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(MS_PER_S) {
            s.serialize_u64(self.0 / MS_PER_S)
        } else {
            s.serialize_f64(self.as_secs_f64())
        }
    }
}

impl<'de> Deserialize<'de> for Dur {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Dur, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Dur;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(DurError::FORMS)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Dur, E> {
                Dur::from_secs_f64(v as f64).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Dur, E> {
                Dur::from_secs_f64(v as f64).map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Dur, E> {
                Dur::from_secs_f64(v).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Dur, E> {
                v.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(V)
    }
}

/// A duration that may be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Limit {
    /// No limit.
    #[default]
    Off,
    /// A limit of this duration.
    At(Dur),
}

impl Limit {
    /// Returns the duration of the limit, or `None` if the limit is off.
    pub fn duration(self) -> Option<Dur> {
        match self {
            Limit::Off => None,
            Limit::At(d) => Some(d),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Off => f.write_str("off"),
            Limit::At(d) => d.fmt(f),
        }
    }
}

impl FromStr for Limit {
    type Err = DurError;

    fn from_str(text: &str) -> Result<Limit, DurError> {
        if text.trim() == "off" { Ok(Limit::Off) } else { text.parse().map(Limit::At) }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::Off => s.serialize_str("off"),
            Limit::At(d) => d.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Limit, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(d)? {
            Written::Number(n) => Dur::from_secs_f64(n).map(Limit::At).map_err(de::Error::custom),
            Written::Text(t) => t.parse().map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_form_is_parsed() {
        for (text, ms) in [
            ("90", 90_000),
            ("0.5", 500),
            ("200ms", 200),
            ("30s", 30_000),
            ("5m", 300_000),
            ("6h", 21_600_000),
            ("1d", 86_400_000),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            (" 30s ", 30_000),
            ("0s", 0),
        ] {
            assert_eq!(text.parse::<Dur>(), Ok(Dur::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in [
            "", "abc", "30x", "s", "1h1h", "30m1h", "1..5h", ".5h", "5.", "1e3", "NaN", "inf", "30 s s",
            "fast", "--5s",
        ] {
            assert_eq!(text.parse::<Dur>(), Err(DurError::NotADuration), "{text}");
        }
        assert_eq!("-5s".parse::<Dur>(), Err(DurError::Negative));
        assert_eq!("-10".parse::<Dur>(), Err(DurError::Negative));
    }

    #[test]
    fn the_longest_duration_is_ten_years_and_not_a_millisecond_more() {
        assert_eq!("3650d".parse::<Dur>(), Ok(Dur::LONGEST));
        assert!("3649d".parse::<Dur>().is_ok());
        assert_eq!("3650d1ms".parse::<Dur>(), Err(DurError::TooLong));
        assert_eq!("99999999999999999999h".parse::<Dur>(), Err(DurError::TooLong));
    }

    #[test]
    fn a_displayed_duration_parses_back_to_the_same_value() {
        for ms in [0, 1, 999, 1_000, 61_000, 5_400_000, 93_784_005] {
            let dur = Dur::from_millis(ms);
            assert_eq!(dur.to_string().parse::<Dur>(), Ok(dur));
            let json = serde_json::to_string(&dur).expect("a number serializes");
            assert_eq!(serde_json::from_str::<Dur>(&json).expect("reads back"), dur);
        }
    }

    #[test]
    fn a_limit_may_be_off() {
        assert_eq!("off".parse(), Ok(Limit::Off));
        assert_eq!("15m".parse(), Ok(Limit::At(Dur::from_mins(15))));
        assert_eq!(serde_json::from_str::<Limit>("\"off\"").expect("reads"), Limit::Off);
        assert_eq!(serde_json::from_str::<Limit>("90").expect("reads"), Limit::At(Dur::from_secs(90)));
    }
}
