//! Handles one HTTP request: checks that it is authorized, reads its body within limits, and passes it to the MCP
//! service.

use super::guard::{Guard, GuardError, Reply};
use super::service::Service;
use crate::bound::within;
use crate::limits::MAX_ASKED;
use http::Request;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use std::time::Duration;

/// Everything that a connection needs to answer requests.
pub struct Handler {
    pub guard: Guard,
    pub service: Service,
    /// How long a client may take to send a request body.
    pub body: Duration,
}

impl Handler {
    /// Answers a request; refusals and timeouts become error responses.
    pub async fn handle(&self, request: Request<Incoming>) -> Reply {
        let handled = within(2 * self.body, self.try_handle(request)).await;
        handled.unwrap_or(Err(GuardError::TooSlow)).unwrap_or_else(GuardError::reply)
    }

    async fn try_handle(&self, request: Request<Incoming>) -> Result<Reply, GuardError> {
        self.guard.check(request.uri(), request.headers())?;
        let (head, body) = request.into_parts();
        let read = within(self.body, Limited::new(body, MAX_ASKED).collect()).await;
        let body = match read.map_err(|_| GuardError::TooSlow)? {
            Ok(whole) => whole.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => return Err(GuardError::TooLarge),
            Err(_) => return Err(GuardError::Broken),
        };
        Ok(self.service.handle(&head.method, &head.headers, &body))
    }
}
