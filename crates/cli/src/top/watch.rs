//! Who wakes `top`: journals that grow, the list of runs, dogwatches that end. The kernel says so; nothing is asked
//! again and again.

use dogwatch_core::ids::RunId;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const BUFFER: usize = 16 * 1024;

#[derive(Debug, Default)]
pub struct Watch {
    inotify: Option<OwnedFd>,
    /// The list of runs, by its watch.
    list: Option<i32>,
    journals: BTreeMap<i32, RunId>,
    /// The dogwatches of the runs that live.
    lives: BTreeMap<RunId, OwnedFd>,
}

/// What has changed.
#[derive(Debug, Default, PartialEq)]
pub struct Changed {
    pub list: bool,
    pub journals: Vec<RunId>,
}

impl Watch {
    pub fn new() -> Watch {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        Watch { inotify, ..Watch::default() }
    }

    /// Whether changes are seen; if not, a person must ask for a look.
    pub fn sees(&self) -> bool {
        self.inotify.is_some() && self.list.is_some()
    }

    pub fn list(&mut self, dir: &Path) {
        let Some(fd) = &self.inotify else { return };
        let flags = WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        self.list = inotify::add_watch(fd, dir, flags).ok();
    }

    /// A run that lives: its journal grows, and its dogwatch may end without a word.
    pub fn run(&mut self, run: &RunId, journal: &Path, pid: u32) {
        if let Some(fd) = &self.inotify
            && let Ok(watch) = inotify::add_watch(fd, journal, WatchFlags::MODIFY)
        {
            self.journals.insert(watch, run.clone());
        }
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // A pid of another namespace is nobody here: then its last event tells.
        if let Some(Ok(fd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            self.lives.insert(run.clone(), fd);
        }
    }

    /// A run that nobody supervises does not change.
    pub fn forget(&mut self, run: &RunId) {
        self.lives.remove(run);
        let Some(fd) = &self.inotify else { return };
        self.journals.retain(|watch, known| {
            let keep = known != run;
            if !keep {
                let _ = inotify::remove_watch(fd, *watch);
            }
            keep
        });
    }

    /// Those that are looked after: to be told what is new is not to be told again.
    pub fn knows(&self, run: &RunId) -> bool {
        self.journals.values().any(|known| known == run)
    }

    pub fn fds(&self) -> impl Iterator<Item = (Option<&RunId>, BorrowedFd<'_>)> {
        let inotify = self.inotify.iter().map(|fd| (None, fd.as_fd()));
        inotify.chain(self.lives.iter().map(|(run, fd)| (Some(run), fd.as_fd())))
    }

    /// Takes what has happened.
    pub fn read(&mut self) -> Changed {
        let mut changed = Changed::default();
        let Some(fd) = &self.inotify else { return changed };
        let mut buffer = [MaybeUninit::<u8>::uninit(); BUFFER];
        let mut reader = Reader::new(fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    changed.list = true;
                    changed.journals = self.journals.values().cloned().collect();
                }
                Ok(event) if Some(event.wd()) == self.list => changed.list = true,
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
    fn growth_of_a_journal_and_a_new_pointer_are_told_once_each() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = dir.path().join("events.jsonl");
        std::fs::write(&journal, "").expect("writes");
        let list = dir.path().join("runs");
        std::fs::create_dir(&list).expect("makes it");
        let id = RunId::new(dogwatch_core::moment::Wall(1_794_773_733_000), [1, 2, 3, 4]);
        let mut watch = Watch::new();
        watch.list(&list);
        watch.run(&id, &journal, std::process::id());
        assert!(watch.sees() && watch.knows(&id));
        assert_eq!(watch.read(), Changed::default());
        let mut file = std::fs::File::options().append(true).open(&journal).expect("opens");
        file.write_all(b"a\n").expect("writes");
        file.write_all(b"b\n").expect("writes");
        std::fs::write(dir.path().join("new"), "").expect("writes");
        std::fs::rename(dir.path().join("new"), list.join("x.json")).expect("moves");
        assert_eq!(watch.read(), Changed { list: true, journals: vec![id.clone()] });
        assert_eq!(watch.fds().count(), 2, "the files, and our own process");
        watch.forget(&id);
        file.write_all(b"c\n").expect("writes");
        assert_eq!(watch.read(), Changed::default());
        assert_eq!(watch.fds().count(), 1);
    }
}
