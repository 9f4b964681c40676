//! Following the keys of a bucket.

use super::reading::{new_name, stored};
use super::{Client, FleetError, Stored, next};
use crate::names;
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;

/// How long the server keeps a follower whose connection is gone.
const INACTIVE: Duration = Duration::from_secs(10);
/// The pause after an attempt that failed.
const RETRY: Duration = Duration::from_millis(100);

/// Follows the keys of a bucket: first their values, then every change, in the order of the server.
pub struct Watch {
    client: Client,
    bucket: String,
    filter: String,
    connections: watch::Receiver<u64>,
    changes: Option<async_nats::Subscriber>,
}

impl Client {
    /// Follows the keys of a bucket that match the filter (`>` for all).
    pub fn watch(&self, bucket: &str, filter: &str) -> Watch {
        let (bucket, filter) = (bucket.to_owned(), filter.to_owned());
        Watch { client: self.clone(), bucket, filter, connections: self.connections(), changes: None }
    }
}

impl Watch {
    /// Waits for the next value of a key. After a lost connection it repeats the values of all keys.
    pub async fn next(&mut self) -> Stored {
        loop {
            let Some(changes) = &mut self.changes else {
                self.connections.mark_unchanged();
                match self.begin().await {
                    Ok(changes) => self.changes = Some(changes),
                    Err(_) => tokio::time::sleep(RETRY).await,
                }
                continue;
            };
            let message = tokio::select! {
                message = next(changes) => message,
                // The server may have forgotten the follower, and changes may be lost.
                _ = self.connections.changed() => None,
            };
            let Some(message) = message else {
                self.changes = None;
                continue;
            };
            if let Some(mut stored) = stored(message) {
                let prefix = names::key_subject(&self.bucket, "");
                stored.subject = stored.subject.trim_start_matches(&prefix).to_owned();
                return stored;
            }
        }
    }

    async fn begin(&self) -> Result<async_nats::Subscriber, FleetError> {
        let (nats, name) = (&self.client.nats, new_name()?);
        let (inbox, stream) = (nats.new_inbox(), names::bucket_stream(&self.bucket));
        let filter = names::key_subject(&self.bucket, &self.filter);
        let changes = nats.subscribe(inbox.clone()).await;
        let changes = changes.map_err(|error| FleetError::BadAnswer(error.to_string()))?;
        let config = json!({
            "name": name, "deliver_subject": inbox, "ack_policy": "none", "filter_subject": filter, "mem_storage": true,
            "num_replicas": 1, "inactive_threshold": INACTIVE.as_nanos() as u64, "deliver_policy": "last_per_subject",
            "replay_policy": "instant",
        });
        let create = json!({ "stream_name": stream, "config": config, "action": "create" });
        self.client.api(&format!("CONSUMER.CREATE.{stream}.{name}.{filter}"), &create).await?;
        Ok(changes)
    }
}
