//! The side door: what a session's MCP server passes on, or a script of the session's own.
//!
//! A session proves itself by its key; the driver knows which. Answers come from the driver's thread and are
//! waited for without holding one of ours.

use crate::Busy;
use crate::refusal::Refusal;
use crate::routes::{Answer, Asked, Shared, is_kind, json, read_body};
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{self, HeaderMap, StatusCode};
use dogwatch_core::run::agent_channel::{self as channel, AgentRequest};
use dogwatch_host::driver::inbox::{NotHeard, Reply};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the driver may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

const BAD_LETTER: &str = "the body must have `node`, `iteration` and `say`, and what that needs";

pub(crate) async fn said(State(shared): Asked, request: http::Request<Body>) -> Answer {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    if !is_kind(kind, "application/json") {
        return Err(Refusal::NotJson);
    }
    let token = bearer(request.headers()).ok_or(Refusal::WrongToken)?;
    let body = read_body(shared.limits, request).await?;
    let letter: AgentRequest = serde_json::from_slice(&body).map_err(|_| Refusal::BadBody(BAD_LETTER))?;
    json(StatusCode::OK, &ask(&shared, token, letter).await?)
}

async fn ask(shared: &Shared, token: String, letter: AgentRequest) -> Result<channel::Answer, Refusal> {
    let (send, answer) = oneshot::channel();
    // Whoever asked may have gone; that is theirs.
    let reply = Reply::new(move |heard| drop(send.send(heard)));
    shared.desk.hear(token, letter, reply).map_err(|Busy| Refusal::Busy)?;
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Ok(Err(NotHeard::WrongToken))) => Err(Refusal::WrongToken),
        Ok(Ok(Err(NotHeard::SessionOver))) => Err(Refusal::SessionOver),
        // The driver dropped it unanswered, or is too busy.
        Ok(Err(_)) | Err(_) => Err(Refusal::NoAnswer),
    }
}

/// The key of `Authorization: Bearer KEY`.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim().to_owned())
}
