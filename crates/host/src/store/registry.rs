//! The registry of all runs of this user on this machine, and a check whether a run is alive.
//!
//! The registry is a directory of pointers, one small file per run. A pointer does not prove that a run is alive. The
//! lock on the `alive` file of the run does: the kernel releases it when its holder dies.

use crate::clock;
use crate::store::home;
use crate::store::journal::{
    self, Chain, Durability, End, HeadFile, Integrity, KnownHead, Loaded, ReadError,
};
use crate::store::safe_file;
use crate::store::socket;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::moment::{Moment, Skew, Wall};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, SystemTime};

/// The most runs listed. Older ones can be found by their directory.
pub const MAX_LISTED: usize = 1_000;
/// The most runs whose pointers are kept although their directories are missing. Older ones are removed.
const MAX_POINTERS: usize = 10_000;
/// The most loops whose last run is known. The one that was noted first is forgotten first.
const MAX_LOOPS: usize = 10_000;
/// The most bytes read from a pointer.
const MAX_BYTES: u64 = 64 * 1024;
/// The file whose lock shows that a run is supervised.
const ALIVE: &str = "alive";
/// How long to wait for the lock. A process that checks whether the run is alive holds it for microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// The location of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pointer {
    /// The run.
    pub run: RunId,
    /// The directory of its record and its socket.
    pub run_dir: PathBuf,
    /// Its loop file.
    pub path: PathBuf,
    /// The pid of its supervisor.
    pub pid: u32,
    /// When it started.
    pub since: Wall,
    /// Whether the head of its journal is kept next to this pointer. Runs of older versions have none.
    #[serde(default)]
    pub head: bool,
    /// The machine that supervises the run, if it is another one. The record is then a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// The last run of a loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// The run.
    pub run: RunId,
    /// The directory of its record.
    pub run_dir: PathBuf,
}

/// The machine of a run whose record is copied from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its name.
    pub host: String,
    /// The job of a fleet that the run belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The job of the graph that the run works for, if the run is a node of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// Its clocks, which the moments in the record refer to.
    pub skew: Skew,
}

impl Pointer {
    /// Returns the current moment on the clocks of the machine that supervises the run.
    pub fn now(&self) -> Moment {
        let skew = self.origin.as_ref().map(|origin| origin.skew);
        clock::now().on(skew.unwrap_or_default())
    }
}

/// Merges the runs of this machine with copies from other machines, newest first. A copy replaces a run of this machine that no
/// process here supervises: the run may have moved.
pub fn merge(own: Vec<Pointer>, copies: impl IntoIterator<Item = Pointer>) -> Vec<Pointer> {
    let mut all: BTreeMap<RunId, Pointer> = own.into_iter().map(|own| (own.run.clone(), own)).collect();
    for copy in copies {
        match all.get(&copy.run) {
            Some(known) if known.origin.is_some() || is_live(&known.run_dir) => {}
            Some(_) | None => drop(all.insert(copy.run.clone(), copy)),
        }
    }
    all.into_values().rev().collect()
}

/// The registry directory.
#[derive(Clone, Debug)]
pub struct Registry {
    dir: PathBuf,
}

impl Registry {
    /// Returns the registry of this user.
    pub fn of_user() -> Registry {
        Registry::at(home::user_state_dir().join("runs"))
    }

    /// Returns the registry in this directory.
    pub fn at(dir: PathBuf) -> Registry {
        Registry { dir }
    }

    /// Writes the pointer of a run, replacing an earlier one of the same run.
    pub fn add(&self, pointer: &Pointer) -> io::Result<()> {
        home::make_private(&self.dir)?;
        safe_file::replace(&self.file(&pointer.run), safe_file::PRIVATE, &serde_json::to_vec(pointer)?)
    }

    /// Removes the pointer and the head of a run whose record was removed.
    pub fn forget(&self, run: &RunId) {
        let _ = std::fs::remove_file(self.file(run));
        let _ = std::fs::remove_file(self.head_file(run));
    }

