//! The static files of the dashboard. They contain no data of any run.

use crate::error::ApiError;
use crate::routes::answer;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use axum::response::Response;

/// Allows only the dashboard's own scripts and styles, and forbids framing the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn asset(request: Request) -> Result<Response, ApiError> {
    let (kind, bytes) = dogwatch_web::asset(request.uri().path()).ok_or(ApiError::NoSuchRoute)?;
    let mut response = answer(StatusCode::OK, kind, Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
