//! The life of one dogwatch process. It can be killed at any of its acts.

use std::cell::Cell;
use std::rc::Rc;

/// A process that may die at a planned act. Clones share one life.
#[derive(Clone, Debug, Default)]
pub struct Mortal(Rc<Life>);

#[derive(Debug, Default)]
struct Life {
    acts: Cell<u64>,
    dies_at: Cell<Option<u64>>,
}

impl Mortal {
    /// Plans the death of the process at its `n`-th act from now, counted from 1.
    pub fn dies_in(&self, n: u64) {
        self.0.dies_at.set(Some(self.0.acts.get() + n));
    }

    /// Cancels a planned death.
    pub fn cancel_death(&self) {
        self.0.dies_at.set(None);
    }

    /// Counts an act and returns whether the process lives to complete it.
    pub fn acts(&self) -> bool {
        self.0.acts.set(self.0.acts.get() + 1);
        self.is_alive()
    }

    /// Returns whether the process lives.
    pub fn is_alive(&self) -> bool {
        self.0.dies_at.get().is_none_or(|at| self.0.acts.get() < at)
    }

    /// Returns whether the process died in its latest act.
    pub fn was_last_act(&self) -> bool {
        self.0.dies_at.get() == Some(self.0.acts.get())
    }
}
