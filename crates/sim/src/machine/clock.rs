//! The three clocks of the simulated machine.

use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Boot, Moment, Wall};

/// The start of the simulation: a night in late 2026, so that times in failures look realistic.
pub const EPOCH: i64 = 1_794_773_733_000;
/// The awake clock right after a start of the machine.
const FRESH: u64 = 1_000;

/// The clocks. The machine counts the time in which it runs; the clocks are at a distance from it.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    elapsed: u64,
    /// The elapsed time at which the machine was started, minus the first value of its awake clock.
    awake_from: i64,
    /// How far the boot clock is ahead of the awake clock.
    boot_lead: u64,
    wall_lead: i64,
}

impl Default for Clocks {
    fn default() -> Clocks {
        Clocks { elapsed: 0, awake_from: -FRESH.cast_signed(), boot_lead: 4_000, wall_lead: EPOCH }
    }
}

impl Clocks {
    /// Returns the milliseconds since the beginning, without suspends.
    pub fn elapsed(&self) -> u64 {
        self.elapsed
    }

    /// Returns the current moment.
    pub fn now(&self) -> Moment {
        let awake = self.elapsed.cast_signed() - self.awake_from;
        let awake = awake.max(0).cast_unsigned();
        let boot = awake + self.boot_lead;
        let wall = self.wall_lead.saturating_add_unsigned(self.elapsed);
        Moment { awake: Awake(awake), boot: Boot(boot), wall: Wall(wall) }
    }

    /// Returns the elapsed time at which the awake clock shows this.
    pub fn at_awake(&self, at: Awake) -> u64 {
        at.0.saturating_add_signed(self.awake_from)
    }

    /// Returns the elapsed time at which the boot clock shows this, if no suspend comes before.
    pub fn at_boot(&self, at: Boot) -> u64 {
        self.at_awake(Awake(at.0.saturating_sub(self.boot_lead)))
    }

    /// Lets time pass.
    pub fn advance(&mut self, by: Dur) {
        self.elapsed += by.as_millis();
    }

    /// Jumps to an elapsed time, unless it has passed.
    pub fn advance_to(&mut self, elapsed: u64) {
        self.elapsed = self.elapsed.max(elapsed);
    }

    /// Suspends the machine.
    pub fn suspend(&mut self, lasts: Dur) {
        self.boot_lead += lasts.as_millis();
        self.wall_lead = self.wall_lead.saturating_add_unsigned(lasts.as_millis());
    }

    /// Sets the wall clock.
    pub fn set_wall(&mut self, by: i64) {
        self.wall_lead = self.wall_lead.saturating_add(by);
    }

    /// Reboots the machine. The awake and the boot clock restart.
    pub fn reboot(&mut self) {
        (self.awake_from, self.boot_lead) = (self.elapsed.cast_signed() - FRESH.cast_signed(), 0);
    }
}
