//! One walk over a work tree. Contents come from the cache where the inode is unchanged.

use std::ffi::OsStr;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dogwatch_core::time::moment::Awake;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use sha2::{Digest, Sha256};

use super::ignored::Rules;
use super::look::{Content, Facts, Hash128, Kind, Reader, half, wall_ns};
use super::{DigestError, Digester, Known};
use crate::clock;

/// The clock is checked once per this many entries, and once per directory.
const ENTRIES_PER_LOOK: u64 = 64;

pub(super) enum Cut {
    Time,
    Number,
    Root(io::Error),
}

impl Cut {
    pub(super) fn into_error(self, bound: Duration) -> DigestError {
        match self {
            Cut::Time => DigestError::TookTooLong(bound),
            Cut::Number => DigestError::TooMany,
            Cut::Root(error) => DigestError::Unreadable(error),
        }
    }
}

pub(super) struct Walk<'a> {
    before: &'a Digester,
    until: Awake,
    /// When the walk began, on the wall clock. A file changed shortly before may change again without a new time stamp.
    began_ns: i64,
    reader: Reader,
    entries: u64,
    todo: Vec<(PathBuf, Rules)>,
    pub(super) seen: Vec<Known>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(before: &'a Digester, until: Awake) -> Walk<'a> {
        let mut reader = Reader::new(before.max_read_bytes);
        reader.until = Some(until);
        let seen = Vec::with_capacity(before.known.len());
        Walk { before, until, began_ns: wall_ns(), reader, entries: 0, todo: Vec::new(), seen }
    }

    pub(super) fn run(&mut self) -> Result<(), Cut> {
        let root = self.before.root.as_path();
        // A missing root is an error. Below the root, an unreadable directory is part of the digest.
        std::fs::read_dir(root).map_err(Cut::Root)?;
        self.todo.push((root.to_path_buf(), Rules::at_root(root)));
        while let Some((path, rules)) = self.todo.pop() {
            self.check_clock()?;
            self.dir(&path, &rules)?;
        }
        Ok(())
    }

    fn dir(&mut self, path: &Path, rules: &Rules) -> Result<(), Cut> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(CWD, path, flags, Mode::empty()).and_then(Dir::new);
        let Ok(mut listing) = opened else { return self.unreadable(path) };
        while let Some(entry) = listing.read() {
            let Ok(entry) = entry else { return self.unreadable(path) };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                self.entries += 1;
                if self.entries.is_multiple_of(ENTRIES_PER_LOOK) {
                    self.check_clock()?;
                }
                let dir = listing.fd().map_err(|error| Cut::Root(error.into()))?;
                self.entry(dir, path.join(name), entry.file_type(), rules)?;
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: impl AsFd + Copy,
        path: PathBuf,
        listed: FileType,
        rules: &Rules,
    ) -> Result<(), Cut> {
        // The listing nearly always marks directories, so ignored files need no extra system call.
        let known_dir = listed == FileType::Directory;
        if listed != FileType::Unknown && self.left_out(&path, known_dir, rules) {
            return Ok(());
        }
        if known_dir {
            self.todo.push((path.clone(), rules.enter(&path)));
            return Ok(());
        }
        let name = path.file_name().expect("listed entries have a name");
        // It was removed after the listing: treat it as absent.
        let Ok(facts) = Facts::at(dir, name) else { return Ok(()) };
        let is_dir = facts.kind == Kind::Dir;
        if listed == FileType::Unknown && self.left_out(&path, is_dir, rules) {
            return Ok(());
        }
        if is_dir {
            self.todo.push((path.clone(), rules.enter(&path)));
            return Ok(());
        }
        self.file(dir, &path, &facts)
    }

    fn left_out(&self, path: &Path, is_dir: bool, rules: &Rules) -> bool {
        self.before.state_dirs.iter().any(|dir| dir == path) || rules.ignored(path, is_dir)
    }

    fn file(&mut self, dir: impl AsFd, path: &Path, facts: &Facts) -> Result<(), Cut> {
        let key = self.key(path);
        let stamp = NonZeroU64::new(facts.stamp()).filter(|_| facts.settled(self.began_ns));
        let before = self.before.known(&key).filter(|known| stamp.is_some() && known.stamp == stamp);
        let what = match before {
            Some(known) => known.what,
            None => self.read(dir, path, facts)?,
        };
        self.note(Known { path: key, stamp, what })
    }

    fn read(&mut self, dir: impl AsFd, path: &Path, facts: &Facts) -> Result<Hash128, Cut> {
        let name = path.file_name().expect("listed entries have a name");
        let hash = match self.reader.content(dir, name, facts) {
            Content::Is(content) => tagged(facts.kind).chain_update(content),
            Content::TooLarge | Content::Unreadable => self.by_inode(facts),
            Content::OutOfTime => return Err(Cut::Time),
        };
        Ok(half(hash))
    }

    /// Hashes a file by its inode. While a later change could leave the same facts, every digest is different.
    fn by_inode(&self, facts: &Facts) -> Sha256 {
        let serial = if facts.settled(self.began_ns) { 0 } else { self.before.serial };
        let hash = tagged(facts.kind).chain_update(b"unread").chain_update(facts.stamp().to_le_bytes());
        hash.chain_update(serial.to_le_bytes())
    }

    fn unreadable(&mut self, dir: &Path) -> Result<(), Cut> {
        // It was removed after the listing: treat it as absent.
        if Facts::of(dir).is_err() {
            return Ok(());
        }
        let what = half(tagged(Kind::Dir).chain_update(b"unreadable"));
        let path = self.key(dir);
        self.note(Known { path, stamp: None, what })
    }

    fn note(&mut self, file: Known) -> Result<(), Cut> {
        if self.seen.len() >= self.before.max_files {
            return Err(Cut::Number);
        }
        self.seen.push(file);
        Ok(())
    }

    fn key(&self, path: &Path) -> Hash128 {
        let inside = path.strip_prefix(&self.before.root).unwrap_or(path);
        half(Sha256::new().chain_update(inside.as_os_str().as_bytes()))
    }

    fn check_clock(&self) -> Result<(), Cut> {
        if clock::awake() >= self.until { Err(Cut::Time) } else { Ok(()) }
    }
}

fn tagged(kind: Kind) -> Sha256 {
    let tag = match kind {
        Kind::File { executable: false } => b'f',
        Kind::File { executable: true } => b'x',
        Kind::Link => b'l',
        Kind::Dir => b'd',
        Kind::Other => b'o',
    };
    Sha256::new().chain_update([tag])
}
