//! What the standard library and rustix do not offer as a safe call: the only `unsafe` of dogwatch.
//!
//! Every function here is safe to call; each `unsafe` block says why it holds. Platform code lives
//! here and nowhere else. The keeper and the pump are the callers, and the scripted agent, which
//! needs a bare `fork` to misbehave. Nothing in here knows what a session is.
#![allow(unsafe_code)]

mod memory;
mod process;
mod signal;
mod spawn;
mod stopped;
mod timer;

pub use memory::give_back_code;
pub use process::{
    Forked, Gone, HowEnded, Waited, close_from, fork, is_unreaped, move_to, unread_by_peer, wait_any,
};
pub use signal::{
    SignalFd, block, block_all, block_pipe_signal_here, default_action, ignore, ignores, reset_pipe_signal,
};
pub use spawn::{Spawn, spawn};
pub use stopped::StopClock;
pub use timer::{Clock, Timer};
