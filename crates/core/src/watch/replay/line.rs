//! The output of a replay: a line for every change of the verdict, and a summary. Names and fields are a public interface
//! (docs/guide/replay.md): they are only added to.

use crate::record::ids::{Iteration, NodeName};
use crate::settings::ReaderName;
use crate::watch::limits::Label;
use crate::watch::{Assessment, Channel, Evidence, Needs, StopReason, Verdict};
use serde::Serialize;

/// The name of a session in a file with several sessions. A timeline is one session without a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SessionName {
    /// A session of a journal.
    Iteration(IterationName),
    /// A user turn of a transcript; the first is 1.
    Turn {
        /// The number of the turn, from 1.
        turn: u64,
    },
}

/// A node and one of its iterations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IterationName {
    /// The node's name.
    pub node: NodeName,
    /// The iteration's number.
    pub iteration: Iteration,
}

impl IterationName {
    /// Returns whether this is the iteration of the node.
    pub(super) fn is(&self, node: &NodeName, iteration: Iteration) -> bool {
        self.node == *node && self.iteration == iteration
    }
}

/// A change of the verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictChange {
    /// The session, if the file has several.
    #[serde(flatten)]
    pub session: Option<SessionName>,
    /// The time in seconds since the session's start.
    pub at_s: f64,
    /// The verdict: `continue`, `notice` or `hard_stop`.
    pub verdict: &'static str,
    /// The rule that fired, for a hard stop.
    pub reason: Option<StopReason>,
    /// The verdict as a sentence for people.
    pub message: Option<String>,
    /// The channel that deferred a stop for silence.
    pub deferred_by: Option<Channel>,
    /// The evidence on all channels.
    pub evidence_summary: Vec<Evidence>,
    /// The channel with the most recent evidence.
    pub active_channel: Option<Channel>,
}

/// The state of a session at the end of its replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The session, if the file has several.
    #[serde(flatten)]
    pub session: Option<SessionName>,
    /// When the replay ended, in seconds since the session's start.
    pub ended_at_s: f64,
    /// The last verdict.
    pub verdict: &'static str,
    /// The rule that fired, for a hard stop.
    pub reason: Option<StopReason>,
    /// The number of messages.
    pub messages: u64,
    /// The number of tool calls.
    pub tools: u64,
    /// The number of errors.
    pub errors: u64,
    /// How the iteration would have ended, if that is known.
    pub outcome: Option<&'static str>,
}

/// A replayed session.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The changes of the verdict.
    pub lines: Vec<VerdictChange>,
    /// The state at the end.
    pub summary: Summary,
    /// What the session needed of the limits, if the replay measures it.
    pub needs: Option<Needs>,
    /// The reader of the agent, in a journal.
    pub agent: Option<ReaderName>,
    /// What a person said about the stop, in a journal.
    pub label: Option<Label>,
    /// The id of the agent's own session, in a journal.
    pub agent_session: Option<String>,
    /// The verdicts of the journal that the same policy did not reproduce. There should be none.
    pub differing: Vec<String>,
}

/// The parts of a verdict whose change causes a new line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    pub verdict: &'static str,
    pub reason: Option<StopReason>,
    pub deferred_by: Option<Channel>,
}

impl Mark {
    /// The state in which every session starts.
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

impl VerdictChange {
    pub(super) fn new(session: Option<SessionName>, at_s: f64, answer: Assessment) -> VerdictChange {
        let Mark { verdict, reason, deferred_by } = Mark::of(&answer.verdict);
        let message = match answer.verdict {
            Verdict::Continue { .. } => None,
            Verdict::Notice { message } | Verdict::HardStop { message, .. } => Some(message),
        };
        let Assessment { evidence_summary, active_channel, .. } = answer;
        VerdictChange {
            session,
            at_s,
            verdict,
            reason,
            message,
            deferred_by,
            evidence_summary,
            active_channel,
        }
    }
}
