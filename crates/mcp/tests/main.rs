//! The agent channel and its proxy. One program for all files, because each program is linked with everything that it uses.

#![allow(clippy::unwrap_used)]

mod audit;
mod http;
mod proxy;
mod remote;
mod serving;
mod support;
