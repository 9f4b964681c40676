//! A server behind a URL, over streamable HTTP. rmcp implements the protocol; this module does all network I/O, with
//! limits on time and memory.
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
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How much of the body of an error response is read, in bytes.
const MAX_REFUSAL: usize = 4 * 1024;
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
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

type Failed = StreamableHttpError<RemoteError>;
type Stream = std::pin::Pin<Box<dyn futures_core::Stream<Item = Result<Sse, SseError>> + Send>>;

/// The HTTP client for one server.
#[derive(Clone)]
pub struct Remote {
    pool: Arc<Pool>,
    /// How long a complete response may take.
    longest: Duration,
    /// The latest errors, for the message about a lost server.
    errors: BoundedTail,
}

/// Creates the transport to a server. Nothing is sent yet.
pub fn transport(
    plan: &McpServer,
    url: &str,
    errors: BoundedTail,
) -> Result<StreamableHttpClientTransport<Remote>, String> {
    let variable = |name: &str| std::env::var(name).ok();
    let url = fill(url, variable).map_err(|bad| bad.to_string())?;
    let address = Address::parse(&url).map_err(|bad| bad.to_string())?;
    let mut headers = HashMap::new();
    for (name, value) in &plan.headers {
        let value = fill(value, variable).map_err(|bad| format!("header `{name}`: {bad}"))?;
        let name = HeaderName::try_from(name).map_err(|_| format!("`{name}` is not a valid header name"))?;
        let value = HeaderValue::try_from(value.trim())
            .map_err(|_| format!("header `{name}`: the value contains invalid characters"))?;
        headers.insert(name, value);
    }
    let calls =
        plan.tools.iter().map(|(_, limit)| *limit).fold(plan.timeout, dogwatch_core::time::dur::Dur::max);
    let longest = crate::serve::duration(calls).max(START_LIMIT).saturating_add(2 * WRITE_LIMIT);
    let shown = redact::url(&url);
    let pool = Pool::new(address).map_err(|error| format!("{shown}: {error}"))?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(shown).custom_headers(headers);
    config.retry_config = Arc::new(NeverRetry::default());
    config.max_sse_event_size = MAX_ANSWERED;
    let remote = Remote { pool: Arc::new(pool), longest, errors };
    Ok(StreamableHttpClientTransport::with_client(remote, config))
}

impl StreamableHttpClient for Remote {
    type Error = RemoteError;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let posted = within(self.longest, self.post(message, session.as_deref(), headers)).await;
        self.remember(posted.unwrap_or_else(|late| Err(Failed::Client(late.into()))))
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session: Arc<str>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failed> {
        let request = self.request(Method::DELETE, Some(&session), headers)?;
        // Ignore the response: the session is over either way.
        let _ = within(WRITE_LIMIT, self.pool.send(request, WRITE_LIMIT)).await;
        Ok(())
    }

    /// Resumes a response that was interrupted. No other stream is opened.
    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Stream, Failed> {
        let Some(last_event) = last_event else { return Err(Failed::ServerDoesNotSupportSse) };
        let resumed = within(self.longest, self.resume(&last_event, session.as_deref(), headers)).await;
        self.remember(resumed.unwrap_or_else(|late| Err(Failed::Client(late.into()))))
    }
}

impl Remote {
    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        let mut request = self.request(Method::POST, session, headers)?;
        *request.body_mut() = Full::new(Bytes::from(serde_json::to_vec(&message)?));
        let sent = within(self.longest, self.pool.send(request, self.longest)).await;
        let answer = sent.map_err(RemoteError::from).and_then(|sent| sent).map_err(Failed::Client)?;
        let (head, body) = answer.into_parts();
        let status = head.status;
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(Failed::SessionExpired);
        }
        if !status.is_success() {
            return Err(Failed::Client(
                within(WRITE_LIMIT, refusal(status, body)).await.unwrap_or_else(RemoteError::from),
            ));
        }
        if !is_request || matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session_id = head.headers.get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        match kind(&head.headers) {
            EVENT_STREAM => {
                let events = Events::new(body, self.longest);
                Ok(StreamableHttpPostResponse::Sse(Box::pin(events), session_id))
            }
            JSON => {
                let whole = within(self.longest, self.whole(body)).await.map_err(RemoteError::from);
                let message = whole.and_then(|whole| whole).map_err(Failed::Client)?;
                Ok(StreamableHttpPostResponse::Json(message, session_id))
            }
            other => Err(Failed::Client(RemoteError(format!(
                "answered with `{}`, which is not MCP",
                clip(other, 100)
            )))),
        }
    }

    /// Reads a response that is a single message.
    async fn whole(&self, body: Incoming) -> Result<ServerJsonRpcMessage, RemoteError> {
        let body = within(self.longest, Limited::new(body, MAX_ANSWERED).collect()).await?;
        let body = body.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
            true => RemoteError(format!("a message has at most {MAX_ANSWERED} bytes")),
            false => RemoteError(format!("the response is incomplete: {error}")),
        })?;
        serde_json::from_slice(&body.to_bytes())
            .map_err(|error| RemoteError(format!("invalid message in the response: {error}")))
    }

    async fn resume(
        &self,
        last_event: &str,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Stream, Failed> {
        let mut request = self.request(Method::GET, session, headers)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        if let Ok(id) = HeaderValue::try_from(last_event) {
            request.headers_mut().insert(LAST_EVENT, id);
        }
        let sent = within(self.longest, self.pool.send(request, self.longest)).await;
        let answer = sent.map_err(RemoteError::from).and_then(|sent| sent).map_err(Failed::Client)?;
        let (head, body) = answer.into_parts();
        match (head.status, kind(&head.headers)) {
            (StatusCode::OK, EVENT_STREAM) => Ok(Box::pin(Events::new(body, self.longest))),
            _ => Err(Failed::ServerDoesNotSupportSse),
        }
    }

    fn request(
        &self,
        method: Method,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, Failed> {
        let address = self.pool.address();
        let request = Request::builder()
            .method(method)
            .uri(&address.path)
            .header(HOST, &address.authority)
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, JSON)
            .header("user-agent", concat!("dogwatch/", env!("CARGO_PKG_VERSION")))
            .body(Full::default());
        let mut request = request.map_err(|error| Failed::Client(RemoteError(error.to_string())))?;
        request.headers_mut().extend(headers);
        if let Some(id) = session.and_then(|id| HeaderValue::try_from(id).ok()) {
            request.headers_mut().insert(SESSION, id);
        }
        Ok(request)
    }

    /// Records the error of a failed request.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the enum is foreign and grows")]
    fn remember<T>(&self, result: Result<T, Failed>) -> Result<T, Failed> {
        if let Err(error) = &result
            && !matches!(error, Failed::SessionExpired | Failed::ServerDoesNotSupportSse)
        {
            let text = match error {
                Failed::Client(error) => error.to_string(),
                other => other.to_string(),
            };
            self.errors.push(format!("{}\n", one_line(&text, 400)).as_bytes());
        }
        result
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
