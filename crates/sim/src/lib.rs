//! A modelled world for the core: scripted agents, a clock that jumps, an operator. Nothing in here sleeps,
//! so a year of idling is tested in the time it takes to compute it.
//!
//! `World` plays the shell's part: it carries out the core's decisions on scripted `Act`s and tells it what
//! happened. `check` holds what must be true of every run, whatever was scripted. `chaos` makes a
//! whole run from one seed: what fails once fails again under the same seed.

mod act;
pub mod chaos;
pub mod check;
mod dice;
pub mod plan;
mod world;

pub use act::{Act, Keeper};
pub use world::{Drive, World};
