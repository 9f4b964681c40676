//! Writes git objects as loose files, as git does for a small number of them.
//!
//! To start git for each step takes longer than the work itself. Objects in this form are simple: a header, the content,
//! compressed, in a file named after its hash.

use miniz_oxide::deflate::compress_to_vec_zlib;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The level of compression: fast, because snapshots are rarely read.
const LEVEL: u8 = 1;

/// The id of an object, in lower case hexadecimal digits.
pub(super) type Id = String;

/// The hash function of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha1,
    Sha256,
}

impl Hash {
    /// Returns the hash function that made an id.
    pub(super) fn of(id: &str) -> Option<Hash> {
        let digits = id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match id.len() {
            40 if digits => Some(Hash::Sha1),
            64 if digits => Some(Hash::Sha256),
            _ => None,
        }
    }

    /// Returns the id of an object.
    pub(super) fn id(self, kind: &str, content: &[u8]) -> Id {
        let header = header(kind, content);
        let hash = |parts: [&[u8]; 2]| match self {
            Hash::Sha1 => {
                crate::store::journal::hex(&parts.iter().fold(Sha1::new(), Sha1::chain_update).finalize())
            }
            Hash::Sha256 => {
                crate::store::journal::hex(&parts.iter().fold(Sha256::new(), Sha256::chain_update).finalize())
            }
        };
        hash([&header, content])
    }
}

fn header(kind: &str, content: &[u8]) -> Vec<u8> {
    format!("{kind} {}\0", content.len()).into_bytes()
}

/// The directory of a repository's objects.
#[derive(Debug)]
pub(super) struct Objects {
    dir: PathBuf,
    hash: Hash,
}

impl Objects {
    pub(super) fn new(dir: PathBuf, hash: Hash) -> Objects {
        Objects { dir, hash }
    }

    pub(super) fn hash(&self) -> Hash {
        self.hash
    }

    /// Writes an object unless its file exists, and returns its id.
    pub(super) fn write(&self, kind: &str, content: &[u8]) -> io::Result<Id> {
        let id = self.hash.id(kind, content);
        let (first, rest) = id.split_at(2);
        let dir = self.dir.join(first);
        let path = dir.join(rest);
        if path.exists() {
            return Ok(id);
        }
        let whole = [&header(kind, content)[..], content].concat();
        let packed = compress_to_vec_zlib(&whole, LEVEL);
        match put(&dir, &path, &packed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match fs::create_dir(&dir) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    Ok(()) | Err(_) => {}
                }
                put(&dir, &path, &packed)?;
            }
            written => written?,
        }
        Ok(id)
    }
}

/// Writes a read-only file atomically. Git removes an old file with this prefix when it collects garbage.
fn put(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = dir.join(format!("tmp_obj_dogwatch_{}", std::process::id()));
    // A leftover of a process that was killed.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_git() {
        assert_eq!(Hash::Sha1.id("blob", b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(Hash::Sha1.id("tree", b""), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        let empty = "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813";
        assert_eq!(Hash::Sha256.id("blob", b""), empty);
        assert_eq!(Hash::of(empty), Some(Hash::Sha256));
        assert_eq!((Hash::of("e69de2"), Hash::of(&"g".repeat(40))), (None, None));
    }
}
