//! Reads the reports of a node that runs on another worker.

use super::wire::Talk;
use crate::client::{Client, From, Stored, Watch};
use crate::names::{self, JobId};
use crate::operator::journal::{Pieces, Taken};
use crate::record::{JobRecord, JobState};
use crate::worker::holding::sleep_until;
use dogwatch_core::record::event::Event;
use dogwatch_core::record::words::{self, Style, Weight};
use dogwatch_core::time::moment::Boot;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// The pause before the journal of a node that is over is read again.
const RETRY: Duration = Duration::from_secs(1);
/// How often the journal of a node that is over may be unreadable before its result counts without it.
const MAX_UNREAD: u32 = 10;

/// Follows one node.
pub(super) struct Following {
    client: Client,
    id: JobId,
    records: Watch,
    /// The journal, once a worker has taken the node.
    journal: Option<Watch>,
    pieces: Pieces,
    /// The worker that has the node.
    owner: String,
    /// The state and the claim that were reported.
    known: Option<(JobState, u64)>,
    /// The number of the last event that was reported.
    last: u64,
    end: Followed,
}

/// What changed.
#[derive(Debug)]
pub(super) enum Change {
    /// The record, which has this revision now.
    Record(u64, Box<JobRecord>),
    /// The operator removed the record.
    Removed,
    /// Whether the graph stops.
    Stops,
    /// The moment has come.
    Woke,
}

/// How a node ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Followed {
    pub outcome: String,
    pub exit_code: Option<i32>,
    /// The commit and the ref of the result.
    pub commit: Option<String>,
    pub branch: Option<String>,
    /// The last line of the agent, or why the node failed.
    pub said: String,
    pub cost_usd: Option<f64>,
    pub tokens: Option<u64>,
}

impl Followed {
    /// Returns the end of a node that could not be run.
    pub fn failed(why: &str) -> Followed {
        Followed { outcome: "failed".to_owned(), said: why.to_owned(), ..Followed::default() }
    }

    /// Returns whether the session succeeded. The checks decide whether the node is done.
    pub fn is_ok(&self) -> bool {
        self.exit_code == Some(0)
    }
}

impl Following {
    pub fn new(client: Client, id: JobId) -> Following {
        let records = client.watch(names::KV_JOBS, &id.to_string());
        let (pieces, end) = (Pieces::default(), Followed::default());
        let (journal, owner, known) = (None, String::new(), None);
        Following { client, id, records, journal, pieces, owner, known, last: 0, end }
    }

