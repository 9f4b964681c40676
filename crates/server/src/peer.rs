//! The process at the other end of a connection, and whether it may steer.

use crate::error::ApiError;
use axum::body::Body;
use axum::http::Request;
use dogwatch_core::run::caller::{Denied, Source, source};
use dogwatch_host::process::caller::examine;
use dogwatch_host::process::tcp_client::{self, TcpClient};
use std::net::SocketAddr;

/// The client of a connection. Every request carries one as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A local process; 0 if it is outside our pid namespace.
    Process(i32),
    /// A client on TCP, which had to prove that it knows the token.
    TokenHolder {
        /// Its address.
        client: SocketAddr,
        /// Our address.
        server: SocketAddr,
    },
}

impl Peer {
    /// Returns the client that sent a request. A request without one is treated as sent by an unknown process.
    pub fn of(request: &Request<Body>) -> Option<Peer> {
        request.extensions().get().copied()
    }

    /// Returns the source of a request to a run of this process. Reads `/proc`, so it may block for a moment.
    pub fn source(peer: Option<Peer>, nonce: Option<&str>, inherited: &[String]) -> Result<Source, ApiError> {
        let source_of = |pid: i32| {
            source(&examine(pid, std::process::id()), nonce, inherited).map_err(|denied| match denied {
                Denied::OwnSession | Denied::OtherSession | Denied::Gone => ApiError::NotOperator,
            })
        };
        match peer {
            Some(Peer::Process(pid)) => source_of(pid),
            // A session can read the file with the token, too.
            Some(Peer::TokenHolder { client, server }) => match tcp_client::find(client, server) {
                TcpClient::Held(processes) => processes
                    .into_iter()
                    .try_fold(Source::Operator, |found, pid| Ok(source_of(pid)?.less_trusted(found))),
                TcpClient::Gone => Err(ApiError::NotOperator),
            },
            None => Err(ApiError::NotOperator),
        }
    }
}
