//! A simulated world for the core: scripted agents, a virtual clock and an operator. Nothing here sleeps, so a year of
//! idling takes only the time to compute it.
//!
//! `World` takes the role of the host: it carries out the core's decisions on scripted `Act`s and reports back what
//! happened. `check` holds the invariants of every run. `chaos` generates a whole run from one seed, so a failure can
//! be repeated.

mod act;
pub mod chaos;
pub mod check;
pub mod dice;
pub mod plan;
mod world;

pub use act::{Act, Keeper};
pub use world::{Drive, World};
