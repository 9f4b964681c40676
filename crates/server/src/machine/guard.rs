//! Access checks for TCP, which every local process and every web page in a browser can reach.
//!
//! The token proves that the client can read this user's files. Scripts send it; the dashboard signs its requests with it
//! instead (`proofs.rs`). The Host check stops DNS rebinding, and the Origin
//! check stops other web pages. The dashboard itself holds no data and needs no token: it takes the token from the
//! fragment of its URL, which browsers never send.

use super::proofs::{Challenges, Proof, ProofError};
use crate::error::ApiError;
use crate::listener::Limits;
use crate::routes::{answer, read_body};
use crate::strangers::Known;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dogwatch_host::net::loopback::Names;
use dogwatch_host::store::token::Token;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The path where the server proves that it knows the token, and issues a challenge.
const PROOF: &str = "/app/proof";

/// The token and the addresses under which the server may be called.
pub(crate) struct Guard {
    token: Token,
    challenges: Challenges,
    names: Names,
    limits: Limits,
}

/// Why a request is accepted.
#[derive(Debug, PartialEq, Eq)]
enum Access {
    /// It asks for a file of the dashboard.
    Page,
    /// It has the token.
    Token,
    /// It is signed. Its body must be the one that was signed.
    Signed,
}

impl Guard {
    /// Creates the guard for a server at `address`.
    pub fn new(token: Token, address: SocketAddr, limits: Limits) -> io::Result<Guard> {
        Ok(Guard { token, challenges: Challenges::new()?, names: Names::of(address), limits })
    }

    fn check(&self, request: &Request) -> Result<Access, ApiError> {
        let headers = request.headers();
        let hosts = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        if !self.names.are_meant(hosts, request.uri().authority().map(Authority::as_str)) {
            return Err(ApiError::BadHost);
        }
        if !self.names.own_all(headers.get_all(ORIGIN).iter().map(HeaderValue::as_bytes)) {
            return Err(ApiError::BadOrigin);
        }
        let open = is_page(request.uri().path()) && matches!(*request.method(), Method::GET | Method::HEAD);
        let access = self.access(request);
        if let (Ok(_), Some(known)) = (&access, request.extensions().get::<Known>()) {
            known.set();
        }
        if open { access.or(Ok(Access::Page)) } else { access }
    }

    /// Returns whether the one Authorization header of a request holds the token or a proof.
    fn access(&self, request: &Request) -> Result<Access, ApiError> {
        let given = authorization(request.headers()).ok_or(ApiError::NoToken)?;
        if let Some(proof) = Proof::parse(given) {
            let target = request.uri().path_and_query().map_or("", |target| target.as_str());
            let accepted = self.challenges.accept(&self.token, request.method(), target, proof);
            return match accepted {
                Ok(()) => Ok(Access::Signed),
                Err(ProofError::Forged) => Err(ApiError::NoToken),
                Err(ProofError::Stale) => Err(ApiError::StaleProof),
            };
        }
        let (scheme, token) = given.split_at_checked(b"Bearer ".len()).ok_or(ApiError::NoToken)?;
        let fits = scheme.eq_ignore_ascii_case(b"bearer ") && self.token.fits(token);
        fits.then_some(Access::Token).ok_or(ApiError::NoToken)
    }

    /// Proves to a page that this server knows the token, and issues a challenge for the page's requests.
    fn prove(&self, request: &Request) -> Response {
        let nonce = request.uri().query().and_then(|query| query.strip_prefix("nonce="));
        match nonce.and_then(|nonce| self.challenges.answer(&self.token, nonce)) {
            Some(proof) => answer(StatusCode::OK, "text/plain; charset=utf-8", proof.into()),
            None => ApiError::BadQuery("`nonce` must have 32 to 128 characters").into_response(),
        }
    }

    /// Reads the body of a signed request. Returns the request if the body is the one that was signed.
    async fn with_signed_body(&self, request: Request) -> Result<Request, ApiError> {
        let (parts, body) = request.into_parts();
        let head = Request::from_parts(parts.clone(), body);
        let body = read_body(self.limits, head).await?;
        let proof = authorization(&parts.headers).and_then(Proof::parse);
        let is_covered = proof.is_some_and(|proof| proof.covers(&body));
        is_covered.then(|| Request::from_parts(parts, Body::from(body))).ok_or(ApiError::NoToken)
    }
}

fn authorization(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    Some(value.as_bytes())
}

/// Returns whether the path belongs to the dashboard, whose files contain no user data.
pub(crate) fn is_page(path: &str) -> bool {
    path == "/" || path == "/favicon.ico" || path.starts_with("/app/")
}

pub(crate) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.check(&request) {
        Ok(_) if request.uri().path() == PROOF => guard.prove(&request),
        Ok(Access::Page | Access::Token) => next.run(request).await,
        Ok(Access::Signed) => match guard.with_signed_body(request).await {
            Ok(request) => next.run(request).await,
            Err(refusal) => refusal.into_response(),
        },
        Err(refusal) => refusal.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded() -> (Guard, String, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let token = Token::at(&dir.path().join("token")).expect("makes it");
        let bearer = format!("Bearer {}", token.as_str());
        let at = SocketAddr::from(([127, 0, 0, 1], 3649));
        (Guard::new(token, at, Limits::default()).expect("randomness"), bearer, dir)
    }

    fn ask(guard: &Guard, path: &str, headers: &[(&str, &str)]) -> Result<(), ApiError> {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guard.check(&request.body(Body::empty()).expect("a request")).map(drop)
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
