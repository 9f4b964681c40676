//! The journal: `events.jsonl`, append-only, one writer, the truth about a run.
//!
//! Each line carries the hash of the line before it, so a line that was changed or taken out shows. The
//! writer keeps what could not be written (a full disk) in memory and tries again; a line is never
//! half-written for good: the file is cut back to its last whole line first.

mod read;

pub use read::{Loaded, MAX_LINE, ReadError, load, repair};

use dogwatch_core::event::{Event, Recorded};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file's name within a run's directory.
pub const FILE: &str = "events.jsonl";
/// What may wait in memory for a disk that is full.
pub const MAX_PENDING: usize = 32 * 1024 * 1024;
/// Hexadecimal digits of the chained hash: 128 bits.
const CHAIN_DIGITS: usize = 32;
/// What the first line is chained to.
const GENESIS: &str = "00000000000000000000000000000000";

pub struct Journal {
    file: File,
    path: PathBuf,
    /// Length of the file up to its last whole line.
    good_len: u64,
    prev: String,
    pending: Vec<u8>,
    /// Something that must not be lost was written since the last sync.
    unsynced: bool,
}

impl Journal {
    pub fn create(dir: &Path) -> io::Result<Journal> {
        let path = dir.join(FILE);
        let file = OpenOptions::new().append(true).create_new(true).open(&path)?;
        // The name must survive a power cut as well as the lines.
        File::open(dir)?.sync_all()?;
        Ok(Journal {
            file,
            path,
            good_len: 0,
            prev: GENESIS.to_owned(),
            pending: Vec::new(),
            unsynced: false,
        })
    }

    /// Goes on with a journal that was read and, if it was torn, repaired.
    pub fn reopen(dir: &Path, loaded: &Loaded) -> io::Result<Journal> {
        let path = dir.join(FILE);
        let file = OpenOptions::new().append(true).open(&path)?;
        let prev = loaded.last_hash.clone();
        Ok(Journal { file, path, good_len: loaded.whole, prev, pending: Vec::new(), unsynced: false })
    }

    /// Takes an event in; `flush` writes it.
    pub fn append(&mut self, recorded: &Recorded) -> io::Result<()> {
        let line = chained(recorded, &self.prev)?;
        if self.pending.len() + line.len() > MAX_PENDING {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too much waits to be written"));
        }
        self.prev = chain_hash(line.trim_end().as_bytes());
        self.pending.extend_from_slice(line.as_bytes());
        self.unsynced |= must_last(&recorded.event);
        Ok(())
    }

    /// Writes what waits. On failure nothing of it is in the file, and all of it still waits.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.file.write_all(&self.pending) {
            // Cutting back needs no space; if even that fails the reader cuts the torn line.
            let _ = self.file.set_len(self.good_len);
            return Err(error);
        }
        self.good_len += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Makes intents and endings durable. Cheap when there is nothing new among them.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Whether the file still stands where it was made: not deleted, not replaced.
    pub fn is_in_place(&self) -> bool {
        match (self.file.metadata(), std::fs::metadata(&self.path)) {
            (Ok(open), Ok(named)) => open.ino() == named.ino() && open.dev() == named.dev(),
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Intents and endings: what must be on disk before an effect, and what must never be forgotten.
fn must_last(event: &Event) -> bool {
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
        | Event::Told { .. }
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
    let mut line = serde_json::to_string(recorded)?;
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

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)] as char, DIGITS[usize::from(b & 15)] as char])
        .collect()
}

#[cfg(test)]
mod tests;
