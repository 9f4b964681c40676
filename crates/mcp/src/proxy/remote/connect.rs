//! Connections to a server on a network: made in bounded time, with TLS if the address says so, and idle for the
//! next question while the server keeps them.

use super::RemoteError;
use crate::bound::within;
use crate::http::timed_stream::TimedStream;
use crate::limits::WRITE_LIMIT;
use bytes::Bytes;
use dogwatch_core::address::Address;
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

/// For a server to be reached: its name looked up, its port, its certificate.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The largest head of an answer, and its headers.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;
/// Connections that are idle for the next question.
const MAX_IDLE: usize = 4;

type Sender = SendRequest<Full<Bytes>>;

pub struct Pool {
    address: Address,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<Sender>>,
}

impl Pool {
    pub fn new(address: Address) -> Result<Pool, RemoteError> {
        let tls = address.https.then(|| tls(&address.host)).transpose()?;
        Ok(Pool { address, tls, idle: Mutex::default() })
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sends it; the head of the answer must be there within the limit.
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
                // It was closed meanwhile, and nothing of the question has gone out: it is asked anew.
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

    /// A connection that is ready for a question.
    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        let ready = idle.iter().position(SendRequest::is_ready)?;
        Some(idle.swap_remove(ready))
    }

    /// It is ready again once its answer was read.
    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(sender);
        }
    }

    async fn connect(&self) -> Result<Sender, RemoteError> {
        let Address { host, port, authority, .. } = &self.address;
        let cannot = |error: io::Error| RemoteError(format!("{authority} cannot be reached: {error}"));
        let stream =
            within(CONNECT_LIMIT, TcpStream::connect((host.as_str(), *port))).await?.map_err(cannot)?;
        // Small questions must not wait for each other.
        let _ = stream.set_nodelay(true);
        let Some((connector, name)) = &self.tls else {
            return within(CONNECT_LIMIT, handshake(stream)).await?;
        };
        let secured = within(CONNECT_LIMIT, connector.connect(name.clone(), stream)).await?;
        let secured =
            secured.map_err(|e| RemoteError(format!("{authority} cannot be trusted or has no TLS: {e}")))?;
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
        // unbounded: ends with the last answer that it carries, and every answer has its bound
        let _ = connection.await;
    });
    Ok(sender)
}

fn broken(error: &hyper::Error) -> RemoteError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    RemoteError(format!("the connection broke: {error}{cause}"))
}

fn tls(host: &str) -> Result<(TlsConnector, ServerName<'static>), RemoteError> {
    let unusable = |error: rustls::Error| RemoteError(format!("TLS cannot be used: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(unusable)?
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| RemoteError(format!("`{host}` cannot stand in a certificate")))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}
