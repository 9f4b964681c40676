//! Reads a journal: every complete line, and a precise error for anything that is wrong with it.

use super::{FILE, GENESIS, chain_hash};
use crate::store::safe_file;
use dogwatch_core::record::event::{FORMAT, Recorded};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// The longest line of a journal. `run_started`, which contains the settings, is by far the longest.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// A journal that was read.
#[derive(Debug, Default)]
pub struct Loaded {
    /// All events, in order.
    pub events: Vec<Recorded>,
    /// The length up to the end of the last complete line.
    pub whole: u64,
    /// The incomplete line after it, left by a writer that died.
    pub torn: Vec<u8>,
    /// The first line whose hash does not match, because the record was changed.
    pub broken_chain: Option<u64>,
    /// The hash for the next line.
    pub last_hash: String,
}

/// Why a journal could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    /// A line is not an event.
    #[error("{path}, line {line}: not an event: {error}")]
    NotAnEvent { path: PathBuf, line: u64, error: String },
    /// A line has a newer format.
    #[error("{path}, line {line}: written by a newer dogwatch (format {v}, this one reads up to {FORMAT})")]
    Newer { path: PathBuf, line: u64, v: u32 },
    /// Lines are missing.
    #[error("{path}, line {line}: event {found} follows event {last}: lines are missing")]
    Gap { path: PathBuf, line: u64, last: u64, found: u64 },
}

/// Reads a run's journal without changing it.
pub fn load(dir: &Path) -> Result<Loaded, ReadError> {
    let path = dir.join(FILE);
    let io = |error| ReadError::Io { path: path.clone(), error };
    let mut reader = BufReader::with_capacity(256 * 1024, safe_file::read(&path).map_err(io)?);
    let mut loaded = Loaded::default();
    let mut prev = GENESIS.to_owned();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = (&mut reader).take(MAX_LINE as u64).read_until(b'\n', &mut line).map_err(io)?;
        if read == 0 {
            break;
        }
        if line.pop_if(|b| *b == b'\n').is_none() {
            loaded.torn = line;
            break;
        }
        let (recorded, chained) = parse(&path, number, &line)?;
        check_sequence(&path, number, &loaded.events, &recorded)?;
        if chained != prev {
            loaded.broken_chain.get_or_insert(number);
        }
        prev = chain_hash(&line);
        loaded.whole += read as u64;
        loaded.events.push(recorded);
    }
    loaded.last_hash = prev;
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

fn parse(path: &Path, line: u64, text: &[u8]) -> Result<(Recorded, String), ReadError> {
    #[derive(serde::Deserialize)]
    struct Head {
        v: u32,
        #[serde(default)]
        prev: String,
    }
    let bad =
        |e: serde_json::Error| ReadError::NotAnEvent { path: path.to_owned(), line, error: e.to_string() };
    let head: Head = serde_json::from_slice(text).map_err(bad)?;
    if head.v > FORMAT {
        return Err(ReadError::Newer { path: path.to_owned(), line, v: head.v });
    }
    Ok((serde_json::from_slice(text).map_err(bad)?, head.prev))
}

fn check_sequence(path: &Path, line: u64, events: &[Recorded], next: &Recorded) -> Result<(), ReadError> {
    let last = events.last().map_or(0, |e| e.seq);
    if next.seq == last + 1 {
        Ok(())
    } else {
        Err(ReadError::Gap { path: path.to_owned(), line, last, found: next.seq })
    }
}
