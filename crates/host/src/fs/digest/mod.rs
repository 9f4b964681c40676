//! The digest of a work tree: a short text that stays the same while nothing in the tree changes.
//!
//! [`Digester::digest`] walks all files that are not ignored and hashes the path, kind, exec bit and content of
//! each. The digest depends on nothing else, so it is comparable across processes. Contents are read once; later
//! only those of files whose inode has changed, so a touch costs one read and does not change the digest. `.git`,
//! ignored files and dogwatch's own state are excluded; empty directories do not count, as in git. The driver
//! computes a digest before it pays for an idle agent, and calls the agent after any error.
//!
//! When in doubt the digest differs: a file too large to read is represented by its inode, so touching it is a
//! change.

pub(crate) mod ignored;
pub(crate) mod look;
mod walk;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dogwatch_core::time::moment::Awake;
use sha2::{Digest, Sha256};

use crate::clock;
use look::Hash128;
use walk::Walk;

/// The most files that a digest covers. Each takes 40 bytes of memory.
pub const MAX_FILES: usize = 500_000;
/// Larger files are represented by their inode: reading them each time they grow would cost more than calling an
/// agent.
pub const MAX_READ_BYTES: u64 = 16 * 1024 * 1024;

/// An error that prevents a digest.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// The digest took longer than this.
    #[error("the work tree was not read within {0:?}")]
    TookTooLong(Duration),
    /// There are too many files.
    #[error("the work tree has more than {MAX_FILES} files")]
    TooMany,
    /// A file or directory cannot be read.
    #[error("cannot read the work tree: {0}")]
    Unreadable(#[from] io::Error),
}

/// Digests a work tree without any cache. To digest it more than once, keep a [`Digester`].
pub fn work_tree_digest(root: &Path, state_dirs: &[PathBuf], bound: Duration) -> Result<String, DigestError> {
    Digester::new(root, state_dirs).digest(bound)
}

/// Digests one work tree repeatedly and remembers what it read.
#[derive(Debug)]
pub struct Digester {
    root: PathBuf,
    state_dirs: Vec<PathBuf>,
    /// Sorted by path for a binary search, which takes less memory than a map.
    known: Vec<Known>,
    /// Mixed into the digest where it must differ from the previous one.
    serial: u64,
    max_files: usize,
    max_read_bytes: u64,
}

/// One file as it was last read.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// A hash of the path. The paths themselves would take most of the memory.
    path: Hash128,
    /// The stamp of the facts at that time; `None` if a later change might leave the same ones.
    stamp: Option<std::num::NonZeroU64>,
    /// A hash of kind, exec bit and content.
    what: Hash128,
}

impl Digester {
    /// Creates a digester for `root`. `state_dirs` are dogwatch's own directories and are excluded.
    pub fn new(root: &Path, state_dirs: &[PathBuf]) -> Digester {
        Digester {
            root: real(root),
            state_dirs: state_dirs.iter().map(|dir| real(dir)).collect(),
            known: Vec::new(),
            serial: 0,
            max_files: MAX_FILES,
            max_read_bytes: MAX_READ_BYTES,
        }
    }

    /// Replaces the limits [`MAX_FILES`] and [`MAX_READ_BYTES`].
    pub fn with_limits(mut self, max_files: usize, max_read_bytes: u64) -> Digester {
        self.max_files = max_files;
        self.max_read_bytes = max_read_bytes;
        self
    }

    /// Returns the current digest, or an error after `bound`. Contents read by then are kept, so the next call
    /// continues from there.
    pub fn digest(&mut self, bound: Duration) -> Result<String, DigestError> {
        let bound_ms = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
        let until = Awake(clock::awake().0.saturating_add(bound_ms));
        self.serial += 1;
        let mut walk = Walk::new(self, until);
        let walked = walk.run();
        let seen = walk.seen;
        match walked {
            Ok(()) => {
                self.known = sorted(seen);
                Ok(self.sum())
            }
            Err(error) => {
                self.keep(seen);
                Err(error.into_error(bound))
            }
        }
    }

    fn sum(&self) -> String {
        let mut hash = Sha256::new();
        for file in &self.known {
            hash.update(file.path);
            hash.update(file.what);
        }
        crate::store::journal::hex(&hash.finalize())
    }

    /// Keeps what is known about files that an incomplete walk did not reach.
    fn keep(&mut self, seen: Vec<Known>) {
        let seen = sorted(seen);
        let mut all = std::mem::take(&mut self.known);
        all.retain(|file| seen.binary_search_by_key(&file.path, |s| s.path).is_err());
        all.extend(seen);
        all.truncate(self.max_files);
        self.known = sorted(all);
    }

    fn known(&self, path: &Hash128) -> Option<&Known> {
        self.known.binary_search_by_key(path, |file| file.path).ok().map(|at| &self.known[at])
    }
}

fn sorted(mut files: Vec<Known>) -> Vec<Known> {
    files.sort_unstable_by_key(|file| file.path);
    files.shrink_to_fit();
    files
}

/// Resolves links in a path as far as it exists, because paths are compared as text.
pub(crate) fn real(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for dir in whole.ancestors() {
        let (Ok(found), Ok(rest)) = (dir.canonicalize(), whole.strip_prefix(dir)) else { continue };
        // Joining an empty path would add a slash.
        return if rest.as_os_str().is_empty() { found } else { found.join(rest) };
    }
    whole
}
