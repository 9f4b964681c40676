//! Many machines: jobs are queued on a NATS JetStream server, and workers run them as ordinary dogwatch runs.
//!
//! The server holds a queue, a key-value record for each job and a copy of each journal. No program controls the
//! workers: a worker claims a job by compare-and-set on its record and keeps the claim by renewing it. The rule is the pure
//! machine `dogwatch_core::lease`; this crate carries out what it decides. Supervision does not depend on this crate.

pub mod blob;
pub mod blocking;
pub mod client;
pub mod join;
pub mod names;
pub mod operator;
pub mod record;
pub mod server;
pub mod setup;
pub mod submit;
pub mod worker;

pub use client::{Client, FleetError};
pub use join::JoinLine;
pub use names::Name;
