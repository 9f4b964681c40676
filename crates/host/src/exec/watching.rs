//! When the watchdog is asked about the command, and what becomes of its answers: the same rules as within a run.

use dogwatch_core::record::event::Event;
use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::health::{Health, HealthIssue, Retrying};
use dogwatch_core::watch::{Answer, Fact, Monitor, Session, Verdict};

use super::record::{iteration, node};

pub struct Watching {
    attend: Monitor,
    condition: Health,
}

/// What follows from an answer.
#[derive(Default)]
pub struct Follows {
    pub event: Option<Event>,
    /// The command is to be ended, and why.
    pub stop: Option<String>,
}

impl Watching {
    pub fn new(policy: WatchPolicy, started: Awake, structured: bool) -> Watching {
        let attend = Monitor::new(policy, Session::new(started, structured));
        Watching { attend, condition: Health::default() }
    }

    /// The next moment at which the answer may change, or a sample is wanted.
    pub fn due(&self) -> Option<Awake> {
        self.attend.due()
    }

    /// Whether to look now if the command is at work. Asked only by those who then do.
    pub fn wants_sample(&mut self, now: Awake) -> bool {
        self.attend.wants_sample(now)
    }

    pub fn is_asking(&self) -> bool {
        self.attend.watch().is_asking()
    }

    pub fn tell(&mut self, now: Awake, fact: &Fact) -> Follows {
        self.attend.take(now, fact);
        match fact {
            Fact::Observed(seen) => self.condition.observed(seen),
            Fact::ToolStarted(_) | Fact::ToolEnded { .. } if !fact.is_heartbeat() => {
                self.condition.retrying = None;
            }
            _ => {}
        }
        match fact {
            // Progress moves a deadline and asks for no answer.
            Fact::Observed(_) => Follows::default(),
            _ => self.judge(now),
        }
    }

    /// What ails the agent is written down when it begins.
    pub fn strained(&mut self, now: Awake, strain: HealthIssue) -> Option<Event> {
        if self.condition.knows(strain) {
            return None;
        }
        let (node, iteration) = (node(), iteration());
        Some(match strain {
            HealthIssue::Drifted => {
                self.condition.drifted = true;
                Event::AgentDrifted { node, iteration }
            }
            HealthIssue::Retrying { status, delay } => {
                self.condition.retrying = Some(Retrying { since: now, status, delay });
                Event::AgentRetrying { node, iteration, status, delay_s: delay }
            }
        })
    }

    pub fn judge(&mut self, now: Awake) -> Follows {
        let Some(answer) = self.attend.judge(now) else { return Follows::default() };
        let stop = match &answer {
            Answer { verdict: Verdict::HardStop { message, .. }, .. } => Some(message.clone()),
            _ => None,
        };
        // There is no next session that could do better.
        Follows { event: answer.event(node(), iteration(), false), stop }
    }
}
