//! Reports changes in directories, with one watch per directory.
//!
//! A client that reads a growing journal waits for this instead of polling. It learns which file changed, not how:
//! an event is only a hint, and the file holds the truth.

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// The size of one read. Events that do not fit are read next time.
const BUFFER: usize = 4 * 1024;

/// A watched directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watched(i32);

/// Watches directories with inotify.
#[derive(Debug)]
pub struct Growth {
    fd: OwnedFd,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// The named file in this directory changed.
    Changed(Watched, Vec<u8>),
    /// The directory itself was removed, and its watch with it.
    Gone(Watched),
    /// Events were lost in an overflow: anything may have changed.
    Everything,
}

impl Growth {
    /// Creates a watcher without directories.
    pub fn new() -> io::Result<Growth> {
        Ok(Growth { fd: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)? })
    }

    /// Watches a directory. Watching the same directory twice returns the same handle.
    pub fn watch(&self, dir: &Path) -> io::Result<Watched> {
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF
            | WatchFlags::ONLYDIR;
        Ok(Watched(inotify::add_watch(&self.fd, dir, flags)?))
    }

    /// Stops watching a directory.
    pub fn forget(&self, watched: Watched) {
        // The watch may have been removed together with its directory.
        let _ = inotify::remove_watch(&self.fd, watched.0);
    }

    /// Returns all pending changes without duplicates, or nothing. Never blocks.
    pub fn take(&self) -> io::Result<Vec<FileChange>> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        let mut changes = Vec::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(changes),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let watched = Watched(event.wd());
            let change = if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                FileChange::Everything
            } else if event.events().contains(inotify::ReadFlags::IGNORED) {
                FileChange::Gone(watched)
            } else {
                FileChange::Changed(
                    watched,
                    event.file_name().map_or_else(Vec::new, |name| name.to_bytes().to_vec()),
                )
            };
            if !changes.contains(&change) {
                changes.push(change);
            }
            if reader.is_buffer_empty() {
                return Ok(changes);
            }
        }
    }
}

impl AsFd for Growth {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Growth {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_changes_in_watched_directories_are_reported_and_once() {
        let (dir, other) =
            (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let growth = Growth::new().expect("an inotify instance");
        assert_eq!(growth.take().expect("reads"), []);
        let watched = growth.watch(dir.path()).expect("watches");
        assert_eq!(growth.watch(dir.path()).expect("watches"), watched);
        let mut file = std::fs::File::create(dir.path().join("log")).expect("creates");
        for _ in 0..3 {
            file.write_all(b"x").expect("writes");
        }
        std::fs::write(other.path().join("log"), "x").expect("writes");
        assert_eq!(growth.take().expect("reads"), [FileChange::Changed(watched, b"log".to_vec())]);
        growth.forget(watched);
        file.write_all(b"x").expect("writes");
        assert_eq!(growth.take().expect("reads"), [FileChange::Gone(watched)]);
    }

    #[test]
    fn a_removed_directory_is_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let growth = Growth::new().expect("an inotify instance");
        let watched = growth.watch(dir.path()).expect("watches");
        drop(dir);
        assert!(growth.take().expect("reads").contains(&FileChange::Gone(watched)));
    }
}
