//! A server behind a URL, over streamable HTTP, with limits on time and memory.
//!
//! ```text
//! connect.rs  connection pool, with TLS for https    events.rs  event streams
//! ```
//!
//! Redirects are not followed, because the headers are only for the configured server. No stream is kept open
//! for unsolicited messages of the server, because they would be ignored.

mod connect;
mod events;

use crate::bound::{TimeoutError, seconds, within};
use crate::child::BoundedTail;
use crate::limits::{MAX_ANSWERED, START_LIMIT, WRITE_LIMIT};
use crate::rpc::client::{INITIALIZE, INITIALIZED, Inbox, initialize_params};
use crate::rpc::message::{Id, Message, Object, Request as RpcRequest, Response as RpcResponse};
use bytes::Bytes;
use connect::Pool;
use dogwatch_core::settings::McpServer;
use dogwatch_core::text::address::{Address, fill};
use dogwatch_core::text::redact;
use dogwatch_core::text::{clip, one_line};
use events::Events;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How much of the body of an error response is read, in bytes.
const MAX_REFUSAL: usize = 4 * 1024;
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// How long to read the rest of an event stream after its response, so that the connection can be used again.
const REST_LIMIT: Duration = Duration::from_millis(50);
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// A network or protocol error, as a message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteError(pub String);

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RemoteError {}

impl From<TimeoutError> for RemoteError {
    fn from(late: TimeoutError) -> RemoteError {
        RemoteError(late.to_string())
    }
}

/// The client for one server.
pub struct Remote {
    pool: Pool,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// How long a complete response may take.
    longest: Duration,
    /// The latest errors, for the message about a lost server.
    errors: BoundedTail,
    session: Mutex<Session>,
    /// Held while a session that the server has forgotten is replaced.
    replacing: tokio::sync::Mutex<()>,
}

/// What the server said in its response to `initialize`.
#[derive(Clone, Default)]
struct Session {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// Counts the sessions.
    number: u64,
}

/// Why a request has no response.
enum PostError {
    /// The server has forgotten the session.
    Forgotten,
    Failed(RemoteError),
}

impl<E: Into<RemoteError>> From<E> for PostError {
    fn from(error: E) -> PostError {
        PostError::Failed(error.into())
    }
}

/// A successful response.
enum Answer {
    Accepted,
    Whole(Message),
    Events(Events<Incoming>),
}

/// Creates the client for a server. Nothing is sent yet.
pub fn client(plan: &McpServer, url: &str, errors: BoundedTail) -> Result<Remote, String> {
    let variable = |name: &str| std::env::var(name).ok();
    let url = fill(url, variable).map_err(|bad| bad.to_string())?;
    let address = Address::parse(&url).map_err(|bad| bad.to_string())?;
    let mut headers = Vec::new();
    for (name, value) in &plan.headers {
        let value = fill(value, variable).map_err(|bad| format!("header `{name}`: {bad}"))?;
        let name = HeaderName::try_from(name).map_err(|_| format!("`{name}` is not a valid header name"))?;
        let value = HeaderValue::try_from(value.trim())
            .map_err(|_| format!("header `{name}`: the value contains invalid characters"))?;
        headers.push((name, value));
    }
    let calls =
        plan.tools.iter().map(|(_, limit)| *limit).fold(plan.timeout, dogwatch_core::time::dur::Dur::max);
    let longest = crate::serve::duration(calls).max(START_LIMIT).saturating_add(2 * WRITE_LIMIT);
    let shown = redact::url(&url);
    let pool = Pool::new(address).map_err(|error| format!("{shown}: {error}"))?;
    Ok(Remote {
        pool,
        headers,
        longest,
        errors,
        session: Mutex::default(),
        replacing: tokio::sync::Mutex::default(),
    })
}

impl Remote {
    /// Begins a session.
    pub async fn initialize(&self) -> Result<(), RemoteError> {
        let begun = within(2 * self.longest, self.begin()).await;
        self.remember(begun.unwrap_or_else(|late| Err(late.into())))
    }

