//! The subject of an event: its node, its iteration, and the ending that it records.

use super::{
    CommandFinished, EndingKind, Event, IterationEnd, NodeAttempt, RecoveryPlanned, SessionEnded,
    SetupFinished,
};
use crate::record::ids::{Iteration, NodeName};

/// The subject of an event.
struct Subject<'a> {
    node: Option<&'a NodeName>,
    iteration: Option<Iteration>,
    ending: Option<(EndingKind, &'a IterationEnd)>,
}

impl Event {
    /// Returns the node of the event, or `None` if the event concerns the whole run.
    pub fn node(&self) -> Option<&NodeName> {
        self.subject().node
    }

    /// Returns the iteration of the event, or `None` if the event does not belong to one.
    pub fn iteration(&self) -> Option<Iteration> {
        self.subject().iteration
    }

    /// Returns how an iteration ended, if the event is such an ending.
    pub fn ending(&self) -> Option<(EndingKind, &IterationEnd)> {
        self.subject().ending
    }

    fn subject(&self) -> Subject<'_> {
        match self {
            Event::IterationCompleted(end) => ended(EndingKind::Completed, end),
            Event::IterationIdle { end, .. } => ended(EndingKind::Idle, end),
            Event::IterationFailed(end) => ended(EndingKind::Failed, end),
            Event::IterationTimedOut(end) => ended(EndingKind::TimedOut, end),
            Event::IterationRateLimited { end, .. } => ended(EndingKind::RateLimited, end),
            Event::IterationAuthFailed(end) => ended(EndingKind::AuthFailed, end),
            Event::IterationInterrupted { end, .. } => ended(EndingKind::Interrupted, end),
            Event::IterationStarted { node, iteration, .. }
            | Event::PromptAssembled { node, iteration, .. }
            | Event::SessionStarted { node, iteration, .. }
            | Event::Observed { node, iteration, .. }
            | Event::Fact { node, iteration, .. }
            | Event::NeedsHuman { node, iteration, .. }
            | Event::NeedsHumanEnded { node, iteration, .. }
            | Event::AgentRetrying { node, iteration, .. }
            | Event::AgentDrifted { node, iteration }
            | Event::Used { node, iteration, .. }
            | Event::WatchdogContinue { node, iteration, .. }
            | Event::MarkerSeen { node, iteration, .. }
            | Event::HardStop { node, iteration, .. }
            | Event::VerdictLabeled { node, iteration, .. }
            | Event::SessionSignalled { node, iteration, .. }
            | Event::AgentReported { node, iteration, .. }
            | Event::SnapshotTaken { node, iteration, .. }
            | Event::ChecksStarted { node, iteration }
            | Event::CheckTampered { node, iteration, .. }
            | Event::PartialKept { node, iteration, .. }
            | Event::CommandFinished(CommandFinished { node, iteration, .. })
            | Event::SessionEnded(SessionEnded { node, iteration, .. })
            | Event::NodeAttempt(NodeAttempt { node, iteration, .. })
            | Event::RecoveryPlanned(RecoveryPlanned { node, iteration, .. }) => {
                Subject { node: Some(node), iteration: Some(*iteration), ending: None }
            }
            Event::NodeTransition { node, .. }
            | Event::WorktreeReady { node, .. }
            | Event::MergeConflicted { node, .. }
            | Event::SetupFinished(SetupFinished { node, .. })
            | Event::WorkCommitted { node, .. }
            | Event::ChecksPinned { node, .. }
            | Event::WaitStarted { node, .. }
            | Event::WaitEnded { node, .. }
            | Event::RunSlept { node, .. }
            | Event::IdleLearned { node, .. }
            | Event::WakeRemembered { node, .. } => {
                Subject { node: Some(node), iteration: None, ending: None }
            }
            Event::RunStarted(_)
            | Event::RunResumed(_)
            | Event::DayUsed(_)
            | Event::WindowsUsed(_)
            | Event::LimitSet { .. }
            | Event::Suspended { .. }
            | Event::Paused {}
            | Event::Unpaused {}
            | Event::MessageReceived { .. }
            | Event::Notice { .. }
            | Event::Trouble { .. }
            | Event::Notified { .. }
            | Event::RunEnded(_)
            | Event::Unknown => Subject { node: None, iteration: None, ending: None },
        }
    }
}

fn ended(kind: EndingKind, end: &IterationEnd) -> Subject<'_> {
    Subject { node: Some(&end.node), iteration: Some(end.iteration), ending: Some((kind, end)) }
}
