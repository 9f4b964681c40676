//! The keeper: a small single-threaded process that owns one session's whole process tree.
//!
//! The supervisor starts one per slot, from its own binary, and reuses it from job to job. The keeper
//! is a *child subreaper*: every descendant whose parent dies becomes its own child, so `waitpid`
//! answering "no child" proves that nothing is left, however often a process forked, changed its
//! session or cleared its environment. When the control socket closes, because the supervisor ended
//! or was killed, the keeper ends the tree and then itself.
//!
//! - [`Keeper`] is the supervisor's side: it sends [`Order`]s and receives [`Report`]s.
//! - [`main`] is the process itself; the binary calls it when its first argument is [`ARGUMENT`].
//!
//! One job at a time. The life of a job, as reports: `Started` (or `Refused`) → `Exited` → `Empty`,
//! the last only when asked for by `Sweep` or `Kill`; each of these orders is answered by an `Empty`,
//! at once if nothing is left. `Unkillable` may come before it. A job is refused (EBUSY) while the tree of
//! the one before is not empty. A refused job has no tree and is not to be swept; the orders that end
//! speak of the last job that started, and before the first one they mean nothing.
//!
//! The keeper never decides: when to interrupt and how long a grace is, the supervisor says. It
//! signals its own descendants only, and never a process that it has not proven to be one.

mod adopted;
mod descendants;
mod handle;
mod link;
mod order;
mod process;
mod stale;
mod start;
mod tree;
mod wire;

pub use adopted::{Ended, end_all as end_adopted};
pub(crate) use descendants::stat_of;
pub use handle::{Keeper, KeeperLost, is_lost};
pub use order::{EnvChange, Order, Remnant, Report, StartOrder};
pub use process::main;
pub use stale::release as release_stale;

pub use crate::sys::HowEnded;

/// The first argument that makes the binary a keeper.
pub const ARGUMENT: &str = "__keeper";

/// What a keeper is called in the process table.
const NAME: &str = "dogwatch-keeper";

/// The greatest frame on the control socket, in bytes. Linux takes at most 128 KiB per argument and
/// by default 2 MiB for all of argv and environment, so this only cuts off nonsense.
pub const MAX_FRAME: usize = 4 * 1024 * 1024;

/// The most descriptors that the keeper keeps open for the supervisor.
pub const MAX_HELD: usize = 8;

/// How many of the processes that stand are named in [`Report::Unkillable`].
pub const MAX_REMNANTS: usize = 16;

/// How long the tree has between TERM and KILL when the supervisor is gone.
const LAST_GRACE: std::time::Duration = std::time::Duration::from_secs(1);
