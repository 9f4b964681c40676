//! `dogwatch serve`: the API for all runs of the machine.
//!
//! It reads the records of the runs and forwards control requests to them. It supervises nothing, and runs do not know
//! whether it is running. Without requests it sleeps in `epoll`, with no timer and no file watch.
//!
//! ```text
//! guard.rs   token, Host and Origin checks     runs.rs    the list of runs with their folded records
//! routes.rs  request handlers                  fold.rs    incremental fold of a record
//! steer.rs   wake, pause, resume, stop, tell   stream.rs  live events for one client
//! output.rs  agent output in byte ranges       hub.rs     file watches that wake the streams
//! assets.rs  the dashboard                     agents.rs  external agents that report their activity
//! table.rs   the table of all routes           openapi.rs the OpenAPI document, built from the table
//! metrics.rs Prometheus metrics               others.rs  the runs of other machines
//! proofs.rs  signatures of the page's requests
//! ```

mod agents;
mod assets;
mod fold;
mod guard;
mod hub;
mod metrics;
mod openapi;
mod others;
mod output;
mod proofs;
mod routes;
mod runs;
mod steer;
mod stream;
mod table;

use crate::listener::{Limits, Served, accept_until_closed, runtime};
pub use others::{MachineEntry, MachineState, OtherMachines};
pub(crate) use stream::Pace;

use agents::Agents;
use axum::middleware;
use dogwatch_core::settings::WatchPolicy;
use dogwatch_host::store::registry::{Pointer, Registry};
use dogwatch_host::store::socket;
use dogwatch_host::store::token::Token;
use guard::Guard;
use hub::Hub;
use routes::{Machine, add_security_headers, router};
use runs::Runs;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// The most connections to each listener of `dogwatch serve`.
const MAX_CONNECTIONS: usize = 256;
/// The most of these connections that may follow events.
const MAX_STREAMS: usize = 200;

/// What `dogwatch serve` serves, and where.
pub struct MachineSetup {
    /// The registry of runs.
    pub registry: Registry,
    /// The runs of other machines.
    pub others: Option<Arc<dyn OtherMachines>>,
    /// A loopback listener, and the token that its clients must send.
    pub tcp: Option<(TcpListener, Token)>,
    /// The path of a Unix socket that only its owner can open. It needs no token.
    pub socket: Option<PathBuf>,
    /// The limits for clients.
    pub limits: Limits,
    /// The watchdog policy of external agents that register without limits.
    pub external: WatchPolicy,
    /// Continues a run that went to sleep, in a process that outlives the server. An error is a message for the user.
    pub continue_run: ContinueRun,
}

/// See [`MachineSetup::continue_run`].
pub type ContinueRun = Arc<dyn Fn(&Pointer) -> Result<(), String> + Send + Sync>;

impl MachineSetup {
    /// Returns the default limits of `dogwatch serve`.
    pub fn limits() -> Limits {
        Limits { connections: MAX_CONNECTIONS, streams: MAX_STREAMS, ..Limits::default() }
    }
}

/// Serves all runs on a separate thread.
pub fn serve_machine(setup: MachineSetup) -> io::Result<Served> {
    let limits = setup.limits;
    let runtime = runtime()?;
    let (close, closing) = watch::channel(false);
    let elsewhere = setup.others.iter().flat_map(|others| others.registries());
    let registries = [setup.registry].into_iter().chain(elsewhere).collect();
    let machine = Arc::new(Machine {
        runs: Runs::new(registries),
        others: setup.others,
        hub: Arc::new(Hub::default()),
        agents: Agents::under(setup.external),
        continue_run: setup.continue_run,
        limits,
        streams: Arc::new(Semaphore::new(limits.streams)),
        closing: closing.clone(),
        pace: Pace::default(),
    });
    let inside = runtime.enter();
    let mut bound = None;
    let unix = match setup.socket {
        Some(path) => {
            let (listener, name) = socket::bind(&path)?;
            bound = Some(name);
            Some(tokio::net::UnixListener::from_std(listener)?)
        }
        None => None,
    };
    let tcp = match setup.tcp {
        Some((listener, token)) => {
            let guard = Arc::new(Guard::new(token, listener.local_addr()?, limits)?);
            listener.set_nonblocking(true)?;
            Some((tokio::net::TcpListener::from_std(listener)?, guard))
        }
        None => None,
    };
    drop(inside);
    let (finished, done) = mpsc::channel();
    std::thread::Builder::new().name("api".into()).spawn(move || {
        runtime.block_on(async {
            let router = router(machine);
            let by_socket = async {
                if let Some(listener) = unix {
                    let router = router.clone().layer(middleware::map_response(add_security_headers));
                    accept_until_closed(listener, router, limits, closing.clone()).await;
                }
            };
            let by_tcp = async {
                if let Some((listener, guard)) = tcp {
                    // Add the guard inside the header layer, so that its refusals carry the security headers as well.
                    let router = router.clone().layer(middleware::from_fn_with_state(guard, guard::guard));
                    let router = router.layer(middleware::map_response(add_security_headers));
                    accept_until_closed(listener, router, limits, closing.clone()).await;
                }
            };
            tokio::join!(by_socket, by_tcp);
        });
        // Do not wait for threads that are still waiting for a run.
        runtime.shutdown_background();
        let _ = finished.send(());
    })?;
    Ok(Served { close, done, bound, patience: limits.goodbye + Duration::from_secs(1) })
}
