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

    /// Returns this moment on the clocks of another machine.
    pub fn on(self, clocks: Skew) -> Moment {
        Moment {
            awake: Awake(self.awake.0.saturating_add_signed(clocks.awake_ms)),
            boot: Boot(self.boot.0.saturating_add_signed(clocks.boot_ms)),
            wall: Wall(self.wall.0.saturating_add(clocks.wall_ms)),
        }
    }
}

/// How far the clocks of another machine are ahead of the clocks of this one, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skew {
    /// The clock that stops in suspend.
    pub awake_ms: i64,
    /// The clock that continues in suspend.
    pub boot_ms: i64,
    /// The time of day.
    pub wall_ms: i64,
}

impl Skew {
    /// Returns the skew of a machine whose clocks show `theirs` while ours show `ours`.
    pub fn between(theirs: Moment, ours: Moment) -> Skew {
        let ahead = |theirs: u64, ours: u64| theirs.wrapping_sub(ours).cast_signed();
        Skew {
            awake_ms: ahead(theirs.awake.0, ours.awake.0),
            boot_ms: ahead(theirs.boot.0, ours.boot.0),
            wall_ms: theirs.wall.0.saturating_sub(ours.wall.0),
        }
    }

    /// Returns whether two measurements of the same skew differ by more than `ms`. The transmission time of a message
    /// makes every measurement a little different.
    pub fn differs(self, other: Skew, ms: u64) -> bool {
        let pairs =
            [(self.awake_ms, other.awake_ms), (self.boot_ms, other.boot_ms), (self.wall_ms, other.wall_ms)];
        pairs.into_iter().any(|(a, b)| a.abs_diff(b) > ms)
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
    fn a_moment_is_translated_to_the_clocks_of_another_machine() {
        let ours = Moment { awake: Awake(900), boot: Boot(1_000), wall: Wall(50_000) };
        let theirs = Moment { awake: Awake(7), boot: Boot(90_000), wall: Wall(49_000) };
        let skew = Skew::between(theirs, ours);
        assert_eq!(ours.on(skew), theirs);
        assert_eq!(theirs.on(Skew::between(ours, theirs)), ours);
        assert_eq!(ours.on(Skew::default()), ours);
        let late = Skew::between(theirs, ours.plus(Dur::from_millis(30)));
        assert!(!skew.differs(late, 30) && skew.differs(late, 29));
    }

    #[test]
    fn clock_arithmetic_saturates_at_both_ends() {
        assert_eq!(Awake(5).since(Awake(9)), Dur::ZERO);
        assert_eq!(Boot(u64::MAX).plus(Dur::from_secs(1)), Boot(u64::MAX));
    }
}
