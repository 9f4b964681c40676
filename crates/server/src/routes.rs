//! The handlers of the API of one run.

use crate::BusyError;
use crate::MAX_MESSAGE;
use crate::Request;
use crate::RunHandle;
use crate::agent_channel;
use crate::error::ApiError;
use crate::events::{self, Caller, Form, Signals, Wanted};
use crate::listener::Limits;
use crate::peer::Peer;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::{self, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::status::{OrchestratorStatus, Status};
use dogwatch_core::record::view::View;
use dogwatch_core::run::caller::Source;
use dogwatch_core::run::gate::{MAX_ACCOUNT, MAX_LIMIT};
use dogwatch_core::time::moment::{Moment, Wall};
use dogwatch_core::watch::limits::Label;
use dogwatch_host::clock;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// The state shared by all handlers.
pub(crate) struct Shared {
    pub handle: Arc<dyn RunHandle>,
    pub run_dir: PathBuf,
    pub limits: Limits,
    pub streams: Arc<Semaphore>,
    pub closing: watch::Receiver<bool>,
}

pub(crate) type RunState = State<Arc<Shared>>;
pub(crate) type HandlerResult = Result<Response, ApiError>;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/status/orchestrator", get(orchestrator))
        .route("/v1/events", get(events))
        .route(
            "/v1/wake",
            post(async |s: RunState, r: http::Request<Body>| simple(s, r, Request::Wake).await),
        )
        .route(
            "/v1/pause",
            post(async |s: RunState, r: http::Request<Body>| simple(s, r, Request::Pause).await),
        )
        .route(
            "/v1/resume",
            post(async |s: RunState, r: http::Request<Body>| simple(s, r, Request::Resume).await),
        )
        .route("/v1/stop", post(stop))
        .route("/v1/tell", post(tell))
        .route("/v1/limit", post(limit))
        .route("/v1/verdict", post(verdict))
        .route("/v1/mcp", post(agent_channel::receive))
        .fallback(async || ApiError::NoSuchRoute)
        .method_not_allowed_fallback(async || ApiError::WrongMethod)
        .with_state(shared)
}

async fn status(State(shared): RunState) -> HandlerResult {
    let (view, now) = look(&shared).await?;
    json(StatusCode::OK, &Status::of(&view, Some(now)))
}

async fn orchestrator(State(shared): RunState) -> HandlerResult {
    let (view, now) = look(&shared).await?;
    json(StatusCode::OK, &OrchestratorStatus::of(&view, Some(now)))
}

async fn look(shared: &Shared) -> Result<(View, Moment), ApiError> {
    let handle = Arc::clone(&shared.handle);
    // The driver may be busy, so wait for it on a blocking thread, off the thread that serves all clients.
    let view = tokio::task::spawn_blocking(move || handle.view()).await.map_err(|_| ApiError::Broken)?;
    Ok((view.ok_or(ApiError::NoAnswer)?, clock::now()))
}

const BAD_EVENTS_QUERY: &str = "`after` must be a sequence number, `observed` and `sentences` true or false";
pub(crate) const BAD_STOP: &str = "the body must be empty or {\"accept\": true}";
pub(crate) const BAD_LIMIT: &str =
    "the body must be {\"until\": \"2026-11-17T20:00:00Z\"}, at most 31 days ahead; it may have an `account`";
const BAD_LABEL: &str =
    "the body must be {\"node\": \"…\", \"iteration\": n, \"label\": \"right\" or \"wrong\"}";
pub(crate) const BAD_MESSAGE: &str = "the body must be {\"text\": \"…\"} and nothing else";

/// The query parameters of the events route.
#[derive(Deserialize)]
pub(crate) struct EventsQuery {
    #[serde(default)]
    pub after: u64,
    #[serde(default)]
    pub observed: bool,
    #[serde(default)]
    pub sentences: bool,
}

