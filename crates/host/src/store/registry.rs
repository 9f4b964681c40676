//! All runs of this user on this machine, wherever their state lies, and which of them are alive.
//!
//! The registry is a directory of pointers, one small file per run. A pointer is no proof of life: that is
//! the lock on the run's `alive` file, which the kernel lets go the moment its holder dies.

use crate::store::home;
use crate::store::safe_file;
use crate::store::socket;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::moment::Wall;
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, SystemTime};

/// The most runs that are listed; older ones are found by their directory.
pub const MAX_LISTED: usize = 1_000;
/// The most that is read of a pointer.
const MAX_BYTES: u64 = 64 * 1024;
/// The file whose lock says that a run is supervised.
const ALIVE: &str = "alive";
/// Somebody who asks whether we live holds the lock for microseconds; so long we wait for it at most.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a run is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pointer {
    pub run: RunId,
    /// Its record and its socket.
    pub run_dir: PathBuf,
    /// Its loop file.
    pub path: PathBuf,
    pub pid: u32,
    pub since: Wall,
}

pub struct Registry {
    dir: PathBuf,
}

impl Registry {
    pub fn of_user() -> Registry {
        Registry::at(home::user_state_dir().join("runs"))
    }

    pub fn at(dir: PathBuf) -> Registry {
        Registry { dir }
    }

    /// Writes a run's pointer, in place of an earlier one of the same run.
    pub fn add(&self, pointer: &Pointer) -> io::Result<()> {
        home::make_private(&self.dir)?;
        let new = self.dir.join(format!("{}.{}.new", pointer.run, std::process::id()));
        safe_file::write(&new, safe_file::PRIVATE, &serde_json::to_vec(pointer)?)?;
        std::fs::rename(&new, self.file(&pointer.run))
    }

    /// The newest runs, newest first. Pointers to what is not there any more are removed.
    pub fn list(&self) -> Vec<Pointer> {
        let mut runs = self.names();
        runs.sort_unstable_by(|a, b| b.cmp(a));
        runs.iter().filter_map(|run| self.follow(run)).take(MAX_LISTED).collect()
    }

    /// When a pointer last came or went. `None` if there has never been one.
    pub fn changed_at(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.dir).and_then(|meta| meta.modified()).ok()
    }

    /// The pointer of one run.
    pub fn find(&self, run: &RunId) -> Option<Pointer> {
        self.follow(run)
    }

    /// Whether no other user put the directory, or the one around it, in its place.
    fn is_ours(&self) -> bool {
        let around = self.dir.parent().is_none_or(|parent| safe_file::check_dir(parent).is_ok());
        around && safe_file::check_dir(&self.dir).is_ok()
    }

    fn names(&self) -> Vec<RunId> {
        if !self.is_ours() {
            return Vec::new();
        }
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().to_str()?.strip_suffix(".json")?.parse().ok()).collect()
    }

    fn follow(&self, run: &RunId) -> Option<Pointer> {
        let pointer = read(&self.file(run)).filter(|p| p.run == *run && self.is_ours())?;
        match std::fs::symlink_metadata(&pointer.run_dir) {
            Ok(_) => Some(pointer),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let _ = std::fs::remove_file(self.file(run));
                None
            }
            // It may be there and only be out of our sight.
            Err(_) => Some(pointer),
        }
    }

    fn file(&self, run: &RunId) -> PathBuf {
        self.dir.join(format!("{run}.json"))
    }
}

