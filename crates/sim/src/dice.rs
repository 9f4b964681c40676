//! Chance that a seed repeats.

use dogwatch_core::run::idle::draw;
use dogwatch_core::time::dur::Dur;

/// Numbers drawn from a seed, one after the other.
pub struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice { seed, drawn: 0 }
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.drawn += 1;
        draw(self.seed, self.drawn) % n
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).expect("an index fits")]
    }

    pub fn secs(&mut self, up_to: u64) -> Dur {
        Dur::from_millis(self.below(up_to * 1000))
    }
}
