//! Loop files, graph files and their errors. One program for all files, because each program is linked with everything that it uses.

#![allow(clippy::unwrap_used)]

mod bounds;
mod common;
mod fields;
mod graphs;
mod layering;
mod mcp_servers;
mod policies;
mod rendering;
