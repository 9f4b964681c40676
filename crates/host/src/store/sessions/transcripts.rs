//! Reads the transcripts that Claude Code and Codex keep on this machine.

use super::{Entry, Known, SessionIndex, known};
use crate::store::journal::Tail;
use crate::store::safe_file;
use dogwatch_agents::{Format, Transcribed, Turns};
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::time::dur::Limit;
use dogwatch_core::watch::limits::Kind;
use dogwatch_core::watch::replay::Replayed;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The most directories below the agents' own that are searched.
const MAX_DIRS: usize = 10_000;
/// The most transcripts that are considered, newest first.
const MAX_FILES: usize = 20_000;
/// How deep the directories of transcripts are nested: Codex has one per year, month and day.
const MAX_DEPTH: usize = 4;
/// A transcript shows its format within this many records.
const MAX_HEAD: usize = 1_000;

/// What an import read.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Imported {
    /// The directories that were searched and exist.
    pub dirs: Vec<PathBuf>,
    /// The transcripts that were found.
    pub files: u64,
    /// How many of them were new or had changed, and were read.
    pub read: u64,
    /// How many of these are not transcripts or cannot be read.
    pub unreadable: u64,
    /// The new transcripts that were left for the next import, because this one read enough.
    pub left: u64,
    /// The user turns that were read.
    pub turns: u64,
    /// How many of them are good sessions.
    pub good: u64,
}

/// Adds the transcripts below these directories to the index, newest first. Stops after `bytes`; the next import continues.
pub fn import(index: &mut SessionIndex, dirs: &[PathBuf], mut bytes: u64) -> Imported {
    let mut imported = Imported::default();
    let mut files = Vec::new();
    for dir in dirs {
        if dir.is_dir() {
            imported.dirs.push(dir.clone());
            find(dir, &mut files);
        }
    }
    files.sort_unstable_by(|a, b| b.cmp(a));
    files.truncate(MAX_FILES);
    imported.files = files.len() as u64;
    for (_, path) in files {
        match index.stale(&path) {
            Ok(None) => {}
            Ok(Some(facts)) if facts.bytes > bytes => {
                // Smaller files may still fit.
                imported.left += 1;
            }
            Ok(Some(facts)) => {
                bytes -= facts.bytes;
                imported.read += 1;
                let sessions = read(&path).unwrap_or_else(|_| {
                    imported.unreadable += 1;
                    Vec::new()
                });
                imported.turns += sessions.len() as u64;
                imported.good += sessions.iter().filter(|s| s.sample.kind == Kind::Good).count() as u64;
                // An unreadable file is kept without sessions, so that it is not read again.
                index.put(path, Entry { imported: true, sessions, ..facts });
            }
            Err(_) => imported.unreadable += 1,
        }
    }
    imported
}

/// Finds the files of JSON lines below a directory, with the times of their last change.
fn find(dir: &Path, files: &mut Vec<(std::time::SystemTime, PathBuf)>) {
    let (mut dirs, mut searched) = (vec![(dir.to_owned(), 0)], 0);
    while let Some((dir, depth)) = dirs.pop() {
        searched += 1;
        if searched > MAX_DIRS {
            return;
        }
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            // Links are not followed, so that no file is read twice.
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() && depth < MAX_DEPTH {
                dirs.push((path, depth + 1));
            } else if kind.is_file() && path.extension() == Some(OsStr::new("jsonl")) {
                let changed = entry.metadata().and_then(|meta| meta.modified());
                files.extend(changed.ok().map(|changed| (changed, path)));
            }
        }
    }
}

/// Replays the turns of a transcript. Without a policy they are replayed without limits, as they happened.
pub fn replay_transcript(
    path: &Path,
    policy: &dyn Fn(ReaderName) -> Option<WatchPolicy>,
) -> io::Result<Vec<Replayed>> {
    let (format, done) = replay(path, policy)?;
    let one = |turn| Replayed { agent: Some(format.agent()), ..turn };
    Ok(done.turns.into_iter().map(one).collect())
}

fn replay(
    path: &Path,
    policy: &dyn Fn(ReaderName) -> Option<WatchPolicy>,
) -> io::Result<(Format, Transcribed)> {
    let format = format(path)?;
    let policy = policy(format.agent()).unwrap_or_else(|| unlimited(format.agent()));
    let mut turns = Turns::new(format, policy, true);
    let mut lines = Tail::from(safe_file::read_named(path)?, 0).in_large_pieces();
    while let Some(line) = lines.next_line()? {
        turns.take(line);
    }
    Ok((format, turns.finish()))
}

/// Reads the turns of a transcript.
fn read(path: &Path) -> io::Result<Vec<Known>> {
    let (format, done) = replay(path, &|_| None)?;
    let place = done.about.dir.unwrap_or_default();
    let one = |turn| {
        let session = known(turn, Some(format.agent()), &place)?;
        Some(Known { id: done.about.session.clone(), ..session })
    };
    Ok(done.turns.into_iter().filter_map(one).collect())
}

/// Returns the policy without limits, which still weighs evidence in the same way.
fn unlimited(agent: ReaderName) -> WatchPolicy {
    let standard = WatchPolicy::for_reader(Profile::Standard, agent);
    WatchPolicy { session: Limit::Off, ..standard.ceilings_only() }
}

fn format(path: &Path) -> io::Result<Format> {
    let mut lines = Tail::from(safe_file::read_named(path)?, 0);
    for _ in 0..MAX_HEAD {
        match lines.next_line()? {
            Some(line) => {
                if let Some(format) = Format::of(line) {
                    return Ok(format);
                }
            }
            None => break,
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}
