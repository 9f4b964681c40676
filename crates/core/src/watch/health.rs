//! The health of a working agent: whether it asks for a person, retries a request, or prints output that its reader does
//! not recognize. This is part of the view. None of it is progress, and none of it is a failure.

use crate::record::event::{Event, Observation};
use crate::record::ids::{Iteration, NodeName};
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Wall};
use crate::watch::{Channel, Fact};

/// The health of the current session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// Whether the reader does not recognize most lines. This lasts for the rest of the session.
    pub drifted: bool,
    /// Set while the agent's CLI retries a request.
    pub retrying: Option<Retrying>,
    /// Set while the agent asks for a person.
    pub asking: Option<Asking>,
}

/// The agent's CLI retries a request, and there has been no progress since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retrying {
    /// When it started to retry.
    pub since: Awake,
    /// The HTTP status that the service returned, if the agent reports it.
    pub status: Option<u16>,
    /// The delay before the next try, if the agent reports it.
    pub delay: Option<Dur>,
}

/// The agent asks for something that only a person can give.
#[derive(Clone, Debug, PartialEq)]
pub struct Asking {
    /// The question in the agent's words.
    pub what: String,
    /// When the session is stopped if unanswered; `None` means never.
    pub until: Option<Wall>,
}

/// A health issue that a reader detects and the watchdog does not judge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HealthIssue {
    /// The reader does not recognize most lines.
    Drifted,
    /// The agent's CLI retries a request.
    Retrying {
        /// The HTTP status of the service, if the agent reports it.
        status: Option<u16>,
        /// The time until the next try, if the agent reports it.
        delay: Option<Dur>,
    },
}

impl HealthIssue {
    /// Returns the event that records the issue.
    pub fn event(self, node: NodeName, iteration: Iteration) -> Event {
        match self {
            HealthIssue::Drifted => Event::AgentDrifted { node, iteration },
            HealthIssue::Retrying { status, delay } => {
                Event::AgentRetrying { node, iteration, status, delay_s: delay }
            }
        }
    }
}

impl Health {
    /// Returns the HTTP status if the service refuses for now and there has been no progress since.
    pub fn refused(&self) -> Option<u16> {
        self.retrying?.status.filter(|status| matches!(status, 429 | 500..))
    }

    /// Notes progress. Progress arrives in order, so progress on stdout ends a retry.
    pub fn observed(&mut self, seen: &Observation) {
        if seen.channel == Channel::Stdout {
            self.retrying = None;
        }
    }

    /// Notes a fact. A tool call is progress on stdout too.
    pub fn noted(&mut self, fact: &Fact) {
        if let Fact::Observed(seen) = fact {
            self.observed(seen);
        } else if fact.is_call() {
            self.retrying = None;
        }
    }

    /// Notes an issue that begins.
    pub fn found(&mut self, now: Awake, issue: HealthIssue) {
        match issue {
            HealthIssue::Drifted => self.drifted = true,
            HealthIssue::Retrying { status, delay } => {
                self.retrying = Some(Retrying { since: now, status, delay });
            }
        }
    }

    /// Returns whether this issue is already recorded.
    pub fn knows(&self, issue: HealthIssue) -> bool {
        match issue {
            HealthIssue::Drifted => self.drifted,
            HealthIssue::Retrying { .. } => self.retrying.is_some(),
        }
    }
}
