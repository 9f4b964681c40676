//! How a node waits when there is nothing to do.

use crate::record::event::words;
use crate::time::dur::Dur;
use serde::{Deserialize, Serialize};

/// How long to wait when there is nothing to do, and when to stop waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdlePolicy {
    /// The wait after the first idle iteration.
    pub delay: Dur,
    /// The factor by which each further wait grows.
    pub backoff: f64,
    /// The longest wait.
    pub max_delay: Dur,
    /// The length of an idle streak that ends the loop.
    pub max: Option<Dur>,
    /// The number of idle iterations that stops the loop.
    pub stop_after: StopAfter,
    /// How the waits grow.
    pub strategy: Strategy,
    /// With `learned`: how much waiting an empty look is worth. `None` is the default for the kind of look.
    #[serde(default)]
    pub look: Option<Dur>,
    /// With `learned`: the longest wait.
    #[serde(default = "IdlePolicy::default_longest")]
    pub longest: Dur,
    /// Do not start the agent while the prompt and the work tree are unchanged since its last idle answer.
    pub skip_unchanged: bool,
    /// Explain the idle marker to the agent at the end of the prompt.
    pub instruct: bool,
    /// The behavior of the process after an idle limit has stopped the loop.
    #[serde(default)]
    pub after_stop: AfterStop,
}

words! {
    /// The behavior of the process after an idle stop.
    #[derive(Default)]
    AfterStop {
        /// The run ends with outcome `idle`.
        #[default]
        Exit = "exit",
        /// The run sleeps, without an agent and without a timer, until it is woken.
        Watch = "watch",
    }
}

impl Default for IdlePolicy {
    fn default() -> Self {
        IdlePolicy {
            delay: Dur::from_secs(30),
            backoff: 2.0,
            max_delay: Dur::from_mins(5),
            max: None,
            stop_after: StopAfter::PerReason(vec![(NO_PENDING_TASKS.to_owned(), 8)]),
            strategy: Strategy::Exponential,
            look: None,
            longest: IdlePolicy::LONGEST,
            skip_unchanged: false,
            instruct: true,
            after_stop: AfterStop::Exit,
        }
    }
}

impl IdlePolicy {
    /// The default of `idle.longest`.
    pub const LONGEST: Dur = Dur::from_hours(1);
    /// The default of `idle.look`.
    pub const LOOK: Dur = Dur::from_secs(20);
    /// The default of `idle.look` after a look that did not call the agent.
    pub const FREE_LOOK: Dur = Dur::from_secs(5);

    fn default_longest() -> Dur {
        IdlePolicy::LONGEST
    }

    /// Returns how much waiting an empty look is worth. `skipped` is whether the last look did not call the agent.
    pub fn look_cost(&self, skipped: bool) -> Dur {
        self.look.unwrap_or(if skipped { IdlePolicy::FREE_LOOK } else { IdlePolicy::LOOK })
    }
}

/// The idle reason for "all tasks are done".
pub const NO_PENDING_TASKS: &str = "no_pending_tasks";

/// The number of consecutive idle iterations after which the loop ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopAfter {
    /// The count stops nothing.
    Never,
    /// This number of consecutive idle iterations, for any reason.
    Count(u32),
    /// One limit per reason, which counts only consecutive iterations with that reason.
    PerReason(Vec<(String, u32)>),
}

words! {
    /// How idle waits grow.
    Strategy {
        /// Each wait is longer by a constant factor.
        Exponential = "exponential",
        /// All waits are equal.
        Fixed = "fixed",
        /// The waits grow like the Fibonacci numbers.
        Fibonacci = "fibonacci",
        /// Each wait is drawn from a range that depends on the wait before.
        Decorrelated = "decorrelated",
        /// The waits follow the times at which work arrived so far.
        Learned = "learned",
    }
}
