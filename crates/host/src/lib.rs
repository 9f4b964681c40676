//! The host: it does. Processes, pipes, files, clocks and signals, on the word of the core.

pub mod keeper;
pub mod pump;
pub mod sys;
