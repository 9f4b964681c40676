//! One run at a time for a work tree and loop file.
//!
//! There are two locks, and a run holds both: one in the user's state directory, one in the project's. So two runs
//! of a loop exclude each other even if one of the lock files is removed, or if cron and a shell have different
//! values of `XDG_STATE_HOME`. A lock is an open file. The keeper holds the same open files, so after `kill -9` of
//! dogwatch the locks stay taken until the keeper has ended every process of the session: a process that gets the
//! locks knows that the tree is empty.

use crate::clock;
use crate::process::keeper;
use crate::process::orphans;
use crate::store::home;
use crate::store::home::StateDir;
use crate::store::journal::hex;
use crate::store::safe_file;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a dead dogwatch's keeper may take to end what it holds before we give up.
const KEEPER_PATIENCE: Dur = Dur::from_secs(15);
/// How long a killed process may still look alive.
const DYING: Dur = Dur::from_millis(300);
/// How often we look while we wait whether somebody else has got it.
const LOOK_AGAIN: Dur = Dur::from_millis(100);
/// How long the holder of a lock may take to sign it.
const SIGNING: Dur = Dur::from_secs(2);
/// How often an unsigned lock is looked at meanwhile.
const SIGNING_LOOK: Dur = Dur::from_millis(10);
/// How often a lock is taken anew because its file was removed or replaced at that moment.
const MAX_TRIES: usize = 5;
/// Earlier runs whose leftover processes were not looked for; of more the oldest are forgotten.
const MAX_EARLIER: usize = 16;
/// The most that is read of a lock file.
const MAX_BYTES: u64 = 64 * 1024;

/// The holder of a lock, or its last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// Tells this pid from a later process with the same number.
    pub start_time: u64,
    pub boot_id: String,
    pub run: RunId,
    pub since: Wall,
    /// Every process of the run carries this in its environment.
    pub nonce: String,
    /// Runs before this one whose leftover processes may not have been ended yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Mark>,
}

/// By what the processes of a run are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    pub run: RunId,
    pub boot_id: String,
    pub nonce: String,
    /// When its dogwatch started; no process of the run is older.
    #[serde(default)]
    pub start_time: u64,
}

impl Holder {
    fn is_alive(&self) -> bool {
        self.boot_id == clock::boot_id() && orphans::start_time(self.pid) == Some(self.start_time)
    }
}

/// What a lock is for.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub work_dir: &'a Path,
    pub loop_file: &'a Path,
    pub state_dir: &'a StateDir,
}

pub struct Lock {
    files: Vec<File>,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another dogwatch runs this loop: pid {}, run {}, since {}", .0.pid, .0.run, .0.since)]
    Held(Box<Holder>),
    #[error("another dogwatch runs this loop")]
    HeldUnsigned,
    #[error("run {} was killed and its processes are still being ended; try again in a moment", .0.run)]
    StillEnding(Box<Holder>),
    #[error("cannot lock {path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("cannot write the record to {path}: {error}")]
    StateDir { path: PathBuf, error: io::Error },
}

impl Lock {
    /// Takes both locks and signs them. Returns the marks of the runs that held them before and did not clear them.
    pub fn take(place: Place<'_>, holder: &Holder) -> Result<(Lock, Vec<Mark>), LockError> {
        let path = user_lock(&place);
        let cannot = |error| LockError::Io { path: path.clone(), error };
        home::make_private(path.parent().unwrap_or(Path::new("/"))).map_err(cannot)?;
        let mut of_user = locked(&path)?.ok_or_else(|| cannot(Errno::OPNOTSUPP.into()))?;
        let before = read_holder(&mut of_user);
        let mut earlier = marks(before.iter());
        // At once: a process that comes second reads the name of the first.
        sign(&of_user, Some(&Holder { earlier: earlier.clone(), ..holder.clone() })).map_err(cannot)?;
        match lock_of_project(&place) {
            Ok(None) => Ok((Lock { files: vec![of_user] }, earlier)),
            Ok(Some(mut of_project)) => {
                let known = read_holder(&mut of_project);
                earlier = marks(before.iter().chain(known.iter()));
                let mut lock = Lock { files: vec![of_user, of_project] };
                lock.sign(&Holder { earlier: earlier.clone(), ..holder.clone() }).map_err(cannot)?;
                Ok((lock, earlier))
            }
            Err(error) => {
                // As it was: this process never held the loop.
                let _ = sign(&of_user, before.as_ref());
                Err(error)
            }
        }
    }

    /// A lock on files that are locked already.
    pub fn of_files(files: Vec<File>) -> Lock {
        Lock { files }
    }

