//! The record of a run: its events, the view folded from them, and the status, summary and notifications derived
//! from both.

pub mod artifacts;
pub mod calls;
pub mod day;
pub mod event;
pub mod hash;
pub mod ids;
pub mod notification;
pub mod prices;
#[cfg(feature = "schema")]
pub(crate) mod schema;
pub mod sessions;
pub mod status;
pub mod summary;
pub mod view;
pub mod windows;
pub mod words;
