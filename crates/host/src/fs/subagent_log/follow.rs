//! Finds the log files: watches the directories that lead to them, and reads the files as they grow.

use super::log_file::LogFile;
use dogwatch_agents::{Entry, Reading, SubagentLog};
use dogwatch_core::watch::sign::Sign;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most directories that are watched at once.
const MAX_DIRS: usize = 64;
/// The most files that are read at once. The file that has been idle the longest is dropped first.
const MAX_TAILS: usize = 64;
/// The most entries of a directory that are examined.
const MAX_ENTRIES: usize = 10_000;
/// Where many sibling directories could be relevant, only this many of the most recently changed are followed.
const MAX_RECENT: usize = 16;
/// The size of one read of events, and the most reads per call. Further events are left for the next call.
const BUFFER: usize = 16 * 1024;
const MAX_ROUNDS: usize = 64;

/// Follows the log files of one session.
pub struct Follower {
    log: SubagentLog,
    inotify: OwnedFd,
    /// The watched directories, each with its depth below the root of the log.
    dirs: HashMap<i32, (PathBuf, usize)>,
    tails: BTreeMap<PathBuf, (LogFile, u64)>,
    /// Counts reads, to know which tail was read last.
    turn: u64,
    buffer: Vec<u8>,
    began: SystemTime,
    begun: bool,
    /// Signs of subagents found while descending.
    seen: u64,
}

/// What the files of a session show.
#[derive(Debug, PartialEq)]
pub struct Found {
    /// The number of new signs of subagent activity.
    pub activity: u64,
    /// The signs from the session's own file that its output does not contain.
    pub signs: Vec<Sign>,
}

struct Happened {
    watch: i32,
    what: ReadFlags,
    name: OsString,
}

impl Follower {
    /// Creates a follower. The first `look` sets the watches.
    pub fn new(log: SubagentLog) -> io::Result<Follower> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Follower {
            log,
            inotify,
            dirs: HashMap::new(),
            tails: BTreeMap::new(),
            turn: 0,
            buffer: Vec::new(),
            began: SystemTime::now(),
            begun: false,
            seen: 0,
        })
    }

    /// Walks down to the log files that exist already. Their present content is old.
    fn begin(&mut self) {
        let root = PathBuf::from(self.log.root());
        self.descend(&root, 0, false);
    }

    /// Processes all pending events. Returns what they show.
    pub fn look(&mut self) -> Found {
        if !std::mem::replace(&mut self.begun, true) {
            self.begin();
        }
        let mut happened = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let more = self.read_events(&mut happened);
            happened.drain(..).for_each(|event| self.take(&event));
            if !more {
                break;
            }
        }
        Found { activity: std::mem::take(&mut self.seen), signs: self.log.take_signs() }
    }

    fn take(&mut self, event: &Happened) {
        if event.what.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.look_again();
        }
        if event.what.contains(ReadFlags::IGNORED) {
            self.dirs.remove(&event.watch);
            return;
        }
        let Some((dir, depth)) = self.dirs.get(&event.watch).cloned() else { return };
        let path = dir.join(&event.name);
        let came = event.what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        match self.entry(depth, &event.name) {
            Entry::Dir | Entry::Newest | Entry::Recent if came && event.what.contains(ReadFlags::ISDIR) => {
                self.descend(&path, depth + 1, true);
            }
            Entry::File if came => self.open(&path, Reading::default(), false),
            Entry::Own if came => self.open(&path, Reading::own(), false),
            Entry::File | Entry::Own => self.read(&path),
            Entry::Dir | Entry::Newest | Entry::Recent | Entry::Nothing => {}
        }
    }

    /// Classifies an entry. No CLI uses names that are not UTF-8.
    fn entry(&self, depth: usize, name: &OsStr) -> Entry {
        name.to_str().map_or(Entry::Nothing, |name| self.log.entry(depth, name))
    }

    /// Recovers from lost events. Files created since the start count as new, even without an event.
    fn look_again(&mut self) {
        self.begin();
        let known: Vec<PathBuf> = self.tails.keys().cloned().collect();
        known.iter().for_each(|path| self.read(path));
    }

    /// Watches a directory and descends into it. `fresh` means that it was created while we watched, and so was
    /// everything in it.
    fn descend(&mut self, dir: &Path, depth: usize, fresh: bool) {
        if !self.watch(dir, depth) {
            return;
        }
        let mut newest = None;
        let mut recent = Vec::new();
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_ENTRIES) {
            let name = entry.file_name();
            match self.entry(depth, &name) {
                Entry::Nothing => {}
                Entry::Dir => self.descend(&entry.path(), depth + 1, fresh),
                Entry::Newest => newest = newest.max(Some(name)),
                Entry::Recent => recent.push((changed(&entry.path()), name)),
                Entry::File => {
                    let new = fresh
                        || entry.metadata().and_then(|meta| meta.created()).is_ok_and(|at| at > self.began);
                    if new || self.log.shares_files() {
                        self.open(&entry.path(), Reading::default(), !new);
                    }
                }
                Entry::Own => self.open(&entry.path(), Reading::own(), false),
            }
        }
        recent.sort_unstable_by(|a, b| b.cmp(a));
        let on = newest.into_iter().chain(recent.into_iter().take(MAX_RECENT).map(|(_, name)| name));
        for name in on {
            self.descend(&dir.join(name), depth + 1, fresh);
        }
    }

    /// Watches a directory. Returns false if it is not a directory or the limit is reached. The root may be a link,
    /// as is common in home directories.
    fn watch(&mut self, dir: &Path, depth: usize) -> bool {
        if self.dirs.len() >= MAX_DIRS && !self.dirs.values().any(|(known, _)| known == dir) {
            return false;
        }
        let mut flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MODIFY | WatchFlags::ONLYDIR;
        if depth > 0 {
            flags |= WatchFlags::DONT_FOLLOW;
        }
        match inotify::add_watch(&self.inotify, dir, flags) {
            Ok(watch) => {
                self.dirs.insert(watch, (dir.to_path_buf(), depth));
                true
            }
            Err(_) => false,
        }
    }

    fn open(&mut self, path: &Path, reading: Reading, from_end: bool) {
        if self.tails.contains_key(path) {
            return self.read(path);
        }
        let Ok(tail) = LogFile::open(path, reading, from_end) else { return };
        if self.tails.len() >= MAX_TAILS {
            let oldest = self.tails.iter().min_by_key(|(_, (_, turn))| *turn).map(|(path, _)| path.clone());
            oldest.iter().for_each(|path| drop(self.tails.remove(path)));
        }
        self.tails.insert(path.to_path_buf(), (tail, self.turn));
        self.read(path);
    }

    fn read(&mut self, path: &Path) {
        let Some((tail, turn)) = self.tails.get_mut(path) else { return };
        self.turn += 1;
        *turn = self.turn;
        self.seen += tail.read(&mut self.log, &mut self.buffer);
    }

    /// Reads one buffer of events. Returns false if there are no more.
    fn read_events(&self, happened: &mut Vec<Happened>) -> bool {
        let mut buffer = [MaybeUninit::<u8>::uninit(); BUFFER];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    let event =
                        Happened { watch: event.wd(), what: event.events(), name: name.unwrap_or_default() };
                    happened.push(event);
                }
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            }
            if reader.is_buffer_empty() {
                return true;
            }
        }
    }
}

impl AsFd for Follower {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Returns when a directory, or one in it, last gained or lost an entry.
fn changed(dir: &Path) -> Option<SystemTime> {
    let of = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let inside = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_RECENT);
    inside.filter_map(|entry| of(&entry.path())).chain(of(dir)).max()
}