    /// Notes the last run of a loop, outside of the project, where a careless agent does not write.
    pub fn note_last(&self, work_dir: &Path, loop_file: &Path, last: &LastRun) -> io::Result<()> {
        let file = self.last_file(work_dir, loop_file);
        let dir = file.parent().unwrap_or(&self.dir);
        home::make_private(dir)?;
        if !file.exists() {
            keep_newest(dir, MAX_LOOPS - 1);
        }
        safe_file::replace(&file, safe_file::PRIVATE, &serde_json::to_vec(last)?)
    }

    /// Returns the last run of a loop, even if its record is gone.
    pub fn last(&self, work_dir: &Path, loop_file: &Path) -> Option<LastRun> {
        safe_file::read_json(&self.last_file(work_dir, loop_file), MAX_BYTES).ok().filter(|_| self.is_ours())
    }

    /// Forgets the last run of a loop, if it is this one.
    pub fn forget_last(&self, work_dir: &Path, loop_file: &Path, run: &RunId) {
        if self.last(work_dir, loop_file).is_some_and(|last| last.run == *run) {
            let _ = std::fs::remove_file(self.last_file(work_dir, loop_file));
        }
    }

    fn last_file(&self, work_dir: &Path, loop_file: &Path) -> PathBuf {
        let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_owned();
        let key = Sha256::digest([bytes(work_dir), bytes(loop_file)].join(&0));
        self.dir.with_file_name("loops").join(format!("{}.json", &journal::hex(&key)[..32]))
    }

    /// Returns the directory of the pointers. A change of the list of runs is a change in this directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the newest runs, newest first. A run whose directory is missing is not listed, but not forgotten: the directory
    /// may come back, changed.
    pub fn list(&self) -> Vec<Pointer> {
        self.list_bounded(MAX_POINTERS)
    }

    fn list_bounded(&self, max_pointers: usize) -> Vec<Pointer> {
        let mut runs = self.names();
        runs.sort_unstable_by(|a, b| b.cmp(a));
        runs.iter()
            .skip(max_pointers)
            .filter(|run| self.follow(run).is_none())
            .for_each(|run| self.forget(run));
        runs.iter().filter_map(|run| self.follow(run)).take(MAX_LISTED).collect()
    }

