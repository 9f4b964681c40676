//! The writer of a journal: which lines wait, which are in the file, and which are synced.
//!
//! Each line contains the hash of the previous line, so a changed or removed line is detected. If a write fails (a
//! full disk), the writer keeps the lines in memory and retries. It never leaves half a line: it truncates the file
//! to its last complete line first. Before each write it compares the file with what it has written, to detect at
//! once that the file was removed, replaced, truncated or appended to.

use crate::record::event::Recorded;
use std::fmt;

/// The most bytes kept in memory while the disk is full.
pub const MAX_PENDING: usize = 32 * 1024 * 1024;
/// The most bytes that are written and not synced. They stay in memory, because a sync that fails may lose them.
pub const MAX_UNSYNCED: usize = 256 * 1024;

/// The file of a journal.
pub trait JournalFile {
    /// Encodes an event as a line that follows the line with the hash `prev`.
    fn encode(&mut self, recorded: &Recorded, prev: &str) -> Result<Line, String>;

    /// Returns the length of the open file if its path still leads to it.
    fn length(&self) -> Result<u64, JournalError>;

    /// Appends bytes. After an error, any part of them may be in the file.
    fn write(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// Cuts the file to this length.
    fn truncate(&mut self, len: u64) -> Result<(), String>;

    /// Waits until everything that was written is on disk.
    fn sync(&mut self) -> Result<(), String>;

    /// Returns the path, for messages.
    fn path(&self) -> String;
}

/// A line of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The line with its newline.
    pub bytes: Vec<u8>,
    /// The hash that the next line contains.
    pub hash: String,
}

/// Why the journal could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// The file was removed or replaced. The open file still accepts lines, but readers cannot find it.
    Moved(String),
    /// Another program truncated the file or appended to it, so the next line would not follow.
    Changed(String),
    /// The state of the file cannot be read, maybe only temporarily.
    Unknown(String),
    /// The write failed.
    Io(String),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Moved(detail) | JournalError::Changed(detail) | JournalError::Io(detail) => {
                f.write_str(detail)
            }
            JournalError::Unknown(error) => write!(f, "cannot read its state: {error}"),
        }
    }
}

impl std::error::Error for JournalError {}

/// The writer of a journal.
#[derive(Debug)]
pub struct Journal<F> {
    file: F,
    /// The length of the file up to its last complete line.
    good_len: u64,
    prev: String,
    /// The lines that are not in the file yet.
    pending: Vec<u8>,
    /// The lines that were written since the last sync.
    unsynced: Vec<u8>,
    /// Whether one of these lines, or of those that are pending, must be durable.
    must_sync: bool,
    /// Whether half a line may follow `good_len`, because truncating failed.
    torn: bool,
    /// Whether to keep writing to a file that was removed or replaced.
    moved: bool,
}

impl<F: JournalFile> Journal<F> {
    /// Creates the writer of a file that ends after `good_len` bytes with the line of this hash.
    pub fn new(file: F, good_len: u64, prev: String) -> Journal<F> {
        Journal {
            file,
            good_len,
            prev,
            pending: Vec::new(),
            unsynced: Vec::new(),
            must_sync: false,
            torn: false,
            moved: false,
        }
    }

    /// Returns the file.
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Returns the file.
    pub fn file_mut(&mut self) -> &mut F {
        &mut self.file
    }

    /// Queues an event; `flush` writes it.
    pub fn append(&mut self, recorded: &Recorded) -> Result<(), String> {
        let line = self.file.encode(recorded, &self.prev)?;
        if self.pending.len() + line.bytes.len() > MAX_PENDING {
            return Err("too many unwritten events".to_owned());
        }
        self.prev = line.hash;
        self.pending.extend_from_slice(&line.bytes);
        self.must_sync |= recorded.event.must_be_durable();
        Ok(())
    }

    /// Writes the queued lines. On failure, none of them is in the file and all stay queued.
    pub fn flush(&mut self) -> Result<(), JournalError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.truncate_torn()?;
        if !self.moved {
            self.verify()?;
        }
        if let Err(error) = self.file.write(&self.pending) {
            // Truncating needs no space. If it fails as well, the next flush or the reader does it.
            self.torn = true;
            let _ = self.truncate_torn();
            return Err(JournalError::Io(error));
        }
        self.good_len += self.pending.len() as u64;
        self.unsynced.append(&mut self.pending);
        self.must_sync |= self.unsynced.len() > MAX_UNSYNCED;
        Ok(())
    }

    fn truncate_torn(&mut self) -> Result<(), JournalError> {
        if self.torn {
            self.file.truncate(self.good_len).map_err(JournalError::Io)?;
            self.torn = false;
        }
        Ok(())
    }

    /// Syncs the events that must be durable. Cheap if none is pending.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.flush()?;
        if self.must_sync {
            self.file.sync().map_err(|error| self.write_again(error))?;
            self.must_sync = false;
            self.unsynced.clear();
        }
        Ok(())
    }

    /// Queues everything since the last sync again. After a failed sync the kernel may drop what was written and
    /// report the next sync as successful.
    fn write_again(&mut self, error: String) -> JournalError {
        self.good_len -= self.unsynced.len() as u64;
        // Every sync flushes first, so no later line is pending.
        self.pending = std::mem::take(&mut self.unsynced);
        self.torn = true;
        JournalError::Io(error)
    }

    /// Checks that the file was not removed, replaced, truncated or appended to by another program.
    pub fn verify(&self) -> Result<(), JournalError> {
        let (is, was) = (self.file.length()?, self.good_len);
        if is != was && !self.torn {
            let (path, how) = (self.file.path(), if is < was { "truncated it" } else { "wrote to it" });
            return Err(JournalError::Changed(format!(
                "{path} has {is} bytes instead of {was}: another program {how}"
            )));
        }
        Ok(())
    }

    /// Keeps writing to the open file although it was removed or replaced. Readers that have it open still see how
    /// the run ends.
    pub fn keep_writing(&mut self) {
        self.moved = true;
    }

    /// Drops the queued lines.
    pub fn abandon(&mut self) {
        self.pending.clear();
        self.unsynced.clear();
        self.must_sync = false;
    }

    /// Returns how many bytes wait to be written.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
}
