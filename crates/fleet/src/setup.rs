//! Creates the streams, buckets and consumers of a fleet. Doing it again changes nothing.

use crate::client::{Client, FleetError};
use crate::names::{self, Name};
use serde_json::{Value, json};
use std::time::Duration;

/// The stream exists with other settings.
const NAME_IN_USE: u64 = 10058;

/// How a fleet is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many servers keep each message: 1 or 3.
    pub replicas: u32,
    /// How long the server waits for a sign of life about a delivered job.
    pub ack_wait: Duration,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { replicas: 1, ack_wait: names::ACK_WAIT }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn bucket(name: &str, replicas: u32) -> Value {
    json!({
        "name": names::bucket_stream(name), "subjects": [names::key_subject(name, ">")], "retention": "limits",
        "storage": "file", "num_replicas": replicas, "max_msgs_per_subject": 1, "discard": "new", "max_msgs": -1, "max_bytes": -1,
        "max_consumers": -1, "max_age": 0, "max_msg_size": -1, "duplicate_window": 120_000_000_000_u64,
        "allow_rollup_hdrs": true, "deny_delete": true, "allow_direct": true,
    })
}

fn stream(name: &str, subjects: &[&str], replicas: u32) -> Value {
    json!({
        "name": name, "subjects": subjects, "retention": "limits", "storage": "file", "num_replicas": replicas,
        "discard": "old", "max_msgs": -1, "max_bytes": -1, "max_consumers": -1, "max_age": 0, "max_msg_size": -1,
        "max_msgs_per_subject": -1, "duplicate_window": nanos(names::DEDUPE), "allow_direct": true,
    })
}

/// Returns the settings of every stream, in the words of the server.
pub fn streams(setup: Setup) -> Vec<Value> {
    let replicas = setup.replicas;
    let mut jobs = stream(names::JOBS, &["dw.jobs.*.>", "dw.graphs.*.*", "dw.sched.*.*"], replicas);
    jobs["retention"] = "workqueue".into();
    jobs["allow_msg_schedules"] = true.into();
    let mut events = stream(names::EVENTS, &["dw.ev.*.*"], replicas);
    events["max_age"] = nanos(names::KEEP_EVENTS).into();
    events["compression"] = "s2".into();
    let mut cost = stream(names::COST, &["dw.cost.*.*"], replicas);
    cost["allow_msg_counter"] = true.into();
    let mut here = bucket(names::KV_HERE, replicas);
    here["max_age"] = nanos(names::PRESENCE).into();
    here["allow_msg_ttl"] = true.into();
    here["subject_delete_marker_ttl"] = nanos(names::PRESENCE).into();
    here["duplicate_window"] = nanos(names::PRESENCE).into();
    let chunks = format!("$O.{}.C.>", names::BLOBS);
    let meta = format!("$O.{}.M.>", names::BLOBS);
    let mut blobs = stream(&format!("OBJ_{}", names::BLOBS), &[&chunks, &meta], replicas);
    blobs["discard"] = "new".into();
    blobs["allow_rollup_hdrs"] = true.into();
    blobs["max_age"] = nanos(names::KEEP_EVENTS).into();
    let [jobs_kv, want, limits] =
        [names::KV_JOBS, names::KV_WANT, names::KV_LIMITS].map(|name| bucket(name, replicas));
    vec![jobs, events, cost, jobs_kv, want, limits, here, blobs]
}

/// Creates the streams and buckets.
pub async fn create(client: &Client, setup: Setup) -> Result<(), FleetError> {
    for config in streams(setup) {
        let name = config["name"].as_str().unwrap_or_default().to_owned();
        match client.api(&format!("STREAM.CREATE.{name}"), &config).await {
            Ok(_) => {}
            Err(error) if error.code() == Some(NAME_IN_USE) => {
                client.api(&format!("STREAM.UPDATE.{name}"), &config).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates the queues of an account, or changes how many of its jobs may run at once. Graphs whose nodes are jobs of their
/// own have another queue: they wait for their nodes, so they must not use up the cap.
pub async fn account(client: &Client, account: &Name, cap: i64, setup: Setup) -> Result<(), FleetError> {
    consumer(client, account.as_str(), &names::queue_of(account), cap, setup).await?;
    let graphs = names::graph_queue(account);
    consumer(client, &graphs, &names::graphs_of(account), names::MAX_GRAPHS, setup).await
}

async fn consumer(
    client: &Client,
    name: &str,
    filter: &str,
    cap: i64,
    setup: Setup,
) -> Result<(), FleetError> {
    let config = json!({
        "name": name, "durable_name": name, "filter_subject": filter, "ack_policy": "explicit",
        "ack_wait": nanos(setup.ack_wait), "max_deliver": -1, "max_ack_pending": cap, "max_waiting": names::MAX_WAITING,
        "deliver_policy": "all", "replay_policy": "instant", "num_replicas": setup.replicas,
    });
    let body = json!({ "stream_name": names::JOBS, "config": config });
    client.api(&format!("CONSUMER.CREATE.{}.{name}.{filter}", names::JOBS), &body).await.map(drop)
}
