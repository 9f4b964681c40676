//! The recorded sessions of this user, as far as limits follow from them.
//!
//! Journals and transcripts are large, so what their sessions needed is kept in one small file in the user's state directory.
//! The file is an index: it can be removed and is built again from the records that still exist. What `gc` removed stays in
//! it. A file that was read once is read again only if it changed.

mod transcripts;

pub use transcripts::{Imported, import, replay_transcript};

use crate::store::home::{self, make_private};
use crate::store::journal::{self, Tail};
use crate::store::safe_file;
use dogwatch_core::record::event::Event;
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::text::figures::count;
use dogwatch_core::watch::limits::{Kind, Sample};
use dogwatch_core::watch::replay::{JournalReplay, Replayed};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most sessions that are kept. The oldest files are dropped first.
pub const MAX_SESSIONS: usize = 20_000;
/// The most bytes of the index that are read.
const MAX_INDEX: u64 = 64 * 1024 * 1024;
/// The most bytes of records that one update reads.
pub const MAX_UPDATE: u64 = 256 * 1024 * 1024;
/// The version of the index.
const VERSION: u32 = 1;

/// The index of recorded sessions.
#[derive(Debug, Default)]
pub struct SessionIndex {
    path: PathBuf,
    files: BTreeMap<PathBuf, Entry>,
    /// Why a part of the index or of the records is not used, as sentences for people.
    pub problems: Vec<String>,
    changed: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    v: u32,
    files: BTreeMap<PathBuf, Entry>,
}

/// The sessions of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Entry {
    /// The length of the file and when it was modified: a file with the same values is not read again.
    bytes: u64,
    modified_s: i64,
    /// Whether the file is a transcript. Sessions that a journal has too count once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    imported: bool,
    sessions: Vec<Known>,
}

/// A session, with the id that its agent gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Known {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(flatten)]
    sample: Sample,
}

impl SessionIndex {
    /// Reads the index of this user.
    pub fn of_user() -> SessionIndex {
        SessionIndex::at(home::user_state_dir().join("sessions.json"))
    }

    /// Reads the index in this file. An unreadable one is empty, and built again.
    pub fn at(path: PathBuf) -> SessionIndex {
        let (files, problem) = match safe_file::read_json(&path, MAX_INDEX) {
            Ok(Stored { v: VERSION, files }) => (files, None),
            Ok(_) => Default::default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Default::default(),
            Err(error) => (BTreeMap::new(), Some(error)),
        };
        let told = |error| format!("cannot use {}, so it is built again: {error}", path.display());
        let problems = problem.into_iter().map(told).collect();
        SessionIndex { files, problems, path, changed: false }
    }

