//! The HTTP API on a run's Unix socket, the API of the machine, and the client that the commands use.
//!
//! The driver owns the run; this crate calls it through a [`RunHandle`] and makes no decisions. One thread serves all
//! clients ([`serve`]); without clients it sleeps in `epoll` and costs nothing. Events are read from the journal on
//! disk, so a slow client costs neither memory nor supervision.
//!
//! ```text
//! serve.rs          serves one run               listener.rs   the server thread, sockets and limits
//! routes.rs         request handlers             events.rs     the journal as a stream for one client
//! error.rs          error responses              client.rs     a blocking client
//! agent_channel.rs  requests of a session        peer.rs       the process behind a connection
//! machine/          `dogwatch serve`, all runs   strangers.rs  connections without a token
//! ```
//!
//! This crate never writes the record and never starts or stops processes, and GET requests change nothing.

mod agent_channel;
pub mod client;
mod error;
mod events;
mod listener;
mod machine;
mod peer;
mod routes;
mod serve;
mod strangers;

pub use client::{Client, Response, SseEvent};
pub use dogwatch_host::store::socket::path as socket_path;
pub use listener::{Limits, Served};
pub use machine::{ContinueRun, MachineEntry, MachineSetup, MachineState, OtherMachines, serve_machine};
pub use serve::{serve, serve_within};
/// The channel module that [`RunHandle::changed`] uses.
pub use tokio::sync::watch;

pub use dogwatch_host::driver::inbox::Reply;

use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::view::View;
use dogwatch_core::run::agent_channel::AgentRequest;
use dogwatch_core::run::caller::Source;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::limits::Label;

/// The driver, as the API sees it. Called from the API's threads; must not block for long.
pub trait RunHandle: Send + Sync {
    /// Returns the current view of the run; `None` if the driver does not answer within about a second.
    fn view(&self) -> Option<View>;
    /// Queues a request for the driver, which reports the effect as events.
    fn ask(&self, request: Request) -> Result<(), BusyError>;
    /// Passes a request of a session to the driver; the answer arrives through `reply`, on the driver's thread.
    fn hear(&self, token: String, request: AgentRequest, reply: Reply) -> Result<(), BusyError> {
        drop((token, request, reply));
        Err(BusyError)
    }
    /// Returns the nonce that marks the processes of the run, if it has one.
    fn nonce(&self) -> Option<&str> {
        None
    }
    /// Returns the nonces of the runs whose sessions started this run.
    fn inherited(&self) -> &[String] {
        &[]
    }
    /// Returns the sequence number of the last recorded event as a watch channel, which closes when the run ends.
    fn changed(&self) -> watch::Receiver<u64>;
}

/// A control request for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Ends the current wait.
    Wake,
    /// Pauses the run after the current iteration.
    Pause,
    /// Resumes a paused run.
    Resume,
    /// Stops the run after the current iteration.
    Stop {
        /// The operator accepts checks that do not pass.
        accept: bool,
    },
    /// Keeps the run from calling an agent for a while.
    Limit {
        /// Until when.
        until: Wall,
        /// The account that it applies to; `None` for all agents.
        account: Option<String>,
    },
    /// Adds a message to the next prompt.
    Message {
        /// The message.
        text: String,
        /// The author of the message.
        from: Source,
    },
    /// Labels a stop of the watchdog.
    Label {
        /// The node's name.
        node: NodeName,
        /// The number of the stopped iteration.
        iteration: Iteration,
        /// Whether the stop was right.
        label: Label,
    },
}

/// The driver's request queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyError;

/// The longest message that `tell` accepts, in bytes.
pub const MAX_MESSAGE: usize = dogwatch_core::run::MAX_MESSAGE_BYTES;
