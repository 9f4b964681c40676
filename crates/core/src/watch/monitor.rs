//! When a watch is asked, and which of its answers are worth writing down: the same for a run, a single command and
//! whoever else looks after a session.

use super::{Answer, Channel, Fact, Session, Verdict, Watch};
use crate::record::event::Event;
use crate::record::ids::{Iteration, NodeName};
use crate::settings::WatchPolicy;
use crate::time::dur::Dur;
use crate::time::moment::Awake;

/// A deferral is written down at most once in this time, per channel.
const DEFERRAL_PERIOD: Dur = Dur::from_secs(30);

/// A watch with somebody who attends to it.
#[derive(Clone, Debug)]
pub struct Monitor {
    watch: Watch,
    deferrals: Vec<(Channel, Awake)>,
    /// A sample was last asked for at this moment of silence; its answer comes as a fact.
    sampled_at: Option<Awake>,
}

impl Monitor {
    pub fn new(policy: WatchPolicy, session: Session) -> Monitor {
        Monitor { watch: Watch::new(policy, session), deferrals: Vec::new(), sampled_at: None }
    }

    pub fn watch(&self) -> &Watch {
        &self.watch
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

    /// Whether to look now if the session is at work. Asked only by those who then do.
    pub fn wants_sample(&mut self, now: Awake) -> bool {
        let due = self.sample_due().is_some_and(|at| now >= at);
        if due {
            self.sampled_at = Some(now);
        }
        due
    }

    pub fn take(&mut self, now: Awake, fact: &Fact) {
        self.watch.take(now, fact);
    }

    /// The answer at this moment, if it is one to write down: not that all is well, nor the same deferral again.
    pub fn judge(&mut self, now: Awake) -> Option<Answer> {
        let verdict = self.watch.judge(now);
        let news = match verdict {
            Verdict::Continue { deferred_by: None } => false,
            Verdict::Continue { deferred_by: Some(by) } => self.is_news(by, now),
            Verdict::Notice { .. } | Verdict::HardStop { .. } => true,
        };
        news.then(|| self.watch.answer(now, verdict))
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

impl Answer {
    /// The answer as it is written down; a plain continue is not.
    pub fn event(self, node: NodeName, iteration: Iteration, recoverable: bool) -> Option<Event> {
        let Answer { verdict, evidence_summary, active_channel } = self;
        Some(match verdict {
            Verdict::Continue { deferred_by: None } => return None,
            Verdict::Continue { deferred_by: Some(deferred_by) } => {
                Event::WatchdogContinue { node, iteration, deferred_by, evidence_summary, active_channel }
            }
            Verdict::Notice { message } => Event::Notice { kind: "watchdog".to_owned(), message },
            Verdict::HardStop { reason, message } => Event::HardStop {
                node,
                iteration,
                reason,
                message,
                evidence_summary,
                active_channel,
                recoverable,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::event::Observation;
    use crate::settings::Profile;

    fn attend() -> Monitor {
        Monitor::new(WatchPolicy::of(Profile::Quick), Session::new(Awake(0), true))
    }

    fn changed(at: u64) -> Fact {
        Fact::Observed(Observation::single(Channel::Workspace, Awake(at)))
    }

    #[test]
    fn a_deferral_is_news_once_in_thirty_seconds() {
        let mut attend = attend();
        attend.take(Awake(0), &Fact::Observed(Observation::single(Channel::Stdout, Awake(0))));
        let mut told = Vec::new();
        for second in 300..400 {
            attend.take(Awake(second * 1000), &changed(second * 1000));
            told.extend(attend.judge(Awake(second * 1000)).map(|_| second));
        }
        assert_eq!(told, [300, 330, 360, 390]);
    }

    #[test]
    fn samples_are_wanted_when_silence_is_half_over_and_over_and_not_twice() {
        let mut attend = attend();
        attend.take(Awake(0), &Fact::Observed(Observation::single(Channel::Stdout, Awake(0))));
        let wanted: Vec<u64> = (0..400).filter(|second| attend.wants_sample(Awake(second * 1000))).collect();
        assert_eq!(wanted, [150, 300]);
    }

    #[test]
    fn all_is_well_is_not_written_down_and_a_hard_stop_is() {
        let mut attend = attend();
        assert_eq!(attend.judge(Awake(1)), None);
        let stop = attend.judge(Awake(180_000)).expect("nothing printed at all");
        assert!(matches!(stop.verdict, Verdict::HardStop { .. }));
    }
}
