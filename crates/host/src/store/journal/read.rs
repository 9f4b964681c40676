//! Reads a journal: every complete line, and a precise error for anything that is wrong with it.

use super::tail::{BadLine, Tail, parse};
use super::{Chain, FILE, KnownHead};
use crate::store::safe_file;
use dogwatch_core::record::event::Recorded;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A journal that was read.
#[derive(Debug, Default)]
pub struct Loaded {
    /// All events, in order.
    pub events: Vec<Recorded>,
    /// The length up to the end of the last complete line.
    pub whole: u64,
    /// The incomplete line after it, left by a writer that died.
    pub torn: Vec<u8>,
    /// The chain of its lines, which shows whether the record was changed.
    pub chain: Chain,
}

/// Why a journal could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// The path of the journal.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A line is not the next event.
    #[error("{path}, line {line}: {bad}")]
    Line {
        /// The path of the journal.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// The problem with the line.
        bad: BadLine,
    },
}

/// Reads a run's journal without changing it.
pub fn load(dir: &Path) -> Result<Loaded, ReadError> {
    load_known(dir, None)
}

/// Reads a run's journal and compares it with its head, which the caller has read before.
pub fn load_known(dir: &Path, known: Option<KnownHead>) -> Result<Loaded, ReadError> {
    let path = dir.join(FILE);
    let io = |error| ReadError::Io { path: path.clone(), error };
    let mut tail = Tail::follow(&path).map_err(io)?.in_large_pieces();
    let mut loaded = Loaded { chain: Chain::new(known), ..Loaded::default() };
    for number in 1.. {
        let bad = |bad| ReadError::Line { path: path.clone(), line: number, bad };
        let is_end = tail.next_line().map_err(io)?.is_none();
        if tail.skipped() > 0 {
            return Err(bad(BadLine::TooLong));
        }
        if is_end {
            break;
        }
        let last = loaded.events.last().map_or(0, |event| event.seq);
        let (recorded, chained) = parse(tail.current(), last).map_err(bad)?;
        loaded.chain.add(tail.current(), &chained);
        loaded.whole = tail.offset();
        loaded.events.push(recorded);
    }
    loaded.torn = tail.torn().map_err(io)?;
    loaded.chain.note_torn(!loaded.torn.is_empty());
    Ok(loaded)
}

/// Moves a torn last line from the journal to a file next to it. Returns that file, if any.
pub fn repair(dir: &Path, loaded: &Loaded) -> io::Result<Option<PathBuf>> {
    if loaded.torn.is_empty() {
        return Ok(None);
    }
    let aside = dir.join(format!("torn-{}.jsonl", loaded.whole));
    let mut kept = safe_file::append(&aside, safe_file::PLAIN)?;
    kept.write_all(&loaded.torn)?;
    kept.sync_all()?;
    let journal = safe_file::append_existing(&dir.join(FILE))?;
    journal.set_len(loaded.whole)?;
    journal.sync_all()?;
    Ok(Some(aside))
}
