//! The journal: `events.jsonl`, append-only, one writer, the truth about a run.
//!
//! Each line carries the hash of the line before it, so a line that was changed or taken out shows. The
//! writer keeps what could not be written (a full disk) in memory and tries again; a line is never
//! half-written for good: the file is cut back to its last whole line first. Before each write it compares the file
//! with what it has written, so that a file that was removed, replaced, cut or added to is noticed at once.

mod read;

pub use read::{Loaded, MAX_LINE, ReadError, load, repair};

use crate::store::safe_file;
use dogwatch_core::record::event::{Event, Recorded};
use sha2::{Digest, Sha256};
use std::fs::{File, Metadata};
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
/// How often the state of the file is asked for in a row before an error counts.
const STAT_TRIES: usize = 3;

/// Why the journal did not take what was to be written.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file was removed or replaced. The open one still takes lines, but nobody finds them.
    #[error("{0}")]
    Moved(String),
    /// Another program cut the file or added to it: what we wrote next would not follow from it.
    #[error("{0}")]
    Changed(String),
    /// The state of the file cannot be told, maybe only now.
    #[error("its state cannot be read: {0}")]
    Unknown(io::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub struct Journal {
    file: File,
    path: PathBuf,
    /// Length of the file up to its last whole line.
    good_len: u64,
    prev: String,
    pending: Vec<u8>,
    /// Something that must not be lost was written since the last sync.
    unsynced: bool,
    /// Half a line may stand after `good_len`: it could not be cut off.
    torn: bool,
    /// Lines go on into a file that was removed or replaced.
    moved: bool,
}

impl Journal {
    pub fn create(dir: &Path) -> io::Result<Journal> {
        let path = dir.join(FILE);
        let file = safe_file::create_new(&path, safe_file::PLAIN)?;
        // The name must survive a power cut as well as the lines.
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

    /// Goes on with a journal that was read and, if it was torn, repaired.
    pub fn reopen(dir: &Path, loaded: &Loaded) -> io::Result<Journal> {
        let path = dir.join(FILE);
        let file = safe_file::append_existing(&path)?;
        Ok(Journal::at(path, file, loaded.whole, loaded.last_hash.clone()))
    }

    /// Takes an event in; `flush` writes it.
    pub fn append(&mut self, recorded: &Recorded) -> io::Result<()> {
        let line = chained(recorded, &self.prev)?;
        if self.pending.len() + line.len() > MAX_PENDING {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too much waits to be written"));
        }
        self.prev = chain_hash(line.trim_end().as_bytes());
        self.pending.extend_from_slice(line.as_bytes());
        self.unsynced |= must_be_durable(&recorded.event);
        Ok(())
    }

    /// Writes what waits. On failure nothing of it is in the file, and all of it still waits.
    pub fn flush(&mut self) -> Result<(), Fault> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.truncate_torn()?;
        if !self.moved {
            self.verify()?;
        }
        if let Err(error) = self.file.write_all(&self.pending) {
            // Cutting back needs no space; if even that fails the next flush or the reader does it.
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

    /// Makes intents and endings durable. Cheap when there is nothing new among them.
    pub fn sync(&mut self) -> Result<(), Fault> {
        self.flush()?;
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Compares the file with what was written to it: not removed, not replaced, not cut, not added to.
    pub fn verify(&self) -> Result<(), Fault> {
        let shown = self.path.display();
        let open = retry(|| self.file.metadata()).map_err(Fault::Unknown)?;
        let named = match retry(|| std::fs::symlink_metadata(&self.path)) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Fault::Moved(format!("{shown} is gone")));
            }
            Err(error) => return Err(Fault::Unknown(error)),
        };
        if (open.dev(), open.ino()) != (named.dev(), named.ino()) {
            return Err(Fault::Moved(format!("{shown} was replaced by another file")));
        }
        if open.len() != self.good_len && !self.torn {
            let (is, was) = (open.len(), self.good_len);
            let how = if is < was { "cut it" } else { "wrote to it" };
            return Err(Fault::Changed(format!(
                "{shown} has {is} bytes instead of {was}: another program {how}"
            )));
        }
        Ok(())
    }

    /// From now on lines go into the open file, though it was removed or replaced: those who read it already
    /// see how the run ends.
    pub fn write_on(&mut self) {
        self.moved = true;
    }

    /// Forgets what waits: nothing more is written.
    pub fn abandon(&mut self) {
        self.pending.clear();
        self.unsynced = false;
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Asks again at once: an interrupted call, or a network file system that lost its handle, mostly answers then.
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

/// Intents and endings: what must be on disk before an effect, and what must never be forgotten.
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
