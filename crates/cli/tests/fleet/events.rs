//! Events that tests wait for without polling: changes of records, and marks of agents.

use dogwatch_core::lease::JobRecord;
use dogwatch_fleet::names::JobId;
use dogwatch_fleet::{JoinLine, blocking};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
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

/// The file with the marks of the agents.
pub struct Marks(OwnedFd);

impl Marks {
    pub fn at(path: &Path) -> Marks {
        std::fs::write(path, "").expect("written");
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("inotify");
        inotify::add_watch(&fd, path, WatchFlags::MODIFY).expect("a watch");
        Marks(fd)
    }

    /// Waits until something holds, and looks again after each mark. Returns whether it holds.
    pub fn wait(&self, limit: Duration, right: impl Fn() -> bool) -> bool {
        let until = Instant::now() + limit;
        loop {
            while rustix::io::read(&self.0, &mut [0; 4096]).is_ok() {}
            if right() {
                return true;
            }
            if !self.wait_for_mark(until.saturating_duration_since(Instant::now())) {
                return right();
            }
        }
    }

    /// Waits for a span without a mark.
    pub fn wait_for_silence(&self, span: Duration, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            while rustix::io::read(&self.0, &mut [0; 4096]).is_ok() {}
            if !self.wait_for_mark(span) {
                return true;
            }
        }
        false
    }

    fn wait_for_mark(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).expect("seconds");
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
    }
}
