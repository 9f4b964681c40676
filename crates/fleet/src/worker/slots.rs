//! The slots of a worker: how many jobs it runs at once, and which account gets the next free one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// How urgent a request for a slot is. The smallest is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Whether the account had no job a moment ago. Other accounts are asked first then.
    pub was_empty: bool,
    /// The priority of the account; the highest is served first.
    pub priority: Reverse<i32>,
}

/// The slots of a worker. Copies share them.
#[derive(Clone)]
pub struct Slots(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    all: usize,
    returned: Notify,
}

#[derive(Default)]
struct State {
    free: usize,
    next: u64,
    waiting: BTreeMap<(Rank, u64), oneshot::Sender<Slot>>,
}

/// A slot. Dropping it passes it to the most urgent request.
pub struct Slot(Option<Slots>);

impl Slots {
    /// Returns slots that are all free.
    pub fn new(all: usize) -> Slots {
        let state = Mutex::new(State { free: all, ..State::default() });
        Slots(Arc::new(Shared { state, all, returned: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot.
    pub async fn take(&self, rank: Rank) -> Slot {
        loop {
            let turn = {
                let mut state = self.state();
                if state.free > 0 {
                    state.free -= 1;
                    return Slot(Some(self.clone()));
                }
                let (sender, turn) = oneshot::channel();
                state.next += 1;
                let ticket = state.next;
                state.waiting.insert((rank, ticket), sender);
                turn
            };
            // The sender is dropped only with the slots.
            if let Ok(slot) = turn.await {
                return slot;
            }
        }
    }

    /// Returns whether a request waits.
    pub fn is_contended(&self) -> bool {
        self.state().waiting.values().any(|sender| !sender.is_closed())
    }

    /// Waits until every slot is free.
    pub async fn all_free(&self) {
        loop {
            let returned = self.0.returned.notified();
            if self.state().free == self.0.all {
                return;
            }
            returned.await;
        }
    }

    fn give_back(&self) {
        loop {
            let next = {
                let mut state = self.state();
                let Some((_, sender)) = state.waiting.pop_first() else {
                    state.free += 1;
                    break;
                };
                sender
            };
            match next.send(Slot(Some(self.clone()))) {
                Ok(()) => return,
                // The request was dropped: the next one gets the slot.
                Err(mut slot) => drop(slot.0.take()),
            }
        }
        self.0.returned.notify_waiters();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(was_empty: bool, priority: i32) -> Rank {
        Rank { was_empty, priority: Reverse(priority) }
    }

    #[test]
    fn a_free_slot_goes_to_the_highest_priority_and_to_accounts_without_jobs_last() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let slots = Slots::new(1);
            let first = slots.take(rank(false, 0)).await;
            let order: Arc<Mutex<Vec<&str>>> = Arc::default();
            let mut tasks = Vec::new();
            for (name, rank) in [
                ("low", rank(false, -1)),
                ("empty", rank(true, 9)),
                ("high", rank(false, 5)),
                ("later", rank(false, 5)),
            ] {
                let (slots, order) = (slots.clone(), order.clone());
                tasks.push(tokio::spawn(async move {
                    let _slot = slots.take(rank).await;
                    order.lock().expect("whole").push(name);
                }));
                tokio::task::yield_now().await;
            }
            assert!(slots.is_contended());
            // A request that was dropped gets nothing.
            tasks.remove(3).abort();
            tokio::task::yield_now().await;
            drop(first);
            slots.all_free().await;
            assert_eq!(*order.lock().expect("whole"), ["high", "low", "empty"]);
            assert!(!slots.is_contended());
        });
    }
}