fn read(path: &Path) -> Option<Pointer> {
    let mut text = Vec::new();
    safe_file::read(path).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// While this is held, the run counts as supervised. Held by the driver for its whole life.
#[derive(Debug)]
pub struct Alive {
    _file: File,
    path: PathBuf,
}

impl Drop for Alive {
    /// A run that is over leaves no such file; one that was killed does, and nobody holds it.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Alive {
    pub fn hold(run_dir: &Path) -> io::Result<Alive> {
        let path = run_dir.join(ALIVE);
        let file = safe_file::update(&path, safe_file::PRIVATE)?;
        match file.try_lock() {
            Ok(()) => Ok(Alive { _file: file, path }),
            Err(TryLockError::WouldBlock) => match lock_within(file, PATIENCE, File::lock)? {
                Some(file) => Ok(Alive { _file: file, path }),
                None => {
                    Err(io::Error::new(io::ErrorKind::ResourceBusy, "another dogwatch supervises this run"))
                }
            },
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Takes a lock as soon as it is free, if it is within this time. There is no such call, so a thread waits; one that
/// got it too late finds nobody, and lets it go with the file.
fn lock_within(file: File, bound: Duration, lock: fn(&File) -> io::Result<()>) -> io::Result<Option<File>> {
    let (send, taken) = sync_channel(1);
    let wait = move || {
        let locked = lock(&file).map(|()| file);
        // Nobody waits any more: that is theirs.
        let _ = send.send(locked);
    };
    let thread = std::thread::Builder::new().name("lock".into()).spawn(wait)?;
    match taken.recv_timeout(bound) {
        Ok(locked) => {
            // Gone before whoever takes the process's signals looks for other threads.
            let _ = thread.join();
            locked.map(Some)
        }
        Err(_) => Ok(None),
    }
}

/// Waits until nobody supervises the run any more, at most for this time. True once nobody does.
pub fn is_gone_within(run_dir: &Path, bound: Duration) -> bool {
    if !is_live(run_dir) {
        return true;
    }
    let Ok(file) = safe_file::read(&run_dir.join(ALIVE)) else { return !answers(run_dir) };
    lock_within(file, bound, File::lock_shared).is_ok_and(|file| file.is_some())
}

/// Whether somebody supervises the run now. Its age says nothing about that, and neither does its pid.
pub fn is_live(run_dir: &Path) -> bool {
    let Ok(file) = safe_file::read(&run_dir.join(ALIVE)) else { return answers(run_dir) };
    // Shared, so that many may ask at once.
    match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => answers(run_dir),
    }
}

/// Where there are no locks, or no such file, a socket that answers is proof enough.
fn answers(run_dir: &Path) -> bool {
    socket::connect(&socket::path(run_dir), Duration::from_secs(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(n: usize, run_dir: &Path) -> Pointer {
        let tail: [u8; 4] = u32::try_from(n).expect("small").to_be_bytes();
        let since = Wall(1_794_773_733_000 + n as i64 * 1_000);
        Pointer {
            run: RunId::new(since, tail),
            run_dir: run_dir.to_owned(),
            path: run_dir.join("RALPH.md"),
            pid: 7,
            since,
        }
    }

    #[test]
    fn runs_are_listed_newest_first_up_to_the_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = Registry::at(dir.path().join("runs"));
        assert_eq!(registry.list(), []);
        for n in 0..MAX_LISTED + 1 {
            registry.add(&pointer(n, dir.path())).expect("writes");
        }
        let listed = registry.list();
        assert_eq!(listed.len(), MAX_LISTED);
        assert_eq!(listed[0], pointer(MAX_LISTED, dir.path()));
        assert!(listed.is_sorted_by(|a, b| a.run > b.run));
    }

    #[test]
    fn a_dangling_pointer_is_removed_and_other_files_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = Registry::at(dir.path().join("runs"));
        let (gone, kept) = (pointer(1, &dir.path().join("gone")), pointer(2, dir.path()));
        registry.add(&gone).expect("writes");
        registry.add(&kept).expect("writes");
        std::fs::write(dir.path().join("runs/notes.txt"), "mine").expect("writes");
        std::fs::write(registry.file(&pointer(3, dir.path()).run), "{half").expect("writes");
        assert_eq!(registry.list(), [kept]);
        assert_eq!(registry.find(&gone.run), None);
        assert!(!registry.file(&gone.run).exists());
        assert!(dir.path().join("runs/notes.txt").exists());
    }

    // promise: 14
    #[test]
    fn a_pointer_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let registry = Registry::at(dir.path().join("runs"));
        let pointer = pointer(1, dir.path());
        registry.add(&pointer).expect("writes");
        let mode = |p: &Path| std::fs::metadata(p).expect("is there").permissions().mode() & 0o777;
        assert_eq!(mode(&registry.file(&pointer.run)), 0o600);
        assert_eq!(mode(&registry.dir), 0o700);
    }

    #[test]
    fn a_run_is_live_while_its_lock_is_held() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(!is_live(dir.path()));
        let alive = Alive::hold(dir.path()).expect("takes it");
        assert!(is_live(dir.path()) && is_live(dir.path()));
        drop(alive);
        assert!(!is_live(dir.path()));
        Alive::hold(dir.path()).expect("takes it again");
    }

    #[test]
    fn waiting_for_a_run_to_end_returns_at_once_and_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(is_gone_within(dir.path(), Duration::ZERO));
        let alive = Alive::hold(dir.path()).expect("takes it");
        assert!(!is_gone_within(dir.path(), Duration::from_millis(20)));
        std::thread::scope(|s| {
            let wait = s.spawn(|| is_gone_within(dir.path(), Duration::from_secs(60)));
            drop(alive);
            assert!(wait.join().expect("it does not panic"));
        });
    }

    #[test]
    fn liveness_checks_do_not_keep_a_run_from_starting() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(Alive::hold(dir.path()).expect("takes it"));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..500).filter(|_| is_live(dir.path())).count());
            }
            for _ in 0..50 {
                Alive::hold(dir.path()).expect("takes it in the end");
            }
        });
    }
}
