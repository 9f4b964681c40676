//! Wakes a task when a file grows or a directory gets an entry.
//!
//! One inotify instance serves the whole process: a system allows a user 128 of them, and a worker has up to 1,024 runs. A watch
//! reports one change and is gone, so a run that writes many lines wakes its worker once for all of them.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How often a path is examined that cannot be watched: the user has no watches left, or the path has just been removed.
const UNWATCHED: Duration = Duration::from_secs(1);
/// The size of one read of changes, in bytes. Changes that do not fit are read next.
const BUFFER: usize = 4 * 1024;

/// The watches of this process.
struct Watches {
    fd: OwnedFd,
    waiting: Mutex<BTreeMap<i32, Arc<Notify>>>,
}

/// The next change of a path. Dropping it ends the watch.
pub struct Change {
    watch: Option<(&'static Watches, i32)>,
    comes: Arc<Notify>,
}

impl Change {
    /// Watches a file or a directory from now on.
    pub fn of(path: &Path) -> Change {
        let comes = Arc::new(Notify::new());
        let watch = Watches::of_process().and_then(|all| Some((all, all.add(path, &comes)?)));
        Change { watch, comes }
    }

    /// Waits for the change. If the path cannot be watched, it waits for a second.
    pub async fn comes(&self) {
        match self.watch {
            Some(_) => self.comes.notified().await,
            None => tokio::time::sleep(UNWATCHED).await,
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        let Some((all, watch)) = self.watch else { return };
        let mut waiting = all.waiting();
        // Another change may watch the same path, with the same number.
        if waiting.get(&watch).is_some_and(|comes| Arc::ptr_eq(comes, &self.comes)) {
            waiting.remove(&watch);
            // The path may be gone, and its watch with it.
            let _ = inotify::remove_watch(&all.fd, watch);
        }
    }
}

impl Watches {
    /// Returns the watches of this process, or nothing if the system has none for it.
    fn of_process() -> Option<&'static Watches> {
        static WATCHES: OnceLock<Option<Watches>> = OnceLock::new();
        static READER: OnceLock<bool> = OnceLock::new();
        let all = WATCHES.get_or_init(|| {
            let fd = inotify::init(CreateFlags::CLOEXEC).ok()?;
            Some(Watches { fd, waiting: Mutex::default() })
        });
        let all = all.as_ref()?;
        let reads = READER.get_or_init(|| {
            let thread = std::thread::Builder::new().name("growing".into());
            thread.spawn(|| all.read()).is_ok()
        });
        reads.then_some(all)
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, path: &Path, comes: &Arc<Notify>) -> Option<i32> {
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONESHOT;
        // The reader takes the same lock, so it finds the entry even if the change comes at once.
        let mut waiting = self.waiting();
        let watch = inotify::add_watch(&self.fd, path, flags).ok()?;
        waiting.insert(watch, comes.clone());
        Some(watch)
    }

    /// Reports changes for as long as the process lives.
    fn read(&self) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => self.report(event.wd(), event.events()),
                Err(Errno::INTR) => {}
                // No later change can be read, so nothing must wait for one.
                Err(_) => return self.report(0, ReadFlags::QUEUE_OVERFLOW),
            }
        }
    }

    fn report(&self, watch: i32, events: ReadFlags) {
        let mut waiting = self.waiting();
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Changes were lost, and any path may have one.
            std::mem::take(&mut *waiting).into_values().for_each(|comes| comes.notify_one());
        } else if let Some(comes) = waiting.remove(&watch) {
            comes.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A generous limit for a change that comes.
    const SOON: Duration = Duration::from_secs(30);

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(work)
    }

    async fn has_come(change: &Change) -> bool {
        tokio::time::timeout(Duration::ZERO, change.comes()).await.is_ok()
    }

    #[test]
    fn a_file_that_grows_and_a_directory_that_gets_an_entry_are_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("events.jsonl");
        block_on(async {
            let created = Change::of(dir.path());
            assert!(!has_come(&created).await);
            let mut file = std::fs::File::create(&path).expect("created");
            tokio::time::timeout(SOON, created.comes()).await.expect("the file was created");
            let grown = Change::of(&path);
            assert!(!has_come(&grown).await);
            file.write_all(b"x").expect("written");
            tokio::time::timeout(SOON, grown.comes()).await.expect("the file has grown");
            // A watch reports one change: the next one needs another watch.
            file.write_all(b"x").expect("written");
            let again = Change::of(&path);
            assert!(!has_come(&again).await);
            file.write_all(b"x").expect("written");
            tokio::time::timeout(SOON, again.comes()).await.expect("the file has grown again");
        });
    }

    #[test]
    fn a_watch_that_is_dropped_leaves_a_newer_one_of_the_same_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let all = Watches::of_process().expect("inotify");
        let (older, newer) = (Change::of(dir.path()), Change::of(dir.path()));
        let watch = newer.watch.expect("a watch").1;
        drop(older);
        std::fs::write(dir.path().join("a"), "").expect("written");
        block_on(async { tokio::time::timeout(SOON, newer.comes()).await.expect("it is still watched") });
        let newest = Change::of(dir.path());
        assert_ne!(newest.watch.expect("a watch").1, watch, "a watch that reported is gone");
        let watch = newest.watch.expect("a watch").1;
        drop(newest);
        assert!(!all.waiting().contains_key(&watch));
    }
}
