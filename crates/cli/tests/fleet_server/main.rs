//! The operator's side of a fleet, with a real NATS server.
#![cfg(feature = "fleet")]

#[path = "../kit/mod.rs"]
mod kit;

mod demo;
mod server;
mod view;
mod whole;