impl EventsQuery {
    /// Returns the events that a client requests. For streams, `Last-Event-ID` takes precedence over `after`.
    pub fn wanted(
        query: Result<Query<EventsQuery>, QueryRejection>,
        headers: &HeaderMap,
    ) -> Result<Wanted, ApiError> {
        let Query(EventsQuery { after, observed, sentences }) =
            query.map_err(|_| ApiError::BadQuery(BAD_EVENTS_QUERY))?;
        let form = if wants_sse(headers) { Form::Sse } else { Form::Lines };
        // A broken id is an error even where it has no effect.
        let last = last_event_id(headers)?.filter(|_| form == Form::Sse);
        Ok(Wanted { after: last.unwrap_or(after), observed, sentences, form })
    }
}

async fn events(
    State(shared): RunState,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> HandlerResult {
    let wanted = EventsQuery::wanted(query, &headers)?;
    let place = Arc::clone(&shared.streams).try_acquire_owned().map_err(|_| ApiError::TooManyStreams)?;
    let (tail, caller) = (wanted.open(&shared.run_dir)?, Caller { place, limits: None });
    let pieces = match wanted.form {
        Form::Sse => {
            let signals = Signals { changed: shared.handle.changed(), closing: shared.closing.clone() };
            events::live(tail, wanted, signals, caller)
        }
        Form::Lines => events::so_far(tail, wanted, caller),
    };
    Ok(answer(StatusCode::OK, wanted.form.kind(), Body::from_stream(pieces)))
}

pub(crate) fn wants_sse(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok());
    accepted.flat_map(|v| v.split(',')).any(|kind| is_kind(kind, "text/event-stream"))
}

/// Returns whether a media type is `kind`, ignoring its parameters.
pub(crate) fn is_kind(value: &str, kind: &str) -> bool {
    value.split(';').next().is_some_and(|v| v.trim().eq_ignore_ascii_case(kind))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let id = id.to_str().ok().and_then(|id| id.trim().parse().ok());
    id.map(Some).ok_or(ApiError::BadLastEventId)
}

/// Handles a request without a payload. The body is read within the limits and ignored.
async fn simple(State(shared): RunState, request: http::Request<Body>, ask: Request) -> HandlerResult {
    let peer = Peer::of(&request);
    read_body(shared.limits, request).await?;
    submit(&shared, peer, |_| ask).await
}

/// How to stop a run.
#[derive(Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stop {
    /// End with exit code 0 even if checks do not pass.
    #[serde(default)]
    pub accept: bool,
}

async fn stop(State(shared): RunState, request: http::Request<Body>) -> HandlerResult {
    let peer = Peer::of(&request);
    let Stop { accept } = read_stop(shared.limits, request).await?;
    submit(&shared, peer, move |_| Request::Stop { accept }).await
}

/// Reads the body of a stop request. Anything but an object is ignored, as in earlier versions.
pub(crate) async fn read_stop(limits: Limits, request: http::Request<Body>) -> Result<Stop, ApiError> {
    let body = read_body(limits, request).await?;
    if body.trim_ascii_start().starts_with(b"{") { object(&body, BAD_STOP) } else { Ok(Stop::default()) }
}

/// A message for the next prompt.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Told")]
pub(crate) struct MessageBody {
    /// Must not be blank.
    #[schemars(regex(pattern = r"\S"))]
    pub text: String,
}

async fn tell(State(shared): RunState, request: http::Request<Body>) -> HandlerResult {
    let peer = Peer::of(&request);
    let text = read_message(shared.limits, request).await?;
    submit(&shared, peer, |from| Request::Message { text, from }).await
}

/// A limit like that of a service: until then no agent is called.
#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitBody {
    /// Until when, in RFC 3339, at most 31 days ahead. A time in the past lifts the limit.
    pub until: Wall,
    /// The account that it applies to, as in the status. Without it the limit applies to all agents of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub account: Option<String>,
}

