//! Shows and listens: the HTTP API on a run's Unix socket, and the client that the commands use.
//!
//! The driver owns the run; this crate asks it through a [`RunHandle`] and never decides anything. One thread
//! serves all callers ([`serve`]); while nobody calls it sleeps in `epoll` and costs nothing. Events are
//! read from the journal on disk, so a slow caller costs neither memory nor supervision.
//!
//! ```text
//! serve.rs    the thread, the socket, who may come in     routes.rs   which question gets which answer
//! events.rs   the journal as a stream, per caller         tail.rs     the journal, read from where one was
//! refusal.rs  every way of saying no                      client.rs   the other end, without a runtime
//! side.rs     what a session says about itself
//! ```
//!
//! What never happens here: writing the record, starting or ending processes, changing anything by GET.

mod agent_channel;
pub mod client;
mod events;
mod listener;
mod machine;
mod refusal;
mod routes;
mod serve;
mod tail;

pub use client::{Client, Response, SseEvent};
pub use dogwatch_host::store::socket::path as socket_path;
pub use listener::{Limits, Served};
pub use machine::{ContinueRun, MachineSetup, serve_machine};
pub use serve::{serve, serve_within};
/// What [`RunHandle::changed`] answers with.
pub use tokio::sync::watch;

pub use dogwatch_host::driver::inbox::Reply;

use dogwatch_core::record::view::View;
use dogwatch_core::run::agent_channel::AgentRequest;

/// The driver, as the API sees it. Called from the API's threads; must not wait for long.
pub trait RunHandle: Send + Sync {
    /// The run as it stands; `None` if the driver does not answer within a second or so.
    fn view(&self) -> Option<View>;
    /// Leaves a request for the driver, which answers by events.
    fn ask(&self, request: Request) -> Result<(), Busy>;
    /// Passes on what a session says; the answer comes by `reply`, from the driver's thread.
    fn hear(&self, token: String, letter: AgentRequest, reply: Reply) -> Result<(), Busy> {
        drop((token, letter, reply));
        Err(Busy)
    }
    /// The number of the last event that stands in the journal. Closed when the run is over.
    fn changed(&self) -> watch::Receiver<u64>;
}

/// What a caller may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// End the wait now.
    Wake,
    /// Begin no iteration until resumed.
    Pause,
    Resume,
    /// Stop after this iteration.
    Stop,
    /// A line for the next prompt.
    Tell(String),
}

/// The driver takes nothing more just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The longest text that `tell` takes, in bytes.
pub const MAX_TELL: usize = dogwatch_core::run::MAX_TOLD_BYTES;
