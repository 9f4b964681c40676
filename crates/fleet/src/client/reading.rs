//! Reading many messages of a stream at once.

use super::{Client, FleetError, Stored, next};
use crate::names;
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// How many messages one request asks for.
const BATCH: u64 = 256;
/// How long the server keeps a reader that asks for nothing.
const INACTIVE: Duration = Duration::from_secs(10);

/// Which messages of a subject to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// All of them.
    First,
    /// The last one of each subject.
    Last,
    /// Those from this sequence number on.
    Sequence(u64),
}

impl From {
    /// Writes where to begin into the settings of a consumer.
    pub(super) fn configure(self, config: &mut Value) {
        config["deliver_policy"] = match self {
            From::First => "all",
            From::Last => "last_per_subject",
            From::Sequence(_) => "by_start_sequence",
        }
        .into();
        if let From::Sequence(sequence) = self {
            config["opt_start_seq"] = sequence.into();
        }
    }
}

impl Client {
    /// Reads the stored messages of a subject, which may contain wildcards, in their order.
    pub async fn read(&self, stream: &str, filter: &str, from: From) -> Result<Vec<Stored>, FleetError> {
        let name = new_name()?;
        let mut config = json!({
            "name": name, "ack_policy": "none", "filter_subject": filter, "mem_storage": true, "num_replicas": 1,
            "inactive_threshold": INACTIVE.as_nanos() as u64, "replay_policy": "instant",
        });
        from.configure(&mut config);
        let create = json!({ "stream_name": stream, "config": config, "action": "create" });
        let info = self.api(&format!("CONSUMER.CREATE.{stream}.{name}.{filter}"), &create).await?;
        let mut left = info["num_pending"].as_u64().unwrap_or(0);
        let mut all = Vec::new();
        while left > 0 {
            let batch = left.min(BATCH);
            let part = self.next_batch(stream, &name, batch).await?;
            if part.is_empty() {
                return Err(FleetError::NoAnswer);
            }
            left = left.saturating_sub(part.len() as u64);
            all.extend(part);
        }
        Ok(all)
    }

    /// Reads all keys of a bucket that match the filter (`>` for all), without the removed ones.
    pub async fn keys(&self, bucket: &str, filter: &str) -> Result<Vec<Stored>, FleetError> {
        let subject = names::key_subject(bucket, filter);
        let mut all = self.read(&names::bucket_stream(bucket), &subject, From::Last).await?;
        let prefix = names::key_subject(bucket, "");
        all.retain(|stored| !stored.is_removal());
        for stored in &mut all {
            stored.subject = stored.subject.trim_start_matches(&prefix).to_owned();
        }
        Ok(all)
    }

    async fn next_batch(&self, stream: &str, name: &str, batch: u64) -> Result<Vec<Stored>, FleetError> {
        let inbox = self.nats.new_inbox();
        let broken = |error: &dyn std::error::Error| FleetError::BadAnswer(error.to_string());
        let mut answers = self.nats.subscribe(inbox.clone()).await.map_err(|error| broken(&error))?;
        let body =
            json!({ "batch": batch, "expires": u64::try_from(self.request.as_nanos()).unwrap_or(u64::MAX) });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
        let sent = self.nats.publish_with_reply(subject, inbox, Bytes::from(body.to_string())).await;
        sent.map_err(|error| broken(&error))?;
        let mut part = Vec::new();
        while (part.len() as u64) < batch {
            let answer = tokio::time::timeout(self.request, next(&mut answers)).await;
            let Ok(Some(message)) = answer else { break };
            if message.status.is_some() {
                break;
            }
            let Some(message) = stored(message) else { break };
            part.push(message);
        }
        Ok(part)
    }
}

/// Returns a random name for a reader.
pub(super) fn new_name() -> Result<String, FleetError> {
    let mut name = [0; 16];
    getrandom::fill(&mut name).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
    Ok(name.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads a delivered message. Its reply subject holds its sequence number and time.
pub(super) fn stored(message: async_nats::Message) -> Option<Stored> {
    let reply = message.reply.as_ref().map(ToString::to_string).unwrap_or_default();
    let tokens: Vec<&str> = reply.split('.').collect();
    let first = if tokens.len() == 9 { 5 } else { 7 };
    let number = |at: usize| tokens.get(at).and_then(|token| token.parse::<u64>().ok());
    let (sequence, nanos) = number(first).zip(number(first + 2))?;
    Some(Stored {
        subject: message.subject.to_string(),
        sequence,
        time: time_text(nanos),
        payload: message.payload,
        headers: message.headers.unwrap_or_default(),
    })
}

/// Returns nanoseconds since the Unix epoch as RFC 3339.
fn time_text(nanos: u64) -> String {
    dogwatch_core::time::moment::Wall(i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)).to_string()
}
