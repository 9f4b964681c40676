//! One run at a time for a work tree and loop file.
//!
//! The lock is an open file in the user's state directory. The keeper holds the same open file, so after
//! `kill -9` of dogwatch the lock stays taken until the keeper has ended every process of the session: who
//! gets the lock knows that the tree is empty.

use crate::journal::hex;
use crate::{clock, home, keeper, orphans};
use dogwatch_core::dur::Dur;
use dogwatch_core::ids::RunId;
use dogwatch_core::moment::Wall;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a dead dogwatch's keeper may take to end what it holds before we give up.
const KEEPER_PATIENCE: Dur = Dur::from_secs(15);
/// How long a killed process may still look alive.
const DYING: Dur = Dur::from_millis(300);
/// How often we look while we wait whether somebody else has got it.
const LOOK_AGAIN: Dur = Dur::from_millis(100);
/// The most that is read of a lock file.
const MAX_BYTES: u64 = 64 * 1024;

/// Who holds a lock, or held it last.
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
}

impl Holder {
    fn is_alive(&self) -> bool {
        self.boot_id == clock::boot_id() && orphans::start_time(self.pid) == Some(self.start_time)
    }
}

pub struct Lock {
    file: File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another dogwatch is at this loop: pid {}, run {}, since {}", .0.pid, .0.run, .0.since)]
    Held(Box<Holder>),
    #[error("another dogwatch is at this loop")]
    HeldBySomebody,
    #[error("run {} was killed and its processes are still being ended; try again in a moment", .0.run)]
    StillEnding(Box<Holder>),
    #[error("cannot lock {path}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

impl Lock {
    /// Takes the lock; answers who held it before and did not let go in good order.
    pub fn take(work_dir: &Path, loop_file: &Path) -> Result<(Lock, Option<Holder>), LockError> {
        let path = lock_path(work_dir, loop_file);
        let io = |error| LockError::Io { path: path.clone(), error };
        home::make_private(path.parent().unwrap_or(Path::new("/"))).map_err(io)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => file = wait_for_keeper(file, &path)?,
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let before = read_holder(&mut file);
        Ok((Lock { file }, before))
    }

    /// Writes down who holds it now.
    pub fn sign(&mut self, holder: &Holder) -> io::Result<()> {
        let text = serde_json::to_vec(holder)?;
        self.rewrite(&text)
    }

    /// Everything was ended in good order: the next one need not look for orphans.
    pub fn clear(&mut self) -> io::Result<()> {
        self.rewrite(b"")
    }

    fn rewrite(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text)
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The lock is taken. By a living dogwatch: that is an answer. By the keeper of a dead one: it will let go.
fn wait_for_keeper(mut file: File, path: &Path) -> Result<File, LockError> {
    let Some(holder) = read_holder(&mut file) else { return Err(LockError::HeldBySomebody) };
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
    // One that was just killed looks alive until the kernel is done with it.
    let mut look_after = DYING;
    while Instant::now() < until {
        match taken.recv_timeout(look_after.into()) {
            Ok(Ok(file)) => return Ok(file),
            Ok(Err(error)) => return Err(LockError::Io { path: path.to_owned(), error }),
            Err(_) => look_after = LOOK_AGAIN,
        }
        // Another one may have waited for the keeper too, and been first.
        let signed = File::open(path).ok().and_then(|mut file| read_holder(&mut file));
        if let Some(alive) = signed.filter(Holder::is_alive) {
            return Err(LockError::Held(Box::new(alive)));
        }
        // A keeper that is stopped ends nothing and would hold the lock forever.
        keeper::release_stale(&ours, holder.pid, began.elapsed());
    }
    Err(LockError::StillEnding(Box::new(holder)))
}

fn read_holder(file: &mut File) -> Option<Holder> {
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn lock_path(work_dir: &Path, loop_file: &Path) -> PathBuf {
    let tree = home::work_tree(work_dir);
    let mut hash = Sha256::new();
    hash.update(tree.as_os_str().as_encoded_bytes());
    hash.update([0]);
    hash.update(loop_file.as_os_str().as_encoded_bytes());
    home::user_state_dir().join("locks").join(format!("{}.lock", &hex(&hash.finalize())[..32]))
}
