//! The copy of a run's journal on the server. The sequence number of its last piece is the fence.

use crate::client::{Client, FleetError, From};
use crate::names::{self, JobId};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::store::safe_file;
use serde_json::Value;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// The pause after a piece that the server did not take.
const RETRY: Duration = Duration::from_millis(300);

/// How often a claim tries to become the writer.
const BEGIN_TRIES: u32 = 100;

/// The number of the first claim of a job.
pub const FIRST_CLAIM: u64 = 1;

/// Another worker writes this journal now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced;

/// The writer of a journal's copy.
pub struct Copier {
    client: Client,
    subject: String,
    epoch: u64,
    /// The sequence number of the last piece.
    last: u64,
    /// How much of the journal is copied, in bytes.
    pub offset: u64,
    tree: Option<String>,
}

/// What an earlier claim left of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The journal, up to its last complete line.
    pub journal: Vec<u8>,
    /// The commit that holds the work tree.
    pub tree: Option<String>,
}

impl Copier {
    /// Returns the writer of the first claim. No earlier claim can write, so there is nothing to ask or to refuse before the run
    /// starts. Its first piece has to be the first of the journal: the server refuses it if a later claim has begun.
    pub fn first(client: &Client, id: &JobId) -> Copier {
        let (client, subject) = (client.clone(), id.events_subject());
        Copier { client, subject, epoch: FIRST_CLAIM, last: 0, offset: 0, tree: None }
    }

    /// Becomes the only writer of the journal: from now on, pieces of earlier claims are refused. Returns a conflict if a later claim
    /// has begun. A worker that was stopped here must not fence that claim.
    pub async fn begin(client: &Client, id: &JobId, epoch: u64) -> Result<Copier, FleetError> {
        let subject = id.events_subject();
        let header = epoch.to_string();
        for _ in 0..BEGIN_TRIES {
            let last = client.last(names::EVENTS, &subject).await?;
            let writer = last.as_ref().and_then(|last| last.header(names::H_EPOCH)?.parse::<u64>().ok());
            if writer.is_some_and(|writer| writer > epoch) {
                return Err(FleetError::Conflict);
            }
            // A claim that begins between the read and the write makes the server refuse the write.
            let before = last.map_or(0, |last| last.sequence);
            let headers = [(names::H_EPOCH, header.as_str())];
            match client.publish(&subject, &headers, Vec::new(), Some(before)).await {
                Ok(last) => {
                    let client = client.clone();
                    return Ok(Copier { client, subject, epoch, last, offset: 0, tree: None });
                }
                Err(FleetError::Conflict | FleetError::NoAnswer) => tokio::time::sleep(RETRY).await,
                Err(error) => return Err(error),
            }
        }
        Err(FleetError::NoAnswer)
    }

    /// Reads what earlier claims left. The writer continues where they ended.
    pub async fn remains(&mut self) -> Result<Remains, FleetError> {
        let pieces = self.client.read(names::EVENTS, &self.subject, From::First).await?;
        let mut remains = Remains::default();
        for piece in &pieces {
            if let Some(offset) = piece.header(names::H_OFFSET).and_then(|text| text.parse().ok()) {
                remains.journal.truncate(offset);
                remains.journal.extend_from_slice(&piece.payload);
            }
            if let Some(tree) = piece.header(names::H_TREE) {
                remains.tree = Some(tree.to_owned());
            }
        }
        let whole = remains.journal.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        remains.journal.truncate(whole);
        self.offset = whole as u64;
        self.tree.clone_from(&remains.tree);
        Ok(remains)
    }

    /// Names the commit that holds the work tree in the next piece. It must have been pushed.
    pub fn name_tree(&mut self, commit: String) {
        self.tree = Some(commit);
    }