    /// Writes down who holds it now.
    pub fn sign(&mut self, holder: &Holder) -> io::Result<()> {
        self.files.iter().try_for_each(|file| sign(file, Some(holder)))
    }

    /// Everything was ended in good order: the next run need not look for leftover processes.
    pub fn clear(&mut self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| sign(file, None))
    }

    /// The open files, for the keepers to hold.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().map(AsFd::as_fd).collect()
    }
}

/// Writes the holder over what the file has. A reader sees the old holder or the new one, whenever it looks.
fn sign(file: &File, holder: Option<&Holder>) -> io::Result<()> {
    let Some(holder) = holder else { return file.set_len(0) };
    let mut text = serde_json::to_vec(holder)?;
    text.push(b'\n');
    file.write_all_at(&text, 0)?;
    file.set_len(text.len() as u64)
}

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

/// The lock in the state directory; `None` where the file system has no locks.
fn lock_of_project(place: &Place<'_>) -> Result<Option<File>, LockError> {
    let made = place.state_dir.make();
    let path = project_lock(place);
    let made = made.and_then(|()| home::make_private(path.parent().unwrap_or(Path::new("/"))));
    made.map_err(|error| LockError::StateDir { path: place.state_dir.path().to_owned(), error })?;
    locked(&path)
}

/// Opens and locks a file, once nobody else holds it.
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
        // A lock on a file that was removed meanwhile excludes no one.
        if is_at(&file, path) {
            return Ok(Some(file));
        }
    }
    Err(io(io::Error::other("the file is removed or replaced again and again")))
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

/// The lock is taken. A living dogwatch that holds it is an error; the keeper of a dead one lets go of it soon.
fn wait_for_keeper(mut file: File, path: &Path) -> Result<File, LockError> {
    let Some(holder) = signature(&mut file) else {
        return if file.try_lock().is_ok() { Ok(file) } else { Err(LockError::HeldUnsigned) };
    };
    // A blocking lock has no bound of its own; a thread gives it one.
    let io = |error| LockError::Io { path: path.to_owned(), error };
    let ours = file.try_clone().map_err(io)?;
    let (done, taken) = mpsc::channel();
    let wait = move || {
        let _ = done.send(file.lock().map(|()| file));
    };
    std::thread::Builder::new().name("lock".into()).spawn(wait).map_err(io)?;
    let began = Instant::now();
    let until = began + Duration::from(KEEPER_PATIENCE);
    // A process that was just killed looks alive until the kernel is done with it.
    let mut look_after = DYING;
    while Instant::now() < until {
        match taken.recv_timeout(look_after.into()) {
            Ok(Ok(file)) => return Ok(file),
            Ok(Err(error)) => return Err(LockError::Io { path: path.to_owned(), error }),
            Err(_) => look_after = LOOK_AGAIN,
        }
        // Another process may have waited for the keeper too, and been first.
        let signed = safe_file::read(path).ok().and_then(|mut file| read_holder(&mut file));
        if let Some(alive) = signed.filter(Holder::is_alive) {
            return Err(LockError::Held(Box::new(alive)));
        }
        // A keeper that is stopped ends nothing and would hold the lock forever.
        keeper::release_stale(&ours, holder.pid, began.elapsed());
    }
    Err(LockError::StillEnding(Box::new(holder)))
}

/// The holder of a lock that is taken. It signs right after it got the lock, so an empty file is looked at again.
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
    // While a shorter signature replaces a longer one, the end of the old one follows it.
    serde_json::Deserializer::from_slice(&text).into_iter().next()?.ok()
}

fn user_lock(place: &Place<'_>) -> PathBuf {
    let tree = home::work_tree(place.work_dir);
    let key = key(&[tree.as_os_str().as_encoded_bytes(), place.loop_file.as_os_str().as_encoded_bytes()]);
    home::user_state_dir().join("locks").join(key)
}

/// Named by the loop file as seen from the work tree, so that the tree may be mounted at several places.
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
            start_time: orphans::start_time(std::process::id()).expect("we live"),
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
            // The winner signs while the other one looks.
            std::thread::sleep(Duration::from(SIGNING_LOOK) * 5);
            sign(&won, Some(&holder(1))).expect("writes");
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
        sign(&file, Some(&long)).expect("writes");
        // The moment between writing the shorter one and cutting the rest off.
        let mut short = serde_json::to_vec(&holder(2)).expect("JSON");
        short.push(b'\n');
        file.write_all_at(&short, 0).expect("writes");
        assert_eq!(read_holder(&mut file), Some(holder(2)));
        sign(&file, None).expect("clears");
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
    fn a_lock_on_a_removed_file_is_no_lock() {
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