    async fn begin(&self) -> Result<(), RemoteError> {
        let (method, params) = (INITIALIZE.to_owned(), initialize_params());
        let request = Message::Request(RpcRequest { id: Id::Number(0), method, params });
        let posted = within(self.longest, self.post(&request, &Session::default())).await?;
        let (answer, id) = posted.map_err(|error| error.into_remote("the server has no session"))?;
        let response = within(self.longest, first_response(answer)).await??;
        let version = response.get("protocolVersion").and_then(Value::as_str);
        let version = version.and_then(|version| HeaderValue::try_from(version).ok());
        let version = version.ok_or_else(|| RemoteError("answered without a protocol version".to_owned()))?;
        {
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            *session = Session { id, version: Some(version), number: session.number + 1 };
        }
        let initialized = Message::notification(INITIALIZED, Object::new());
        within(self.longest, self.notify(initialized)).await?
    }

    /// Sends a request, and gives every message of the response to the inbox. Begins a new session if the server has
    /// forgotten the present one.
    pub async fn exchange(&self, id: i64, request: Message, inbox: &Inbox) {
        let exchanged = within(4 * self.longest, self.try_exchange(id, &request, inbox)).await;
        let _ = self.remember(exchanged.unwrap_or_else(|late| Err(late.into())));
    }

    async fn try_exchange(&self, id: i64, request: &Message, inbox: &Inbox) -> Result<(), RemoteError> {
        let session = self.session();
        let mut posted = within(self.longest, self.post(request, &session)).await?;
        if matches!(posted, Err(PostError::Forgotten)) {
            within(2 * self.longest, self.replace(session.number)).await??;
            posted = within(self.longest, self.post(request, &self.session())).await?;
        }
        let (answer, _) = posted.map_err(|error| error.into_remote("the server forgot its new session"))?;
        match answer {
            Answer::Accepted => Err(RemoteError("answered a request without a response".to_owned())),
            Answer::Whole(message) => {
                inbox.receive(message);
                Ok(())
            }
            Answer::Events(events) => within(self.longest, self.relay(id, events, inbox)).await?,
        }
    }

    /// Gives the messages of an event stream to the inbox until the response has come.
    async fn relay(&self, id: i64, mut events: Events<Incoming>, inbox: &Inbox) -> Result<(), RemoteError> {
        while let Some(message) = within(self.longest, events.next_message()).await?? {
            if let Some(answer) = inbox.receive(message) {
                let _ = within(WRITE_LIMIT, self.notify(answer)).await;
            }
            if !inbox.is_open(id) {
                let rest =
                    async { while let Ok(Ok(Some(_))) = within(REST_LIMIT, events.next_message()).await {} };
                let _ = within(REST_LIMIT, rest).await;
                return Ok(());
            }
        }
        Err(RemoteError("the event stream ended before the response".to_owned()))
    }

    /// Replaces the session with this number, unless another request has done so.
    async fn replace(&self, number: u64) -> Result<(), RemoteError> {
        let _one = within(self.longest, self.replacing.lock()).await?;
        if self.session().number != number {
            return Ok(());
        }
        within(2 * self.longest, self.begin()).await?
    }

    /// Sends a message that has no response. A forgotten session is not an error here.
    pub async fn notify(&self, message: Message) -> Result<(), RemoteError> {
        match within(self.longest, self.post(&message, &self.session())).await? {
            Ok(_) | Err(PostError::Forgotten) => Ok(()),
            Err(PostError::Failed(error)) => Err(error),
        }
    }

    /// Ends the session.
    pub async fn end_session(&self) {
        let session = self.session();
        if session.id.is_some()
            && let Ok(request) = self.request(Method::DELETE, &session)
        {
            // Ignore the response: the session is over either way.
            let _ = within(WRITE_LIMIT, self.pool.send(request, WRITE_LIMIT)).await;
        }
    }

    fn session(&self) -> Session {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Posts a message. Returns the response and the session that it names.
    async fn post(
        &self,
        message: &Message,
        session: &Session,
    ) -> Result<(Answer, Option<HeaderValue>), PostError> {
        let mut request = self.request(Method::POST, session)?;
        *request.body_mut() = Full::new(Bytes::from(message.to_json()));
        let answer = within(self.longest, self.pool.send(request, self.longest)).await??;
        let (head, body) = answer.into_parts();
        let status = head.status;
        if status == StatusCode::NOT_FOUND && session.id.is_some() {
            return Err(PostError::Forgotten);
        }
        if !status.is_success() {
            return Err(within(WRITE_LIMIT, refusal(status, body))
                .await
                .unwrap_or_else(RemoteError::from)
                .into());
        }
        let is_request = matches!(message, Message::Request(_));
        if !is_request || matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok((Answer::Accepted, None));
        }
        let id = head.headers.get(SESSION).cloned();
        match kind(&head.headers) {
            EVENT_STREAM => Ok((Answer::Events(Events::new(body, self.longest)), id)),
            JSON => {
                let whole = within(self.longest, self.whole(body)).await??;
                Ok((Answer::Whole(whole), id))
            }
            other => {
                let other = clip(other, 100);
                Err(RemoteError(format!("answered with `{other}`, which is not MCP")).into())
            }
        }
    }

