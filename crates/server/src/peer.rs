//! The process at the other end of a connection, and whether it may steer.

use crate::error::ApiError;
use axum::body::Body;
use axum::http::Request;
use dogwatch_core::run::caller::{Denied, Source, source};
use dogwatch_host::process::caller::examine;

/// The client of a connection. Every request carries one as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A local process; 0 if it is outside our pid namespace.
    Process(i32),
    /// A client that had to send the token.
    TokenHolder,
}

impl Peer {
    /// Returns the client that sent a request. A request without one is treated as sent by an unknown process.
    pub fn of(request: &Request<Body>) -> Option<Peer> {
        request.extensions().get().copied()
    }

    /// Returns the source of a request to a run of this process. Reads `/proc`, so it may block for a moment.
    pub fn source(peer: Option<Peer>, nonce: Option<&str>, inherited: &[String]) -> Result<Source, ApiError> {
        match peer {
            Some(Peer::Process(pid)) => {
                let caller = examine(pid, std::process::id());
                source(&caller, nonce, inherited).map_err(|denied| match denied {
                    Denied::OwnSession | Denied::OtherSession | Denied::Gone => ApiError::NotOperator,
                })
            }
            Some(Peer::TokenHolder) => Ok(Source::Operator),
            None => Err(ApiError::NotOperator),
        }
    }
}
