//! The host carries out what the core decides: processes, pipes, files, clocks and signals.
//!
//! `driver` is the single thread that orders all inputs. `process` runs child processes under keepers and drains
//! their output. `store` keeps the journal, the locks and the registry. `exec` runs one command without a run. The
//! host contains no policy: the core decides when something has timed out and what happens next.

pub(crate) mod absence;
pub mod clock;
pub mod driver;
pub mod exec;
pub mod fs;
pub mod git;
pub mod leash;
pub mod net;
pub mod process;
pub mod prompt;
pub mod sandbox;
pub mod store;
pub mod sys;
