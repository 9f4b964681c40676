//! The connection to the server, in our own types. JetStream is used through its JSON interface on plain requests.

mod delivery;
mod reading;
mod watching;

pub use delivery::{Delivery, IN_PROGRESS, Reply};
pub use reading::From;
pub use watching::Watch;

use crate::join::JoinLine;
use crate::names;
use async_nats::{ConnectErrorKind, ConnectOptions, Event, HeaderMap, RequestErrorKind};
use bytes::Bytes;
use futures_core::Stream;
use serde::Serialize;
use serde_json::Value;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The server holds another revision than the one that a write named.
const WRONG_LAST_SEQUENCE: u64 = 10071;
/// The server's message when it refuses a secret.
const VIOLATION: &str = "authorization violation";
/// The longest pause between two attempts to connect.
pub(crate) const MAX_RECONNECT: Duration = Duration::from_secs(2);

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// The server cannot be reached.
    #[error("cannot connect to {servers}: {why}")]
    Connect {
        /// The servers.
        servers: String,
        /// The error.
        why: String,
    },
    /// The server refuses the user and the secret of the join line.
    #[error("{servers} refuses the secret of `{user}` (authorization violation)")]
    Denied {
        /// The servers.
        servers: String,
        /// The user.
        user: String,
    },
    /// No answer came in time. The request may still take effect.
    #[error("no answer from the server")]
    NoAnswer,
    /// No process listens to the subject.
    #[error("no process answers this request")]
    NoResponders,
    /// The server holds another revision than the one that the write named.
    #[error("another process changed this first")]
    Conflict,
    /// The server refused the request.
    #[error("the server refused: {description} ({code})")]
    Refused {
        /// The server's number of the error.
        code: u64,
        /// The server's description.
        description: String,
    },
    /// The answer does not follow the protocol.
    #[error("cannot read the server's answer: {0}")]
    BadAnswer(String),
}

impl FleetError {
    /// Returns the number that the server gave the error.
    pub fn code(&self) -> Option<u64> {
        match self {
            FleetError::Refused { code, .. } => Some(*code),
            FleetError::Conflict => Some(WRONG_LAST_SEQUENCE),
            FleetError::Connect { .. }
            | FleetError::Denied { .. }
            | FleetError::NoAnswer
            | FleetError::NoResponders
            | FleetError::BadAnswer(_) => None,
        }
    }
}

/// Where the client reports what happens to the connection.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// A stored message.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its subject.
    pub subject: String,
    /// Its sequence number in the stream; for a key, its revision.
    pub sequence: u64,
    /// When the server stored it, in RFC 3339.
    pub time: String,
    /// What it contains.
    pub payload: Bytes,
    headers: HeaderMap,
}

impl Stored {
    /// Returns a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(async_nats::HeaderValue::as_str)
    }

    /// Returns whether this marks the removal of a key.
    pub fn is_removal(&self) -> bool {
        self.header("KV-Operation").is_some_and(|op| op != "PUT")
            || self.header("Nats-Marker-Reason").is_some()
    }
}

/// A connection to the server. Copies share it.
#[derive(Clone)]
pub struct Client {
    nats: async_nats::Client,
    connections: watch::Receiver<u64>,
    request: Duration,
    /// The subject of a request that every server answers and that changes nothing.
    echo: String,
}

/// Messages of one subject as they arrive.
pub struct Subscription(async_nats::Subscriber);

/// A message that arrived.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Its subject.
    pub subject: String,
    /// Where an answer is expected.
    pub reply: Option<String>,
    /// What it contains.
    pub payload: Bytes,
}

impl Subscription {
    /// Returns the next message, or nothing when the connection is closed for good.
    pub async fn next(&mut self) -> Option<Heard> {
        let message = next(&mut self.0).await?;
        Some(Heard {
            subject: message.subject.to_string(),
            reply: message.reply.map(|reply| reply.to_string()),
            payload: message.payload,
        })
    }
}

async fn next(subscriber: &mut async_nats::Subscriber) -> Option<async_nats::Message> {
    std::future::poll_fn(|cx| Pin::new(&mut *subscriber).poll_next(cx)).await
}

