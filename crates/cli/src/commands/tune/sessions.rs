//! The recorded sessions that a proposal is tried on: those of journals and of imported transcripts.

use crate::runs::FoundRun;
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::watch::replay::{JournalReplay, Replayed};
use dogwatch_host::store::sessions::replay_transcript;
use std::path::PathBuf;

/// The most events of journals to hold in memory and replay. Older runs are skipped.
const MAX_EVENTS: usize = 500_000;
/// The most bytes of transcripts to replay.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Derives a policy from that of a session's agent.
pub type Change<'a> = &'a dyn Fn(&WatchPolicy, ReaderName) -> WatchPolicy;

/// The recordings to replay.
pub struct Recordings {
    journals: Vec<Vec<Recorded>>,
    transcripts: Vec<PathBuf>,
    /// The number of older runs and of unreadable records.
    pub left_out: usize,
}

impl Recordings {
    /// Reads the newest runs up to the limits.
    pub fn read(runs: &[FoundRun], transcripts: Vec<(PathBuf, u64)>, limit: u64) -> Recordings {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut journals, mut events) = (Vec::new(), 0);
        for found in runs.iter().take(limit) {
            let Ok(loaded) = found.record() else { continue };
            events += loaded.events.len();
            if events > MAX_EVENTS && !journals.is_empty() {
                break;
            }
            journals.push(loaded.events);
        }
        let mut left = MAX_BYTES;
        let fits = |(path, bytes): (PathBuf, u64)| {
            left = left.checked_sub(bytes)?;
            Some(path)
        };
        let transcripts = transcripts.into_iter().map_while(fits).collect();
        Recordings { left_out: runs.len() - journals.len(), journals, transcripts }
    }

    /// Returns the number of runs that are replayed.
    pub fn runs(&self) -> usize {
        self.journals.len()
    }

    /// Replays all sessions, under their own policy or another one, in the same order.
    pub fn replay(&self, change: Option<Change<'_>>) -> Vec<Replayed> {
        let mut sessions = Vec::new();
        for events in &self.journals {
            let mut replay = JournalReplay::new(change);
            events.iter().for_each(|recorded| replay.take(recorded));
            sessions.extend(replay.finish());
        }
        for path in &self.transcripts {
            let policy = |agent| {
                let own = WatchPolicy::for_reader(Profile::Standard, agent);
                Some(change?(&own, agent))
            };
            // A file that vanished has no sessions, in either replay.
            sessions.extend(replay_transcript(path, &policy).unwrap_or_default());
        }
        sessions
    }

    /// Returns the limits in force for an agent: those of the newest run with it, or of the standard profile.
    pub fn policy(&self, agent: ReaderName) -> WatchPolicy {
        let of_run = |recorded: &Recorded| {
            let Event::RunStarted(run) = &recorded.event else { return None };
            let node = run.settings.nodes.iter().find(|node| node.settings.reader == agent)?;
            Some(node.settings.watchdog.clone())
        };
        let newest = self.journals.iter().filter_map(|events| events.first()).find_map(of_run);
        newest.unwrap_or_else(|| WatchPolicy::for_reader(Profile::Standard, agent))
    }
}
