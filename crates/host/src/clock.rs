//! The clocks: the only place that asks what time it is.

use dogwatch_core::time::moment::{Awake, Boot, Moment, Wall};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now, on all three clocks.
pub fn now() -> Moment {
    Moment {
        awake: awake(),
        boot: Boot(millis(clock_gettime(ClockId::Boottime))),
        wall: Wall(i64::try_from(millis(clock_gettime(ClockId::Realtime))).unwrap_or(i64::MAX)),
    }
}

/// Now, on the clock that stands still in suspend.
pub fn awake() -> Awake {
    Awake(millis(clock_gettime(ClockId::Monotonic)))
}

fn millis(t: Timespec) -> u64 {
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    secs.saturating_mul(1_000).saturating_add(u64::try_from(t.tv_nsec).unwrap_or(0) / 1_000_000)
}

/// Tells this boot of the machine from others: pids and the boot clock mean nothing across boots.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|s| s.trim().to_owned())
        .unwrap_or_default()
}
