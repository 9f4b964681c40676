//! Locks a work tree and loop file, so that only one run uses them at a time.
//!
//! A run holds two locks: one in the user's state directory, one in the project's. Two runs of a loop exclude each
//! other even if one of the lock files is removed, or if cron and a shell have different values of `XDG_STATE_HOME`.
//! A lock is an open file that the keeper holds as well. So after `kill -9` of dogwatch the locks stay taken until
//! the keeper has ended every process of the session: a process that gets the locks knows that the process tree is
//! empty.

use crate::clock;
use crate::process::keeper;
use crate::process::orphans;
use crate::store::home;
use crate::store::home::StateDir;
use crate::store::journal::hex;
use crate::store::safe_file;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::view::View;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use rustix::fs::{Timespec, Timestamps};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How long to wait for the keeper of a dead dogwatch to end its processes.
const KEEPER_PATIENCE: Dur = Dur::from_secs(15);
/// How long a killed process may still appear alive.
const DYING: Dur = Dur::from_millis(300);
/// How often to check whether another process got the lock first.
const LOOK_AGAIN: Dur = Dur::from_millis(100);
/// How long the holder of a lock may take to sign it.
const SIGNING: Dur = Dur::from_secs(2);
/// How often to read an unsigned lock during that time.
const SIGNING_LOOK: Dur = Dur::from_millis(10);
/// The most attempts to take a lock whose file is removed or replaced at that moment.
const MAX_TRIES: usize = 5;
/// The most earlier runs recorded in a lock because their leftover processes were not ended yet. The oldest are
/// dropped first.
const MAX_EARLIER: usize = 16;
/// The most bytes read from a lock file.
const MAX_BYTES: u64 = 64 * 1024;

/// The current or last holder of a lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The pid of the supervisor.
    pub pid: u32,
    /// The start time of the process, which distinguishes it from a later process with the same pid.
    pub start_time: u64,
    /// The boot in which the pid is valid.
    pub boot_id: String,
    /// The run that holds the lock.
    pub run: RunId,
    /// When the run took the lock.
    pub since: Wall,
    /// The nonce that every process of the run carries in its environment.
    pub nonce: String,
    /// Earlier runs whose leftover processes may not have been ended yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Mark>,
}

/// Identifies the processes of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The run.
    pub run: RunId,
    /// The boot in which the run started.
    pub boot_id: String,
    /// The nonce in the environment of its processes.
    pub nonce: String,
    /// When the supervisor of the run started. No process of the run is older.
    #[serde(default)]
    pub start_time: u64,
}

impl Holder {
    fn is_alive(&self) -> bool {
        self.boot_id == clock::boot_id() && orphans::start_time(self.pid) == Some(self.start_time)
    }
}

/// The work tree and loop file to lock.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The working directory of the run.
    pub work_dir: &'a Path,
    /// The loop file.
    pub loop_file: &'a Path,
    /// The state directory of the project.
    pub state_dir: &'a StateDir,
}

/// The locks that a run holds. They are released once it is dropped and no keeper holds the files.
pub struct Lock {
    files: Vec<File>,
    /// When the user's lock was last written, if the same run held it before: at the latest by the keeper of a lost
    /// supervisor. The file keeps that time, because this supervisor may fail before it has recorded it.
    lost_at: Option<Wall>,
}

/// Locks that were just taken.
pub struct Taken {
    /// The locks.
    pub lock: Lock,
    /// The marks of the earlier runs that did not clear them.
    pub earlier: Vec<Mark>,
}

