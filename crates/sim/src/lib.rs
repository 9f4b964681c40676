//! A simulated world for dogwatch: a machine with clocks, a disk, processes and an operator. Nothing here sleeps, so a
//! year of idling takes only the time to compute it.
//!
//! `World` runs the driver of the program, `dogwatch_core::drive`, on a `Machine`: scripted `Act`s take the place of
//! processes, and agents print bytes that the real listener reads. `check` holds the invariants of every run. `chaos`
//! generates a whole run from one seed, so a failure can be repeated. `oracle` is a second implementation of the
//! watchdog's table.

mod act;
pub mod chaos;
pub mod check;
pub mod dice;
pub mod lease;
pub mod machine;
pub mod oracle;
pub mod plan;
mod world;

pub use act::{Act, Does, Keeper};
pub use machine::Machine;
pub use world::{Crash, Drive, World};