    /// Returns when a pointer was last added or removed. `None` if the registry does not exist.
    pub fn changed_at(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.dir).and_then(|meta| meta.modified()).ok()
    }

    /// Returns the pointer of one run.
    pub fn find(&self, run: &RunId) -> Option<Pointer> {
        self.follow(run)
    }

    /// Creates the head file of a run's journal: where it ends, and the hash of the file with the unredacted plan.
    pub fn keep_head(
        &self,
        run: &RunId,
        end: Option<End>,
        plan: Option<String>,
        durability: Durability,
    ) -> io::Result<HeadFile> {
        let path = self.head_file(run);
        home::make_private(path.parent().unwrap_or(&self.dir))?;
        HeadFile::create(&path, end, plan, durability)
    }

    /// Returns the hash of the last line that was written to a run's journal, if it is known.
    pub fn head(&self, run: &RunId) -> Option<String> {
        KnownHead::read(&self.head_file(run)).ok().map(|head| head.hash().to_owned())
    }

    /// Returns whether this user started or adopted the run in this directory.
    pub fn knows(&self, run: &RunId, run_dir: &Path) -> bool {
        let real = |dir: &Path| dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        self.follow(run).is_some_and(|pointer| real(&pointer.run_dir) == real(run_dir))
    }

    /// Reads the record of a run and compares it with its head.
    pub fn load(&self, run: &RunId, run_dir: &Path) -> Result<(Loaded, Integrity), ReadError> {
        let first = self.load_once(run, run_dir)?;
        // A run that wrote its last lines and ended meanwhile looks changed, but only once.
        if first.1 == Integrity::Intact { Ok(first) } else { self.load_once(run, run_dir) }
    }

    fn load_once(&self, run: &RunId, run_dir: &Path) -> Result<(Loaded, Integrity), ReadError> {
        // The head comes first: it must not be newer than the lines that are compared with it.
        let (head, missing) = match self.known_head(run, run_dir) {
            Ok(head) => (head, None),
            Err(why) => (None, Some(why)),
        };
        let loaded = journal::load_known(run_dir, head)?;
        let integrity = judge(&loaded.chain, run_dir, missing);
        Ok((loaded, integrity))
    }

    /// Returns the head of a run that this registry knows, or why it cannot be read although it should be there.
    pub fn known_head(&self, run: &RunId, run_dir: &Path) -> Result<Option<KnownHead>, String> {
        if !self.follow(run).is_some_and(|pointer| pointer.head) || !self.knows(run, run_dir) {
            return Ok(None);
        }
        let path = self.head_file(run);
        KnownHead::read(&path).map(Some).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }

    /// Returns the path of a run's head. It is not in the directory of the pointers, which other processes watch.
    fn head_file(&self, run: &RunId) -> PathBuf {
        self.dir.with_file_name("heads").join(run.as_str())
    }

    /// Returns whether the directory and its parent were not put there by another user.
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
        let pointer = safe_file::read_json::<Pointer>(&self.file(run), MAX_BYTES).ok();
        let pointer = pointer.filter(|p| p.run == *run && self.is_ours())?;
        match std::fs::symlink_metadata(&pointer.run_dir) {
            Ok(_) => Some(pointer),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // The directory may exist but be inaccessible.
            Err(_) => Some(pointer),
        }
    }

    /// Returns whether the record of a run that started here is gone.
    pub fn has_lost(&self, run: &RunId) -> bool {
        self.file(run).exists() && self.follow(run).is_none()
    }

    fn file(&self, run: &RunId) -> PathBuf {
        self.dir.join(format!("{run}.json"))
    }
}

/// Removes the oldest files of a directory until this many are left.
fn keep_newest(dir: &Path, most: usize) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    files.sort();
    for (_, file) in files.iter().take(files.len().saturating_sub(most)) {
        let _ = std::fs::remove_file(file);
    }
}

/// Judges a record that was read. `missing` says why its head could not be read.
pub fn judge(chain: &Chain, run_dir: &Path, missing: Option<String>) -> Integrity {
    match (chain.integrity(true), missing) {
        (Integrity::Intact, Some(why)) => Integrity::Unconfirmed(why),
        (Integrity::Intact, None) => chain.integrity(is_live(run_dir)),
        (problem, _) => problem,
    }
}

/// A lock that marks the run as supervised. The driver holds it until it exits.
#[derive(Debug)]
pub struct Alive {
    _file: File,
    path: PathBuf,
}

impl Drop for Alive {
    /// Removes the file. A killed run leaves it behind, unlocked.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Alive {
    /// Takes the lock. Fails if another process supervises the run.
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

/// Takes a lock as soon as it is free. Returns `None` if `bound` expires first. Lock calls have no timeout, so a
/// thread wait; if it gets the lock too late, it releases the lock by dropping the file.
fn lock_within(file: File, bound: Duration, lock: fn(&File) -> io::Result<()>) -> io::Result<Option<File>> {
    let (send, taken) = sync_channel(1);
    let wait = move || {
        let locked = lock(&file).map(|()| file);
        // Fails if the receiver timed out. The file is dropped with the value.
        let _ = send.send(locked);
    };
    let thread = std::thread::Builder::new().name("lock".into()).spawn(wait)?;
    match taken.recv_timeout(bound) {
        Ok(locked) => {
            // Join the thread before the caller checks for other threads in order to handle signals.
            let _ = thread.join();
            locked.map(Some)
        }
        Err(_) => Ok(None),
    }
}

/// Waits up to `bound` until no process supervises the run. Returns whether that is so.
pub fn is_gone_within(run_dir: &Path, bound: Duration) -> bool {
    if !is_live(run_dir) {
        return true;
    }
    let Ok(file) = safe_file::read(&run_dir.join(ALIVE)) else { return !answers(run_dir) };
    lock_within(file, bound, File::lock_shared).is_ok_and(|file| file.is_some())
}

/// Returns whether a process supervises the run now. Neither the age nor the pid of a run proves that.
pub fn is_live(run_dir: &Path) -> bool {
    let Ok(file) = safe_file::read(&run_dir.join(ALIVE)) else { return answers(run_dir) };
    // A shared lock, so that several processes can check at once.
    match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => answers(run_dir),
    }
}