impl Client {
    /// Connects. With `patient` it returns at once and keeps trying in the background.
    pub async fn connect(join: &JoinLine, patient: bool, log: Log) -> Result<Client, FleetError> {
        let (count, connections) = watch::channel(0_u64);
        let (servers, last) = (join.servers.join(", "), Mutex::new(String::new()));
        let mut options = ConnectOptions::new()
            .name(format!("dogwatch {}", join.user))
            .ping_interval(names::PING)
            .connection_timeout(names::REQUEST)
            .custom_inbox_prefix(names::inbox_prefix(&join.user))
            .reconnect_delay_callback(|attempts| {
                let exponent = u32::try_from(attempts.min(8)).unwrap_or(8);
                Duration::from_millis(50 * 2_u64.pow(exponent)).min(MAX_RECONNECT)
            })
            .event_callback(move |event| {
                let log = log.clone();
                let again = matches!(event, Event::Connected);
                if again {
                    count.send_modify(|count| *count += 1);
                }
                let text = describe(&event, &servers);
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                // The client tries again and again, and each attempt fails for the same reason.
                let is_new = *last != text;
                last.clone_from(&text);
                drop(last);
                async move {
                    if is_new {
                        log(&text);
                    }
                }
            });
        if !join.secret.is_empty() {
            options = options.user_and_password(join.user.to_string(), join.secret.clone());
        }
        if let Some(ca) = &join.ca {
            options = options.require_tls(true).tls_client_config(tls(join, ca)?);
        }
        if patient {
            options = options.retry_on_initial_connect();
        }
        let servers: Vec<String> = join.servers.iter().map(|server| format!("nats://{server}")).collect();
        let nats = options.connect(servers).await.map_err(|error| connect_error(join, &error))?;
        // A user may read its own wish, whether there is one or not.
        let wish = names::key_subject(names::KV_WANT, &names::worker_key(&join.user));
        let echo = format!("$JS.API.DIRECT.GET.{}.{wish}", names::bucket_stream(names::KV_WANT));
        Ok(Client { nats, connections, request: names::REQUEST, echo })
    }

    /// Bounds requests by another time than the standard one.
    #[must_use]
    pub fn with_request_timeout(mut self, request: Duration) -> Client {
        self.request = request;
        self
    }

    /// Returns the version of the server, once connected.
    pub fn server_version(&self) -> Option<String> {
        self.nats.try_server_info().map(|info| info.version)
    }

    /// Returns whether the server is connected, as far as this side knows.
    pub fn is_connected(&self) -> bool {
        self.nats.connection_state() == async_nats::connection::State::Connected
    }

