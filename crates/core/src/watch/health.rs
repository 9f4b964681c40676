//! What ails an agent that works: it asks for a person, tries a request again and again, or prints what its reader
//! does not know. Part of the view; none of it is progress and none of it a failure.

use crate::record::event::Observation;
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Wall};
use crate::watch::Channel;

/// The condition of the present session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// Most of its lines are unknown: they count as bytes do. It stays so for the session.
    pub drifted: bool,
    pub retrying: Option<Retrying>,
    pub asking: Option<Asking>,
}

/// It tries a request again, and there has been no progress since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retrying {
    pub since: Awake,
    /// What the service answered, if the agent says so.
    pub status: Option<u16>,
    /// How long it waits before it tries again, if it says so.
    pub delay: Option<Dur>,
}

/// It asks for something that only a person can give.
#[derive(Clone, Debug, PartialEq)]
pub struct Asking {
    pub what: String,
    /// It is ended then; `None` is never.
    pub until: Option<Wall>,
}

/// What a reader tells of an agent's condition, besides what the watchdog hears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HealthIssue {
    Drifted,
    Retrying { status: Option<u16>, delay: Option<Dur> },
}

impl Health {
    /// What the service answered, if it refuses for now and there has been no progress since.
    pub fn refused(&self) -> Option<u16> {
        self.retrying?.status.filter(|status| matches!(status, 429 | 500..))
    }

    /// Progress, told in its order: what came before it tried again was told before that.
    pub fn observed(&mut self, seen: &Observation) {
        if seen.channel == Channel::Stdout {
            self.retrying = None;
        }
    }

    /// A second word of the same is none.
    pub fn knows(&self, strain: HealthIssue) -> bool {
        match strain {
            HealthIssue::Drifted => self.drifted,
            HealthIssue::Retrying { .. } => self.retrying.is_some(),
        }
    }
}