/// Returns whether the socket of the run accepts connections: the fallback without a lock or its file.
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
            head: false,
            origin: None,
        }
    }

    #[test]
    fn a_copy_from_another_machine_replaces_a_run_that_is_not_live_here() {
        let dir = tempfile::tempdir().expect("a directory");
        let (live, dead) = (dir.path().join("live"), dir.path().join("dead"));
        std::fs::create_dir_all(&live).expect("a directory");
        let _alive = Alive::hold(&live).expect("locks");
        let own = vec![pointer(1, &live), pointer(2, &dead), pointer(3, &dead)];
        let there = dir.path().join("there");
        let merged = merge(own, [0, 1, 2].map(|n| pointer(n, &there)));
        let dirs: Vec<&Path> = merged.iter().map(|run| run.run_dir.as_path()).collect();
        assert_eq!(dirs, [&dead, &there, &live, &there]);
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

    // promise: 5
    #[test]
    fn a_run_whose_directory_is_missing_is_not_listed_and_not_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = Registry::at(dir.path().join("runs"));
        let (gone, kept) = (pointer(1, &dir.path().join("gone")), pointer(2, dir.path()));
        registry.add(&gone).expect("writes");
        registry.add(&kept).expect("writes");
        drop(registry.keep_head(&gone.run, None, None, Durability::Unsynced).expect("writes"));
        std::fs::write(dir.path().join("runs/notes.txt"), "mine").expect("writes");
        std::fs::write(registry.file(&pointer(3, dir.path()).run), "{half").expect("writes");
        assert_eq!(registry.list(), [kept]);
        assert_eq!(registry.find(&gone.run), None);
        std::fs::create_dir(&gone.run_dir).expect("it is back");
        assert_eq!(registry.find(&gone.run), Some(gone.clone()));
        assert!(registry.head(&gone.run).is_some());
        // Beyond the limit it is forgotten, with its head.
        std::fs::remove_dir(&gone.run_dir).expect("removes");
        registry.list_bounded(2);
        assert!(!registry.file(&gone.run).exists() && registry.head(&gone.run).is_none());
        assert!(dir.path().join("runs/notes.txt").exists());
    }

    #[test]
    fn the_last_run_of_a_loop_is_known_and_the_number_of_loops_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = Registry::at(dir.path().join("runs"));
        home::make_private(&registry.dir).expect("a directory");
        let last = |n| LastRun { run: pointer(n, dir.path()).run, run_dir: dir.path().join("gone") };
        let (tree, file) = (Path::new("/a"), Path::new("/a/RALPH.md"));
        assert_eq!(registry.last(tree, file), None);
        for n in [1, 2] {
            registry.note_last(tree, file, &last(n)).expect("writes");
            assert_eq!(registry.last(tree, file), Some(last(n)));
        }
        assert_eq!(registry.last(Path::new("/a/b"), file), None);
        registry.forget_last(tree, file, &last(1).run);
        assert_eq!(registry.last(tree, file), Some(last(2)));
        registry.forget_last(tree, file, &last(2).run);
        assert_eq!(registry.last(tree, file), None);
        for n in 0..4 {
            registry.note_last(Path::new(&format!("/{n}")), file, &last(n)).expect("writes");
        }
        let loops = dir.path().join("loops");
        keep_newest(&loops, 3);
        assert_eq!(std::fs::read_dir(loops).expect("lists").count(), 3);
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
                Alive::hold(dir.path()).expect("takes it eventually");
            }
        });
    }
}
