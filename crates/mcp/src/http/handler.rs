//! Handles one HTTP request: checks that it is authorized, reads its body within limits, and passes it to the MCP
//! service.

use super::guard::{Guard, GuardError, Reply};
use super::sessions::Sessions;
use crate::bound::within;
use crate::limits::MAX_ASKED;
use crate::serve::AgentServer;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::time::Duration;

/// Everything that a connection needs to answer requests.
pub struct Handler {
    pub guard: Guard,
    pub service: StreamableHttpService<AgentServer, LocalSessionManager>,
    pub sessions: Sessions,
    /// How long a client may take to send a request body.
    pub body: Duration,
    /// How long a response may take to begin: the longest that any call may take.
    pub longest: Duration,
}

impl Handler {
    /// Answers a request; refusals and timeouts become error responses.
    pub async fn handle(&self, request: Request<Incoming>) -> Reply {
        let handled = within(self.body + 2 * self.longest, self.try_handle(request)).await;
        handled.unwrap_or(Err(GuardError::TooLong)).unwrap_or_else(GuardError::reply)
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
        let initializes = is_initialize(&body);
        if initializes {
            within(self.longest, self.sessions.make_room()).await.map_err(|_| GuardError::TooLong)?;
        }
        self.sessions.touch(&head.headers);
        let is_delete = head.method == Method::DELETE;
        let request = Request::from_parts(head, Full::new(body));
        let mut reply =
            within(self.longest, self.service.handle(request)).await.map_err(|_| GuardError::TooLong)?;
        if initializes {
            self.sessions.touch(reply.headers());
        }
        // The session is already closed. Some clients treat "accepted" as an error.
        if is_delete && reply.status_mut() == &StatusCode::ACCEPTED {
            *reply.status_mut() = StatusCode::OK;
        }
        Ok(reply)
    }
}

/// Returns whether the body is an `initialize` request, which begins a session.
fn is_initialize(body: &Bytes) -> bool {
    #[derive(serde::Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        method: std::borrow::Cow<'a, str>,
    }
    serde_json::from_slice::<Message<'_>>(body).is_ok_and(|message| message.method == "initialize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_initialize_requests() {
        let is = |text: &'static str| is_initialize(&Bytes::from_static(text.as_bytes()));
        assert!(is(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#));
        assert!(is(r#"{"method":"init\u0069alize"}"#));
        assert!(!is(r#"{"method":"tools/call","params":{"method":"initialize"}}"#));
        assert!(!is("nonsense"));
    }
}
