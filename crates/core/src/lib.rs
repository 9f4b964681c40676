//! The core of dogwatch: it decides, and does nothing else.
//!
//! There is no clock, no file, no process, no thread and no randomness in here. The shell
//! (`dogwatch-host`) tells what happened as `Input`s stamped with a `Moment`; the core answers with
//! `Decision`s. Everything that was decided is an `Event`; every view of a run is a fold of its events.

pub mod address;
pub mod artifacts;
pub mod attempts;
pub mod circuit;
pub mod coalesce;
pub mod condition;
pub mod day;
pub mod decision;
pub mod dur;
pub mod ending;
pub mod event;
pub mod external;
pub mod fingerprint;
pub mod hash;
pub mod idle;
pub mod ids;
pub mod input;
pub mod job;
pub mod moment;
pub mod news;
pub mod owed;
pub mod recovery;
pub mod redact;
pub mod replay;
pub mod run;
#[cfg(feature = "schema")]
mod schema;
pub mod settings;
pub mod side;
pub mod sign;
pub mod status;
pub mod story;
pub mod text;
pub mod timer;
pub mod touch;
pub mod tune;
pub mod view;
pub mod watch;
pub mod watched;

pub use run::Run;
