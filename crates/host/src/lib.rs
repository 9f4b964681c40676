//! The host: it does. Processes, pipes, files, clocks and signals, on the word of the core.
//!
//! `driver` is the one thread that puts everything into one order; `keeper` and `pump` run what it starts;
//! `journal` is the record and `lock` keeps two runs apart; `exec` runs one command without a run. Nothing in here decides when something has
//! lasted too long or what comes next: that is the core's.

pub(crate) mod absence;
pub mod clock;
pub mod driver;
pub mod exec;
pub mod fs;
pub mod git;
pub mod net;
pub mod process;
pub mod prompt;
pub mod store;
pub mod sys;
