//! The core of dogwatch: it decides, and does nothing else.
//!
//! There is no clock, no file, no process, no thread and no randomness in here. The shell
//! (`dogwatch-host`) tells what happened as `Input`s stamped with a `Moment`; the core answers with
//! `Decision`s. Everything that was decided is an `Event`; every view of a run is a fold of its events.

pub mod record;
pub mod run;
pub mod settings;
pub mod text;
pub mod time;
pub mod watch;

pub use run::Run;
