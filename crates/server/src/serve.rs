//! Serves one run on its own socket.

use crate::RunHandle;
use crate::listener::{Limits, Served, accept_until_closed, runtime};
use crate::routes::{Shared, router};
use dogwatch_host::store::socket;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};

/// Serves a run at `socket`, on a separate thread.
pub fn serve(socket: PathBuf, run_dir: PathBuf, handle: Arc<dyn RunHandle>) -> io::Result<Served> {
    serve_within(Limits::default(), socket, run_dir, handle)
}

/// Serves a run like [`serve`], with the given limits.
pub fn serve_within(
    limits: Limits,
    socket: PathBuf,
    run_dir: PathBuf,
    handle: Arc<dyn RunHandle>,
) -> io::Result<Served> {
    let (listener, bound) = socket::bind(&socket)?;
    let runtime = runtime()?;
    let listener = {
        let _inside = runtime.enter();
        UnixListener::from_std(listener)?
    };
    let (close, closing) = watch::channel(false);
    let streams = Arc::new(Semaphore::new(limits.streams));
    let router = router(Arc::new(Shared { handle, run_dir, limits, streams, closing: closing.clone() }));
    let (finished, done) = mpsc::channel();
    std::thread::Builder::new().name("api".into()).spawn(move || {
        runtime.block_on(accept_until_closed(listener, router, limits, closing));
        // Do not wait for threads that are still waiting for the driver.
        runtime.shutdown_background();
        let _ = finished.send(());
    })?;
    Ok(Served { close, done, bound: Some(bound), patience: limits.goodbye + Duration::from_secs(1) })
}