    /// Copies one piece. It tries again until the server has taken it, or another worker has written.
    pub async fn copy(&mut self, piece: &[u8]) -> Result<(), Fenced> {
        let (epoch, offset) = (self.epoch.to_string(), self.offset.to_string());
        let mut headers = vec![(names::H_EPOCH, epoch.as_str()), (names::H_OFFSET, offset.as_str())];
        headers.extend(self.tree.as_deref().map(|tree| (names::H_TREE, tree)));
        loop {
            let sent = self.client.publish(&self.subject, &headers, piece.to_vec(), Some(self.last)).await;
            match sent {
                Ok(last) => self.last = last,
                Err(FleetError::Conflict) => match self.client.last(names::EVENTS, &self.subject).await {
                    Ok(Some(last)) if last.sequence > self.last => {
                        let own = last.header(names::H_EPOCH) == Some(epoch.as_str())
                            && last.header(names::H_OFFSET) == Some(offset.as_str());
                        if !own {
                            return Err(Fenced);
                        }
                        // Only the answer was lost.
                        self.last = last.sequence;
                    }
                    // An old copy, or no answer.
                    Ok(_) | Err(_) => {
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                },
                Err(_) => {
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
            self.offset += piece.len() as u64;
            return Ok(());
        }
    }
}

/// Reads the next piece of the journal: whole lines, or a part of a line that is too long for one piece.
pub fn next_piece(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = match safe_file::read(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut piece = Vec::new();
    file.take(names::MAX_PIECE as u64).read_to_end(&mut piece)?;
    match piece.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => piece.truncate(at + 1),
        None if piece.len() < names::MAX_PIECE => piece.clear(),
        None => {}
    }
    Ok(piece)
}

/// What a line of the journal means to the worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// The run has this id.
    Started(RunId),
    /// The tree in which a node works was saved under this ref.
    Saved {
        /// The node.
        node: String,
        /// The ref.
        name: String,
    },
    /// A node works in a worktree of its own.
    Worktree {
        /// The node.
        node: String,
        /// The branch of the worktree.
        branch: String,
    },
    /// A node with a worktree of its own is done.
    Committed {
        /// The node.
        node: String,
        /// The commit with all its work.
        commit: String,
    },
    /// An iteration ended.
    Moved,
    /// The service refuses work until then.
    Limited(Wall),
    /// The run ended.
    Ended {
        /// The outcome.
        outcome: String,
        /// The exit code.
        exit_code: i32,
    },
    /// Nothing of interest.
    Other,
}

/// Reads one line of the journal.
pub fn read_line(line: &[u8]) -> Line {
    let Ok(event) = serde_json::from_slice::<Value>(line) else { return Line::Other };
    let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
    match event["event"].as_str().unwrap_or_default() {
        "run_started" => text("run").parse().map_or(Line::Other, Line::Started),
        "snapshot_taken" => Line::Saved { node: text("node"), name: text("ref") },
        "worktree_ready" => Line::Worktree { node: text("node"), branch: text("branch") },
        "work_committed" => Line::Committed { node: text("node"), commit: text("commit") },
        "iteration_completed" | "iteration_idle" | "iteration_failed" | "iteration_timed_out" => Line::Moved,
        "iteration_rate_limited" => Wall::from_rfc3339(&text("resets_at")).map_or(Line::Other, Line::Limited),
        "run_ended" => Line::Ended {
            outcome: text("outcome"),
            exit_code: i32::try_from(event["exit_code"].as_i64().unwrap_or(0)).unwrap_or(1),
        },
        _ => Line::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_holds_whole_lines_unless_one_line_is_longer_than_a_piece() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("events.jsonl");
        assert_eq!(next_piece(&path, 0).expect("missing"), b"");
        std::fs::write(&path, b"one\ntwo\nthr").expect("written");
        assert_eq!(next_piece(&path, 0).expect("read"), b"one\ntwo\n");
        assert_eq!(next_piece(&path, 8).expect("read"), b"");
        let long = vec![b'x'; names::MAX_PIECE + 10];
        std::fs::write(&path, &long).expect("written");
        assert_eq!(next_piece(&path, 0).expect("read").len(), names::MAX_PIECE);
    }

    #[test]
    fn lines_of_the_journal_are_read() {
        assert_eq!(read_line(br#"{"event":"iteration_completed"}"#), Line::Moved);
        let ended = Line::Ended { outcome: "clean".into(), exit_code: 0 };
        assert_eq!(read_line(br#"{"event":"run_ended","outcome":"clean","exit_code":0}"#), ended);
        let limited =
            read_line(br#"{"event":"iteration_rate_limited","resets_at":"2026-11-17T12:00:00.000Z"}"#);
        assert!(matches!(limited, Line::Limited(_)), "{limited:?}");
        for other in
            ["", "{", r#"{"event":"observed"}"#, r#"{"event":"iteration_rate_limited","resets_at":null}"#]
        {
            assert_eq!(read_line(other.as_bytes()), Line::Other, "{other}");
        }
    }
}