    /// Waits for a change, until a moment, and reports the journal meanwhile.
    pub async fn next(
        &mut self,
        talk: &Talk<UnixStream>,
        stops: &mut watch::Receiver<bool>,
        until: Option<Boot>,
    ) -> Change {
        loop {
            let Following { records, journal, .. } = self;
            let piece = async {
                match journal {
                    Some(journal) => journal.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                stored = records.next() => {
                    if stored.is_removal() {
                        return Change::Removed;
                    }
                    if let Ok(record) = serde_json::from_slice::<Box<JobRecord>>(&stored.payload) {
                        self.see(&record, talk).await;
                        return Change::Record(stored.sequence, record);
                    }
                }
                piece = piece => {
                    if !self.take(&piece, talk).await {
                        // It reads everything again, and reports only new events.
                        self.journal = Some(self.tail());
                    }
                }
                // The graph keeps the sender.
                _ = stops.changed() => return Change::Stops,
                () = sleep_until(until) => return Change::Woke,
            }
        }
    }

    fn tail(&self) -> Watch {
        self.client.tail(names::EVENTS, &self.id.events_subject())
    }

    /// Reports the state of the node if it is new.
    async fn see(&mut self, record: &JobRecord, talk: &Talk<UnixStream>) {
        self.owner.clone_from(&record.owner);
        if self.journal.is_none() && record.state != JobState::Queued {
            self.journal = Some(self.tail());
        }
        if self.known == Some((record.state, record.epoch)) {
            return;
        }
        self.known = Some((record.state, record.epoch));
        let text = match record.state {
            JobState::Queued => format!("{} waits for a worker", self.id),
            JobState::Running => format!("{} runs on {} (claim {})", self.id, record.owner, record.epoch),
            JobState::Released => format!("{} waits for another worker than {}", self.id, record.owner),
            JobState::Done | JobState::Poisoned => {
                let outcome = record.result.as_ref().map_or("?", |result| result.outcome.as_str());
                format!("{} ended: {outcome}", self.id)
            }
        };
        talk.say(&text).await;
    }

    /// Reports the rest of the journal of a node that is over. Its worker stored all of it before the record.
    pub async fn read_rest(&mut self, talk: &Talk<UnixStream>) {
        self.journal = None;
        for _ in 0..MAX_UNREAD {
            let from = if self.pieces.next == 0 { From::First } else { From::Sequence(self.pieces.next) };
            match self.client.read(names::EVENTS, &self.id.events_subject(), from).await {
                Err(_) => tokio::time::sleep(RETRY).await,
                Ok(stored) => {
                    let mut whole = true;
                    for piece in &stored {
                        whole = whole && self.take(piece, talk).await;
                    }
                    if whole {
                        return;
                    }
                }
            }
        }
    }

    /// Reports the events of a piece. Returns whether it continues the journal.
    async fn take(&mut self, piece: &Stored, talk: &Talk<UnixStream>) -> bool {
        // A piece without lines marks a claim.
        let Some(offset) = piece.header(names::H_OFFSET).and_then(|offset| offset.parse().ok()) else {
            return true;
        };
        match self.pieces.take(piece.sequence, offset, &piece.payload) {
            Taken::Lines(lines) => {
                for line in &lines {
                    self.report(line, talk).await;
                }
                true
            }
            Taken::Again => false,
        }
    }

    async fn report(&mut self, line: &[u8], talk: &Talk<UnixStream>) {
        let Ok(recorded) = dogwatch_codec::read(line) else { return };
        if recorded.seq <= self.last {
            return;
        }
        self.last = recorded.seq;
        if let Event::SessionEnded(ended) = &recorded.event {
            self.end.said.clone_from(&ended.said);
            if let Some(cost) = ended.cost_usd {
                self.end.cost_usd = Some(self.end.cost_usd.unwrap_or(0.0) + cost);
            }
            if let Some(tokens) = ended.tokens {
                self.end.tokens = Some(self.end.tokens.unwrap_or(0).saturating_add(tokens));
            }
        }
        let sentence = words::sentence(&recorded.event, Style::Full);
        let text = match sentence.weight {
            Weight::Main | Weight::Detail => sentence.text,
            // One of many signs of progress. Its number makes it a new line.
            Weight::Progress => format!("{} (event {})", sentence.text, recorded.seq),
        };
        talk.say(&format!("{}: {text}", self.owner)).await;
    }

    /// Returns how the node ended.
    pub fn end(self, record: &JobRecord) -> Followed {
        conclude(self.end, &self.id, record)
    }
}

/// Adds the result of a node to what its journal said.
fn conclude(mut end: Followed, id: &JobId, record: &JobRecord) -> Followed {
    let result = record.result.clone().unwrap_or_default();
    (end.commit, end.branch) = (result.commit, result.branch);
    (end.outcome, end.exit_code) = (result.outcome, result.exit_code);
    if !end.is_ok() {
        let why = result.detail.or(Some(end.said).filter(|said| !said.is_empty()));
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let place = if record.owner.is_empty() { String::new() } else { format!(" on {}", record.owner) };
        end.said = format!("{id} ended {}{place}{why}", end.outcome);
    }
    end
}

/// Returns how many iterations of a node were interrupted, in a journal.
pub(super) fn interruptions(journal: &[u8], node: &str) -> u64 {
    const INTERRUPTED: &[u8] = b"\"event\":\"iteration_interrupted\"";
    let lines = journal.split(|byte| *byte == b'\n');
    let interrupted = lines.filter(|line| line.windows(INTERRUPTED.len()).any(|part| part == INTERRUPTED));
    let of_node = |line: &&[u8]| {
        let event = serde_json::from_slice::<serde_json::Value>(line).unwrap_or_default();
        event["event"] == "iteration_interrupted" && event["node"] == node
    };
    interrupted.filter(of_node).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_iterations_of_a_node_are_counted() {
        let journal = concat!(
            r#"{"event":"iteration_interrupted","node":"a","by":"supervisor_lost"}"#,
            "\n",
            r#"{"event":"iteration_interrupted","node":"b","by":"leash"}"#,
            "\n",
            r#"{"event":"iteration_completed","node":"a"}"#,
            "\n",
            r#"{"event":"notice","node":"a","text":"\"event\":\"iteration_interrupted\""}"#,
            "\n",
        );
        assert_eq!(interruptions(journal.as_bytes(), "a"), 1);
        assert_eq!(interruptions(journal.as_bytes(), "c"), 0);
    }

    #[test]
    fn the_end_of_a_node_that_failed_says_where_and_why() {
        let record = |text: &str| serde_json::from_str::<JobRecord>(text).expect("a record");
        let id: JobId = "acme.g-a-1".parse().expect("a job");
        let said = Followed { said: "out of cake".into(), ..Followed::default() };
        let ended = record(r#"{"state":"done","owner":"anna","result":{"outcome":"failed","exit_code":1}}"#);
        let end = conclude(said.clone(), &id, &ended);
        assert_eq!((end.is_ok(), end.said.as_str()), (false, "acme.g-a-1 ended failed on anna: out of cake"));
        let ended = record(r#"{"state":"done","result":{"outcome":"stopped","detail":"its graph stops"}}"#);
        let end = conclude(said.clone(), &id, &ended);
        assert_eq!(end.said, "acme.g-a-1 ended stopped: its graph stops");
        let ended = record(r#"{"state":"done","owner":"anna","result":{"outcome":"clean","exit_code":0}}"#);
        assert!(conclude(said.clone(), &id, &ended).is_ok());
        assert_eq!(conclude(said, &id, &ended).said, "out of cake");
    }
}
