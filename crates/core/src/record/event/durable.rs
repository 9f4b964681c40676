//! Which events must be on disk before anything follows from them.

use super::Event;

impl Event {
    /// Returns whether the event must be durable: intents must be on disk before their effect, and endings must never be
    /// lost.
    pub fn must_be_durable(&self) -> bool {
        match self {
            Event::RunStarted(_)
            | Event::RunResumed(_)
            | Event::IterationStarted { .. }
            | Event::PromptAssembled { .. }
            | Event::HardStop { .. }
            | Event::VerdictLabeled { .. }
            | Event::SessionSignalled { .. }
            | Event::SessionEnded(_)
            | Event::IterationCompleted(_)
            | Event::IterationIdle { .. }
            | Event::IterationFailed(_)
            | Event::IterationTimedOut(_)
            | Event::IterationRateLimited { .. }
            | Event::IterationAuthFailed(_)
            | Event::IterationInterrupted { .. }
            | Event::WorktreeReady { .. }
            | Event::MergeConflicted { .. }
            | Event::SetupFinished(_)
            | Event::WorkCommitted { .. }
            | Event::ChecksPinned { .. }
            | Event::CheckTampered { .. }
            | Event::NodeAttempt(_)
            | Event::RecoveryPlanned(_)
            | Event::PartialKept { .. }
            | Event::WaitStarted { .. }
            | Event::WaitEnded { .. }
            | Event::Paused {}
            | Event::Unpaused {}
            | Event::MessageReceived { .. }
            | Event::NeedsHuman { .. }
            | Event::Notified { .. }
            | Event::RunSlept { .. }
            | Event::IdleLearned { .. }
            | Event::LimitSet { .. }
            | Event::RunEnded(_) => true,
            Event::NodeTransition { .. }
            | Event::CommandFinished(_)
            | Event::SessionStarted { .. }
            | Event::Observed { .. }
            | Event::SnapshotTaken { .. }
            | Event::ChecksStarted { .. }
            | Event::Fact { .. }
            | Event::NeedsHumanEnded { .. }
            | Event::AgentRetrying { .. }
            | Event::AgentDrifted { .. }
            | Event::Used { .. }
            | Event::DayUsed(_)
            | Event::WindowsUsed(_)
            | Event::WatchdogContinue { .. }
            | Event::Suspended { .. }
            | Event::MarkerSeen { .. }
            | Event::AgentReported { .. }
            | Event::WakeRemembered { .. }
            | Event::Notice { .. }
            | Event::Trouble { .. }
            | Event::Unknown => false,
        }
    }
}
