//! Processes: keepers, pumps, sinks, orphans and samples.

pub mod ask;
pub mod keeper;
pub mod orphans;
pub mod pump;
pub mod sample;
pub mod sinks;
