//! The agent channel: requests of a session's MCP server, or of a script in the session.
//!
//! A session authenticates with its key, which the driver checks. The answer comes from the driver's thread; waiting
//! for it does not block a thread of the server.

use crate::BusyError;
use crate::error::ApiError;
use crate::routes::{HandlerResult, RunState, Shared, is_kind, json, read_body};
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{self, HeaderMap, StatusCode};
use dogwatch_core::run::agent_channel::{self as channel, AgentRequest};
use dogwatch_host::driver::inbox::{ChannelError, Reply};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the driver may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

const BAD_REQUEST: &str =
    "the body must have `node`, `iteration`, `say` and the fields that this `say` requires";

pub(crate) async fn receive(State(shared): RunState, request: http::Request<Body>) -> HandlerResult {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    if !is_kind(kind, "application/json") {
        return Err(ApiError::NotJson);
    }
    let token = bearer(request.headers()).ok_or(ApiError::WrongToken)?;
    let body = read_body(shared.limits, request).await?;
    let request_body: AgentRequest =
        serde_json::from_slice(&body).map_err(|_| ApiError::BadBody(BAD_REQUEST))?;
    json(StatusCode::OK, &ask(&shared, token, request_body).await?)
}

async fn ask(
    shared: &Shared,
    token: String,
    request_body: AgentRequest,
) -> Result<channel::AgentResponse, ApiError> {
    let (send, answer) = oneshot::channel();
    // Ignore a failed send: the client has disconnected.
    let reply = Reply::new(move |answer| drop(send.send(answer)));
    shared.handle.hear(token, request_body, reply).map_err(|BusyError| ApiError::Busy)?;
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Ok(Err(ChannelError::WrongToken))) => Err(ApiError::WrongToken),
        Ok(Ok(Err(ChannelError::SessionOver))) => Err(ApiError::SessionOver),
        // The driver dropped the request, or did not answer in time.
        Ok(Err(_)) | Err(_) => Err(ApiError::NoAnswer),
    }
}

/// Returns the key from `Authorization: Bearer KEY`.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim().to_owned())
}
