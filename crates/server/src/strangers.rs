//! Connections that have not shown the token yet. When all connections are in use, the oldest of them makes room, so that
//! idle connections of another user cannot lock the owner out.

use crate::listener::Cut;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Whether the client of a connection has shown its right to be here. Every request carries one as an extension.
#[derive(Clone, Debug)]
pub(crate) struct Known(Arc<AtomicBool>);

impl Known {
    /// Creates the mark of a new connection.
    pub fn new(known: bool) -> Known {
        Known(Arc::new(AtomicBool::new(known)))
    }

    /// Marks the connection as one of the owner.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The open connections of unknown clients, oldest first. It never holds more than there are connections.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<VecDeque<(Weak<AtomicBool>, Cut)>>);

impl Strangers {
    /// Adds a new connection and forgets those that have closed or become known.
    pub fn add(&self, known: &Known, cut: &Cut) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(mark, _)| is_stranger(mark));
        if !known.0.load(Ordering::Relaxed) {
            all.push_back((Arc::downgrade(&known.0), cut.clone()));
        }
    }

    /// Closes the oldest connection of an unknown client. Returns whether there was one.
    pub fn close_oldest(&self) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((mark, cut)) = all.pop_front() {
            if is_stranger(&mark) {
                cut.now();
                return true;
            }
        }
        false
    }
}

fn is_stranger(mark: &Weak<AtomicBool>) -> bool {
    mark.upgrade().is_some_and(|known| !known.load(Ordering::Relaxed))
}
