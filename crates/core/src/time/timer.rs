//! Named timers, all in one table. A late or spurious wake-up is harmless: what is not due stays.

use crate::record::ids::NodeIx;
use crate::time::moment::{Awake, Boot, Moment};
use std::collections::{BTreeMap, BTreeSet};

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The timeout of a command, gate or probe (awake).
    PrepJob(NodeIx),
    /// The watchdog's next due moment (awake).
    Watch(NodeIx),
    /// `watchdog.node` (awake). Taken after the watch, which knows more about a session.
    NodeCeiling(NodeIx),
    /// `watchdog.run` (awake).
    RunCeiling,
    /// When an agent that has given its result must be gone (awake).
    Result(NodeIx),
    /// Between two steps of ending a tree (awake).
    Grace(NodeIx),
    /// How long pipes may be held after the exit (awake).
    Leak(NodeIx),
    /// The next look at a keeper that owes a report (awake).
    Keeper(NodeIx),
    /// The next attempt to start a job for which a resource was missing (awake).
    StartRetry(NodeIx),
    /// The end of a wait (boot).
    Wait(NodeIx),
    /// The next look of the wake probe (boot).
    Probe(NodeIx),
    /// A node's time budget (boot).
    NodeBudget(NodeIx),
    /// The run's time budget (boot).
    Budget,
    /// How long the end waits for the last news to be told (awake).
    LastNews,
    /// The next try to write the record (awake).
    RecordRetry,
}

impl Timer {
    /// The node whose agent it judges. That needs all that the agent has said.
    fn judges(self) -> Option<NodeIx> {
        match self {
            Timer::Watch(ix) | Timer::Result(ix) | Timer::NodeCeiling(ix) => Some(ix),
            Timer::RunCeiling
            | Timer::PrepJob(_)
            | Timer::Grace(_)
            | Timer::Leak(_)
            | Timer::Keeper(_)
            | Timer::StartRetry(_)
            | Timer::Wait(_)
            | Timer::Probe(_)
            | Timer::NodeBudget(_)
            | Timer::Budget
            | Timer::LastNews
            | Timer::RecordRetry => None,
        }
    }

    /// Whether it must not be taken before the pipes are drained. The watch of every session is due by the run's
    /// ceiling, so the sessions that it ends are drained for their own timers.
    fn needs_drained_pipes(self) -> bool {
        self == Timer::RunCeiling || self.judges().is_some()
    }
}

/// A point on one of the two clocks timers run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    Awake(Awake),
    Boot(Boot),
}

impl Deadline {
    fn is_due(self, now: Moment) -> bool {
        match self {
            Deadline::Awake(at) => now.awake >= at,
            Deadline::Boot(at) => now.boot >= at,
        }
    }
}

/// When the core wants to be stepped again, on either clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakeup {
    pub awake: Option<Awake>,
    pub boot: Option<Boot>,
}

#[derive(Clone, Debug, Default)]
pub struct Timers {
    set: BTreeMap<Timer, Deadline>,
}

impl Timers {
    pub fn set(&mut self, timer: Timer, deadline: Deadline) {
        self.set.insert(timer, deadline);
    }

    pub fn clear(&mut self, timer: Timer) {
        self.set.remove(&timer);
    }

    pub fn is_set(&self, timer: Timer) -> bool {
        self.set.contains_key(&timer)
    }

    /// Takes one timer that is due, in the order of the table. Those that judge silence must have been due by `heard`:
    /// up to then all that was said is known.
    pub fn take_due(&mut self, now: Moment, heard: Option<Awake>) -> Option<Timer> {
        let is_due = |timer: &Timer, deadline: &Deadline| match (timer.needs_drained_pipes(), heard) {
            (false, _) => deadline.is_due(now),
            (true, Some(heard)) => deadline.is_due(Moment { awake: heard.min(now.awake), ..now }),
            (true, None) => false,
        };
        let due = self.set.iter().find(|(t, d)| is_due(t, d)).map(|(t, _)| *t)?;
        self.set.remove(&due);
        Some(due)
    }

    /// The nodes whose agents' silence is to be judged at this moment.
    pub fn to_judge(&self, now: Moment) -> BTreeSet<NodeIx> {
        self.set.iter().filter(|(_, d)| d.is_due(now)).filter_map(|(t, _)| t.judges()).collect()
    }

    pub fn next_wakeup(&self) -> Wakeup {
        let mut next = Wakeup::default();
        for deadline in self.set.values() {
            match *deadline {
                Deadline::Awake(at) => next.awake = Some(next.awake.map_or(at, |n| n.min(at))),
                Deadline::Boot(at) => next.boot = Some(next.boot.map_or(at, |n| n.min(at))),
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::dur::Dur;

    #[test]
    fn a_timer_is_taken_once_and_not_before_it_is_due() {
        let start = Moment::default();
        let mut timers = Timers::default();
        timers.set(Timer::Budget, Deadline::Boot(Boot(50)));
        timers.set(Timer::Leak(NodeIx(0)), Deadline::Awake(Awake(20)));
        assert_eq!(timers.next_wakeup(), Wakeup { awake: Some(Awake(20)), boot: Some(Boot(50)) });
        assert_eq!(timers.take_due(start.plus(Dur::from_millis(19)), None), None);
        let late = start.plus(Dur::from_millis(99));
        assert_eq!(timers.take_due(late, None), Some(Timer::Leak(NodeIx(0))));
        assert_eq!(timers.take_due(late, None), Some(Timer::Budget));
        assert_eq!(timers.take_due(late, None), None);
        assert_eq!(timers.next_wakeup(), Wakeup::default());
    }
    #[test]
    fn silence_is_judged_only_where_all_that_was_said_by_then_is_known() {
        let at = |ms| Moment::default().plus(Dur::from_millis(ms));
        let mut timers = Timers::default();
        timers.set(Timer::Watch(NodeIx(0)), Deadline::Awake(Awake(20)));
        timers.set(Timer::Result(NodeIx(1)), Deadline::Awake(Awake(30)));
        assert_eq!(timers.to_judge(at(19)), BTreeSet::new());
        assert_eq!(timers.to_judge(at(20)), BTreeSet::from([NodeIx(0)]));
        assert_eq!(timers.take_due(at(40), None), None, "nobody has asked what it said");
        assert_eq!(timers.take_due(at(40), Some(Awake(29))), Some(Timer::Watch(NodeIx(0))));
        assert_eq!(
            timers.take_due(at(40), Some(Awake(29))),
            None,
            "its limit came after the pipes were empty"
        );
        assert_eq!(timers.take_due(at(25), Some(Awake(99))), None, "nobody can have heard the future");
        assert_eq!(timers.take_due(at(40), Some(Awake(40))), Some(Timer::Result(NodeIx(1))));
    }
}
