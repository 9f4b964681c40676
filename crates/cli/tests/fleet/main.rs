//! Fleets with a real NATS server and real workers, and the faults that they must survive. The agents' own marks prove
//! that no two of them worked on one job at once.
#![cfg(feature = "fleet")]

#[path = "../kit/mod.rs"]
mod kit;

mod accounts;
mod events;
mod faults;
mod harbor;
mod jobs;
mod journals;
mod large;
mod leaving;
mod machines;
mod network;
mod nodes;
mod proxy;
mod pulls;
mod records;
mod screen;
mod steering;