/// Why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another live run holds the lock.
    #[error("another dogwatch runs this loop: pid {}, run {}, since {}", .0.pid, .0.run, .0.since)]
    Held(Box<Holder>),
    /// Another process holds the lock and has not signed it.
    #[error("another dogwatch runs this loop")]
    HeldUnsigned,
    /// The keeper of a dead run still holds the lock.
    #[error("run {} was killed and its processes are still being ended; try again in a moment", .0.run)]
    StillEnding(Box<Holder>),
    /// The lock file cannot be opened, locked or written.
    #[error("cannot lock {path}: {error}")]
    Io {
        /// The path of the lock file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The state directory cannot be created or written.
    #[error("cannot write the record to {path}: {error}")]
    StateDir {
        /// The path of the directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl Lock {
    /// Takes and signs both locks.
    pub fn take(place: Place<'_>, holder: &Holder) -> Result<Taken, LockError> {
        let path = user_lock(place.work_dir, place.loop_file);
        let cannot = |error| LockError::Io { path: path.clone(), error };
        home::make_private(path.parent().unwrap_or(Path::new("/"))).map_err(cannot)?;
        let mut of_user = locked(&path)?.ok_or_else(|| cannot(Errno::OPNOTSUPP.into()))?;
        let before = read_holder(&mut of_user);
        let mut earlier = marks(before.iter());
        let last_written = written(&of_user);
        let lost_at = before.as_ref().filter(|before| before.run == holder.run).and(last_written);
        // Sign immediately, so that a competing process can name this run.
        sign(&of_user, Some(&Holder { earlier: earlier.clone(), ..holder.clone() }), lost_at)
            .map_err(cannot)?;
        match lock_of_project(&place) {
            Ok(None) => Ok(Taken { lock: Lock { files: vec![of_user], lost_at }, earlier }),
            Ok(Some(mut of_project)) => {
                let known = read_holder(&mut of_project);
                earlier = marks(before.iter().chain(known.iter()));
                let mut lock = Lock { files: vec![of_user, of_project], lost_at };
                lock.sign(&Holder { earlier: earlier.clone(), ..holder.clone() }).map_err(cannot)?;
                Ok(Taken { lock, earlier })
            }
            Err(error) => {
                // Restore the previous signature: this process never held the loop.
                let _ = sign(&of_user, before.as_ref(), last_written);
                Err(error)
            }
        }
    }

    /// Wraps files that are already locked.
    pub fn of_files(files: Vec<File>) -> Lock {
        Lock { files, lost_at: None }
    }

    /// Returns when the earlier supervisor of the same run was lost, if its keeper noticed.
    pub fn lost_at(&self) -> Option<Wall> {
        self.lost_at
    }

    /// Records the holder in the lock files.
    pub fn sign(&mut self, holder: &Holder) -> io::Result<()> {
        self.files.iter().try_for_each(|file| sign(file, Some(holder), self.lost_at))
    }

    /// Clears the signature after a clean end, so that the next run does not search for leftover processes.
    pub fn clear(&mut self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| sign(file, None, None))
    }

    /// Returns the open files, which the keepers hold as well.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().map(AsFd::as_fd).collect()
    }
}

/// Marks the time in a lock file that a keeper holds, when its supervisor is gone. The next supervisor of the run reads
/// it.
pub fn mark_loss(file: BorrowedFd<'_>) {
    let now = Timestamps { last_access: NOW, last_modification: NOW };
    // Without the mark the run is counted as supervised until its last event.
    let _ = rustix::fs::futimens(file, &now);
}

/// Adds to the view of a run of this machine when its supervisor was lost. The status of a live run does not use it.
pub fn note_loss(view: &mut View) {
    if let Some(at) = lost_at(view) {
        view.note_loss(at);
    }
}

/// Returns when the supervisor of a run that has not ended was lost, without taking the lock. `None` if the run did not
/// hold the lock last.
pub fn lost_at(view: &View) -> Option<Wall> {
    let started = view.started.as_ref().filter(|_| !view.is_over())?;
    let path = user_lock(Path::new(&started.work_dir), Path::new(&started.path));
    let mut file = safe_file::read(&path).ok()?;
    let holder = read_holder(&mut file)?;
    if holder.run == started.run { written(&file) } else { None }
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };

/// Returns when a file was last written or marked.
fn written(file: &File) -> Option<Wall> {
    let since = file.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Wall(i64::try_from(since.as_millis()).ok()?))
}

/// Overwrites the signature in the file. A concurrent reader sees either the old or the new holder. `lost_at` is the time of a
/// loss that the file still shows afterwards.
fn sign(file: &File, holder: Option<&Holder>, lost_at: Option<Wall>) -> io::Result<()> {
    let Some(holder) = holder else { return file.set_len(0) };
    let mut text = serde_json::to_vec(holder)?;
    text.push(b'\n');
    file.write_all_at(&text, 0)?;
    file.set_len(text.len() as u64)?;
    match lost_at.and_then(|at| u64::try_from(at.0).ok()) {
        Some(ms) => file.set_modified(UNIX_EPOCH + Duration::from_millis(ms)),
        None => Ok(()),
    }
}