    /// Adds the sessions of these runs, given by their directories, newest first. Returns how many journals were read. Stops
    /// after `bytes`; the next update continues.
    pub fn add_runs<'a>(&mut self, run_dirs: impl IntoIterator<Item = &'a Path>, mut bytes: u64) -> usize {
        let (mut read, mut unreadable) = (0, 0);
        for dir in run_dirs {
            let path = dir.join(journal::FILE);
            match self.stale(&path) {
                Ok(None) => {}
                Ok(Some(facts)) if facts.bytes > bytes => break,
                Ok(Some(facts)) => {
                    bytes -= facts.bytes;
                    read += 1;
                    match of_journal(&path) {
                        Ok(sessions) => self.put(path, Entry { sessions, ..facts }),
                        Err(_) => unreadable += 1,
                    }
                }
                Err(_) => unreadable += 1,
            }
        }
        if unreadable > 0 {
            self.problems.push(format!("the sessions of {} cannot be read", count(unreadable, "run")));
        }
        read
    }

    /// Returns an empty entry for a file that is new or has changed.
    fn stale(&self, path: &Path) -> io::Result<Option<Entry>> {
        let meta = std::fs::metadata(path)?;
        if !meta.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let entry = Entry { bytes: meta.len(), modified_s: meta.mtime(), ..Entry::default() };
        let same = |known: &Entry| (known.bytes, known.modified_s) == (entry.bytes, entry.modified_s);
        Ok((!self.files.get(path).is_some_and(same)).then_some(entry))
    }

    fn put(&mut self, path: PathBuf, entry: Entry) {
        self.changed = true;
        self.files.insert(path, entry);
    }

    /// Returns all sessions. A session that both a journal and a transcript describe counts once.
    pub fn samples(&self) -> Vec<Sample> {
        let journals = self.files.values().filter(|entry| !entry.imported);
        let known: BTreeSet<&str> =
            journals.flat_map(|entry| &entry.sessions).filter_map(|session| session.id.as_deref()).collect();
        let is_new = |entry: &Entry, session: &Known| {
            !entry.imported || session.id.as_deref().is_none_or(|id| !known.contains(id))
        };
        let all = self.files.values().flat_map(|entry| entry.sessions.iter().map(move |s| (entry, s)));
        all.filter(|(entry, session)| is_new(entry, session)).map(|(_, s)| s.sample.clone()).collect()
    }

    /// Returns the transcripts of sessions in this place, or of all, newest first, with their lengths.
    pub fn transcripts(&self, place: Option<&str>) -> Vec<(PathBuf, u64)> {
        let is_here = |session: &Known| place.is_none_or(|place| session.sample.is_in(place));
        let mut found: Vec<_> = self
            .files
            .iter()
            .filter(|(_, entry)| entry.imported && entry.sessions.iter().any(is_here))
            .map(|(path, entry)| (entry.modified_s, path.clone(), entry.bytes))
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.into_iter().map(|(_, path, bytes)| (path, bytes)).collect()
    }

    /// Writes the index if it changed. An interrupted write leaves the file as it was.
    pub fn save(&mut self) -> io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        self.shrink();
        make_private(self.path.parent().unwrap_or(Path::new("/")))?;
        let stored = Stored { v: VERSION, files: std::mem::take(&mut self.files) };
        let bytes = serde_json::to_vec(&stored)?;
        self.files = stored.files;
        safe_file::replace(&self.path, safe_file::PRIVATE, &bytes)?;
        self.changed = false;
        Ok(())
    }

    /// Drops the oldest files beyond the limit.
    fn shrink(&mut self) {
        let mut sessions: usize = self.files.values().map(|entry| entry.sessions.len()).sum();
        let mut by_age: Vec<(i64, PathBuf)> =
            self.files.iter().map(|(path, entry)| (entry.modified_s, path.clone())).collect();
        by_age.sort_unstable();
        for (_, path) in by_age {
            if sessions <= MAX_SESSIONS {
                break;
            }
            sessions -= self.files.remove(&path).map_or(0, |entry| entry.sessions.len());
        }
    }
}

/// Reads the sessions of a journal. Damaged lines are skipped.
fn of_journal(path: &Path) -> io::Result<Vec<Known>> {
    let mut lines = Tail::up_to_now(path)?.in_large_pieces();
    let mut replay = JournalReplay::new(None::<fn(&WatchPolicy, ReaderName) -> WatchPolicy>).measuring();
    let mut place = None;
    while let Some(line) = lines.next_line()? {
        let Ok(recorded) = dogwatch_codec::read(line) else { continue };
        if let (None, Event::RunStarted(run)) = (&place, &recorded.event) {
            place = Some(run.work_dir.clone());
        }
        replay.take(&recorded);
    }
    let Some(place) = place else { return Err(io::ErrorKind::InvalidData.into()) };
    Ok(replay.finish().into_iter().filter_map(|session| known(session, None, &place)).collect())
}

/// Returns the evidence of a replayed session. `agent` is that of a transcript.
fn known(session: Replayed, agent: Option<ReaderName>, place: &str) -> Option<Known> {
    let kind = Kind::of(&session);
    let agent = agent.or(session.agent)?;
    let sample = Sample { agent, place: place.to_owned(), kind, needs: session.needs? };
    Some(Known { id: session.agent_session, sample })
}

#[cfg(test)]
mod tests;
