//! What a policy would have done with a recording. Pure: the shell reads the file and has the agent's lines
//! read; from there on it is the way of a live session, the same coalescer and the same `Watch`.
//!
//! A `Player` replays one session from a timeline; `JournalReplay` replays every session of a run's journal.
//! Neither ever decides anything: they tell what the watchdog answered, and when.

mod counts;
mod feed;
mod journal;
mod line;
mod player;
mod spans;

pub use counts::Exercised;
pub use feed::{Did, Feed, Input};
pub use journal::JournalReplay;
pub use line::{IterationName, Line, Replayed, SessionName, Summary};
pub use player::{Finish, Looks, Player};
pub use spans::{MAX_SPANS, Spans};
