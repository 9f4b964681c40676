//! Events that tests wait for without polling: changes of records, marks of agents, and lines of logs.

use dogwatch_core::lease::JobRecord;
use dogwatch_fleet::names::JobId;
use dogwatch_fleet::{JoinLine, blocking};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

type All = BTreeMap<JobId, JobRecord>;

/// The records of all jobs, followed by a thread.
pub struct Records(Arc<(Mutex<All>, Condvar)>);

impl Records {
    pub fn follow(line: JoinLine) -> Records {
        let shared: Arc<(Mutex<All>, Condvar)> = Arc::default();
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            blocking::follow(&line, |id, record| {
                let Some(shared) = weak.upgrade() else { return false };
                shared.0.lock().expect("whole").insert(id, record);
                shared.1.notify_all();
                true
            })
        });
        Records(shared)
    }

    pub fn get(&self, id: &JobId) -> Option<JobRecord> {
        self.0.0.lock().expect("whole").get(id).cloned()
    }

    /// Waits until the records hold something.
    pub fn wait<T>(&self, limit: Duration, found: impl Fn(&All) -> Option<T>) -> Option<T> {
        let until = Instant::now() + limit;
        let mut all = self.0.0.lock().expect("whole");
        loop {
            if let Some(found) = found(&all) {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            all = self.0.1.wait_timeout(all, left).expect("whole").0;
        }
    }
}

/// A file that grows or is read: the marks of the agents, a log, or a journal.
pub struct Growing {
    path: PathBuf,
    changes: OwnedFd,
}

impl Growing {
    /// Creates the file, or empties it.
    pub fn at(path: &Path) -> Growing {
        std::fs::write(path, "").expect("written");
        Growing::watch(path, WatchFlags::MODIFY)
    }

    /// Follows how often processes open a file.
    pub fn opened(path: &Path) -> Growing {
        Growing::watch(path, WatchFlags::OPEN)
    }

    fn watch(path: &Path, flags: WatchFlags) -> Growing {
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("inotify");
        inotify::add_watch(&changes, path, flags).expect("a watch");
        Growing { path: path.to_owned(), changes }
    }

    /// Returns a descriptor that appends to the file.
    pub fn appends(&self) -> File {
        File::options().append(true).open(&self.path).expect("the file")
    }

    /// Waits until the file contains a text. Returns whether it does.
    pub fn wait_for(&self, limit: Duration, text: &str) -> bool {
        self.wait(limit, || std::fs::read_to_string(&self.path).is_ok_and(|all| all.contains(text)))
    }

    /// Waits until something holds, and looks again when the file has grown. Returns whether it holds.
    pub fn wait(&self, limit: Duration, right: impl Fn() -> bool) -> bool {
        let until = Instant::now() + limit;
        loop {
            while rustix::io::read(&self.changes, &mut [0; 4096]).is_ok() {}
            if right() {
                return true;
            }
            if !self.grows(until.saturating_duration_since(Instant::now())) {
                return right();
            }
        }
    }

    /// Waits for a span in which the file does not grow, or is not opened.
    pub fn wait_for_silence(&self, span: Duration, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            while rustix::io::read(&self.changes, &mut [0; 4096]).is_ok() {}
            if !self.grows(span) {
                return true;
            }
        }
        false
    }

    fn grows(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).expect("seconds");
        poll(&mut [PollFd::new(&self.changes, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
    }
}