    /// Returns the number of connections that were made. When it changes, pulls have to be repeated.
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.connections.clone()
    }

    /// Sends everything that is buffered, and waits until it is written.
    pub async fn flush(&self) {
        // It fails only on a closed connection, which has nothing to send.
        let _ = tokio::time::timeout(self.request, self.nats.flush()).await;
    }

    /// Subscribes to a subject.
    pub async fn subscribe(&self, subject: &str) -> Result<Subscription, FleetError> {
        let subscriber = self.nats.subscribe(subject.to_owned()).await;
        subscriber.map(Subscription).map_err(|error| FleetError::BadAnswer(error.to_string()))
    }

    /// Sends a message and waits for its answer.
    pub async fn request(&self, subject: &str, payload: Vec<u8>) -> Result<Vec<u8>, FleetError> {
        let message = self.ask(subject, None, payload.into()).await?;
        Ok(message.payload.to_vec())
    }

    /// Sends a message without waiting for anything.
    pub async fn send(&self, subject: &str, payload: Vec<u8>) -> Result<(), FleetError> {
        let sent = self.nats.publish(subject.to_owned(), payload.into()).await;
        sent.map_err(|error| FleetError::BadAnswer(error.to_string()))
    }

    async fn ask(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<async_nats::Message, FleetError> {
        let mut request = async_nats::Request::new().payload(payload).timeout(Some(self.request));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        self.nats.send_request(subject.to_owned(), request).await.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => FleetError::NoResponders,
            RequestErrorKind::TimedOut | RequestErrorKind::Other => FleetError::NoAnswer,
            RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                FleetError::BadAnswer(error.to_string())
            }
        })
    }

    /// Calls the JetStream interface: `$JS.API.` and the subject.
    pub async fn api(&self, subject: &str, body: &impl Serialize) -> Result<Value, FleetError> {
        let body = serde_json::to_vec(body).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
        let answer = self.ask(&format!("$JS.API.{subject}"), None, body.into()).await?;
        read_answer(&answer.payload)
    }

    /// Stores a message and returns its sequence number. With `expected`, only if the last message of the subject has that
    /// sequence number (0: there is none).
    pub async fn publish(
        &self,
        subject: &str,
        headers: &[(&str, &str)],
        payload: Vec<u8>,
        expected: Option<u64>,
    ) -> Result<u64, FleetError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, *value);
        }
        if let Some(expected) = expected {
            map.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string().as_str());
        }
        let answer = self.ask(subject, Some(map), payload.into()).await?;
        let answer = read_answer(&answer.payload)?;
        answer["seq"].as_u64().ok_or_else(|| FleetError::BadAnswer(answer.to_string()))
    }

    /// Writes a key, if its revision is `expected`, and returns its new revision.
    pub async fn put(
        &self,
        bucket: &str,
        key: &str,
        value: &impl Serialize,
        expected: Option<u64>,
    ) -> Result<u64, FleetError> {
        let value = serde_json::to_vec(value).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
        self.publish(&names::key_subject(bucket, key), &[], value, expected).await
    }

    /// Removes a key.
    pub async fn remove(&self, bucket: &str, key: &str) -> Result<(), FleetError> {
        let subject = names::key_subject(bucket, key);
        self.publish(&subject, &[("KV-Operation", "DEL")], Vec::new(), None).await.map(drop)
    }

    /// Reads a key. The answer may be out of date.
    pub async fn get(&self, bucket: &str, key: &str) -> Result<Option<Stored>, FleetError> {
        self.last(&names::bucket_stream(bucket), &names::key_subject(bucket, key)).await
    }

    /// Reads the last message of a subject. The answer may be out of date.
    pub async fn last(&self, stream: &str, subject: &str) -> Result<Option<Stored>, FleetError> {
        let api = format!("$JS.API.DIRECT.GET.{stream}.{subject}");
        let message = self.ask(&api, None, Bytes::new()).await?;
        match message.status.map(|status| status.as_u16()) {
            Some(404) => return Ok(None),
            Some(code) if code >= 300 => {
                let description = message.description.unwrap_or_default();
                return Err(FleetError::Refused { code: u64::from(code), description });
            }
            Some(_) | None => {}
        }
        let headers = message.headers.unwrap_or_default();
        let field = |name: &str| headers.get(name).map(|value| value.as_str().to_owned()).unwrap_or_default();
        let sequence = field("Nats-Sequence").parse();
        let sequence = sequence.map_err(|_| FleetError::BadAnswer("no sequence number".to_owned()))?;
        let (subject, time) = (field("Nats-Subject"), field("Nats-Time-Stamp"));
        Ok(Some(Stored { subject, sequence, time, payload: message.payload, headers }))
    }
}

/// Returns what a JetStream answer holds, or the error that it reports.
fn read_answer(payload: &[u8]) -> Result<Value, FleetError> {
    let answer: Value =
        serde_json::from_slice(payload).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
    let Some(error) = answer.get("error") else { return Ok(answer) };
    match error["err_code"].as_u64().unwrap_or(0) {
        WRONG_LAST_SEQUENCE => Err(FleetError::Conflict),
        code => {
            let description = error["description"].as_str().unwrap_or_default().to_owned();
            Err(FleetError::Refused { code, description })
        }
    }
}

/// Describes what happened to the connection.
fn describe(event: &Event, servers: &str) -> String {
    let error = event.to_string();
    match event {
        Event::Connected => format!("connected to {servers}"),
        Event::Disconnected => format!("disconnected from {servers}; trying to connect again"),
        Event::ServerError(_) | Event::ClientError(_) if error.to_lowercase().contains(VIOLATION) => {
            format!("{servers} refuses the secret of this user: it may have been revoked; trying again")
        }
        Event::ServerError(_) | Event::ClientError(_) => format!("{servers}: {error}"),
        Event::LameDuckMode | Event::Draining | Event::Closed | Event::SlowConsumer(_) => error,
    }
}

fn connect_error(join: &JoinLine, error: &async_nats::ConnectError) -> FleetError {
    let servers = join.servers.join(", ");
    if error.kind() == ConnectErrorKind::AuthorizationViolation {
        return FleetError::Denied { servers, user: join.user.to_string() };
    }
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let text = cause.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        source = cause.source();
    }
    FleetError::Connect { servers, why }
}

/// Returns TLS settings that trust only the fleet's own authority.
fn tls(join: &JoinLine, ca: &[u8]) -> Result<rustls::ClientConfig, FleetError> {
    let wrong = |why: String| FleetError::Connect { servers: join.servers.join(", "), why };
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(rustls::pki_types::CertificateDer::from(ca.to_vec()))
        .map_err(|error| wrong(format!("the certificate of the join line is not valid: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
