//! Access checks for TCP, which every local process and every web page in a browser can reach.
//!
//! The token proves that the client can read this user's files. The Host check stops DNS rebinding, and the Origin
//! check stops other web pages. The dashboard itself holds no data and needs no token: it takes the token from the
//! fragment of its URL, which browsers never send.

use crate::error::ApiError;
use crate::routes::answer;
use crate::strangers::Known;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dogwatch_host::net::loopback::Names;
use dogwatch_host::store::token::Token;
use std::net::SocketAddr;
use std::sync::Arc;

/// The path where the server proves that it knows the token.
const PROOF: &str = "/app/proof";
/// The length of a nonce. A short one could be asked for in advance.
const MIN_NONCE: usize = 32;
const MAX_NONCE: usize = 128;

/// The token and the addresses under which the server may be called.
pub(crate) struct Guard {
    token: Token,
    names: Names,
}

impl Guard {
    /// Creates the guard for a server at `address`.
    pub fn new(token: Token, address: SocketAddr) -> Guard {
        Guard { token, names: Names::of(address) }
    }

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let headers = request.headers();
        let hosts = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        if !self.names.are_meant(hosts, request.uri().authority().map(Authority::as_str)) {
            return Err(ApiError::BadHost);
        }
        if !self.names.own_all(headers.get_all(ORIGIN).iter().map(HeaderValue::as_bytes)) {
            return Err(ApiError::BadOrigin);
        }
        let open = is_page(request.uri().path()) && matches!(*request.method(), Method::GET | Method::HEAD);
        let has_token = self.has_token(headers);
        if let (true, Some(known)) = (has_token, request.extensions().get::<Known>()) {
            known.set();
        }
        if open || has_token { Ok(()) } else { Err(ApiError::NoToken) }
    }

    /// Proves to a page that this server knows the token, before the page sends it.
    fn prove(&self, request: &Request) -> Response {
        let nonce = request.uri().query().and_then(|query| query.strip_prefix("nonce="));
        match nonce.filter(|nonce| (MIN_NONCE..=MAX_NONCE).contains(&nonce.len())) {
            Some(nonce) => {
                answer(StatusCode::OK, "text/plain; charset=utf-8", self.token.proof(nonce.as_bytes()).into())
            }
            None => ApiError::BadQuery("`nonce` must have 32 to 128 characters").into_response(),
        }
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else { return false };
        let value = value.as_bytes();
        let Some((scheme, token)) = value.split_at_checked(b"Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"bearer ") && self.token.fits(token)
    }
}

/// Returns whether the path belongs to the dashboard, whose files contain no user data.
pub(crate) fn is_page(path: &str) -> bool {
    path == "/" || path == "/favicon.ico" || path.starts_with("/app/")
}

pub(crate) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.check(&request) {
        Ok(()) if request.uri().path() == PROOF => guard.prove(&request),
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn guarded() -> (Guard, String, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let token = Token::at(&dir.path().join("token")).expect("makes it");
        let bearer = format!("Bearer {}", token.as_str());
        (Guard::new(token, SocketAddr::from(([127, 0, 0, 1], 3649))), bearer, dir)
    }

    fn ask(guard: &Guard, path: &str, headers: &[(&str, &str)]) -> Result<(), ApiError> {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guard.check(&request.body(Body::empty()).expect("a request"))
    }

    // promise: 14
    #[test]
    fn only_the_token_in_its_header_opens_the_door() {
        let (guard, bearer, _dir) = guarded();
        let host = ("host", "127.0.0.1:3649");
        let with = |value: &str| ask(&guard, "/v1/runs", &[host, ("authorization", value)]);
        assert_eq!(with(&bearer), Ok(()));
        assert_eq!(with(&bearer.replace("Bearer", "bearer")), Ok(()));
        let token = &bearer["Bearer ".len()..];
        for wrong in
            ["", "Bearer", "Bearer ", token, &format!("Basic {token}"), &format!("{bearer}0"), &bearer[..70]]
        {
            assert_eq!(with(wrong), Err(ApiError::NoToken), "{wrong}");
        }
        assert_eq!(ask(&guard, "/v1/runs", &[host]), Err(ApiError::NoToken));
        assert_eq!(ask(&guard, &format!("/v1/runs?token={token}"), &[host]), Err(ApiError::NoToken));
        let twice = [host, ("authorization", &bearer), ("authorization", &bearer)];
        assert_eq!(ask(&guard, "/v1/runs", &twice), Err(ApiError::NoToken));
    }

    // promise: 14
    #[test]
    fn a_request_for_another_host_is_refused_even_with_the_token() {
        let (guard, bearer, _dir) = guarded();
        let with = |host: &str| ask(&guard, "/v1/runs", &[("host", host), ("authorization", &bearer)]);
        for good in ["127.0.0.1:3649", "localhost:3649", "LOCALHOST:3649"] {
            assert_eq!(with(good), Ok(()), "{good}");
        }
        for bad in [
            "evil.example:3649",
            "127.0.0.1:80",
            "127.0.0.1",
            "localhost",
            "127.0.0.1.evil.example:3649",
            "",
            "0.0.0.0:3649",
        ] {
            assert_eq!(with(bad), Err(ApiError::BadHost), "{bad}");
        }
        assert_eq!(ask(&guard, "/", &[("host", "evil.example:3649")]), Err(ApiError::BadHost));
        assert_eq!(ask(&guard, "/v1/runs", &[("authorization", &bearer)]), Err(ApiError::BadHost));
        let absolute = "http://evil.example/v1/runs";
        let headers = [("host", "127.0.0.1:3649"), ("authorization", bearer.as_str())];
        assert_eq!(ask(&guard, absolute, &headers), Err(ApiError::BadHost));
    }

    // promise: 14
    #[test]
    fn another_page_is_refused_with_the_token_too() {
        let (guard, bearer, _dir) = guarded();
        let with = |origin: &str| {
            let headers = [("host", "127.0.0.1:3649"), ("authorization", &bearer), ("origin", origin)];
            ask(&guard, "/v1/runs", &headers)
        };
        assert_eq!(with("http://127.0.0.1:3649"), Ok(()));
        assert_eq!(with("http://localhost:3649"), Ok(()));
        for bad in [
            "null",
            "",
            "https://127.0.0.1:3649",
            "http://evil.example",
            "http://127.0.0.1:1",
            "127.0.0.1:3649",
        ] {
            assert_eq!(with(bad), Err(ApiError::BadOrigin), "{bad}");
        }
    }

    #[test]
    fn the_dashboard_needs_no_token_and_similar_paths_do() {
        let (guard, _, _dir) = guarded();
        let host = [("host", "127.0.0.1:3649")];
        for open in ["/", "/?x", "/app/main.js", "/favicon.ico"] {
            assert_eq!(ask(&guard, open, &host), Ok(()), "{open}");
        }
        for closed in ["/app", "/v1/runs", "/metrics", "/openapi.json", "/v1/app/", "//app/x", "/nothing"] {
            assert_eq!(ask(&guard, closed, &host), Err(ApiError::NoToken), "{closed}");
        }
    }
}
