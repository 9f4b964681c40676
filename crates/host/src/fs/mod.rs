//! The work tree: digests, file watching, pinned files and subagent logs.

/// Digests of a work tree.
pub mod digest;
/// Change notifications for growing files.
pub mod growth;
pub(crate) mod outputs;
/// The files that checks depend on.
pub mod pins;
/// Subagent activity from the log files of agent CLIs.
pub mod subagent_log;
/// Watching paths for changes.
pub mod wake;
