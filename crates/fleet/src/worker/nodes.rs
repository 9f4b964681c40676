//! Nodes as jobs of their own, from the side of the worker that runs one.
//!
//! Another worker queued the node, and a worker is not trusted to queue anything else. So the message names only the node, its
//! graph, the prompt and the commit. Repository, path, arguments and settings come from the
//! message of the graph, which only the operator can write, and which is in the queue as long as the graph is not over.

use super::Worker;
use crate::client::{Client, Delivery, FleetError};
use crate::names::{self, JobId, Name};
use crate::record::{Job, JobRecord, JobResult, JobState, NodeJob};
use dogwatch_core::lease::spread::{MAX_AGAIN, STOPPED};
use std::time::Duration;

/// The pause after a request that failed.
const RETRY: Duration = Duration::from_secs(1);
/// How long a worker tries to end a node. A node whose worker has died is taken over within 90 s.
pub const MAX_ENDING: Duration = Duration::from_secs(180);
/// The most of a graph's name in the name of a node's job, in bytes.
const MAX_GRAPH_PART: usize = 26;
/// The most of a node's name in the name of its job, in bytes.
const MAX_NODE_PART: usize = 16;

/// Why a message does not lead to a job.
pub(super) enum Unread {
    /// It cannot be read, now or later.
    Never(String),
    /// Its graph is over, so no run waits for the node.
    Over(JobId),
    /// The server does not answer.
    Later,
}

/// Returns the name of the job for a session of a node. Every holder of the graph finds the same name for the same attempt.
pub(super) fn job_name(graph: &Name, node: &str, attempt: u64, again: u32) -> Option<Name> {
    let clean = |text: &str, most: usize| -> String {
        let keep = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        text.chars().map(keep).take(most).collect()
    };
    let whole = format!("{graph}\n{node}\n{attempt}\n{again}");
    let hash = names::short_hash(&whole);
    let (graph, node) = (clean(graph.as_str(), MAX_GRAPH_PART), clean(node, MAX_NODE_PART));
    format!("{graph}-{node}-{attempt}-{:08x}", hash >> 32).parse().ok()
}

/// Returns whether a job is a session of one of these nodes.
pub(super) fn is_node_of<'a>(job: &str, graph: &Name, mut nodes: impl Iterator<Item = &'a str>) -> bool {
    let attempt = job.rsplit('-').nth(1).and_then(|attempt| attempt.parse().ok());
    attempt.is_some_and(|attempt| {
        nodes.any(|node| {
            let names = (0..MAX_AGAIN).filter_map(|again| job_name(graph, node, attempt, again));
            names.into_iter().any(|name| name.as_str() == job)
        })
    })
}

/// Returns the id of the node that a message in the queue is about, if it is about one.
pub(super) fn node_of(subject: &str) -> Option<JobId> {
    let mut words = subject.strip_prefix("dw.jobs.")?.split('.');
    match [words.next(), words.next(), words.next(), words.next()] {
        [Some(account), Some("node"), Some(job), None] => {
            Some(JobId { account: account.parse().ok()?, job: job.parse().ok()? })
        }
        _ => None,
    }
}

/// Returns the job of a node: the job of its graph, with what the message says about the node.
pub(super) async fn read(client: &Client, id: JobId, delivery: &Delivery) -> Result<(JobId, Job), Unread> {
    let node = NodeJob::read(&delivery.payload).map_err(Unread::Never)?;
    let graph = JobId { account: id.account.clone(), job: node.graph.clone() };
    let job = match graph_job(client, &graph).await {
        Ok(Some(job)) => job,
        Ok(None) => return Err(Unread::Over(id)),
        Err(_) => return Err(Unread::Later),
    };
    if job.account != id.account {
        return Err(Unread::Never("its graph is of another account".to_owned()));
    }
    let commit = node.commit.clone();
    Ok((id, Job { commit, spread: false, iterations: None, node: Some(node), ..job }))
}

/// Reads the job of a graph that is not over.
async fn graph_job(client: &Client, graph: &JobId) -> Result<Option<Job>, FleetError> {
    let stored = client.last(names::JOBS, &graph.graph_subject()).await?;
    stored
        .map(|stored| serde_json::from_slice(&stored.payload))
        .transpose()
        .map_err(|error| FleetError::BadAnswer(error.to_string()))
}

