//! The thread that serves, the socket it listens on, and who may come in.

use crate::Desk;
use crate::refusal::FULL;
use crate::routes::{Shared, router};
use axum::Router;
use dogwatch_host::socket::{self, Bound};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io::{self, Write};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

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
/// Threads that wait for the driver's answer; they go away by themselves.
const ASKING_THREADS: usize = 4;
const ASKING_THREAD_STAYS: Duration = Duration::from_secs(1);
/// When no more files can be opened, asking again at once would burn the processor.
const BREATH: Duration = Duration::from_millis(100);

/// A run that is being served. Dropping it shuts the server down, too.
pub struct Served {
    close: watch::Sender<bool>,
    done: mpsc::Receiver<()>,
    bound: Option<Bound>,
    patience: Duration,
}

/// Serves a run at `socket`, in a thread of its own.
pub fn serve(socket: PathBuf, run_dir: PathBuf, desk: Arc<dyn Desk>) -> io::Result<Served> {
    serve_within(Limits::default(), socket, run_dir, desk)
}

/// The same, with other limits.
pub fn serve_within(
    limits: Limits,
    socket: PathBuf,
    run_dir: PathBuf,
    desk: Arc<dyn Desk>,
) -> io::Result<Served> {
    let (listener, bound) = socket::bind(&socket)?;
    let runtime = runtime()?;
    let listener = {
        let _inside = runtime.enter();
        UnixListener::from_std(listener)?
    };
    let (close, closing) = watch::channel(false);
    let streams = Arc::new(Semaphore::new(limits.streams));
    let router = router(Arc::new(Shared { desk, run_dir, limits, streams, closing: closing.clone() }));
    let (finished, done) = mpsc::channel();
    std::thread::Builder::new().name("api".into()).spawn(move || {
        runtime.block_on(let_in(listener, router, limits, closing));
        // A thread that still waits for the driver is not waited for.
        runtime.shutdown_background();
        let _ = finished.send(());
    })?;
    Ok(Served { close, done, bound: Some(bound), patience: limits.goodbye + Duration::from_secs(1) })
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

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_name("api-asking")
        .max_blocking_threads(ASKING_THREADS)
        .thread_keep_alive(ASKING_THREAD_STAYS)
        .build()
}

async fn let_in(listener: UnixListener, router: Router, limits: Limits, mut closing: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let caller = tokio::select! {
            _ = closing.wait_for(|closing| *closing) => break,
            caller = listener.accept() => caller,
        };
        match (caller, Arc::clone(&places).try_acquire_owned()) {
            (Ok((stream, _)), Ok(place)) => {
                tokio::spawn(attend(stream, router.clone(), limits, closing.clone(), place));
            }
            (Ok((stream, _)), Err(_)) => turn_away(stream),
            (Err(_), _) => tokio::time::sleep(BREATH).await,
        }
    }
    drop(listener);
    // All places free again: everybody has left.
    let everybody = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(limits.goodbye, places.acquire_many(everybody)).await;
}

async fn attend(
    stream: UnixStream,
    router: Router,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.read)
            .max_buf_size(BUFFER)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => connection.as_mut().graceful_shutdown(),
    }
    // A caller's broken connection is their affair.
    let _ = connection.await;
}

/// The answer fits a fresh socket's buffer, so nobody is waited for.
fn turn_away(stream: UnixStream) {
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(FULL);
    }
}
