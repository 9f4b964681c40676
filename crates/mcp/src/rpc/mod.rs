//! The Model Context Protocol: JSON-RPC messages, the two lifecycles, and the roles of server and client. It is written
//! by hand, because dogwatch serves a few tools and forwards calls unread; docs/internals/choices.md has the reasons.
//!
//! ```text
//! message.rs   messages and their parser (pure)     version.rs  protocol versions and lifecycles (pure)
//! server.rs    answers to requests                  stdio.rs    the server loop over a wire
//! client.rs    requests to another server           calls.rs    open calls and their cancellation
//! ```

pub mod calls;
pub mod client;
pub mod message;
pub mod server;
pub mod stdio;
pub mod version;

use std::future::Future;
use std::pin::Pin;

/// A boxed future, for traits that are used as objects.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
