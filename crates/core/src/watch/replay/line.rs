//! What a replay prints: a line for every change of the verdict, and a summary. Names and fields are a public
//! interface (docs/guide/replay.md): they change only by adding.

use super::counts::Exercised;
use crate::record::ids::{Iteration, NodeName};
use crate::watch::{Answer, Channel, Evidence, StopReason, Verdict};
use serde::Serialize;

/// Which session of a file with several. A timeline is one session without a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SessionName {
    /// A session of a journal.
    Iteration(IterationName),
    /// A user turn of a transcript; the first is 1.
    Turn { turn: u64 },
}

/// A node and one of its iterations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IterationName {
    pub node: NodeName,
    pub iteration: Iteration,
}

/// The verdict changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    #[serde(flatten)]
    pub session: Option<SessionName>,
    /// Seconds since the session's start.
    pub at_s: f64,
    pub verdict: &'static str,
    pub reason: Option<StopReason>,
    pub message: Option<String>,
    pub deferred_by: Option<Channel>,
    pub evidence_summary: Vec<Evidence>,
    pub active_channel: Option<Channel>,
}

/// How the session stood when the look ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    #[serde(flatten)]
    pub session: Option<SessionName>,
    pub ended_at_s: f64,
    pub verdict: &'static str,
    pub reason: Option<StopReason>,
    pub messages: u64,
    pub tools: u64,
    pub errors: u64,
    /// How the iteration would have ended; unknown if it has not.
    pub outcome: Option<&'static str>,
}

/// A session, replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    pub lines: Vec<Line>,
    pub summary: Summary,
    pub exercised: Exercised,
    /// Verdicts of the journal that the same policy did not reproduce. There should be none.
    pub differing: Vec<String>,
}

/// What makes a line differ from the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    pub verdict: &'static str,
    pub reason: Option<StopReason>,
    pub deferred_by: Option<Channel>,
}

impl Mark {
    /// Where every session starts.
    pub const PLAIN: Mark = Mark { verdict: "continue", reason: None, deferred_by: None };

    pub fn of(verdict: &Verdict) -> Mark {
        match verdict {
            Verdict::Continue { deferred_by } => Mark { deferred_by: *deferred_by, ..Mark::PLAIN },
            Verdict::Notice { .. } => Mark { verdict: "notice", ..Mark::PLAIN },
            Verdict::HardStop { reason, .. } => {
                Mark { verdict: "hard_stop", reason: Some(*reason), deferred_by: None }
            }
        }
    }
}

impl Line {
    pub(super) fn new(session: Option<SessionName>, at_s: f64, answer: Answer) -> Line {
        let Mark { verdict, reason, deferred_by } = Mark::of(&answer.verdict);
        let message = match answer.verdict {
            Verdict::Continue { .. } => None,
            Verdict::Notice { message } | Verdict::HardStop { message, .. } => Some(message),
        };
        let Answer { evidence_summary, active_channel, .. } = answer;
        Line { session, at_s, verdict, reason, message, deferred_by, evidence_summary, active_channel }
    }
}
