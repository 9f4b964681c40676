//! Every error response: a status code, a stable code for programs and a message for people.

use axum::http::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::json;
use std::borrow::Cow;

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// On TCP: the token is missing or wrong.
    NoToken,
    /// On TCP: the proof of a page's request was used before or has expired.
    StaleProof,
    /// The Host header names another host (DNS rebinding).
    BadHost,
    /// The request comes from another web page.
    BadOrigin,
    /// The caller belongs to a session, which may use only the agent channel.
    NotOperator,
    NoSuchRoute,
    WrongMethod,
    /// A path segment is not a valid run id, node, iteration or name.
    BadPath,
    NoSuchRun,
    NoSuchOutput,
    /// The range lies outside the file. Holds the length of the file.
    BadRange(u64),
    /// The run is not running. Holds the message, which names the command to type.
    NotRunning(String),
    /// The sleeping run could not be continued. Holds the reason.
    CannotContinue(String),
    NoSuchAgent,
    /// An agent with this name is registered and has not ended.
    AgentTaken,
    AgentEnded,
    TooManyAgents,
    /// The query is invalid. Holds the expected form.
    BadQuery(&'static str),
    BadLastEventId,
    NotJson,
    /// The body is invalid. Holds the expected form.
    BadBody(&'static str),
    /// A request of a session without the session's key.
    WrongToken,
    /// The session that the request names is not running.
    SessionOver,
    EmptyText,
    BodyTooLarge,
    BodyTooSlow,
    NoAnswer,
    Busy,
    TooManyStreams,
    /// The system has no file watches left.
    NoWatch,
    /// The journal cannot be read. Holds the reason.
    NoRecord(String),
    Broken,
}

impl ApiError {
    #[cfg(test)]
    fn all() -> Vec<ApiError> {
        let text = String::new;
        vec![
            ApiError::NoToken,
            ApiError::StaleProof,
            ApiError::BadHost,
            ApiError::BadOrigin,
            ApiError::NotOperator,
            ApiError::NoSuchRoute,
            ApiError::WrongMethod,
            ApiError::BadPath,
            ApiError::NoSuchRun,
            ApiError::NoSuchOutput,
            ApiError::BadRange(0),
            ApiError::NotRunning(text()),
            ApiError::CannotContinue(text()),
            ApiError::NoSuchAgent,
            ApiError::AgentTaken,
            ApiError::AgentEnded,
            ApiError::TooManyAgents,
            ApiError::BadQuery(""),
            ApiError::BadLastEventId,
            ApiError::NotJson,
            ApiError::BadBody(""),
            ApiError::WrongToken,
            ApiError::SessionOver,
            ApiError::EmptyText,
            ApiError::BodyTooLarge,
            ApiError::BodyTooSlow,
            ApiError::NoAnswer,
            ApiError::Busy,
            ApiError::TooManyStreams,
            ApiError::NoWatch,
            ApiError::NoRecord(text()),
            ApiError::Broken,
        ]
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            ApiError::NoToken | ApiError::StaleProof | ApiError::WrongToken => StatusCode::UNAUTHORIZED,
            ApiError::BadHost | ApiError::BadOrigin | ApiError::NotOperator => StatusCode::FORBIDDEN,
            ApiError::NoSuchRoute | ApiError::NoSuchRun | ApiError::NoSuchOutput | ApiError::NoSuchAgent => {
                StatusCode::NOT_FOUND
            }
            ApiError::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::BadPath | ApiError::BadQuery(_) | ApiError::BadLastEventId | ApiError::BadBody(_) => {
                StatusCode::BAD_REQUEST
            }
            ApiError::BadRange(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            ApiError::NotRunning(_)
            | ApiError::CannotContinue(_)
            | ApiError::AgentTaken
            | ApiError::AgentEnded
            | ApiError::SessionOver => StatusCode::CONFLICT,
            ApiError::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ApiError::EmptyText => StatusCode::UNPROCESSABLE_ENTITY,
            ApiError::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            ApiError::NoAnswer
            | ApiError::Busy
            | ApiError::TooManyStreams
            | ApiError::TooManyAgents
            | ApiError::NoWatch => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::NoRecord(_) | ApiError::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            ApiError::NoToken => "no_token",
            ApiError::StaleProof => "stale_proof",
            ApiError::BadHost => "bad_host",
            ApiError::BadOrigin => "bad_origin",
            ApiError::NotOperator => "not_operator",
            ApiError::NoSuchRoute => "not_found",
            ApiError::WrongMethod => "method_not_allowed",
            ApiError::BadPath => "bad_path",
            ApiError::NoSuchRun => "no_such_run",
            ApiError::NoSuchOutput => "no_such_output",
            ApiError::BadRange(_) => "bad_range",
            ApiError::NotRunning(_) => "not_running",
            ApiError::CannotContinue(_) => "cannot_continue",
            ApiError::NoSuchAgent => "no_such_agent",
            ApiError::AgentTaken => "agent_taken",
            ApiError::AgentEnded => "agent_ended",
            ApiError::TooManyAgents => "too_many_agents",
            ApiError::BadQuery(_) => "bad_query",
            ApiError::BadLastEventId => "bad_last_event_id",
            ApiError::NotJson => "not_json",
            ApiError::BadBody(_) => "bad_body",
            ApiError::WrongToken => "wrong_token",
            ApiError::SessionOver => "session_over",
            ApiError::EmptyText => "empty_text",
            ApiError::BodyTooLarge => "too_large",
            ApiError::BodyTooSlow => "too_slow",
            ApiError::NoAnswer => "no_answer",
            ApiError::Busy => "busy",
            ApiError::TooManyStreams => "too_many_streams",
            ApiError::NoWatch => "no_watch",
            ApiError::NoRecord(_) => "no_record",
            ApiError::Broken => "internal",
        }
    }

    /// Returns the message for people.
    fn message(&self) -> Cow<'static, str> {
        let text = match self {
            ApiError::NoToken => {
                "send the token as `Authorization: Bearer …`; it is in the file `dogwatch/token` of your state directory"
            }
            ApiError::StaleProof => "the proof was used before or has expired; ask for a new challenge",
            ApiError::BadHost => "the Host header must name this server's loopback address",
            ApiError::BadOrigin => "requests from other web pages are not allowed",
            ApiError::NotOperator => {
                "only the operator may steer a run; a session reports through its MCP tools instead"
            }
            ApiError::NoSuchRoute => "no such route",
            ApiError::WrongMethod => "method not allowed for this route",
            ApiError::BadPath => "the path contains an invalid run, node, iteration or stream",
            ApiError::NoSuchRun => "no such run; `dogwatch ps --all` lists all runs",
            ApiError::NoSuchOutput => "the run has no such output",
            ApiError::BadRange(length) => {
                return format!("range not satisfiable: the file has {length} bytes").into();
            }
            ApiError::NotRunning(what_to_do) => return what_to_do.clone().into(),
            ApiError::CannotContinue(why) => return format!("the run cannot be continued: {why}").into(),
            ApiError::NoSuchAgent => "no agent is registered under this name",
            ApiError::AgentTaken => "an agent that has not ended is already registered under this name",
            ApiError::AgentEnded => "the agent has ended; register it again to watch it",
            ApiError::TooManyAgents => "too many agents: at most 10,000 are watched at once",
            ApiError::BadQuery(how) => how,
            ApiError::BadLastEventId => "Last-Event-ID must be a sequence number",
            ApiError::NotJson => "the body must be JSON with content type application/json",
            ApiError::BadBody(how) => how,
            ApiError::WrongToken => "send the session's key as a bearer token",
            ApiError::SessionOver => "the session is not running",
            ApiError::EmptyText => "the text is empty",
            ApiError::BodyTooLarge => "the body is too large for this route",
            ApiError::BodyTooSlow => "the body did not arrive in time",
            ApiError::NoAnswer => "the run does not respond; try again",
            ApiError::Busy => "the run is busy; try again",
            ApiError::TooManyStreams => "too many clients follow the events",
            ApiError::NoWatch => "the system has no file watches left",
            ApiError::NoRecord(why) => return format!("cannot read the run's journal: {why}").into(),
            ApiError::Broken => "dogwatch failed to answer; this is a bug",
        };
        text.into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> axum::response::Response {
        let status = self.status();
        let body = json!({"error": {"code": self.code(), "message": self.message()}}).to_string();
        let mut response = Response::new(body.into());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let ApiError::BadRange(length) = self {
            headers.extend(HeaderValue::try_from(format!("bytes */{length}")).map(|v| (CONTENT_RANGE, v)));
        }
        response
    }
}

/// The response to a client when all connections are in use; sent without reading the request.
pub(crate) const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
content-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 78\r\n\r\n\
{\"error\":{\"code\":\"too_many_connections\",\"message\":\"too many callers at once\"}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_static_response_has_a_correct_content_length() {
        let text = std::str::from_utf8(FULL).expect("is text");
        let (head, body) = text.split_once("\r\n\r\n").expect("has a body");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        serde_json::from_str::<serde_json::Value>(body).expect("is JSON");
    }

    #[test]
    fn every_refusal_is_documented_with_its_status() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/api.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        for refusal in ApiError::all() {
            let (status, code) = (refusal.status(), refusal.code());
            assert!(page.contains(&format!("| {} | `{code}` |", status.as_u16())), "{code}");
        }
    }
}
