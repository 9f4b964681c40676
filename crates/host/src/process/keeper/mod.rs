//! The keeper: a small single-threaded process that owns the process tree of one job.
//!
//! The supervisor starts one keeper per slot from its own binary and reuses it from job to job. The keeper is a
//! *child subreaper*: every descendant whose parent dies becomes a child of the keeper. So when `waitpid` reports
//! that no child is left, the tree is proven empty, no matter how often a process forked, changed its session or
//! cleared its environment. When the control socket closes, because the supervisor exited or was killed, the keeper
//! ends the tree and then exits.
//!
//! - [`Keeper`] is the supervisor's side: it sends [`Order`]s and receives [`Report`]s.
//! - [`main`] is the process itself; the binary calls it when its first argument is [`ARGUMENT`].
//!
//! A keeper runs one job at a time and reports `Started` (or `Refused`), then `Exited`, then `Empty`. It sends
//! `Empty` only in reply to `Sweep` or `Kill`, once per order, immediately if the tree is already empty. `Unkillable`
//! may precede it. The keeper refuses a job with EBUSY while the tree of the previous job is not empty. A refused job
//! has no tree, so do not sweep it: `Sweep` and `Kill` apply to the last job that started and do nothing before the
//! first one.
//!
//! A keeper on a *leash* ends the tree by itself when its time is over or when a descriptor is closed, so that a stopped
//! supervisor cannot keep an agent alive.
//!
//! The keeper contains no policy: the supervisor decides when to interrupt and how long a grace period lasts. The
//! keeper signals only processes that it has proven to be its descendants.

mod adopted;
mod descendants;
mod handle;
mod job_tree;
mod leash;
mod link;
mod order;
mod own;
mod process;
mod stale;
mod start;
#[doc(hidden)]
pub mod wire;

pub use adopted::kill_with_tree;
pub use descendants::is_stopped;
pub(crate) use descendants::stat_of;
pub use dogwatch_core::run::job::Exit;
pub use handle::{Keeper, KeeperLostError, is_lost};
pub use order::{EnvChange, Order, Remnant, Report, StartOrder};
pub use process::main;
pub use stale::release as release_stale;
pub use start::{DEFAULT_PATH, missing_interpreter};

/// The first argument that makes the binary a keeper.
pub const ARGUMENT: &str = "__keeper";

/// The first argument of a keeper whose programs are the operator's own, not an agent's. They may do what the operator may.
pub const OPERATOR_ARGUMENT: &str = "__keeper_of_operator";

/// A keeper's name in the process table.
const NAME: &str = "dogwatch-keeper";

/// The largest frame on the control socket, in bytes. Linux allows at most 128 KiB per argument and, by default, 2
/// MiB for argv and environment together, so this only rejects broken frames.
pub const MAX_FRAME: usize = 4 * 1024 * 1024;

/// The most descriptors that a keeper holds open for the supervisor.
pub const MAX_HELD: usize = 8;

/// The most processes that [`Report::Unkillable`] names.
pub const MAX_REMNANTS: usize = 16;

/// The grace period between TERM and KILL when the supervisor is gone.
const LAST_GRACE: std::time::Duration = std::time::Duration::from_secs(1);
