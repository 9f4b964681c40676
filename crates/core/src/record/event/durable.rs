//! Which events must be on disk before anything follows from them.

use super::Event;

impl Event {
    /// Returns whether the event must be durable: intents must be on disk before their effect, and endings must never be
    /// lost. An event that no line here names is durable.
    pub fn must_be_durable(&self) -> bool {
        !matches!(
            self,
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
                | Event::Unknown
        )
    }
}
