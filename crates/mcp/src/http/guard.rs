//! Authorizes requests. Every process on the machine can connect to the port, and so can every page in a browser.
//!
//! The session's token proves that the client belongs to the session. The Host check prevents DNS rebinding, and the
//! Origin check rejects browser pages.

use bytes::Bytes;
use dogwatch_host::driver::mcp_setup::same;
use dogwatch_host::net::loopback::Names;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use std::convert::Infallible;
use std::net::SocketAddr;

/// The path of the MCP endpoint, the only one that is served.
pub const PATH: &str = "/mcp";

/// An HTTP response.
pub type Reply = Response<BoxBody<Bytes, Infallible>>;

/// Why a request is refused before it reaches the MCP service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardError {
    BadHost,
    BadOrigin,
    NoToken,
    NoSuchPath,
    TooLarge,
    TooSlow,
    Broken,
}

impl GuardError {
    /// Returns the status, the error code and the message.
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            GuardError::BadHost => (StatusCode::FORBIDDEN, "bad_host", "the Host header names another host"),
            GuardError::BadOrigin => {
                (StatusCode::FORBIDDEN, "bad_origin", "requests from browser pages are not allowed")
            }
            GuardError::NoToken => (
                StatusCode::UNAUTHORIZED,
                "wrong_token",
                "the session token is missing or wrong; send `Authorization: Bearer TOKEN` with the TOKEN from DOGWATCH_TOKEN",
            ),
            GuardError::NoSuchPath => (StatusCode::NOT_FOUND, "not_found", "the MCP server is at /mcp"),
            GuardError::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "a message has at most 4194304 bytes")
            }
            GuardError::TooSlow => {
                (StatusCode::REQUEST_TIMEOUT, "body_too_slow", "the request body took too long")
            }
            GuardError::Broken => (StatusCode::BAD_REQUEST, "bad_body", "the request body is incomplete"),
        }
    }

    /// Returns the error response.
    pub fn reply(self) -> Reply {
        let (status, code, message) = self.parts();
        error_reply(status, code, message)
    }
}

/// Returns an error response.
pub fn error_reply(status: StatusCode, code: &str, message: &str) -> Reply {
    let mut reply = json_reply(status, &serde_json::json!({"error": {"code": code, "message": message}}));
    if status == StatusCode::UNAUTHORIZED {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    reply
}

/// Returns a response with a JSON document.
pub fn json_reply(status: StatusCode, body: &serde_json::Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// Checks requests against the session's token and the listener's address.
pub struct Guard {
    token: String,
    names: Names,
}

impl Guard {
    /// Creates a guard for a token and a listener address.
    pub fn new(token: &str, address: SocketAddr) -> Guard {
        Guard { token: token.to_owned(), names: Names::of(address) }
    }

    /// Checks the host, the origin, the token and the path of a request.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), GuardError> {
        let hosts = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        if !self.names.are_meant(hosts, uri.authority().map(Authority::as_str)) {
            return Err(GuardError::BadHost);
        }
        if !self.names.own_all(headers.get_all(ORIGIN).iter().map(HeaderValue::as_bytes)) {
            return Err(GuardError::BadOrigin);
        }
        if !self.has_token(headers) {
            return Err(GuardError::NoToken);
        }
        if uri.path() == PATH { Ok(()) } else { Err(GuardError::NoSuchPath) }
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else { return false };
        let Some((scheme, key)) = value.to_str().ok().and_then(|v| v.split_once(' ')) else { return false };
        scheme.eq_ignore_ascii_case("bearer") && same(&self.token, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_HERE: (&str, &str) = ("host", "127.0.0.1:4711");
    const KEY: (&str, &str) = ("authorization", "Bearer 00ff");

    fn check(uri: &str, headers: &[(&str, &str)]) -> Result<(), GuardError> {
        let guard = Guard::new("00ff", SocketAddr::from(([127, 0, 0, 1], 4711)));
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        guard.check(request.uri(), request.headers())
    }

    #[test]
    fn requires_the_session_token_in_the_authorization_header() {
        assert_eq!(check(PATH, &[HOST_HERE, KEY]), Ok(()));
        assert_eq!(check(PATH, &[HOST_HERE, ("authorization", "bearer 00ff")]), Ok(()));
        for wrong in
            ["", "Bearer", "Bearer ", "00ff", "Basic 00ff", "Bearer 00ff0", "Bearer 00f", "Bearer  00ff"]
        {
            assert_eq!(
                check(PATH, &[HOST_HERE, ("authorization", wrong)]),
                Err(GuardError::NoToken),
                "{wrong:?}"
            );
        }
        assert_eq!(check(PATH, &[HOST_HERE]), Err(GuardError::NoToken));
        assert_eq!(check("/mcp?token=00ff", &[HOST_HERE]), Err(GuardError::NoToken));
        assert_eq!(check(PATH, &[HOST_HERE, KEY, KEY]), Err(GuardError::NoToken));
    }

    #[test]
    fn rejects_a_wrong_host_even_with_a_valid_token() {
        assert_eq!(check(PATH, &[("host", "LOCALHOST:4711"), KEY]), Ok(()));
        for bad in ["", "127.0.0.1", "localhost", "127.0.0.1:80", "evil.example:4711", "0.0.0.0:4711"] {
            assert_eq!(check(PATH, &[("host", bad), KEY]), Err(GuardError::BadHost), "{bad}");
        }
        assert_eq!(check(PATH, &[KEY]), Err(GuardError::BadHost));
        assert_eq!(check(PATH, &[HOST_HERE, HOST_HERE, KEY]), Err(GuardError::BadHost));
        assert_eq!(check("http://evil.example/mcp", &[HOST_HERE, KEY]), Err(GuardError::BadHost));
    }

    #[test]
    fn rejects_foreign_origins_even_with_a_valid_token() {
        for bad in ["null", "", "http://evil.example", "https://127.0.0.1:4711", "http://127.0.0.1:1"] {
            assert_eq!(check(PATH, &[HOST_HERE, KEY, ("origin", bad)]), Err(GuardError::BadOrigin), "{bad}");
        }
        assert_eq!(check(PATH, &[HOST_HERE, KEY, ("origin", "http://127.0.0.1:4711")]), Ok(()));
    }

    #[test]
    fn rejects_other_paths() {
        for other in ["/", "/mcp/", "/MCP", "/v1/mcp", "//mcp"] {
            assert_eq!(check(other, &[HOST_HERE, KEY]), Err(GuardError::NoSuchPath), "{other}");
        }
    }
}
