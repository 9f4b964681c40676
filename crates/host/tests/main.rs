//! The parts of the host on the real system. One program for all files, because each program is linked with everything that it uses.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]

mod digest;
mod golden;
mod pump;
mod restore;
#[path = "support/skip.rs"]
mod skip;
mod snapshot;
mod snapshot_rig;
mod subagent_log;
mod wake;
mod wake_flood;
mod wake_limits;
mod wake_rig;
mod worktree;
