//! Shows what a policy would have done with a recorded session. The module is pure: the host reads the file and parses the
//! agent's lines. From there on the path is that of a live session, with the same `Feed` and the same `Watch`.
//!
//! A `Player` replays one session from a timeline; `JournalReplay` replays every session of a run's journal. Both only
//! report the watchdog's verdicts and their times.

mod counts;
mod journal;
mod line;
mod player;
mod spans;

pub use journal::JournalReplay;
pub use line::{IterationName, Replayed, SessionName, Summary, VerdictChange};
pub use player::{Finish, Looks, Player};
pub use spans::{MAX_SPANS, Spans};
