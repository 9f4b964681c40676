//! The effect that other limits would have had on recorded sessions.

use super::Kind;
use crate::record::event::words;
use crate::time::dur::Dur;
use crate::watch::StopReason;
use crate::watch::replay::{Replayed, Summary};
use serde::Serialize;

words! {
    /// A person's judgment of a stop.
    Label {
        /// The agent was stuck.
        Right = "right",
        /// The agent was at work, so the limit was too tight.
        Wrong = "wrong",
    }
}

/// The effect that limits would have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// The good sessions that were replayed.
    pub good: u64,
    /// How many of them would have been stopped.
    pub good_stopped: u64,
    /// The stopped sessions that were replayed, without those labeled wrong.
    pub stuck: u64,
    /// How many of them would have been stopped sooner.
    pub sooner: u64,
    /// How much sooner in all, in seconds.
    pub saved_s: Dur,
    /// The stops labeled wrong.
    pub wrong: u64,
    /// How many of them would not have happened at that moment.
    pub wrong_spared: u64,
}

impl Trial {
    /// Compares the replays of the same sessions under their own limits and under others. `counts` selects the stops that
    /// are charged to the other limits.
    pub fn of(own: &[Replayed], other: &[Summary], counts: impl Fn(StopReason) -> bool) -> Trial {
        let mut trial = Trial::default();
        for (own, other) in own.iter().zip(other) {
            let stopped = other.reason.is_some_and(&counts);
            match Kind::of(own) {
                Kind::Good => {
                    trial.good += 1;
                    trial.good_stopped += u64::from(stopped);
                }
                Kind::WronglyStopped => {
                    trial.wrong += 1;
                    trial.wrong_spared += u64::from(other.reason.is_none());
                }
                Kind::Stopped => {
                    let by = (own.summary.ended_at_s - other.ended_at_s).max(0.0);
                    let by = Dur::from_secs_f64(by).unwrap_or(Dur::ZERO);
                    trial.stuck += 1;
                    trial.sooner += u64::from(stopped && by > Dur::ZERO);
                    trial.saved_s = if stopped { trial.saved_s.saturating_add(by) } else { trial.saved_s };
                }
                Kind::Unclear => {}
            }
        }
        trial
    }
}
