//! All runs of the machine behind one door: `dogwatch serve`.
//!
//! It reads what the runs have written and passes on what people want of them; it supervises nothing, and a run
//! does not know whether it is there. While nobody asks it sleeps in `epoll`: no timer, no watch.
//!
//! ```text
//! guard.rs   token, Host and Origin            runs.rs    the list, each run with the fold of its record
//! routes.rs  which question, which answer      fold.rs    a record folded as far as it is written
//! steer.rs   wake, pause, resume, stop, tell   stream.rs  events for one caller, live
//! output.rs  what agents printed, in ranges    hub.rs     who reads where, told when it grows
//! assets.rs  the dashboard                     agents.rs  agents elsewhere that report what they do
//! table.rs   all routes, described             openapi.rs the document made from that and the types
//! metrics.rs the runs in numbers
//! ```

mod agents;
mod assets;
mod fold;
mod guard;
mod hub;
mod metrics;
mod openapi;
mod output;
mod routes;
mod runs;
mod steer;
mod stream;
mod table;

use crate::listener::{Limits, Served, let_in, runtime};
use agents::Agents;
use axum::middleware;
use dogwatch_core::settings::WatchPolicy;
use dogwatch_host::store::registry::{Pointer, Registry};
use dogwatch_host::store::socket;
use dogwatch_host::store::token::Token;
use guard::Guard;
use hub::Hub;
use routes::{Machine, dress, router};
use runs::Runs;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use stream::Pace;
use tokio::sync::{Semaphore, watch};

/// Connections to `dogwatch serve`, at each of its doors.
const MAX_CONNECTIONS: usize = 256;
/// Of these, how many may follow events.
const MAX_STREAMS: usize = 200;

/// What is served, and where.
pub struct MachineSetup {
    pub registry: Registry,
    /// On loopback, for whoever has the token.
    pub tcp: Option<(TcpListener, Token)>,
    /// A Unix socket that only its owner can open; nobody is asked for a token there.
    pub socket: Option<PathBuf>,
    pub limits: Limits,
    /// Holds for external agents that register without limits of their own.
    pub external: WatchPolicy,
    /// Continues a run that went to sleep, in a process that outlives this one; an error is a sentence for people.
    pub continue_run: ContinueRun,
}

/// See [`MachineSetup::continue_run`].
pub type ContinueRun = Arc<dyn Fn(&Pointer) -> Result<(), String> + Send + Sync>;

impl MachineSetup {
    pub fn limits() -> Limits {
        Limits { connections: MAX_CONNECTIONS, streams: MAX_STREAMS, ..Limits::default() }
    }
}

/// Serves all runs in a thread of its own.
pub fn serve_machine(setup: MachineSetup) -> io::Result<Served> {
    let limits = setup.limits;
    let runtime = runtime()?;
    let (close, closing) = watch::channel(false);
    let machine = Arc::new(Machine {
        runs: Runs::new(setup.registry),
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
            let guard = Arc::new(Guard::new(token, listener.local_addr()?));
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
                    let router = router.clone().layer(middleware::map_response(dress));
                    let_in(listener, router, limits, closing.clone()).await;
                }
            };
            let by_tcp = async {
                if let Some((listener, guard)) = tcp {
                    // What the guard refuses is dressed like everything else.
                    let router = router.clone().layer(middleware::from_fn_with_state(guard, guard::guard));
                    let router = router.layer(middleware::map_response(dress));
                    let_in(listener, router, limits, closing.clone()).await;
                }
            };
            tokio::join!(by_socket, by_tcp);
        });
        // A thread that still waits for a run is not waited for.
        runtime.shutdown_background();
        let _ = finished.send(());
    })?;
    Ok(Served { close, done, bound, patience: limits.goodbye + Duration::from_secs(1) })
}
