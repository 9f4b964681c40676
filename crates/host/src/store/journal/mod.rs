//! The journal: `events.jsonl`, the append-only record of a run with a single writer.
//!
//! `dogwatch_core::drive::journal` decides what is written and synced when; this module does it on disk.

mod chain;
mod read;
pub(super) mod sessions;
mod tail;

pub use chain::{Chain, End, HeadFile, Integrity, KnownHead};
pub use read::{Loaded, ReadError, load, load_known, repair};
pub use sessions::SessionLines;
pub use tail::{BadLine, Head, Tail, head, parse};

use crate::store::safe_file;
use dogwatch_core::drive::journal::{Journal as Writer, JournalError, JournalFile, Line};
use dogwatch_core::record::event::Recorded;
use dogwatch_core::text::escape_json;
use sha2::{Digest, Sha256};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of the journal in the directory of a run.
pub const FILE: &str = "events.jsonl";
/// The longest line of a journal, with its newline. `run_started`, which contains the settings, is by far the longest.
pub const MAX_LINE: usize = 16 * 1024 * 1024;
/// The length of the chained hash in hexadecimal digits: 128 bits.
const CHAIN_DIGITS: usize = 32;
/// The hash that the first line is chained to.
const GENESIS: &str = "00000000000000000000000000000000";
/// The most attempts to stat the file before an error counts.
const STAT_TRIES: usize = 3;

/// Whether a record has to survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It does: intents and ends are synced to the disk.
    Synced,
    /// It does not, because nothing reads it after one. The system still keeps what a killed process wrote.
    Unsynced,
}

/// The journal of a run on disk. It appends like the writer that it contains.
#[derive(Debug)]
pub struct Journal(Writer<DiskFile>);

impl Journal {
    /// Creates the journal of a new run, which survives a power failure.
    pub fn create(dir: &Path) -> io::Result<Journal> {
        Journal::create_as(dir, Durability::Synced)
    }

    /// Creates the journal of a new run.
    pub fn create_as(dir: &Path, durability: Durability) -> io::Result<Journal> {
        let path = dir.join(FILE);
        let file = safe_file::create_new(&path, safe_file::PRIVATE)?;
        if durability == Durability::Synced {
            // The directory entry must survive a power failure as well.
            File::open(dir)?.sync_all()?;
        }
        let file = DiskFile { file, path, head: None, durability };
        Ok(Journal(Writer::new(file, 0, GENESIS.to_owned())))
    }

    /// Reopens a journal that was loaded and, if it was torn, repaired.
    pub fn reopen(dir: &Path, loaded: &Loaded) -> io::Result<Journal> {
        Journal::reopen_as(dir, loaded, Durability::Synced)
    }

    /// Like [`Journal::reopen`], for a record that may not have to survive a power failure.
    pub fn reopen_as(dir: &Path, loaded: &Loaded, durability: Durability) -> io::Result<Journal> {
        let path = dir.join(FILE);
        let file = safe_file::append_existing(&path)?;
        let (length, hash) = (loaded.whole, loaded.chain.end().hash.clone());
        Ok(Journal(Writer::new(DiskFile { file, path, head: None, durability }, length, hash)))
    }

    /// Keeps the hash of the last line in this file, outside of the record.
    pub fn keeping(mut self, head: HeadFile) -> Journal {
        self.0.file_mut().head = Some(head);
        self
    }

    /// Returns the writer.
    pub fn into_writer(self) -> Writer<DiskFile> {
        self.0
    }
}

impl Deref for Journal {
    type Target = Writer<DiskFile>;

    fn deref(&self) -> &Writer<DiskFile> {
        &self.0
    }
}

impl DerefMut for Journal {
    fn deref_mut(&mut self) -> &mut Writer<DiskFile> {
        &mut self.0
    }
}

/// The file of a journal, open for appending.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    path: PathBuf,
    head: Option<HeadFile>,
    durability: Durability,
}

impl JournalFile for DiskFile {
    fn encode(&mut self, recorded: &Recorded, prev: &str) -> Result<Line, String> {
        let line = chained(recorded, prev).map_err(|error| error.to_string())?;
        if line.len() > MAX_LINE {
            return Err(format!("an event of {} bytes; the record allows {MAX_LINE}", line.len()));
        }
        let hash = chain_hash(line.trim_end().as_bytes());
        Ok(Line { bytes: line.into_bytes(), hash })
    }

    fn length(&self) -> Result<u64, JournalError> {
        let shown = self.path.display();
        let unknown = |error: io::Error| JournalError::Unknown(error.to_string());
        let open = retry(|| self.file.metadata()).map_err(unknown)?;
        let named = match retry(|| std::fs::symlink_metadata(&self.path)) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(JournalError::Moved(format!("{shown} is gone")));
            }
            Err(error) => return Err(unknown(error)),
        };
        if (open.dev(), open.ino()) != (named.dev(), named.ino()) {
            return Err(JournalError::Moved(format!("{shown} was replaced by another file")));
        }
        Ok(open.len())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        if let Some(head) = &mut self.head {
            head.announce(bytes);
        }
        self.file.write_all(bytes).map_err(|error| error.to_string())?;
        if let Some(head) = &mut self.head {
            head.confirm();
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> Result<(), String> {
        if let Some(head) = &mut self.head {
            head.cut(len);
        }
        self.file.set_len(len).map_err(|error| error.to_string())
    }

    fn sync(&mut self) -> Result<(), String> {
        if self.durability == Durability::Synced {
            self.file.sync_data().map_err(|error| error.to_string())?;
        }
        if let Some(head) = &mut self.head {
            head.synced();
        }
        Ok(())
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }
}

/// Retries a stat immediately: an interrupted call or a stale handle of a network file system usually succeeds then.
fn retry(ask: impl Fn() -> io::Result<Metadata>) -> io::Result<Metadata> {
    let mut answer = ask();
    for _ in 1..STAT_TRIES {
        match &answer {
            Err(error) if error.kind() != io::ErrorKind::NotFound => answer = ask(),
            Ok(_) | Err(_) => break,
        }
    }
    answer
}

fn chained(recorded: &Recorded, prev: &str) -> io::Result<String> {
    let mut line = escape_json(&dogwatch_codec::to_string(recorded)?).into_owned();
    line.pop();
    line.push_str(",\"prev\":\"");
    line.push_str(prev);
    line.push_str("\"}\n");
    Ok(line)
}

fn chain_hash(line: &[u8]) -> String {
    let mut hex = hex(&Sha256::digest(line));
    hex.truncate(CHAIN_DIGITS);
    hex
}

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)] as char, DIGITS[usize::from(b & 15)] as char])
        .collect()
}

#[cfg(test)]
mod tests;
