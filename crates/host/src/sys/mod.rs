//! Wrappers for system calls that the standard library and rustix lack. The only `unsafe` code of dogwatch, except for
//! two calls at the start of the keeper.
//!
//! Each `unsafe` block explains why it is sound. A function whose soundness depends on its caller is an `unsafe fn`; all
//! others are safe to call. All platform code is here.
//! The callers are the host and the scripted agent, which needs a bare `fork` to misbehave. This module knows nothing
//! about sessions.
#![allow(unsafe_code)]

mod fork_job;
mod namespace;
mod process;
mod signal;
mod spawn;
mod stopped;
mod timer;

pub use fork_job::{Surroundings, fork_job};
pub use namespace::{own_mounts, restrict_self, set_read_only};
pub use process::{
    Forked, ReapedChild, Waited, close_from, fork, is_unreaped, move_to, unread_by_peer, wait_any,
};
pub use signal::{
    SignalFd, block, block_all, block_pipe_signal_here, default_action, ignore, ignores, reset_pipe_signal,
};
pub use spawn::{Spawn, spawn};
pub use stopped::StopClock;
pub use timer::{Clock, Timer};
