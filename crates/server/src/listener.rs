//! The thread that serves, the doors it listens at, and who may come in. The same for one run and for all.

use crate::refusal::FULL;
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

/// What callers may take up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    /// Of these, how many may follow the events: the others can always ask and steer.
    pub streams: usize,
    /// The largest body of a request, in bytes.
    pub body: usize,
    /// How long a request may take to arrive, and a connection to send its next one.
    pub read: Duration,
    /// How long callers have to take their answers when the server shuts down.
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

/// The largest head of a request, and what waits to be written to a caller.
const BUFFER: usize = 32 * 1024;
const MAX_HEADERS: usize = 64;
/// Threads that wait for a run's answer or read records; they go away by themselves.
const ASKING_THREADS: usize = 4;
const ASKING_THREAD_STAYS: Duration = Duration::from_secs(1);
/// When no more files can be opened, asking again at once would burn the processor.
const BREATH: Duration = Duration::from_millis(100);

/// What is being served. Dropping it shuts the server down, too.
pub struct Served {
    pub(crate) close: watch::Sender<bool>,
    pub(crate) done: mpsc::Receiver<()>,
    pub(crate) bound: Option<Bound>,
    pub(crate) patience: Duration,
}

impl Served {
    /// Ends every stream after what stands in the journal, and the thread. Bounded, whoever is connected.
    pub fn shut_down(self) {
        drop(self);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // First the name, so that nobody comes any more.
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

/// Where callers come in.
pub(crate) trait Door: Send + Sync + 'static {
    type Caller: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    fn next(&self) -> impl Future<Output = io::Result<Self::Caller>> + Send;
    /// The answer fits a fresh socket's buffer, so nobody is waited for.
    fn turn_away(caller: Self::Caller);
}

impl Door for UnixListener {
    type Caller = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }

    fn turn_away(caller: UnixStream) {
        if let Ok(mut stream) = caller.into_std() {
            let _ = stream.write_all(FULL);
        }
    }
}

impl Door for TcpListener {
    type Caller = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // Small events must not wait for each other.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    fn turn_away(caller: TcpStream) {
        if let Ok(mut stream) = caller.into_std() {
            let _ = stream.write_all(FULL);
        }
    }
}

/// Ends the connection it came with, for a caller who takes nothing any more. Every request carries one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut(Arc<Notify>);

impl Cut {
    pub fn now(&self) {
        self.0.notify_one();
    }

    /// Until somebody wants it.
    pub async fn wanted(&self) {
        self.0.notified().await;
    }
}

/// Lets callers in until it closes, and then waits for those who are there, but not for ever.
pub(crate) async fn let_in<D: Door>(
    door: D,
    router: Router,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let caller = tokio::select! {
            _ = closing.wait_for(|closing| *closing) => break,
            caller = door.next() => caller,
        };
        match (caller, Arc::clone(&places).try_acquire_owned()) {
            (Ok(stream), Ok(place)) => {
                tokio::spawn(attend(stream, router.clone(), limits, closing.clone(), place));
            }
            (Ok(stream), Err(_)) => D::turn_away(stream),
            (Err(_), _) => tokio::time::sleep(BREATH).await,
        }
    }
    drop(door);
    // All places free again: everybody has left.
    let everybody = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(limits.goodbye, places.acquire_many(everybody)).await;
}

async fn attend(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    let cut = Cut::default();
    let service = Attending { inner: TowerToHyperService::new(router), cut: cut.clone() };
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
    // A caller's broken connection is their affair.
    let _ = connection.await;
}

/// The routes, for one connection.
struct Attending {
    inner: TowerToHyperService<Router>,
    cut: Cut,
}

impl Service<hyper::Request<Incoming>> for Attending {
    type Response = <TowerToHyperService<Router> as Service<hyper::Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<hyper::Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<hyper::Request<Incoming>>>::Future;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.cut.clone());
        self.inner.call(request)
    }
}
