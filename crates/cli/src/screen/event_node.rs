//! Finds the node that an event belongs to.

use dogwatch_core::record::event::Event;
use dogwatch_core::record::ids::NodeName;

/// Returns the node of an event, or `None` if the event concerns the whole run.
pub fn event_node(event: &Event) -> Option<&NodeName> {
    match event {
        Event::NodeTransition { node, .. }
        | Event::IterationStarted { node, .. }
        | Event::PromptAssembled { node, .. }
        | Event::SessionStarted { node, .. }
        | Event::Observed { node, .. }
        | Event::Fact { node, .. }
        | Event::Used { node, .. }
        | Event::WatchdogContinue { node, .. }
        | Event::MarkerSeen { node, .. }
        | Event::HardStop { node, .. }
        | Event::SessionSignalled { node, .. }
        | Event::SnapshotTaken { node, .. }
        | Event::WorktreeReady { node, .. }
        | Event::ChecksPinned { node, .. }
        | Event::ChecksStarted { node, .. }
        | Event::CheckTampered { node, .. }
        | Event::PartialKept { node, .. }
        | Event::NeedsHuman { node, .. }
        | Event::NeedsHumanEnded { node, .. }
        | Event::AgentRetrying { node, .. }
        | Event::AgentDrifted { node, .. }
        | Event::AgentReported { node, .. }
        | Event::WaitStarted { node, .. }
        | Event::WaitEnded { node, .. }
        | Event::RunSlept { node, .. }
        | Event::WakeRemembered { node, .. } => Some(node),
        Event::CommandFinished(c) => Some(&c.node),
        Event::SessionEnded(s) => Some(&s.node),
        Event::NodeAttempt(a) => Some(&a.node),
        Event::RecoveryPlanned(r) => Some(&r.node),
        Event::IterationCompleted(end)
        | Event::IterationFailed(end)
        | Event::IterationTimedOut(end)
        | Event::IterationAuthFailed(end)
        | Event::IterationIdle { end, .. }
        | Event::IterationRateLimited { end, .. }
        | Event::IterationInterrupted { end, .. } => Some(&end.node),
        _ => None,
    }
}