    /// Reads a response that is a single message.
    async fn whole(&self, body: Incoming) -> Result<Message, RemoteError> {
        let body = within(self.longest, Limited::new(body, MAX_ANSWERED).collect()).await?;
        let body = body.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
            true => RemoteError(format!("a message has at most {MAX_ANSWERED} bytes")),
            false => RemoteError(format!("the response is incomplete: {error}")),
        })?;
        Message::parse(&body.to_bytes())
            .map_err(|error| RemoteError(format!("invalid message in the response: {error}")))
    }

    fn request(&self, method: Method, session: &Session) -> Result<Request<Full<Bytes>>, RemoteError> {
        let address = self.pool.address();
        let request = Request::builder()
            .method(method)
            .uri(&address.path)
            .header(HOST, &address.authority)
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, JSON)
            .header("user-agent", concat!("dogwatch/", env!("CARGO_PKG_VERSION")))
            .body(Full::default());
        let mut request = request.map_err(|error| RemoteError(error.to_string()))?;
        let headers = request.headers_mut();
        headers.extend(self.headers.iter().cloned());
        headers.extend(session.id.clone().map(|id| (SESSION, id)));
        headers.extend(session.version.clone().map(|version| (VERSION, version)));
        Ok(request)
    }

    /// Records the error of a failed request.
    fn remember<T>(&self, result: Result<T, RemoteError>) -> Result<T, RemoteError> {
        result.inspect_err(|error| {
            self.errors.push(format!("{}\n", one_line(&error.to_string(), 400)).as_bytes());
        })
    }
}

impl PostError {
    fn into_remote(self, forgotten: &str) -> RemoteError {
        match self {
            PostError::Forgotten => RemoteError(forgotten.to_owned()),
            PostError::Failed(error) => error,
        }
    }
}

/// Returns the result in the response to `initialize`.
async fn first_response(answer: Answer) -> Result<Value, RemoteError> {
    let mut next = Some(answer);
    let mut events = None;
    loop {
        let message = match (next.take(), &mut events) {
            (Some(Answer::Whole(message)), _) => Some(message),
            (Some(Answer::Events(stream)), _) => {
                events = Some(stream);
                continue;
            }
            (None, Some(events)) => within(START_LIMIT, events.next_message()).await??,
            (Some(Answer::Accepted) | None, _) => None,
        };
        match message {
            Some(Message::Response(RpcResponse { result, .. })) => {
                return result
                    .map_err(|error| RemoteError(format!("refused `initialize`: {}", error.message)));
            }
            // Other messages may come first.
            Some(_) if events.is_some() => {}
            Some(_) | None => return Err(RemoteError("answered without a response".to_owned())),
        }
    }
}

/// Builds the error for an unsuccessful status, with the beginning of the response body.
async fn refusal(status: StatusCode, body: Incoming) -> RemoteError {
    if status.is_redirection() {
        return RemoteError(format!("answered with a redirect ({}), which is not followed", status.as_u16()));
    }
    let body = within(WRITE_LIMIT, Limited::new(body, MAX_REFUSAL).collect()).await;
    let text = match body {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
        Ok(Err(_)) => String::new(),
        Err(TimeoutError(limit)) => format!("no response body within {}", seconds(limit)),
    };
    match one_line(&text, 200).as_str() {
        "" => RemoteError(format!("answered with status {}", status.as_u16())),
        text => RemoteError(format!("answered with status {}: {text}", status.as_u16())),
    }
}

/// Returns the content type without its parameters.
fn kind(headers: &HeaderMap) -> &str {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim();
    [JSON, EVENT_STREAM].into_iter().find(|known| kind.eq_ignore_ascii_case(known)).unwrap_or(kind)
}
