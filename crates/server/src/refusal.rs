//! Every way of saying no: a status code, a word for programs, a sentence for people.

use axum::http::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::json;
use std::borrow::Cow;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// On TCP: the token is missing or wrong.
    NoToken,
    /// The request was meant for another host: a name that leads here is not enough.
    BadHost,
    /// A page of somebody else sent it.
    BadOrigin,
    NoSuchRoute,
    WrongMethod,
    /// A part of the path that is no run id, node, iteration or name.
    BadPath,
    NoSuchRun,
    NoSuchOutput,
    /// Nothing of the file lies in the range; its length.
    BadRange(u64),
    /// The run does not run; what to type instead.
    NotRunning(String),
    /// The run went to sleep and could not be continued; why.
    CannotContinue(String),
    NoSuchAgent,
    /// It is registered and has not ended.
    AgentTaken,
    AgentEnded,
    TooManyAgents,
    /// How it should be.
    BadQuery(&'static str),
    BadLastEventId,
    NotJson,
    /// How it should be.
    BadBody(&'static str),
    /// A session's words without its key.
    WrongToken,
    /// The session that somebody speaks for does not run.
    SessionOver,
    EmptyText,
    BodyTooLarge,
    BodyTooSlow,
    NoAnswer,
    Busy,
    TooManyStreams,
    /// The system gives no more watches.
    NoWatch,
    /// What is wrong with it.
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

    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::NoToken | Refusal::WrongToken => StatusCode::UNAUTHORIZED,
            Refusal::BadHost | Refusal::BadOrigin => StatusCode::FORBIDDEN,
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

    /// A word for programs. It never changes.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::NoToken => "no_token",
            Refusal::BadHost => "bad_host",
            Refusal::BadOrigin => "bad_origin",
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

    /// A sentence for people.
    fn message(&self) -> Cow<'static, str> {
        let text = match self {
            Refusal::NoToken => {
                "send the token as `Authorization: Bearer …`; `dogwatch serve` says where it lies"
            }
            Refusal::BadHost => "this server answers to its own loopback address alone",
            Refusal::BadOrigin => "another page may not ask this server",
            Refusal::NoSuchRoute => "there is no such route",
            Refusal::WrongMethod => "this route takes another method",
            Refusal::BadPath => "the path names no run, node, iteration or stream as they are written",
            Refusal::NoSuchRun => "there is no such run in the list of runs; `dogwatch ps --all` shows it",
            Refusal::NoSuchOutput => "the run has no such output",
            Refusal::BadRange(length) => return format!("nothing lies there: it has {length} bytes").into(),
            Refusal::NotRunning(what_to_do) => return what_to_do.clone().into(),
            Refusal::CannotContinue(why) => return format!("the run cannot be continued: {why}").into(),
            Refusal::NoSuchAgent => "no agent has registered under this name",
            Refusal::AgentTaken => "an agent has registered under this name and has not ended",
            Refusal::AgentEnded => "it has ended; register it again to watch it again",
            Refusal::TooManyAgents => "no more than 10,000 agents are watched at once",
            Refusal::BadQuery(how) => how,
            Refusal::BadLastEventId => "Last-Event-ID is a sequence number",
            Refusal::NotJson => "send JSON, as application/json",
            Refusal::BadBody(how) => how,
            Refusal::WrongToken => "send the session's key as a bearer token",
            Refusal::SessionOver => "that session does not run, or not any more",
            Refusal::EmptyText => "the text says nothing",
            Refusal::BodyTooLarge => "more than this route takes",
            Refusal::BodyTooSlow => "the body did not come in time",
            Refusal::NoAnswer => "the run does not answer just now",
            Refusal::Busy => "the run takes no more requests just now",
            Refusal::TooManyStreams => "too many callers follow the events",
            Refusal::NoWatch => "the system gives no more file watches",
            Refusal::NoRecord(why) => return format!("the run's journal cannot be read: {why}").into(),
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

/// What a caller gets for whom there is no room; written without looking at the request.
pub(crate) const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
content-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 78\r\n\r\n\
{\"error\":{\"code\":\"too_many_connections\",\"message\":\"too many callers at once\"}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_made_answer_is_as_long_as_it_says() {
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
