//! Inspects a single file: its metadata, and its content where that can be read without blocking.
//!
//! Links are not followed; FIFOs, sockets and devices are never opened.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use dogwatch_core::time::moment::Awake;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::clock;

/// The size of one read. The clock is checked after each.
const BUFFER: usize = 64 * 1024;
/// Two changes this close together may leave the same time stamps. The coarsest stamps in use (FAT) have a
/// resolution of 2 s.
pub(crate) const SETTLES_AFTER_NS: i64 = 2_000_000_000;

/// The first half of a SHA-256. Collision attacks are not a concern; SHA-256 is already a dependency, and reading
/// is slower than hashing.
pub(crate) type Hash128 = [u8; 16];

pub(crate) fn half(hash: Sha256) -> Hash128 {
    let whole = hash.finalize();
    std::array::from_fn(|at| whole[at])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    File {
        executable: bool,
    },
    Link,
    Dir,
    /// A special file, which must not be opened.
    Other,
}

/// Metadata from the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) links: u64,
    pub(crate) inode: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
}

impl Facts {
    /// Returns the facts of `name` in `dir`. A link is not followed.
    pub(crate) fn at(dir: impl AsFd, name: impl rustix::path::Arg) -> Result<Facts, Errno> {
        Ok(Facts::from(&statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    pub(crate) fn of(path: &Path) -> Result<Facts, Errno> {
        Facts::at(CWD, path)
    }

    /// Returns a hash of all facts. 64 bits are enough to tell one state of a file from the previous one.
    pub(crate) fn stamp(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns whether a later change is certain to alter the facts, given the wall clock `now_ns`.
    pub(crate) fn settled(&self, now_ns: i64) -> bool {
        self.ctime_ns.max(self.mtime_ns).saturating_add(SETTLES_AFTER_NS) <= now_ns
    }
}

impl From<&Stat> for Facts {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum belongs to another crate and may gain variants"
    )]
    fn from(stat: &Stat) -> Facts {
        let nanos = |secs: i64, nanos: i64| secs.saturating_mul(1_000_000_000).saturating_add(nanos);
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File { executable: stat.st_mode & 0o111 != 0 },
            FileType::Symlink => Kind::Link,
            FileType::Directory => Kind::Dir,
            _ => Kind::Other,
        };
        // The types of these fields differ between platforms.
        #[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
        Facts {
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            links: u64::from(stat.st_nlink),
            inode: stat.st_ino,
            mtime_ns: nanos(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            ctime_ns: nanos(stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
        }
    }
}

/// Returns the wall clock in nanoseconds, comparable with the time stamps of files.
pub(crate) fn wall_ns() -> i64 {
    clock::now().wall.0.saturating_mul(1_000_000)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Is(Hash128),
    /// Larger than the limit.
    TooLarge,
    Unreadable,
    OutOfTime,
}

/// Reads file contents with a reusable buffer.
#[derive(Debug)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    pub(crate) max_bytes: u64,
    /// The deadline after which reading stops.
    pub(crate) until: Option<Awake>,
}

impl Reader {
    pub(crate) fn new(max_bytes: u64) -> Reader {
        Reader { buffer: vec![0; BUFFER], max_bytes, until: None }
    }

    pub(crate) fn content(&mut self, dir: impl AsFd, name: impl rustix::path::Arg, facts: &Facts) -> Content {
        match facts.kind {
            Kind::File { .. } if facts.size > self.max_bytes => Content::TooLarge,
            Kind::File { .. } => self.file(dir, name),
            Kind::Link => match readlinkat(dir, name, Vec::new()) {
                Ok(target) => Content::Is(half(Sha256::new().chain_update(target.as_bytes()))),
                Err(_) => Content::Unreadable,
            },
            // Their existence is all that counts.
            Kind::Dir | Kind::Other => Content::Is([0; 16]),
        }
    }

    fn file(&mut self, dir: impl AsFd, name: impl rustix::path::Arg) -> Content {
        let Some(file) = open_plain(dir, name) else { return Content::Unreadable };
        let mut hash = Sha256::new();
        let mut bytes = 0;
        loop {
            match rustix::io::read(&file, &mut self.buffer[..]) {
                Ok(0) => return Content::Is(half(hash)),
                Ok(read) => {
                    hash.update(&self.buffer[..read]);
                    bytes += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(_) => return Content::Unreadable,
            }
            // The file may grow while it is read.
            if bytes > self.max_bytes {
                return Content::TooLarge;
            }
            if bytes >= BUFFER as u64 && self.until.is_some_and(|until| clock::awake() >= until) {
                return Content::OutOfTime;
            }
        }
    }
}

/// Opens a regular file only, even if the file was replaced just now.
fn open_plain(dir: impl AsFd, name: impl rustix::path::Arg) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(file)
}

/// Returns the first `max` bytes of a regular file, or `None` if it does not exist or cannot be read.
pub(crate) fn read_plain(path: &Path, max: usize) -> Option<Vec<u8>> {
    use std::io::Read;
    // Most directories have no such file. Other kinds of files are never opened.
    if !matches!(Facts::of(path).ok()?.kind, Kind::File { .. }) {
        return None;
    }
    let mut text = Vec::new();
    std::fs::File::from(open_plain(CWD, path)?).take(max as u64).read_to_end(&mut text).ok()?;
    Some(text)
}
