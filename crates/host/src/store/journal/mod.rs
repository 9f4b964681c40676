//! The journal: `events.jsonl`, the append-only record of a run with a single writer.
//!
//! Each line contains the hash of the previous line, so a changed or removed line is detected. If a write fails (a
//! full disk), the writer keeps the lines in memory and retries. It never leaves half a line: it truncates the file
//! to its last complete line first. Before each write it compares the file with what it has written, to detect at
//! once that the file was removed, replaced, truncated or appended to.

mod read;
mod tail;

pub use read::{Loaded, ReadError, load, repair};
pub use tail::{BadLine, Head, Tail, head, parse};

use crate::store::safe_file;
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::text::escape_json;
use sha2::{Digest, Sha256};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of the journal in the directory of a run.
pub const FILE: &str = "events.jsonl";
/// The longest line of a journal, with its newline. `run_started`, which contains the settings, is by far the longest.
pub const MAX_LINE: usize = 16 * 1024 * 1024;
/// The most bytes kept in memory while the disk is full.
pub const MAX_PENDING: usize = 32 * 1024 * 1024;
/// The length of the chained hash in hexadecimal digits: 128 bits.
const CHAIN_DIGITS: usize = 32;
/// The hash that the first line is chained to.
const GENESIS: &str = "00000000000000000000000000000000";
/// The most attempts to stat the file before an error counts.
const STAT_TRIES: usize = 3;

/// Why the journal could not be written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file was removed or replaced. The open file still accepts lines, but readers cannot find it.
    #[error("{0}")]
    Moved(String),
    /// Another program truncated the file or appended to it, so the next line would not follow.
    #[error("{0}")]
    Changed(String),
    /// The state of the file cannot be read, maybe only temporarily.
    #[error("cannot read its state: {0}")]
    Unknown(io::Error),
    /// The write failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The writer of a journal.
pub struct Journal {
    file: File,
    path: PathBuf,
    /// The length of the file up to its last complete line.
    good_len: u64,
    prev: String,
    pending: Vec<u8>,
    /// Whether a durable event was written since the last sync.
    unsynced: bool,
    /// Whether half a line may follow `good_len`, because truncating failed.
    torn: bool,
    /// Whether to keep writing to a file that was removed or replaced.
    moved: bool,
}

impl Journal {
    /// Creates the journal of a new run.
    pub fn create(dir: &Path) -> io::Result<Journal> {
        let path = dir.join(FILE);
        let file = safe_file::create_new(&path, safe_file::PRIVATE)?;
        // The directory entry must survive a power failure as well.
        File::open(dir)?.sync_all()?;
        Ok(Journal::at(path, file, 0, GENESIS.to_owned()))
    }

    fn at(path: PathBuf, file: File, good_len: u64, prev: String) -> Journal {
        Journal {
            file,
            path,
            good_len,
            prev,
            pending: Vec::new(),
            unsynced: false,
            torn: false,
            moved: false,
        }
    }

    /// Reopens a journal that was loaded and, if it was torn, repaired.
    pub fn reopen(dir: &Path, loaded: &Loaded) -> io::Result<Journal> {
        let path = dir.join(FILE);
        let file = safe_file::append_existing(&path)?;
        Ok(Journal::at(path, file, loaded.whole, loaded.last_hash.clone()))
    }