/// Collects the marks of these holders and of their earlier runs, without duplicates.
fn marks<'a>(holders: impl Iterator<Item = &'a Holder>) -> Vec<Mark> {
    let mut all: Vec<Mark> = Vec::new();
    for holder in holders {
        let own = Mark {
            run: holder.run.clone(),
            boot_id: holder.boot_id.clone(),
            nonce: holder.nonce.clone(),
            start_time: holder.start_time,
        };
        for mark in holder.earlier.iter().chain([&own]) {
            if !all.contains(mark) {
                all.push(mark.clone());
            }
        }
    }
    all.split_off(all.len().saturating_sub(MAX_EARLIER))
}

/// Takes the lock in the state directory. Returns `None` if the file system does not support locks.
fn lock_of_project(place: &Place<'_>) -> Result<Option<File>, LockError> {
    let made = place.state_dir.make();
    let path = project_lock(place);
    let made = made.and_then(|()| home::make_private(path.parent().unwrap_or(Path::new("/"))));
    made.map_err(|error| LockError::StateDir { path: place.state_dir.path().to_owned(), error })?;
    locked(&path).map_err(|error| match error {
        LockError::Io { path, error } => LockError::StateDir { path, error },
        other @ (LockError::Held(_)
        | LockError::HeldUnsigned
        | LockError::StillEnding(_)
        | LockError::StateDir { .. }) => other,
    })
}

/// Opens and locks a file. Waits for the keeper of a dead run.
fn locked(path: &Path) -> Result<Option<File>, LockError> {
    let io = |error| LockError::Io { path: path.to_owned(), error };
    for _ in 0..MAX_TRIES {
        let mut file = safe_file::update(path, safe_file::PRIVATE).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => file = wait_for_keeper(file, path)?,
            Err(TryLockError::Error(error)) if has_no_locks(&error) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        // A lock on a file that was removed meanwhile excludes no other process.
        if is_at(&file, path) {
            return Ok(Some(file));
        }
    }
    Err(io(io::Error::other("the file keeps being removed or replaced")))
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let named = std::fs::symlink_metadata(path).map(identity).ok();
    named.is_some() && named == file.metadata().map(identity).ok()
}