async fn limit(State(shared): RunState, request: http::Request<Body>) -> HandlerResult {
    let peer = Peer::of(&request);
    let LimitBody { until, account } = read_limit(shared.limits, request).await?;
    submit(&shared, peer, move |_| Request::Limit { until, account }).await
}

/// Reads and validates a limit.
pub(crate) async fn read_limit(limits: Limits, request: http::Request<Body>) -> Result<LimitBody, ApiError> {
    let body: LimitBody = read_json(limits, request, BAD_LIMIT).await?;
    let near = body.until <= clock::now().wall.plus(MAX_LIMIT);
    let short = body.account.as_ref().is_none_or(|account| account.len() <= MAX_ACCOUNT);
    (near && short).then_some(body).ok_or(ApiError::BadBody(BAD_LIMIT))
}

/// A label for a stop of the watchdog.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelBody {
    node: NodeName,
    iteration: Iteration,
    label: Label,
}

async fn verdict(State(shared): RunState, request: http::Request<Body>) -> HandlerResult {
    let peer = Peer::of(&request);
    let LabelBody { node, iteration, label } = read_json(shared.limits, request, BAD_LABEL).await?;
    submit(&shared, peer, move |_| Request::Label { node, iteration, label }).await
}

/// Reads a request body that must be JSON of the given shape.
pub(crate) async fn read_json<T: DeserializeOwned>(
    limits: Limits,
    request: http::Request<Body>,
    shape: &'static str,
) -> Result<T, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    if !is_kind(kind, "application/json") {
        return Err(ApiError::NotJson);
    }
    let body = read_body(limits, request).await?;
    object(&body, shape)
}

/// Parses a JSON object. Rejects arrays, because serde would assign their elements to the fields by order.
pub(crate) fn object<T: DeserializeOwned>(body: &[u8], shape: &'static str) -> Result<T, ApiError> {
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let read = is_object.then(|| serde_json::from_slice(body).ok()).flatten();
    read.ok_or(ApiError::BadBody(shape))
}

/// Reads and validates an operator message.
pub(crate) async fn read_message(limits: Limits, request: http::Request<Body>) -> Result<String, ApiError> {
    let MessageBody { text } = read_json(limits, request, BAD_MESSAGE).await?;
    if text.trim().is_empty() {
        return Err(ApiError::EmptyText);
    }
    if text.len() > MAX_MESSAGE {
        return Err(ApiError::BodyTooLarge);
    }
    Ok(text)
}

pub(crate) async fn read_body(limits: Limits, request: http::Request<Body>) -> Result<Bytes, ApiError> {
    let limit = limits.body;
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|n| n > limit as u64) {
        return Err(ApiError::BodyTooLarge);
    }
    match tokio::time::timeout(limits.read, to_bytes(request.into_body(), limit)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => Err(ApiError::BodyTooLarge),
        Err(_) => Err(ApiError::BodyTooSlow),
    }
}

/// Passes a request to the run if its sender may steer it.
async fn submit(
    shared: &Shared,
    peer: Option<Peer>,
    ask: impl FnOnce(Source) -> Request + Send + 'static,
) -> HandlerResult {
    let handle = Arc::clone(&shared.handle);
    let asked = move || {
        let from = Peer::source(peer, handle.nonce(), handle.inherited())?;
        handle.ask(ask(from)).map_err(|BusyError| ApiError::Busy)
    };
    match tokio::task::spawn_blocking(asked).await {
        Ok(Ok(())) => json(StatusCode::ACCEPTED, &serde_json::json!({"ok": true})),
        Ok(Err(refusal)) => Err(refusal),
        Err(_) => Err(ApiError::Broken),
    }
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> HandlerResult {
    let body = serde_json::to_vec(value).map_err(|_| ApiError::Broken)?;
    Ok(answer(status, "application/json", body.into()))
}

pub(crate) fn answer(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = body.into_response();
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
