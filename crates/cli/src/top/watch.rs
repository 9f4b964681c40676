//! The sources that wake `top`: journals that grow, the list of runs, and supervisors that exit. The kernel reports
//! all of them; nothing polls.

use dogwatch_core::record::ids::RunId;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The size of the inotify buffer, in bytes.
const BUFFER: usize = 16 * 1024;

/// The file watches and process handles of `top`.
#[derive(Debug, Default)]
pub struct Watch {
    inotify: Option<OwnedFd>,
    /// The watches on the lists of runs.
    lists: Vec<i32>,
    journals: BTreeMap<i32, RunId>,
    /// The watch on the directory of the session whose output is shown.
    output: Option<i32>,
    /// Process handles of the supervisors of live runs.
    supervisors: BTreeMap<RunId, OwnedFd>,
}

/// The changes since the last read.
#[derive(Debug, Default, PartialEq)]
pub struct Changed {
    pub list: bool,
    pub journals: Vec<RunId>,
    /// The output that is shown.
    pub output: bool,
}

impl Watch {
    /// Returns a watch without files. It is inactive if inotify is not available.
    pub fn new() -> Watch {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        Watch { inotify, ..Watch::default() }
    }

    /// Returns whether changes are detected. If not, the user must refresh by key.
    pub fn is_active(&self) -> bool {
        self.inotify.is_some() && !self.lists.is_empty()
    }

    /// Watches a list of runs.
    pub fn list(&mut self, dir: &Path) {
        let Some(fd) = &self.inotify else { return };
        let flags = WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        self.lists.extend(inotify::add_watch(fd, dir, flags).ok());
    }

    /// Watches the directory of a session for output, instead of the one before.
    pub fn output(&mut self, dir: Option<&Path>) {
        let Some(fd) = &self.inotify else { return };
        if let Some(before) = self.output.take() {
            let _ = inotify::remove_watch(fd, before);
        }
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        self.output = dir.and_then(|dir| inotify::add_watch(fd, dir, flags).ok());
    }

    /// Watches a live run: its journal, and its supervisor, which may exit without writing an event.
    pub fn run(&mut self, run: &RunId, journal: &Path, pid: u32) {
        if let Some(fd) = &self.inotify
            && let Ok(watch) = inotify::add_watch(fd, journal, WatchFlags::MODIFY)
        {
            self.journals.insert(watch, run.clone());
        }
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // The pid may belong to another namespace. Then only the last event shows the end of the run.
        if let Some(Ok(fd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            self.supervisors.insert(run.clone(), fd);
        }
    }

    /// Removes the watches of a run. A run without a supervisor does not change.
    pub fn forget(&mut self, run: &RunId) {
        self.supervisors.remove(run);
        let Some(fd) = &self.inotify else { return };
        self.journals.retain(|watch, known| {
            let keep = known != run;
            if !keep {
                let _ = inotify::remove_watch(fd, *watch);
            }
            keep
        });
    }

    /// Returns whether the journal of a run is watched already.
    pub fn is_watching(&self, run: &RunId) -> bool {
        self.journals.values().any(|known| known == run)
    }

    /// Returns the descriptors to poll, with the run of each process handle.
    pub fn fds(&self) -> impl Iterator<Item = (Option<&RunId>, BorrowedFd<'_>)> {
        let inotify = self.inotify.iter().map(|fd| (None, fd.as_fd()));
        inotify.chain(self.supervisors.iter().map(|(run, fd)| (Some(run), fd.as_fd())))
    }

    /// Reads the pending changes.
    pub fn read(&mut self) -> Changed {
        let mut changed = Changed::default();
        let Some(fd) = &self.inotify else { return changed };
        let mut buffer = [MaybeUninit::<u8>::uninit(); BUFFER];
        let mut reader = Reader::new(fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    (changed.list, changed.output) = (true, true);
                    changed.journals = self.journals.values().cloned().collect();
                }
                Ok(event) if self.lists.contains(&event.wd()) => changed.list = true,
                Ok(event) if Some(event.wd()) == self.output => changed.output = true,
                Ok(event) => changed.journals.extend(self.journals.get(&event.wd()).cloned()),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        changed.journals.sort();
        changed.journals.dedup();
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn journal_growth_and_a_new_pointer_are_reported_once_each() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = dir.path().join("events.jsonl");
        std::fs::write(&journal, "").expect("writes");
        let list = dir.path().join("runs");
        std::fs::create_dir(&list).expect("makes it");
        let id = RunId::new(dogwatch_core::time::moment::Wall(1_794_773_733_000), [1, 2, 3, 4]);
        let mut watch = Watch::new();
        watch.list(&list);
        watch.run(&id, &journal, std::process::id());
        assert!(watch.is_active() && watch.is_watching(&id));
        assert_eq!(watch.read(), Changed::default());
        let mut file = std::fs::File::options().append(true).open(&journal).expect("opens");
        file.write_all(b"a\n").expect("writes");
        file.write_all(b"b\n").expect("writes");
        std::fs::write(dir.path().join("new"), "").expect("writes");
        std::fs::rename(dir.path().join("new"), list.join("x.json")).expect("moves");
        assert_eq!(watch.read(), Changed { list: true, journals: vec![id.clone()], output: false });
        assert_eq!(watch.fds().count(), 2, "inotify and this process");
        watch.forget(&id);
        file.write_all(b"c\n").expect("writes");
        assert_eq!(watch.read(), Changed::default());
        assert_eq!(watch.fds().count(), 1);
    }
}
