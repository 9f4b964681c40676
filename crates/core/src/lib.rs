//! The core of dogwatch: it makes every decision and has no side effects.
//!
//! The core uses no clock, file, process, thread or randomness. The shell (`dogwatch-host`) reports what
//! happened as `Input`s stamped with a `Moment`; the core returns `Decision`s. Every decision is recorded as an
//! `Event`, and every view of a run is a fold of its events.

pub mod drive;
pub mod learn;
pub mod lease;
pub mod record;
pub mod run;
pub mod settings;
pub mod text;
pub mod time;
pub mod watch;

pub use run::Run;
