//! The host: it does. Processes, pipes, files, clocks and signals, on the word of the core.
//!
//! `driver` is the one thread that puts everything into one order; `keeper` and `pump` run what it starts;
//! `journal` is the record and `lock` keeps two runs apart; `exec` runs one command without a run. Nothing in here decides when something has
//! lasted too long or what comes next: that is the core's.

pub(crate) mod absence;
pub mod ask;
pub mod clock;
pub mod day;
pub mod digest;
pub mod door;
pub mod driver;
pub mod exec;
pub(crate) mod git;
pub mod growth;
pub mod home;
pub mod inbox;
pub mod journal;
pub mod keeper;
pub mod lock;
pub mod loopback;
pub mod notify;
pub mod orphans;
pub(crate) mod outputs;
pub mod pins;
pub mod prompt;
pub mod pump;
pub mod recovery;
pub mod registry;
pub mod retire;
pub mod safe_file;
pub mod sample;
pub mod sinks;
pub mod snapshot;
pub mod socket;
pub mod sys;
pub mod token;
pub mod trail;
pub mod wake;
pub mod worktree;
