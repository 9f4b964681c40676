//! Deterministic randomness.

use dogwatch_core::run::idle::draw;
use dogwatch_core::time::dur::Dur;

/// A sequence of random numbers determined by a seed.
pub struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    /// Creates the sequence of a seed.
    pub fn new(seed: u64) -> Dice {
        Dice { seed, drawn: 0 }
    }

    /// Returns a number below `n`, which must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.drawn += 1;
        draw(self.seed, self.drawn) % n
    }

    /// Returns true with a probability of one in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the elements.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).expect("an index fits")]
    }

    /// Returns a duration of less than `up_to` seconds.
    pub fn secs(&mut self, up_to: u64) -> Dur {
        Dur::from_millis(self.below(up_to * 1000))
    }
}
