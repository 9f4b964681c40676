//! Following the keys of a bucket, or the messages of a subject.
//!
//! The server sends a message here after it has stored it. A plain subscription would hear it before that, and the next read
//! could still return the value before it.

use super::reading::{From, new_name, stored};
use super::{Client, FleetError, Stored, next};
use crate::names;
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;

/// How long the server keeps a follower whose connection is gone.
const INACTIVE: Duration = Duration::from_secs(10);
/// How often the server says that a follower without news is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a follower waits for a sign of life. In a cluster it lives on one server, which may stop while the connection to another
/// server stays.
const SILENCE: Duration = Duration::from_secs(35);
/// The pause after an attempt that failed.
const RETRY: Duration = Duration::from_millis(100);

/// Follows messages: first those that are stored, then new ones, in the order of the server.
pub struct Watch {
    client: Client,
    stream: String,
    filter: String,
    /// The part of the subjects before the keys of a bucket.
    prefix: String,
    from: From,
    connections: watch::Receiver<u64>,
    changes: Option<async_nats::Subscriber>,
    /// When the server last sent something.
    heard: tokio::time::Instant,
}

impl Client {
    /// Follows the keys of a bucket that match the filter (`>` for all): first their values, then every change. After a lost
    /// connection it repeats the values.
    pub fn watch(&self, bucket: &str, filter: &str) -> Watch {
        let (stream, filter) = (names::bucket_stream(bucket), names::key_subject(bucket, filter));
        self.follow(stream, filter, names::key_subject(bucket, ""), From::Last)
    }

    /// Follows all messages of a subject. After a lost connection it continues where it was.
    pub fn tail(&self, stream: &str, subject: &str) -> Watch {
        self.follow(stream.to_owned(), subject.to_owned(), String::new(), From::First)
    }

    fn follow(&self, stream: String, filter: String, prefix: String, from: From) -> Watch {
        let (client, connections) = (self.clone(), self.connections());
        let heard = tokio::time::Instant::now();
        Watch { client, stream, filter, prefix, from, connections, changes: None, heard }
    }
}

impl Watch {
    /// Waits for the next message. Dropping the future loses none.
    pub async fn next(&mut self) -> Stored {
        loop {
            let Some(changes) = &mut self.changes else {
                self.connections.mark_unchanged();
                match self.begin().await {
                    Ok(changes) => {
                        (self.changes, self.heard) = (Some(changes), tokio::time::Instant::now());
                    }
                    Err(_) => tokio::time::sleep(RETRY).await,
                }
                continue;
            };
            let message = tokio::select! {
                message = next(changes) => message,
                // The server may have forgotten the follower, and changes may be lost.
                _ = self.connections.changed() => None,
                () = tokio::time::sleep_until(self.heard + SILENCE) => None,
            };
            self.heard = tokio::time::Instant::now();
            let Some(message) = message else {
                self.changes = None;
                continue;
            };
            if let Some(mut stored) = stored(message) {
                if self.from != From::Last {
                    self.from = From::Sequence(stored.sequence + 1);
                }
                if let Some(key) = stored.subject.strip_prefix(&self.prefix) {
                    stored.subject = key.to_owned();
                }
                return stored;
            }
        }
    }

    async fn begin(&self) -> Result<async_nats::Subscriber, FleetError> {
        let (nats, name, inbox) = (&self.client.nats, new_name()?, self.client.nats.new_inbox());
        let changes = nats.subscribe(inbox.clone()).await;
        let changes = changes.map_err(|error| FleetError::BadAnswer(error.to_string()))?;
        let mut config = json!({
            "name": name, "deliver_subject": inbox, "ack_policy": "none", "filter_subject": self.filter,
            "mem_storage": true, "num_replicas": 1, "inactive_threshold": INACTIVE.as_nanos() as u64,
            "replay_policy": "instant", "idle_heartbeat": HEARTBEAT.as_nanos() as u64,
        });
        self.from.configure(&mut config);
        let create = json!({ "stream_name": self.stream, "config": config, "action": "create" });
        self.client.api(&format!("CONSUMER.CREATE.{}.{name}.{}", self.stream, self.filter), &create).await?;
        Ok(changes)
    }
}
