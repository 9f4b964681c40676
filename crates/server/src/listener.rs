//! The server thread, the sockets it listens on, and the connection limits. Shared by the API of one run and the API
//! of the machine.

use crate::error::FULL;
use crate::peer::Peer;
use crate::strangers::{Known, Strangers};
use axum::Router;
use dogwatch_host::store::socket::Bound;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io::{self, Write};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Limits on the resources that clients can use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections that are open at once.
    pub connections: usize,
    /// The most connections that may follow events. The remaining ones stay free for queries and control requests.
    pub streams: usize,
    /// The largest request body, in bytes.
    pub body: usize,
    /// How long a request may take to arrive, and how long a connection may stay idle before its next request.
    pub read: Duration,
    /// How long clients have to read pending responses when the server shuts down.
    pub goodbye: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 64,
            streams: 56,
            body: 64 * 1024,
            read: Duration::from_secs(10),
            goodbye: Duration::from_millis(500),
        }
    }
}

/// The largest request head, and the largest amount of data buffered for one client.
const BUFFER: usize = 32 * 1024;
const MAX_HEADERS: usize = 64;
/// Threads that wait for a run's answer or read records; they exit when idle.
const ASKING_THREADS: usize = 4;
const ASKING_THREAD_STAYS: Duration = Duration::from_secs(1);
/// The pause after a failed accept. Without it, running out of file descriptors would cause a busy loop.
const BREATH: Duration = Duration::from_millis(100);

/// A running server. Dropping it shuts the server down.
pub struct Served {
    pub(crate) close: watch::Sender<bool>,
    pub(crate) done: mpsc::Receiver<()>,
    pub(crate) bound: Option<Bound>,
    pub(crate) patience: Duration,
}

impl Served {
    /// Shuts the server down: streams end after the last recorded event, then the thread exits.
    ///
    /// Takes a bounded time, no matter how many clients are connected.
    pub fn shut_down(self) {
        drop(self);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Remove the socket file first, so that no new client connects.
        self.bound = None;
        self.close.send_replace(true);
        let _ = self.done.recv_timeout(self.patience);
    }
}

pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_name("api-asking")
        .max_blocking_threads(ASKING_THREADS)
        .thread_keep_alive(ASKING_THREAD_STAYS)
        .build()
}

/// A listening socket.
pub(crate) trait Acceptor: Send + Sync + 'static {
    type Caller: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    fn next(&self) -> impl Future<Output = io::Result<Self::Caller>> + Send;
    /// Rejects a client when all connections are in use. The response fits the buffer of a new socket, so the write
    /// does not block.
    fn reject(caller: Self::Caller);
    /// Whether only the owner can open a connection.
    const ONLY_OWNER: bool;
    /// Returns the client that opened the connection.
    fn peer(caller: &Self::Caller) -> Peer;
}

impl Acceptor for UnixListener {
    type Caller = UnixStream;
    const ONLY_OWNER: bool = true;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }

    fn reject(caller: UnixStream) {
        if let Ok(mut stream) = caller.into_std() {
            let _ = stream.write_all(FULL);
        }
    }

    fn peer(caller: &UnixStream) -> Peer {
        Peer::Process(caller.peer_cred().ok().and_then(|cred| cred.pid()).unwrap_or(0))
    }
}

impl Acceptor for TcpListener {
    type Caller = TcpStream;
    const ONLY_OWNER: bool = false;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // Send small events at once instead of batching them.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    fn reject(caller: TcpStream) {
        if let Ok(mut stream) = caller.into_std() {
            let _ = stream.write_all(FULL);
        }
    }

    fn peer(caller: &TcpStream) -> Peer {
        match (caller.peer_addr(), caller.local_addr()) {
            (Ok(client), Ok(server)) => Peer::TokenHolder { client, server },
            // The connection is closed already. No process has this pid, so it may not steer.
            (Err(_), _) | (_, Err(_)) => Peer::Process(i32::MAX),
        }
    }
}

/// Closes the connection of a client that has stopped reading. Every request carries one as an extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut(Arc<Notify>);

impl Cut {
    /// Requests that the connection be closed.
    pub fn now(&self) {
        self.0.notify_one();
    }

    /// Waits until a close is requested.
    pub async fn wanted(&self) {
        self.0.notified().await;
    }
}

/// Accepts connections until `closing` is set, then waits a bounded time for the open ones to finish.
pub(crate) async fn accept_until_closed<D: Acceptor>(
    listener: D,
    router: Router,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let strangers = Strangers::default();
    loop {
        let caller = tokio::select! {
            _ = closing.wait_for(|closing| *closing) => break,
            caller = listener.next() => caller,
        };
        let Ok(stream) = caller else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        match free_permit(&permits, &strangers).await {
            Some(permit) => {
                let (peer, cut) = (D::peer(&stream), Cut::default());
                let known = Known::new(D::ONLY_OWNER);
                strangers.add(&known, &cut);
                let service =
                    ConnectionService { inner: TowerToHyperService::new(router.clone()), cut, peer, known };
                tokio::spawn(serve_connection(stream, service, limits, closing.clone(), permit));
            }
            None => D::reject(stream),
        }
    }
    drop(listener);
    // When all permits are available again, every connection has closed.
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(limits.goodbye, permits.acquire_many(all)).await;
}

/// Returns a permit for a new connection. If all are in use, the oldest connection without a token makes room.
async fn free_permit(permits: &Arc<Semaphore>, strangers: &Strangers) -> Option<OwnedSemaphorePermit> {
    match Arc::clone(permits).try_acquire_owned() {
        Ok(permit) => Some(permit),
        Err(_) if strangers.close_oldest() => {
            tokio::time::timeout(BREATH, Arc::clone(permits).acquire_owned()).await.ok()?.ok()
        }
        Err(_) => None,
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: ConnectionService,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
) {
    let cut = service.cut.clone();
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.read)
            .max_buf_size(BUFFER)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        _ = connection.as_mut() => return,
        () = cut.wanted() => return,
        _ = closing.wait_for(|closing| *closing) => connection.as_mut().graceful_shutdown(),
    }
    // Ignore the error: a broken connection only affects its own client.
    let _ = connection.await;
}

/// The routes as seen by one connection.
struct ConnectionService {
    inner: TowerToHyperService<Router>,
    cut: Cut,
    peer: Peer,
    known: Known,
}

impl Service<hyper::Request<Incoming>> for ConnectionService {
    type Response = <TowerToHyperService<Router> as Service<hyper::Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<hyper::Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<hyper::Request<Incoming>>>::Future;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.cut.clone());
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.known.clone());
        self.inner.call(request)
    }
}
