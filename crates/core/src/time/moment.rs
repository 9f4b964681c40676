//! Points in time on three clocks.
//!
//! The core never reads a clock; every input carries its moment. The awake clock pauses while the machine is
//! suspended and measures sessions. The boot clock keeps running and measures waits. The wall clock is for
//! people, calendars and reset times.

use crate::time::dur::Dur;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Milliseconds of the awake clock, which pauses in suspend. The watchdog's rows use this clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Awake(pub u64);

/// Milliseconds of the boot clock, which keeps running in suspend. Waits and idle streaks use this clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boot(pub u64);

/// Milliseconds since the Unix epoch, serialized as RFC 3339 with milliseconds, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

macro_rules! clock {
    ($clock:ident) => {
        impl $clock {
            /// Returns the point `d` later.
            pub const fn plus(self, d: Dur) -> $clock {
                $clock(self.0.saturating_add(d.as_millis()))
            }
            /// Returns the time since `earlier`, or zero if `earlier` is later.
            pub const fn since(self, earlier: $clock) -> Dur {
                Dur::from_millis(self.0.saturating_sub(earlier.0))
            }
        }
    };
}
clock!(Awake);
clock!(Boot);

impl Wall {
    /// Parses a time in RFC 3339.
    pub fn from_rfc3339(text: &str) -> Option<Wall> {
        let at: jiff::Timestamp = text.parse().ok()?;
        Some(Wall(at.as_millisecond()))
    }

    /// Returns the time `d` later.
    pub fn plus(self, d: Dur) -> Wall {
        Wall(self.0.saturating_add_unsigned(d.as_millis()))
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(f, "{at:.3}")
    }
}

impl Serialize for Wall {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Wall {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Wall, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        let at: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Wall(at.as_millisecond()))
    }
}

/// One point in time on all three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The clock that stops in suspend.
    pub awake: Awake,
    /// The clock that continues in suspend.
    pub boot: Boot,
    /// The time of day.
    pub wall: Wall,
}

impl Moment {
    /// Returns the moment `d` later if the machine is not suspended in between, for tests and the simulation.
    pub fn plus(self, d: Dur) -> Moment {
        Moment { awake: self.awake.plus(d), boot: self.boot.plus(d), wall: self.wall.plus(d) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_written_as_rfc_3339_with_milliseconds() {
        let at = Wall(1_794_773_733_007);
        assert_eq!(at.to_string(), "2026-11-15T20:15:33.007Z");
        let json = serde_json::to_string(&at).expect("serializes");
        assert_eq!(serde_json::from_str::<Wall>(&json).expect("reads back"), at);
    }

    #[test]
    fn clock_arithmetic_saturates_at_both_ends() {
        assert_eq!(Awake(5).since(Awake(9)), Dur::ZERO);
        assert_eq!(Boot(u64::MAX).plus(Dur::from_secs(1)), Boot(u64::MAX));
    }
}
