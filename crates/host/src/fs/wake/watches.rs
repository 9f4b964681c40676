//! The inotify side: maps watches to directories and reads events.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::fs::digest::ignored::Rules;

/// The size of one read: some thousand events.
const BUFFER: usize = 64 * 1024;
const SYSTEM_LIMIT: &str = "/proc/sys/fs/inotify/max_user_watches";

/// A watched directory under one of its names.
#[derive(Clone, Debug)]
pub(super) struct Dir {
    pub(super) path: PathBuf,
    pub(super) rules: Rules,
    turn: u64,
}

#[derive(Debug)]
pub(super) struct Happened {
    pub(super) watch: i32,
    pub(super) what: ReadFlags,
    pub(super) name: OsString,
}

#[derive(Debug)]
pub(super) struct Watches {
    /// `None` if the system refused an inotify instance.
    fd: Option<OwnedFd>,
    /// The directories of each watch. An inode has one watch, but may have two paths here through a followed link.
    dirs: HashMap<i32, Vec<Dir>>,
    max: usize,
    /// Whether some directory has no watch.
    pub(super) short: bool,
}

impl Watches {
    pub(super) fn new(max: usize) -> Watches {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        // The other half is left to the user's editor and other programs.
        let system = std::fs::read_to_string(SYSTEM_LIMIT).ok().and_then(|text| text.trim().parse().ok());
        let max = max.min(system.unwrap_or(usize::MAX) / 2);
        Watches { short: fd.is_none(), fd, dirs: HashMap::new(), max }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn len(&self) -> usize {
        self.dirs.len()
    }

    pub(super) fn has_fd(&self) -> bool {
        self.fd.is_some()
    }

    /// Watches a directory, or notes that it could not.
    pub(super) fn add(&mut self, path: &Path, rules: &Rules, follow: bool, turn: u64) {
        let Some(fd) = &self.fd else { return };
        let mut flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::ONLYDIR;
        if !follow {
            flags |= WatchFlags::DONT_FOLLOW;
        }
        match inotify::add_watch(fd, path, flags) {
            Ok(watch) if self.dirs.len() < self.max || self.dirs.contains_key(&watch) => {
                self.note(watch, Dir { path: path.to_path_buf(), rules: rules.clone(), turn });
            }
            Ok(watch) => {
                let _ = inotify::remove_watch(fd, watch);
                self.short = true;
            }
            Err(Errno::NOSPC | Errno::NOMEM) => self.short = true,
            // The directory is gone again or cannot be read, so nothing in it is visible.
            Err(_) => {}
        }
    }

    fn note(&mut self, watch: i32, dir: Dir) {
        let names = self.dirs.entry(watch).or_default();
        match names.iter_mut().find(|known| known.path == dir.path) {
            Some(known) => *known = dir,
            None => names.push(dir),
        }
    }

    pub(super) fn dirs(&self, watch: i32) -> Vec<Dir> {
        self.dirs.get(&watch).cloned().unwrap_or_default()
    }

    /// Forgets a watch that the kernel has dropped.
    pub(super) fn forget(&mut self, watch: i32) {
        self.dirs.remove(&watch);
    }

    /// Drops the watches below a directory that was moved away, because they would follow it.
    pub(super) fn drop_below(&mut self, dir: &Path) {
        self.keep(|known| !known.path.starts_with(dir));
    }

    /// Drops the watches that a full survey of this turn did not reach.
    pub(super) fn drop_older(&mut self, turn: u64) {
        self.keep(|known| known.turn >= turn);
    }

    fn keep(&mut self, wanted: impl Fn(&Dir) -> bool) {
        let Some(fd) = &self.fd else { return };
        self.dirs.retain(|watch, names| {
            names.retain(&wanted);
            if names.is_empty() {
                // This fails if the watch is already gone.
                let _ = inotify::remove_watch(fd, *watch);
            }
            !names.is_empty()
        });
    }

    /// Reads one buffer of events. Returns false if there are no more.
    pub(super) fn read(&mut self, happened: &mut Vec<Happened>) -> bool {
        let read = self.try_read(happened);
        if read.is_err() {
            // This has never been observed. If reading fails, scanning takes over.
            self.fd = None;
            self.dirs.clear();
            self.short = true;
        }
        read.unwrap_or(false)
    }

    fn try_read(&self, happened: &mut Vec<Happened>) -> Result<bool, Errno> {
        let Some(fd) = &self.fd else { return Ok(false) };
        let mut buffer = [MaybeUninit::<u8>::uninit(); BUFFER];
        let mut reader = Reader::new(fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    let name = name.unwrap_or_default();
                    happened.push(Happened { watch: event.wd(), what: event.events(), name });
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
            if reader.is_buffer_empty() {
                return Ok(true);
            }
        }
    }
}
