//! Pulling jobs from the queue, and answering for them.

use super::{Client, FleetError, next};
use crate::names;
use bytes::Bytes;
use serde_json::json;
use std::time::Duration;

/// How much longer than the server the client waits for the end of a pull.
const SLACK: Duration = Duration::from_secs(2);

/// The pause after a pull that the queue refused.
const REFUSED: Duration = Duration::from_millis(500);

/// The answer that a job is still in progress.
pub const IN_PROGRESS: &str = "+WPI";

/// A job that the queue delivered. Dropping it answers nothing: the queue delivers it again later.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The subject of the message.
    pub subject: String,
    /// Its sequence number in the stream.
    pub sequence: u64,
    /// How often it was delivered, with this one.
    pub delivered: u64,
    /// What it contains.
    pub payload: Bytes,
    reply: String,
}

/// An answer to a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The job is over: remove the message.
    Ack,
    /// Deliver it again, at once or after a delay.
    Nak(Option<Duration>),
    /// Still working on it.
    InProgress,
    /// Remove the message for this reason.
    Term(String),
}

impl Reply {
    fn payload(&self) -> String {
        match self {
            Reply::Ack => "+ACK".to_owned(),
            Reply::Nak(None) => "-NAK".to_owned(),
            Reply::Nak(Some(delay)) => format!("-NAK {{\"delay\":{}}}", delay.as_nanos()),
            Reply::InProgress => IN_PROGRESS.to_owned(),
            Reply::Term(reason) => format!("+TERM {reason}"),
        }
    }
}

impl Client {
    /// Asks a queue for one job and waits at most `expires` for it. Returns early without one after a reconnect,
    /// because the server forgets requests of a closed connection.
    pub async fn pull(&self, queue: &str, expires: Duration) -> Result<Option<Delivery>, FleetError> {
        let mut connections = self.connections.clone();
        connections.mark_unchanged();
        let inbox = self.nats.new_inbox();
        let broken = |error: &dyn std::error::Error| FleetError::BadAnswer(error.to_string());
        let mut answers = self.nats.subscribe(inbox.clone()).await.map_err(|error| broken(&error))?;
        let body = json!({ "batch": 1, "expires": u64::try_from(expires.as_nanos()).unwrap_or(u64::MAX) });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{queue}", names::JOBS);
        let body = Bytes::from(body.to_string());
        let sent = self.nats.publish_with_reply(subject, inbox, body).await;
        sent.map_err(|error| broken(&error))?;
        let answer = tokio::select! {
            answer = tokio::time::timeout(expires + SLACK, next(&mut answers)) => answer,
            // The channel lives as long as the client.
            _ = connections.changed() => return Ok(None),
        };
        let Ok(Some(message)) = answer else { return Ok(None) };
        match message.status.map(|status| status.as_u16()) {
            None => {}
            // Nothing came in time.
            Some(404 | 408) => return Ok(None),
            // Too many pulls are open, or the queue has a new leader.
            Some(409) => {
                tokio::time::sleep(REFUSED).await;
                return Ok(None);
            }
            Some(503) => return Err(FleetError::NoResponders),
            Some(code) => {
                let description = message.description.unwrap_or_default();
                return Err(FleetError::Refused { code: u64::from(code), description });
            }
        }
        let reply = message.reply.map(|reply| reply.to_string()).unwrap_or_default();
        let (delivered, sequence) =
            parse_reply(&reply).ok_or_else(|| FleetError::BadAnswer(reply.clone()))?;
        let (subject, payload) = (message.subject.to_string(), message.payload);
        Ok(Some(Delivery { subject, sequence, delivered, payload, reply }))
    }

    /// Answers for a delivery without waiting.
    pub async fn reply(&self, delivery: &Delivery, reply: &Reply) -> Result<(), FleetError> {
        self.send(&delivery.reply, reply.payload().into_bytes()).await
    }

    /// Answers for a delivery and waits until the server has taken the answer.
    pub async fn reply_surely(&self, delivery: &Delivery, reply: &Reply) -> Result<(), FleetError> {
        self.request(&delivery.reply, reply.payload().into_bytes()).await.map(drop)
    }
}

/// Returns how often the message was delivered and its sequence number in the stream.
fn parse_reply(reply: &str) -> Option<(u64, u64)> {
    let tokens: Vec<&str> = reply.split('.').collect();
    // A newer form has the domain and a hash of the server's account before the name of the stream.
    let first = match tokens.len() {
        9 => 4,
        11.. => 6,
        _ => return None,
    };
    (tokens.starts_with(&["$JS", "ACK"])).then_some(())?;
    Some((tokens.get(first)?.parse().ok()?, tokens.get(first + 1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_reply_subject_are_read() {
        assert_eq!(parse_reply("$JS.ACK.DW_JOBS.acme.2.17.5.1700000000.3"), Some((2, 17)));
        assert_eq!(parse_reply("$JS.ACK._.hash.DW_JOBS.acme.2.17.5.1700000000.3"), Some((2, 17)));
        assert_eq!(parse_reply("$JS.ACK._.hash.DW_JOBS.acme.2.17.5.1700000000.3.rnd"), Some((2, 17)));
        for bad in ["", "a.b.c.d.2.17.5.6.7", "$JS.ACK.x"] {
            assert_eq!(parse_reply(bad), None, "{bad}");
        }
    }
}
