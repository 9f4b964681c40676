//! When the watchdog is asked about the command, and what becomes of its answers: the same rules as within a run.

use dogwatch_core::dur::Dur;
use dogwatch_core::event::Event;
use dogwatch_core::moment::Awake;
use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::watch::{Answer, Channel, Fact, Session, Verdict, Watch};

use super::record::{iteration, node};

/// A deferral is written down at most once in this time, per channel.
const DEFERRAL_PERIOD: Dur = Dur::from_secs(30);

pub struct Watching {
    watch: Watch,
    deferrals: Vec<(Channel, Awake)>,
    /// A sample was last taken at this moment of silence.
    sampled_at: Option<Awake>,
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
        let watch = Watch::new(policy, Session::new(started, structured));
        Watching { watch, deferrals: Vec::new(), sampled_at: None }
    }

    /// The next moment at which the answer may change, or a sample is wanted.
    pub fn due(&self) -> Option<Awake> {
        [self.watch.due(), self.sample_due()].into_iter().flatten().min()
    }

    /// Samples cost something, so they are taken only when silence is half over and when it is over.
    fn sample_due(&self) -> Option<Awake> {
        let moments = self.watch.sample_moments();
        moments.into_iter().flatten().find(|at| self.sampled_at.is_none_or(|sampled| sampled < *at))
    }

    /// Whether to look now if the command is at work. Asked only by those who then do.
    pub fn wants_sample(&mut self, now: Awake) -> bool {
        let due = self.sample_due().is_some_and(|at| now >= at);
        if due {
            self.sampled_at = Some(now);
        }
        due
    }

    pub fn tell(&mut self, now: Awake, fact: &Fact) -> Follows {
        self.watch.take(now, fact);
        self.judge(now)
    }

    pub fn judge(&mut self, now: Awake) -> Follows {
        let Answer { verdict, evidence_summary, active_channel } = self.watch.evaluate(now);
        let (node, iteration) = (node(), iteration());
        let event = match verdict {
            Verdict::Continue { deferred_by: None } => None,
            Verdict::Continue { deferred_by: Some(by) } => self.is_news(by, now).then_some({
                Event::WatchdogContinue { node, iteration, deferred_by: by, evidence_summary, active_channel }
            }),
            Verdict::Notice { message } => Some(Event::Notice { kind: "watchdog".to_owned(), message }),
            Verdict::HardStop { reason, message } => {
                let stop = Some(message.clone());
                let recoverable = false;
                let event = Event::HardStop {
                    node,
                    iteration,
                    reason,
                    message,
                    evidence_summary,
                    active_channel,
                    recoverable,
                };
                return Follows { event: Some(event), stop };
            }
        };
        Follows { event, stop: None }
    }

    fn is_news(&mut self, by: Channel, now: Awake) -> bool {
        let told = self.deferrals.iter().find(|(channel, _)| *channel == by).map(|(_, at)| *at);
        if told.is_some_and(|at| now.since(at) < DEFERRAL_PERIOD) {
            return false;
        }
        self.deferrals.retain(|(channel, _)| *channel != by);
        self.deferrals.push((by, now));
        true
    }
}