/// Waits until a node has to end: its session was ended on the worker of the graph, or the graph is over. Returns why.
pub(super) async fn ended(worker: &Worker, id: &JobId, node: &NodeJob) -> &'static str {
    let graph = JobId { account: id.account.clone(), job: node.graph.clone() };
    let mut graph = worker.client.watch(names::KV_JOBS, &graph.to_string());
    let mut orders = worker.client.subscribe(&id.end_subject()).await.ok();
    loop {
        let order = async {
            match &mut orders {
                Some(orders) => orders.next().await.is_some(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ordered = order => match ordered {
                true => return "its session was ended",
                // The connection is closed for good; the graph decides.
                false => orders = None,
            },
            stored = graph.next() => {
                let record = serde_json::from_slice::<JobRecord>(&stored.payload);
                if stored.is_removal() || record.is_ok_and(|record| record.state.is_over()) {
                    return "its graph is over";
                }
            }
        }
    }
}

/// Returns the result of a node that was ended.
pub(super) fn stopped(why: &str) -> JobResult {
    JobResult { outcome: STOPPED.to_owned(), detail: Some(why.to_owned()), ..JobResult::default() }
}

/// Reads the record of a job and its revision.
pub(super) async fn record(client: &Client, id: &JobId) -> Result<Option<(u64, JobRecord)>, FleetError> {
    let stored = client.get(names::KV_JOBS, &id.to_string()).await?;
    let Some(stored) = stored.filter(|stored| !stored.is_removal()) else { return Ok(None) };
    let record =
        serde_json::from_slice(&stored.payload).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
    Ok(Some((stored.sequence, record)))
}

/// Ends a node that no worker runs. Returns whether it is over now.
pub(super) async fn cancel(
    client: &Client,
    id: &JobId,
    (revision, record): (u64, JobRecord),
    why: &str,
) -> bool {
    match record.state {
        JobState::Done | JobState::Poisoned => true,
        JobState::Running => false,
        // No worker owns it. A claim at the same moment changes the revision, and then this write is refused.
        JobState::Queued | JobState::Released => {
            let over = JobRecord { state: JobState::Done, result: Some(stopped(why)), ..record };
            client.put(names::KV_JOBS, &id.to_string(), &over, Some(revision)).await.is_ok()
        }
    }
}

/// Ends a node, whoever runs it, within [`MAX_ENDING`]. The worker of the node may miss the order, for example because it is
/// just starting. It writes the record when the run has a name and whenever it renews its lease, and then it gets the order
/// again.
pub(super) async fn end(client: &Client, id: &JobId, why: &str) {
    let work = async {
        let mut records = client.watch(names::KV_JOBS, &id.to_string());
        loop {
            let stored = records.next().await;
            if stored.is_removal() {
                return;
            }
            let Ok(record) = serde_json::from_slice::<JobRecord>(&stored.payload) else { return };
            if record.state == JobState::Running {
                let _ = client.send(&id.end_subject(), why.as_bytes().to_vec()).await;
            } else if cancel(client, id, (stored.sequence, record), why).await {
                return;
            } else {
                // A claim was faster, or the server did not answer. The new watch begins with the record as it is now.
                tokio::time::sleep(RETRY).await;
                records = client.watch(names::KV_JOBS, &id.to_string());
            }
        }
    };
    let _ = tokio::time::timeout(MAX_ENDING, work).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_nodes_job_is_the_same_for_the_same_attempt_and_another_for_any_other() {
        let graph: Name = "nightly-3fa2c1".parse().expect("a name");
        let name = |node: &str, attempt, again| job_name(&graph, node, attempt, again).expect("a name");
        assert_eq!(name("api: v1", 1, 0), name("api: v1", 1, 0));
        assert!(name("api: v1", 1, 0).as_str().starts_with("nightly-3fa2c1-api--v1-1-"));
        let all = [name("api", 1, 0), name("api", 1, 1), name("api", 2, 0), name("API", 1, 0)];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{one}");
        }
        for job in &all {
            assert!(is_node_of(job.as_str(), &graph, ["db", "api", "API"].into_iter()), "{job}");
            assert!(!is_node_of(job.as_str(), &graph, ["db"].into_iter()), "{job}");
        }
        assert!(!is_node_of("nightly-3fa2c1", &graph, ["api"].into_iter()));
        let long: Name = "x".repeat(names::MAX_NAME).parse().expect("a name");
        assert!(job_name(&long, &"ü".repeat(300), u64::from(u32::MAX), 0).is_some());
    }

    #[test]
    fn only_the_subject_of_a_node_names_a_node() {
        let id = JobId { account: "acme".parse().expect("a name"), job: "g-a-1".parse().expect("a name") };
        assert_eq!(node_of(&id.node_subject()), Some(id.clone()));
        for other in [id.queue_subject(), id.graph_subject(), format!("{}.x", id.node_subject())] {
            assert_eq!(node_of(&other), None, "{other}");
        }
    }
}