fn has_no_locks(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Waits for a lock that is taken. Fails if a live dogwatch holds it; the keeper of a dead one releases it soon.
fn wait_for_keeper(mut file: File, path: &Path) -> Result<File, LockError> {
    let Some(holder) = signature(&mut file) else {
        return if file.try_lock().is_ok() { Ok(file) } else { Err(LockError::HeldUnsigned) };
    };
    // A blocking lock call has no timeout, so a thread waits for it.
    let io = |error| LockError::Io { path: path.to_owned(), error };
    let ours = file.try_clone().map_err(io)?;
    let (done, taken) = mpsc::channel();
    let wait = move || {
        let _ = done.send(file.lock().map(|()| file));
    };
    std::thread::Builder::new().name("lock".into()).spawn(wait).map_err(io)?;
    let began = Instant::now();
    let until = began + Duration::from(KEEPER_PATIENCE);
    // A process that was just killed appears alive until the kernel has removed it.
    let mut look_after = DYING;
    while Instant::now() < until {
        match taken.recv_timeout(look_after.into()) {
            Ok(Ok(file)) => return Ok(file),
            Ok(Err(error)) => return Err(LockError::Io { path: path.to_owned(), error }),
            Err(_) => look_after = LOOK_AGAIN,
        }
        // Another process may have waited for the same keeper and got the lock first.
        let signed = safe_file::read(path).ok().and_then(|mut file| read_holder(&mut file));
        if let Some(alive) = signed.filter(Holder::is_alive) {
            return Err(LockError::Held(Box::new(alive)));
        }
        // A stopped keeper ends no process and would hold the lock forever.
        keeper::release_stale(&ours, holder.pid, began.elapsed());
    }
    Err(LockError::StillEnding(Box::new(holder)))
}

/// Returns the holder of a taken lock. It signs right after it gets the lock, so read an empty file again.
fn signature(file: &mut File) -> Option<Holder> {
    let until = Instant::now() + Duration::from(SIGNING);
    loop {
        match read_holder(file) {
            None if Instant::now() < until => std::thread::sleep(SIGNING_LOOK.into()),
            found => return found,
        }
    }
}

fn read_holder(file: &mut File) -> Option<Holder> {
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    // A shorter signature may be followed by the end of a longer old one. Parse only the first value.
    serde_json::Deserializer::from_slice(&text).into_iter().next()?.ok()
}

fn user_lock(work_dir: &Path, loop_file: &Path) -> PathBuf {
    let tree = home::work_tree(work_dir);
    let key = key(&[tree.as_os_str().as_encoded_bytes(), loop_file.as_os_str().as_encoded_bytes()]);
    home::user_state_dir().join("locks").join(key)
}

/// Returns the path of the project lock. Its name depends on the path of the loop file within the work tree, so that
/// the tree may be mounted at several places.
fn project_lock(place: &Place<'_>) -> PathBuf {
    let tree = home::work_tree(place.work_dir);
    let file = place.loop_file.strip_prefix(&tree).unwrap_or(place.loop_file);
    place.state_dir.path().join("locks").join(key(&[file.as_os_str().as_encoded_bytes()]))
}

fn key(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for (at, part) in parts.iter().enumerate() {
        hash.update(&[0][..usize::from(at > 0)]);
        hash.update(part);
    }
    format!("{}.lock", &hex(&hash.finalize())[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(n: u8) -> Holder {
        Holder {
            pid: std::process::id(),
            start_time: orphans::start_time(std::process::id()).expect("this process is alive"),
            boot_id: clock::boot_id(),
            run: RunId::new(Wall(1_794_773_733_000), [0, 0, 0, n]),
            since: Wall(1_794_773_733_000),
            nonce: format!("nonce-{n}"),
            earlier: Vec::new(),
        }
    }

    // promise: 2
    #[test]
    fn a_loser_waits_for_the_signature_and_names_the_winner() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.lock");
        let won = locked(&path).expect("free").expect("a lock");
        std::thread::scope(|s| {
            let lost = s.spawn(|| locked(&path).map(drop));
            // The winner signs while the loser reads.
            std::thread::sleep(Duration::from(SIGNING_LOOK) * 5);
            sign(&won, Some(&holder(1)), None).expect("writes");
            match lost.join().expect("it does not panic") {
                Err(LockError::Held(by)) => assert_eq!(*by, holder(1)),
                other => panic!("{other:?}"),
            }
        });
    }

    // promise: 2
    #[test]
    fn a_signature_is_whole_whenever_it_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.lock");
        let mut file = safe_file::update(&path, safe_file::PRIVATE).expect("opens");
        let mut long = holder(1);
        long.earlier = (0..MAX_EARLIER).flat_map(|n| marks([&holder(n as u8)].into_iter())).collect();
        sign(&file, Some(&long), None).expect("writes");
        // Simulate the moment between writing the shorter signature and truncating the file.
        let mut short = serde_json::to_vec(&holder(2)).expect("JSON");
        short.push(b'\n');
        file.write_all_at(&short, 0).expect("writes");
        assert_eq!(read_holder(&mut file), Some(holder(2)));
        sign(&file, None, None).expect("clears");
        assert_eq!(read_holder(&mut file), None);
    }

    #[test]
    fn the_marks_of_earlier_runs_are_kept_until_their_processes_are_ended_and_bounded() {
        let first = Holder { earlier: marks([&holder(7)].into_iter()), ..holder(1) };
        let nonces: Vec<String> =
            marks([&first, &holder(1), &holder(2)].into_iter()).into_iter().map(|m| m.nonce).collect();
        assert_eq!(nonces, ["nonce-7", "nonce-1", "nonce-2"]);
        let many: Vec<Holder> = (0..=MAX_EARLIER).map(|n| holder(n as u8)).collect();
        let kept = marks(many.iter());
        assert_eq!((kept.len(), kept[0].nonce.as_str()), (MAX_EARLIER, "nonce-1"));
    }

    // promise: 2
    #[test]
    fn a_lock_on_a_removed_file_does_not_count() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.lock");
        let held = locked(&path).expect("free").expect("a lock");
        assert!(is_at(&held, &path));
        std::fs::remove_file(&path).expect("removes");
        assert!(!is_at(&held, &path));
        let again = locked(&path).expect("free").expect("a lock");
        assert!(is_at(&again, &path));
    }
}
