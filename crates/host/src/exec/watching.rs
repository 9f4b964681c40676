//! Passes facts about the command to the watchdog and translates its verdicts, by the same rules as in a run.

use dogwatch_core::record::event::Event;
use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::health::{Health, HealthIssue};
use dogwatch_core::watch::{Fact, Monitor, Session, Verdict};

use super::record::{iteration, node};

/// The watch over one command.
pub struct Watching {
    pub monitor: Monitor,
    health: Health,
}

/// The consequences of a verdict.
#[derive(Default)]
pub struct Consequences {
    pub event: Option<Event>,
    /// Why the command must be stopped, if it must.
    pub stop: Option<String>,
}

impl Watching {
    /// Starts the watch at `started`.
    pub fn new(policy: WatchPolicy, started: Awake, structured: bool) -> Watching {
        let monitor = Monitor::new(policy, Session::new(started, structured));
        Watching { monitor, health: Health::default() }
    }

    /// Passes a fact to the watchdog.
    pub fn take(&mut self, now: Awake, fact: &Fact) -> Consequences {
        self.monitor.take(now, fact);
        self.health.noted(fact);
        // Progress only moves a deadline, so there is nothing to judge.
        if matches!(fact, Fact::Observed(_)) { Consequences::default() } else { self.judge(now) }
    }

    /// Returns an event when a health issue begins.
    pub fn issue_found(&mut self, now: Awake, issue: HealthIssue) -> Option<Event> {
        if self.health.knows(issue) {
            return None;
        }
        self.health.found(now, issue);
        Some(issue.event(node(), iteration()))
    }

    /// Asks the watchdog for a verdict.
    pub fn judge(&mut self, now: Awake) -> Consequences {
        let Some(answer) = self.monitor.judge(now) else { return Consequences::default() };
        let stop = if let Verdict::HardStop { message, .. } = &answer.verdict {
            Some(message.clone())
        } else {
            None
        };
        // `exec` has no next session that could recover.
        Consequences { event: answer.event(node(), iteration(), false), stop }
    }
}
