//! Notifies streams when a run's record grows. A directory is watched only while a client follows it.

use dogwatch_host::fs::growth::{FileChange, Growth, Watched};
use dogwatch_host::store::journal;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// The file whose lock shows that a run is supervised. It is closed when the lock holder exits.
const ALIVE: &[u8] = b"alive";

/// The file watches of all streams.
#[derive(Default)]
pub(crate) struct Hub {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Created when the first stream starts.
    growth: Option<Arc<AsyncFd<Growth>>>,
    watched: BTreeMap<Watched, watch::Sender<ChangeCounts>>,
}

// `AsyncFd::new` is deprecated in favor of an `unsafe` constructor for types that do not own their descriptor.
#[allow(deprecated, reason = "Growth owns its descriptor for as long as it lives")]
fn readable(growth: Growth) -> io::Result<AsyncFd<Growth>> {
    AsyncFd::new(growth)
}

/// How many changes were seen for each of a run's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeCounts {
    pub journal: u64,
    pub alive: u64,
}

/// A subscription to a directory. Dropping it ends the watch when it is the last one.
pub(crate) struct Interest {
    hub: Arc<Hub>,
    watched: Watched,
    pub changed: watch::Receiver<ChangeCounts>,
}

impl Hub {
    /// Subscribes to changes in `dir`. Must be called within the runtime.
    pub fn watch(self: &Arc<Hub>, dir: &Path) -> io::Result<Interest> {
        let mut inner = self.lock();
        let growth = match &inner.growth {
            Some(growth) => Arc::clone(growth),
            None => {
                let growth = Arc::new(readable(Growth::new()?)?);
                tokio::spawn(listen(Arc::clone(&growth), Arc::clone(self)));
                Arc::clone(inner.growth.insert(growth))
            }
        };
        let watched = growth.get_ref().watch(dir)?;
        let sender =
            inner.watched.entry(watched).or_insert_with(|| watch::Sender::new(ChangeCounts::default()));
        Ok(Interest { hub: Arc::clone(self), watched, changed: sender.subscribe() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, changes: Vec<FileChange>) {
        let mut inner = self.lock();
        for change in changes {
            match change {
                FileChange::Changed(watched, name) => {
                    if let Some(sender) = inner.watched.get(&watched) {
                        bump(sender, name == journal::FILE.as_bytes(), name == ALIVE);
                    }
                }
                // Dropping the sender ends the streams that follow this directory.
                FileChange::Gone(watched) => drop(inner.watched.remove(&watched)),
                FileChange::Everything => inner.watched.values().for_each(|w| bump(w, true, true)),
            }
        }
    }

    #[cfg(test)]
    fn watches(&self) -> usize {
        self.lock().watched.len()
    }
}

fn bump(sender: &watch::Sender<ChangeCounts>, journal: bool, alive: bool) {
    sender.send_if_modified(|seen| {
        seen.journal += u64::from(journal);
        seen.alive += u64::from(alive);
        journal || alive
    });
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut inner = self.hub.lock();
        // One receiver left means that this is the last subscription.
        let last = inner.watched.get(&self.watched).is_some_and(|sender| sender.receiver_count() <= 1);
        if last {
            inner.watched.remove(&self.watched);
            if let Some(growth) = &inner.growth {
                growth.get_ref().forget(self.watched);
            }
        }
    }
}

async fn listen(growth: Arc<AsyncFd<Growth>>, hub: Arc<Hub>) {
    while let Ok(mut ready) = growth.readable().await {
        match growth.get_ref().take() {
            Ok(changes) if changes.is_empty() => ready.clear_ready(),
            Ok(changes) => hub.notify(changes),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_watched_only_while_a_stream_follows_it() {
        let runtime = crate::listener::runtime().expect("a runtime");
        let dir = tempfile::tempdir().expect("a directory");
        runtime.block_on(async {
            let hub = Arc::new(Hub::default());
            assert_eq!(hub.watches(), 0);
            let mut one = hub.watch(dir.path()).expect("watches");
            let two = hub.watch(dir.path()).expect("watches");
            assert_eq!(hub.watches(), 1);
            std::fs::write(dir.path().join(journal::FILE), "x").expect("writes");
            one.changed.changed().await.expect("a change");
            drop(two);
            assert_eq!(hub.watches(), 1);
            drop(one);
            assert_eq!(hub.watches(), 0);
            assert!(hub.watch(&dir.path().join("nowhere")).is_err());
        });
    }

    #[test]
    fn a_stream_ends_when_its_directory_is_removed() {
        let runtime = crate::listener::runtime().expect("a runtime");
        let dir = tempfile::tempdir().expect("a directory");
        runtime.block_on(async {
            let hub = Arc::new(Hub::default());
            let mut one = hub.watch(dir.path()).expect("watches");
            drop(dir);
            while one.changed.changed().await.is_ok() {}
            assert_eq!(hub.watches(), 0);
        });
    }
}
