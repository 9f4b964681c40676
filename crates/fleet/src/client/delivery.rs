//! Pulling jobs from the queue, and answering for them.

use super::{Client, FleetError, next};
use crate::names;
use bytes::Bytes;
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;

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

/// An open pull. Its subscription takes one message: a job, or the reason why there is none.
struct Pull<'a> {
    client: &'a Client,
    connections: watch::Receiver<u64>,
    inbox: String,
    answers: async_nats::Subscriber,
}

impl Pull<'_> {
    async fn open<'a>(client: &'a Client, queue: &str, expires: Duration) -> Result<Pull<'a>, FleetError> {
        let broken = |error: &dyn std::error::Error| FleetError::BadAnswer(error.to_string());
        let mut connections = client.connections();
        connections.mark_unchanged();
        let inbox = client.nats.new_inbox();
        let mut answers = client.nats.subscribe(inbox.clone()).await.map_err(|error| broken(&error))?;
        answers.unsubscribe_after(1).await.map_err(|error| broken(&error))?;
        let body = json!({ "batch": 1, "expires": u64::try_from(expires.as_nanos()).unwrap_or(u64::MAX) });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{queue}", names::JOBS);
        let body = Bytes::from(body.to_string());
        let sent = client.nats.publish_with_reply(subject, inbox.clone(), body).await;
        sent.map_err(|error| broken(&error))?;
        Ok(Pull { client, connections, inbox, answers })
    }

    /// Ends the pull. A job may be on its way, and a closed subscription would lose it: the queue would wait for an answer about
    /// it until its time is over. So this sends a request whose answer goes to the same subscription, which takes one
    /// message. Either the job is that message and is returned here, or the server finds no subscriber for the job and
    /// offers it to another pull at once.
    async fn close(&mut self) -> Option<async_nats::Message> {
        loop {
            self.connections.mark_unchanged();
            let (subject, inbox) = (self.client.echo.clone(), self.inbox.clone());
            self.client.nats.publish_with_reply(subject, inbox, Bytes::new()).await.ok()?;
            tokio::select! {
                message = next(&mut self.answers) => return message,
                // The request may be lost with the connection. The channel lives as long as the client.
                _ = self.connections.changed() => {}
            }
        }
    }
}

impl Client {
    /// Asks a queue for one job and waits for it, at most `expires` and not after `stop`. Returns early without one after a
    /// reconnect, because the server forgets requests of a closed connection. A job that arrives at the same moment is
    /// returned. The caller must not drop the future, because it could drop a job with it.
    pub async fn pull(
        &self,
        queue: &str,
        expires: Duration,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<Delivery>, FleetError> {
        let mut pull = Pull::open(self, queue, expires).await?;
        let answer = tokio::select! {
            answer = tokio::time::timeout(expires + SLACK, next(&mut pull.answers)) => answer.ok(),
            _ = pull.connections.changed() => None,
            () = stop => None,
        };
        let message = match answer {
            Some(message) => message,
            // The answer to the request that ends the pull has no reply subject.
            None => pull.close().await.filter(|message| message.reply.is_some()),
        };
        let Some(message) = message else { return Ok(None) };
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

    /// Gives a delivery back that no work was done for.
    pub async fn give_back(&self, delivery: &Delivery, delay: Option<Duration>) {
        // If the answer is lost, the queue delivers the job again when its time is over.
        let _ = self.reply_surely(delivery, &Reply::Nak(delay)).await;
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
