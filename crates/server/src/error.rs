//! Every error response: a status code, a stable code for programs and a message for people.

use axum::http::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::json;
use std::borrow::Cow;

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// On TCP: the token is missing or wrong.
    NoToken,
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

impl Refusal {
    #[cfg(test)]
    fn all() -> Vec<Refusal> {
        let text = String::new;
        vec![
            Refusal::NoToken,
            Refusal::BadHost,
            Refusal::BadOrigin,
            Refusal::NotOperator,
            Refusal::NoSuchRoute,
            Refusal::WrongMethod,
            Refusal::BadPath,
            Refusal::NoSuchRun,
            Refusal::NoSuchOutput,
            Refusal::BadRange(0),
            Refusal::NotRunning(text()),
            Refusal::CannotContinue(text()),
            Refusal::NoSuchAgent,
            Refusal::AgentTaken,
            Refusal::AgentEnded,
            Refusal::TooManyAgents,
            Refusal::BadQuery(""),
            Refusal::BadLastEventId,
            Refusal::NotJson,
            Refusal::BadBody(""),
            Refusal::WrongToken,
            Refusal::SessionOver,
            Refusal::EmptyText,
            Refusal::BodyTooLarge,
            Refusal::BodyTooSlow,
            Refusal::NoAnswer,
            Refusal::Busy,
            Refusal::TooManyStreams,
            Refusal::NoWatch,
            Refusal::NoRecord(text()),
            Refusal::Broken,
        ]
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::NoToken | Refusal::WrongToken => StatusCode::UNAUTHORIZED,
            Refusal::BadHost | Refusal::BadOrigin | Refusal::NotOperator => StatusCode::FORBIDDEN,
            Refusal::NoSuchRoute | Refusal::NoSuchRun | Refusal::NoSuchOutput | Refusal::NoSuchAgent => {
                StatusCode::NOT_FOUND
            }
            Refusal::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::BadPath | Refusal::BadQuery(_) | Refusal::BadLastEventId | Refusal::BadBody(_) => {
                StatusCode::BAD_REQUEST
            }
            Refusal::BadRange(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            Refusal::NotRunning(_)
            | Refusal::CannotContinue(_)
            | Refusal::AgentTaken
            | Refusal::AgentEnded
            | Refusal::SessionOver => StatusCode::CONFLICT,
            Refusal::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Refusal::EmptyText => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Refusal::NoAnswer
            | Refusal::Busy
            | Refusal::TooManyStreams
            | Refusal::TooManyAgents
            | Refusal::NoWatch => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::NoRecord(_) | Refusal::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::NoToken => "no_token",
            Refusal::BadHost => "bad_host",
            Refusal::BadOrigin => "bad_origin",
            Refusal::NotOperator => "not_operator",
            Refusal::NoSuchRoute => "not_found",
            Refusal::WrongMethod => "method_not_allowed",
            Refusal::BadPath => "bad_path",
            Refusal::NoSuchRun => "no_such_run",
            Refusal::NoSuchOutput => "no_such_output",
            Refusal::BadRange(_) => "bad_range",
            Refusal::NotRunning(_) => "not_running",
            Refusal::CannotContinue(_) => "cannot_continue",
            Refusal::NoSuchAgent => "no_such_agent",
            Refusal::AgentTaken => "agent_taken",
            Refusal::AgentEnded => "agent_ended",
            Refusal::TooManyAgents => "too_many_agents",
            Refusal::BadQuery(_) => "bad_query",
            Refusal::BadLastEventId => "bad_last_event_id",
            Refusal::NotJson => "not_json",
            Refusal::BadBody(_) => "bad_body",
            Refusal::WrongToken => "wrong_token",
            Refusal::SessionOver => "session_over",
            Refusal::EmptyText => "empty_text",
            Refusal::BodyTooLarge => "too_large",
            Refusal::BodyTooSlow => "too_slow",
            Refusal::NoAnswer => "no_answer",
            Refusal::Busy => "busy",
            Refusal::TooManyStreams => "too_many_streams",
            Refusal::NoWatch => "no_watch",
            Refusal::NoRecord(_) => "no_record",
            Refusal::Broken => "internal",
        }
    }

    /// Returns the message for people.
    fn message(&self) -> Cow<'static, str> {
        let text = match self {
            Refusal::NoToken => {
                "send the token as `Authorization: Bearer …`; `dogwatch serve` prints its path"
            }
            Refusal::BadHost => "the Host header must name this server's loopback address",
            Refusal::BadOrigin => "requests from other web pages are not allowed",
            Refusal::NotOperator => {
                "only the operator may steer a run; a session reports through its MCP tools instead"
            }
            Refusal::NoSuchRoute => "no such route",
            Refusal::WrongMethod => "method not allowed for this route",
            Refusal::BadPath => "the path contains an invalid run, node, iteration or stream",
            Refusal::NoSuchRun => "no such run; `dogwatch ps --all` lists all runs",
            Refusal::NoSuchOutput => "the run has no such output",
            Refusal::BadRange(length) => {
                return format!("range not satisfiable: the file has {length} bytes").into();
            }
            Refusal::NotRunning(what_to_do) => return what_to_do.clone().into(),
            Refusal::CannotContinue(why) => return format!("the run cannot be continued: {why}").into(),
            Refusal::NoSuchAgent => "no agent is registered under this name",
            Refusal::AgentTaken => "an agent that has not ended is already registered under this name",
            Refusal::AgentEnded => "the agent has ended; register it again to watch it",
            Refusal::TooManyAgents => "too many agents: at most 10,000 are watched at once",
            Refusal::BadQuery(how) => how,
            Refusal::BadLastEventId => "Last-Event-ID must be a sequence number",
            Refusal::NotJson => "the body must be JSON with content type application/json",
            Refusal::BadBody(how) => how,
            Refusal::WrongToken => "send the session's key as a bearer token",
            Refusal::SessionOver => "the session is not running",
            Refusal::EmptyText => "the text is empty",
            Refusal::BodyTooLarge => "the body is too large for this route",
            Refusal::BodyTooSlow => "the body did not arrive in time",
            Refusal::NoAnswer => "the run does not respond; try again",
            Refusal::Busy => "the run is busy; try again",
            Refusal::TooManyStreams => "too many clients follow the events",
            Refusal::NoWatch => "the system has no file watches left",
            Refusal::NoRecord(why) => return format!("cannot read the run's journal: {why}").into(),
            Refusal::Broken => "dogwatch failed to answer; this is a bug",
        };
        text.into()
    }
}

impl IntoResponse for Refusal {
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
        if let Refusal::BadRange(length) = self {
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
        for refusal in Refusal::all() {
            let (status, code) = (refusal.status(), refusal.code());
            assert!(page.contains(&format!("| {} | `{code}` |", status.as_u16())), "{code}");
        }
    }
}
