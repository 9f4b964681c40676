//! The work tree: digests, file watching, pinned files and subagent logs.

pub mod digest;
pub mod growth;
pub(crate) mod outputs;
pub mod pins;
pub mod subagent_log;
pub mod wake;
