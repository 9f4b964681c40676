//! Child processes: keepers, pumps, sinks, orphan cleanup and CPU samples.

pub mod caller;
pub mod keeper;
pub mod orphans;
pub mod program;
pub mod pump;
pub mod sample;
pub mod sinks;
pub mod tcp_client;
