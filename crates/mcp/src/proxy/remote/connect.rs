//! A connection pool for a remote server. Connecting has a time limit and uses TLS for `https`. Idle connections are
//! reused while the server keeps them open.

use super::RemoteError;
use crate::bound::within;
use crate::http::timed_stream::TimedStream;
use crate::limits::WRITE_LIMIT;
use bytes::Bytes;
use dogwatch_core::text::address::Address;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long connecting may take: name lookup, TCP connection and TLS handshake.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The largest response head in bytes, and the number of its headers.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;
/// How many idle connections are kept.
const MAX_IDLE: usize = 4;

type Sender = SendRequest<Full<Bytes>>;

/// The connections to one server.
pub struct Pool {
    address: Address,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<Sender>>,
}

impl Pool {
    /// Creates an empty pool for an address.
    pub fn new(address: Address) -> Result<Pool, RemoteError> {
        let tls = address.https.then(|| tls(&address.host)).transpose()?;
        Ok(Pool { address, tls, idle: Mutex::default() })
    }

    /// Returns the server's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sends a request. The response head must arrive within the limit.
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, RemoteError> {
        if let Some(mut idle) = self.take() {
            match within(limit, idle.try_send_request(request)).await? {
                Ok(answer) => {
                    self.keep(idle);
                    return Ok(answer);
                }
                // The server closed the idle connection before the request was sent. Retry on a new one.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(broken(&error.into_error())),
                },
            }
        }
        let mut fresh = within(CONNECT_LIMIT, self.connect()).await??;
        let answer = within(limit, fresh.send_request(request)).await?.map_err(|error| broken(&error))?;
        self.keep(fresh);
        Ok(answer)
    }

    /// Takes an idle connection that is ready for a request.
    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        let ready = idle.iter().position(SendRequest::is_ready)?;
        Some(idle.swap_remove(ready))
    }

    /// Returns a connection to the pool. It is ready again once its response has been read.
    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(sender);
        }
    }

    async fn connect(&self) -> Result<Sender, RemoteError> {
        let Address { host, port, authority, .. } = &self.address;
        let cannot = |error: io::Error| RemoteError(format!("cannot connect to {authority}: {error}"));
        let stream =
            within(CONNECT_LIMIT, TcpStream::connect((host.as_str(), *port))).await?.map_err(cannot)?;
        // Send small requests without delay.
        let _ = stream.set_nodelay(true);
        let Some((connector, name)) = &self.tls else {
            return within(CONNECT_LIMIT, handshake(stream)).await?;
        };
        let secured = within(CONNECT_LIMIT, connector.connect(name.clone(), stream)).await?;
        let secured =
            secured.map_err(|e| RemoteError(format!("no trusted TLS connection to {authority}: {e}")))?;
        within(CONNECT_LIMIT, handshake(secured)).await?
    }
}

async fn handshake<S>(stream: S) -> Result<Sender, RemoteError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(TimedStream::new(stream, WRITE_LIMIT));
    let handshake = http1::Builder::new().max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS).handshake(stream);
    let (sender, connection) =
        within(CONNECT_LIMIT, handshake).await?.map_err(|error| RemoteError(error.to_string()))?;
    tokio::spawn(async move {
        // unbounded: ends with its last response, and every response has a limit
        let _ = connection.await;
    });
    Ok(sender)
}

fn broken(error: &hyper::Error) -> RemoteError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    RemoteError(format!("connection lost: {error}{cause}"))
}

fn tls(host: &str) -> Result<(TlsConnector, ServerName<'static>), RemoteError> {
    let unusable = |error: rustls::Error| RemoteError(format!("cannot set up TLS: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(unusable)?
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| RemoteError(format!("`{host}` is not a valid TLS server name")))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}
