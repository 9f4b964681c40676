//! The other end of the leash: a process that lets the run live as long as it writes times.

use super::{Happening, Machine};
use crate::dice::Dice;
use dogwatch_core::run::input::Input;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Boot;

/// How late the end of a leash may be noticed: shorter gaps do not count as absence.
const LATE: Dur = Dur::from_secs(1);

/// The behavior of the process that holds the leash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The time between two lines.
    pub every: Dur,
    /// How far ahead the time in a line is.
    pub ahead: Dur,
    /// How long the process holds the leash of one dogwatch.
    pub holds: Dur,
    /// Whether it closes the pipe then. Otherwise it stops writing.
    pub closes: bool,
}

impl Holder {
    /// Draws a holder whose leash lasts as long as it writes.
    pub fn draw(dice: &mut Dice) -> Holder {
        let every = Dur::from_secs(60 + dice.below(900));
        let ahead = every.saturating_add(Dur::from_secs(1 + dice.below(1_800)));
        let most = if dice.one_in(2) { 3_600 } else { 80_000 };
        Holder { every, ahead, holds: dice.secs(most), closes: dice.one_in(2) }
    }
}

impl Machine {
    /// Opens the leash of a dogwatch that starts now. Returns the first line.
    pub(crate) fn open_leash(&mut self) -> Option<Input> {
        self.leash = None;
        let holder = self.holder?;
        self.plan(holder.every, Happening::LeashWritten);
        self.plan(holder.holds, Happening::LeashDropped);
        Some(self.renew(holder))
    }

    fn renew(&mut self, holder: Holder) -> Input {
        let until = self.clocks.now().boot.plus(holder.ahead);
        self.leash = Some(until);
        Input::LeashRenewed { until }
    }

    /// The holder writes the next time.
    pub(super) fn leash_written(&mut self) {
        if let Some(holder) = self.holder {
            let line = self.renew(holder);
            self.posted(line);
            self.plan(holder.every, Happening::LeashWritten);
        }
    }

    /// The holder gives up: it closes the pipe or writes no more.
    pub(super) fn leash_dropped(&mut self) {
        self.agenda.retain(|_, what| !matches!(what, Happening::LeashWritten));
        if self.holder.is_some_and(|holder| holder.closes) {
            self.leash = Some(self.clocks.now().boot);
            self.posted(Input::LeashClosed);
        }
    }

    /// The holder no longer gives up.
    pub(super) fn hold_leash(&mut self) {
        self.agenda.retain(|_, what| !matches!(what, Happening::LeashDropped));
    }

    /// Returns when the leash ended, if it did.
    pub(crate) fn leash_over(&self) -> Option<Boot> {
        self.leash.filter(|until| *until <= self.clocks.now().boot)
    }

    /// Asserts that nothing starts after the end of the leash.
    pub(super) fn assert_leashed(&self, effect: &str) {
        let (now, over) = (self.clocks.now().boot, self.leash_over());
        assert!(
            over.is_none_or(|until| now.since(until) <= LATE),
            "{effect} came after the end of the leash"
        );
    }
}
