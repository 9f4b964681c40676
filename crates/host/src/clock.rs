//! The clocks. No other module reads the time.

use dogwatch_core::time::moment::{Awake, Boot, Moment, Wall};
use jiff::tz::TimeZone;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the current moment on all three clocks.
pub fn now() -> Moment {
    Moment { awake: awake(), boot: Boot(millis(clock_gettime(ClockId::Boottime))), wall: wall() }
}

/// Returns the time of the wall clock. The standard library reads it through libc, so tests can shift it with `faketime`.
fn wall() -> Wall {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Wall(i64::try_from(since.map_or(0, |since| since.as_millis())).unwrap_or(i64::MAX))
}

/// Returns the current time on the clock that stops while the host is suspended.
pub fn awake() -> Awake {
    Awake(millis(clock_gettime(ClockId::Monotonic)))
}

fn millis(t: Timespec) -> u64 {
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    secs.saturating_mul(1_000).saturating_add(u64::try_from(t.tv_nsec).unwrap_or(0) / 1_000_000)
}

/// Returns local time minus UTC at a moment, in seconds.
pub fn utc_offset_s(at: Wall) -> i32 {
    let Ok(at) = jiff::Timestamp::from_millisecond(at.0) else { return 0 };
    zone().to_offset(at).seconds()
}

/// The file that defines the time zone of the machine, unless `TZ` names another one.
const LOCAL_ZONE: &str = "/etc/localtime";

/// Returns the time zone of this process: that of `TZ`, otherwise that of the machine.
pub fn zone() -> TimeZone {
    // `TimeZone::system` lists all zones that the machine knows, in order to find the name of one of them.
    let of_machine = || TimeZone::tzif("Local", &std::fs::read(LOCAL_ZONE).ok()?).ok();
    let of_machine = std::env::var_os("TZ").is_none().then(of_machine).flatten();
    of_machine.unwrap_or_else(TimeZone::system)
}

/// Returns the id of this boot. Pids and boot clock values are comparable only within one boot.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|s| s.trim().to_owned())
        .unwrap_or_default()
}