    /// Queues an event; `flush` writes it.
    pub fn append(&mut self, recorded: &Recorded) -> io::Result<()> {
        let line = chained(recorded, &self.prev)?;
        if line.len() > MAX_LINE {
            let message = format!("an event of {} bytes; the record allows {MAX_LINE}", line.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if self.pending.len() + line.len() > MAX_PENDING {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too many unwritten events"));
        }
        self.prev = chain_hash(line.trim_end().as_bytes());
        self.pending.extend_from_slice(line.as_bytes());
        self.unsynced |= must_be_durable(&recorded.event);
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
        if let Err(error) = self.file.write_all(&self.pending) {
            // Truncating needs no space. If it fails as well, the next flush or the reader does it.
            self.torn = true;
            let _ = self.truncate_torn();
            return Err(error.into());
        }
        self.good_len += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn truncate_torn(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.good_len)?;
            self.torn = false;
        }
        Ok(())
    }

    /// Syncs the events that must be durable. Cheap if none is pending.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.flush()?;
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Checks that the file was not removed, replaced, truncated or appended to by another program.
    pub fn verify(&self) -> Result<(), JournalError> {
        let shown = self.path.display();
        let open = retry(|| self.file.metadata()).map_err(JournalError::Unknown)?;
        let named = match retry(|| std::fs::symlink_metadata(&self.path)) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(JournalError::Moved(format!("{shown} is gone")));
            }
            Err(error) => return Err(JournalError::Unknown(error)),
        };
        if (open.dev(), open.ino()) != (named.dev(), named.ino()) {
            return Err(JournalError::Moved(format!("{shown} was replaced by another file")));
        }
        if open.len() != self.good_len && !self.torn {
            let (is, was) = (open.len(), self.good_len);
            let how = if is < was { "truncated it" } else { "wrote to it" };
            return Err(JournalError::Changed(format!(
                "{shown} has {is} bytes instead of {was}: another program {how}"
            )));
        }
        Ok(())
    }

    /// Keeps writing to the open file although it was removed or replaced. Readers that have it open still see how
    /// the run ends.
    pub fn write_on(&mut self) {
        self.moved = true;
    }

    /// Drops the queued lines.
    pub fn abandon(&mut self) {
        self.pending.clear();
        self.unsynced = false;
    }

    /// Returns the path of the journal.
    pub fn path(&self) -> &Path {
        &self.path
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

/// Returns whether an event must be durable: intents must be on disk before their effect, and endings must never be
/// lost.
fn must_be_durable(event: &Event) -> bool {
    match event {
        Event::RunStarted(_)
        | Event::RunResumed(_)
        | Event::IterationStarted { .. }
        | Event::PromptAssembled { .. }
        | Event::HardStop { .. }
        | Event::SessionSignalled { .. }
        | Event::SessionEnded(_)
        | Event::IterationCompleted(_)
        | Event::IterationIdle { .. }
        | Event::IterationFailed(_)
        | Event::IterationTimedOut(_)
        | Event::IterationRateLimited { .. }
        | Event::IterationAuthFailed(_)
        | Event::IterationInterrupted { .. }
        | Event::WorktreeReady { .. }
        | Event::ChecksPinned { .. }
        | Event::CheckTampered { .. }
        | Event::NodeAttempt(_)
        | Event::RecoveryPlanned(_)
        | Event::PartialKept { .. }
        | Event::WaitStarted { .. }
        | Event::WaitEnded { .. }
        | Event::Paused {}
        | Event::Unpaused {}
        | Event::MessageReceived { .. }
        | Event::NeedsHuman { .. }
        | Event::Notified { .. }
        | Event::RunSlept { .. }
        | Event::RunEnded(_) => true,
        Event::NodeTransition { .. }
        | Event::CommandFinished(_)
        | Event::SessionStarted { .. }
        | Event::Observed { .. }
        | Event::SnapshotTaken { .. }
        | Event::ChecksStarted { .. }
        | Event::Fact { .. }
        | Event::NeedsHumanEnded { .. }
        | Event::AgentRetrying { .. }
        | Event::AgentDrifted { .. }
        | Event::Used { .. }
        | Event::DayUsed(_)
        | Event::WatchdogContinue { .. }
        | Event::Suspended { .. }
        | Event::MarkerSeen { .. }
        | Event::AgentReported { .. }
        | Event::WakeRemembered { .. }
        | Event::Notice { .. }
        | Event::Trouble { .. }
        | Event::Unknown => false,
    }
}

fn chained(recorded: &Recorded, prev: &str) -> io::Result<String> {
    let mut line = escape_json(&serde_json::to_string(recorded)?).into_owned();
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
