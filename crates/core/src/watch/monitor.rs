//! Decides when a watch is evaluated and which of its answers are recorded. Runs, single commands and other supervisors of
//! a session share it.

use super::{Assessment, Channel, Fact, Session, Verdict, Watch};
use crate::record::event::Event;
use crate::record::ids::{Iteration, NodeName};
use crate::settings::WatchPolicy;
use crate::time::dur::Dur;
use crate::time::moment::Awake;

/// The shortest time between two recorded deferrals by the same channel.
const DEFERRAL_PERIOD: Dur = Dur::from_secs(30);

/// A watch that knows which answers are recorded and when samples are due.
#[derive(Clone, Debug)]
pub struct Monitor {
    watch: Watch,
    deferrals: Vec<(Channel, Awake)>,
    /// When a sample was last requested. Its result arrives as a fact.
    sampled_at: Option<Awake>,
}

impl Monitor {
    /// Creates a monitor for a session that starts now.
    pub fn new(policy: WatchPolicy, session: Session) -> Monitor {
        Monitor { watch: Watch::new(policy, session), deferrals: Vec::new(), sampled_at: None }
    }

    /// Returns the watch.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Returns the next moment at which the verdict may change or a sample is due.
    pub fn due(&self) -> Option<Awake> {
        [self.watch.due(), self.sample_due()].into_iter().flatten().min()
    }

    /// Returns when the next sample is due. Samples are not free, so they are taken only at half of the silence limit and
    /// at the limit.
    fn sample_due(&self) -> Option<Awake> {
        let moments = self.watch.sample_moments();
        moments.into_iter().flatten().find(|at| self.sampled_at.is_none_or(|sampled| sampled < *at))
    }

    /// Returns whether a sample is due now, and notes it as taken. The caller must take the sample.
    pub fn wants_sample(&mut self, now: Awake) -> bool {
        let due = self.sample_due().is_some_and(|at| now >= at);
        if due {
            self.sampled_at = Some(now);
        }
        due
    }

    /// Takes a fact that became known at this moment.
    pub fn take(&mut self, now: Awake, fact: &Fact) {
        self.watch.take(now, fact);
    }

    /// Returns the answer at this moment if it must be recorded. A plain continue and a recent deferral by the same
    /// channel are not recorded.
    pub fn judge(&mut self, now: Awake) -> Option<Assessment> {
        let verdict = self.watch.judge(now);
        let is_recorded = match verdict {
            Verdict::Continue { deferred_by: None } => false,
            Verdict::Continue { deferred_by: Some(by) } => self.is_new_deferral(by, now),
            Verdict::Notice { .. } | Verdict::HardStop { .. } => true,
        };
        is_recorded.then(|| self.watch.answer(now, verdict))
    }

    fn is_new_deferral(&mut self, by: Channel, now: Awake) -> bool {
        let recorded = self.deferrals.iter().find(|(channel, _)| *channel == by).map(|(_, at)| *at);
        if recorded.is_some_and(|at| now.since(at) < DEFERRAL_PERIOD) {
            return false;
        }
        self.deferrals.retain(|(channel, _)| *channel != by);
        self.deferrals.push((by, now));
        true
    }
}

impl Assessment {
    /// Returns the event that records this answer; `None` for a plain continue.
    pub fn event(self, node: NodeName, iteration: Iteration, recoverable: bool) -> Option<Event> {
        let Assessment { verdict, evidence_summary, active_channel } = self;
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

    fn monitor() -> Monitor {
        Monitor::new(WatchPolicy::of(Profile::Quick), Session::new(Awake(0), true))
    }

    fn changed(at: u64) -> Fact {
        Fact::Observed(Observation::single(Channel::Workspace, Awake(at)))
    }

    #[test]
    fn a_deferral_is_recorded_once_in_thirty_seconds() {
        let mut monitor = monitor();
        monitor.take(Awake(0), &Fact::Observed(Observation::single(Channel::Stdout, Awake(0))));
        let mut recorded = Vec::new();
        for second in 300..400 {
            monitor.take(Awake(second * 1000), &changed(second * 1000));
            recorded.extend(monitor.judge(Awake(second * 1000)).map(|_| second));
        }
        assert_eq!(recorded, [300, 330, 360, 390]);
    }

    #[test]
    fn samples_are_due_once_at_half_of_the_silence_limit_and_at_the_limit() {
        let mut monitor = monitor();
        monitor.take(Awake(0), &Fact::Observed(Observation::single(Channel::Stdout, Awake(0))));
        let wanted: Vec<u64> = (0..400).filter(|second| monitor.wants_sample(Awake(second * 1000))).collect();
        assert_eq!(wanted, [150, 300]);
    }

    #[test]
    fn a_plain_continue_is_not_recorded_and_a_hard_stop_is() {
        let mut monitor = monitor();
        assert_eq!(monitor.judge(Awake(1)), None);
        let stop = monitor.judge(Awake(180_000)).expect("nothing printed at all");
        assert!(matches!(stop.verdict, Verdict::HardStop { .. }));
    }
}
