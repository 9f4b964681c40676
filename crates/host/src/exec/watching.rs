//! When the watchdog is asked about the command, and what becomes of its answers: the same rules as within a run.

use dogwatch_core::event::Event;
use dogwatch_core::moment::Awake;
use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::watch::{Answer, Attend, Fact, Session, Verdict};

use super::record::{iteration, node};

pub struct Watching(Attend);

/// What follows from an answer.
#[derive(Default)]
pub struct Follows {
    pub event: Option<Event>,
    /// The command is to be ended, and why.
    pub stop: Option<String>,
}

impl Watching {
    pub fn new(policy: WatchPolicy, started: Awake, structured: bool) -> Watching {
        Watching(Attend::new(policy, Session::new(started, structured)))
    }

    /// The next moment at which the answer may change, or a sample is wanted.
    pub fn due(&self) -> Option<Awake> {
        self.0.due()
    }

    /// Whether to look now if the command is at work. Asked only by those who then do.
    pub fn wants_sample(&mut self, now: Awake) -> bool {
        self.0.wants_sample(now)
    }

    pub fn is_asking(&self) -> bool {
        self.0.watch().is_asking()
    }

    pub fn tell(&mut self, now: Awake, fact: &Fact) -> Follows {
        self.0.take(now, fact);
        match fact {
            // Progress moves a deadline and asks for no answer.
            Fact::Observed(_) => Follows::default(),
            _ => self.judge(now),
        }
    }

    pub fn judge(&mut self, now: Awake) -> Follows {
        let Some(answer) = self.0.judge(now) else { return Follows::default() };
        let stop = match &answer {
            Answer { verdict: Verdict::HardStop { message, .. }, .. } => Some(message.clone()),
            _ => None,
        };
        // There is no next session that could do better.
        Follows { event: answer.event(node(), iteration(), false), stop }
    }
}
