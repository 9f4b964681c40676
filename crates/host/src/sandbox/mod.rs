//! The sandbox of a session: what its processes may read, write, connect to and signal.
//!
//! The keeper prepares a session and forks. The child applies a [`Policy`] to itself and then becomes the agent, so everything that the agent
//! starts is inside.
//!
//! Two means work together. Landlock allows writing below some paths and nowhere else, needs no privilege, and scopes
//! signals and abstract sockets. It cannot forbid a part of what it allows. So the record and git's hooks, which are
//! inside the work tree, are mounted read-only in a mount table that only the session sees.
//!
//! A session controls the files in its work tree, and later sessions must not be allowed more because of them. So the
//! [`Ground`] is found once, and rules follow no link that a session could have made.

mod enter;
mod ground;
mod mounts;
mod policy;

pub use enter::{ARGUMENT, Sandboxed, Support, fail, probe, support};
pub use ground::{GitDir, GitPlace, Ground};
pub use policy::{Facts, Policy, inner, wrap};
