//! Every way of saying no: a status code, a word for programs, a sentence for people.

use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoSuchRoute,
    WrongMethod,
    BadQuery,
    BadLastEventId,
    NotJson,
    BadBody,
    EmptyText,
    BodyTooLarge,
    BodyTooSlow,
    NoAnswer,
    Busy,
    TooManyStreams,
    NoRecord,
    Broken,
}

impl Refusal {
    #[cfg(test)]
    const ALL: [Refusal; 14] = [
        Refusal::NoSuchRoute,
        Refusal::WrongMethod,
        Refusal::BadQuery,
        Refusal::BadLastEventId,
        Refusal::NotJson,
        Refusal::BadBody,
        Refusal::EmptyText,
        Refusal::BodyTooLarge,
        Refusal::BodyTooSlow,
        Refusal::NoAnswer,
        Refusal::Busy,
        Refusal::TooManyStreams,
        Refusal::NoRecord,
        Refusal::Broken,
    ];

    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Refusal::NoSuchRoute => (StatusCode::NOT_FOUND, "not_found", "there is no such route"),
            Refusal::WrongMethod => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this route takes another method")
            }
            Refusal::BadQuery => (
                StatusCode::BAD_REQUEST,
                "bad_query",
                "`after` is a sequence number, `observed` is true or false",
            ),
            Refusal::BadLastEventId => {
                (StatusCode::BAD_REQUEST, "bad_last_event_id", "Last-Event-ID is a sequence number")
            }
            Refusal::NotJson => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", "send JSON, as application/json")
            }
            Refusal::BadBody => {
                (StatusCode::BAD_REQUEST, "bad_body", "the body must be {\"text\": \"…\"} and nothing else")
            }
            Refusal::EmptyText => (StatusCode::UNPROCESSABLE_ENTITY, "empty_text", "the text says nothing"),
            Refusal::BodyTooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "more than this route takes")
            }
            Refusal::BodyTooSlow => {
                (StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not come in time")
            }
            Refusal::NoAnswer => {
                (StatusCode::SERVICE_UNAVAILABLE, "no_answer", "the run does not answer just now")
            }
            Refusal::Busy => {
                (StatusCode::SERVICE_UNAVAILABLE, "busy", "the run takes no more requests just now")
            }
            Refusal::TooManyStreams => {
                (StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", "too many callers follow this run")
            }
            Refusal::NoRecord => {
                (StatusCode::INTERNAL_SERVER_ERROR, "no_record", "the run's journal cannot be read")
            }
            Refusal::Broken => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "dogwatch failed to answer; this is a bug")
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        let (status, code, message) = self.parts();
        let body = json!({"error": {"code": code, "message": message}}).to_string();
        let mut response = Response::new(body.into());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
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
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        for refusal in Refusal::ALL {
            let (status, code, _) = refusal.parts();
            assert!(page.contains(&format!("| {} | `{code}` |", status.as_u16())), "{code}");
        }
    }
}
