//! The targets, by what they read.

pub mod agents;
pub mod files;
pub mod sockets;
pub mod text;
