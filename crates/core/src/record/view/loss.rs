//! What is known of a run that lost its supervisor: until when it was supervised, and which work it left open.

use super::{Doing, NodeView, Used, View};
use crate::record::event::Usage;
use crate::time::dur::Dur;
use crate::time::moment::{Moment, Wall};

impl View {
    /// Notes when the supervisor was lost. No event has that time: the keeper of the supervisor keeps it elsewhere. The latest
    /// time counts, because the keeper has an earlier one until it notices the loss.
    pub fn note_loss(&mut self, at: Wall) {
        self.lost_at = self.lost_at.max(Some(at));
    }

    /// Returns until when a run without a supervisor was supervised: to the loss of the supervisor if that is known, or
    /// else to the last event. An agent may have worked long after it.
    pub fn supervised_last(&self) -> Moment {
        let lost = self.lost_at.filter(|_| !self.is_over());
        self.last.plus(lost.map_or(Dur::ZERO, |lost| since(lost, self.last.wall)))
    }

    /// Returns the number of iterations that have started and not ended.
    pub fn open_iterations(&self) -> u64 {
        self.nodes.iter().filter(|node| node.current.started.is_some()).count() as u64
    }

    /// Returns the usage of all sessions of a run whose supervisor was lost, including the interrupted sessions.
    pub fn spent_when_lost(&self) -> Used {
        self.nodes.iter().map(NodeView::spent_when_lost).fold(Used::default(), Used::plus)
    }
}

impl NodeView {
    /// Returns the usage of all sessions of a node whose supervisor was lost, including the interrupted session.
    pub fn spent_when_lost(&self) -> Used {
        self.usage.ended.plus(self.interrupted_usage())
    }

    /// Charges the usage of the interrupted session, which no other event will, and returns it.
    pub(super) fn charge_interrupted(&mut self) -> Used {
        let used = self.interrupted_usage();
        self.usage.ended = self.usage.ended.plus(used);
        self.usage.current = Usage::default();
        used
    }

    /// Returns the recorded usage of the interrupted session. Where the record has no figures it is unknown: the session was
    /// not free.
    fn interrupted_usage(&self) -> Used {
        match self.doing {
            Doing::Working { .. } => Used::of(&self.usage.current),
            Doing::Nothing | Doing::Preparing | Doing::Checking | Doing::Waiting { .. } => {
                Used::so_far(&self.usage.current)
            }
        }
    }
}

/// Returns the time from `earlier` to `later`, or zero if the clock was set back.
pub(super) fn since(later: Wall, earlier: Wall) -> Dur {
    Dur::from_millis(u64::try_from(later.0.saturating_sub(earlier.0)).unwrap_or(0))
}
