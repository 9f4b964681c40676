//! Named timers, all in one table. A late or spurious wake-up is harmless: timers that are not due stay set.

use crate::record::ids::NodeIx;
use crate::time::moment::{Awake, Boot, Moment};
use std::collections::{BTreeMap, BTreeSet};

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The timeout of a command, gate or probe (awake).
    PrepJob(NodeIx),
    /// The watchdog's next due moment (awake).
    Watch(NodeIx),
    /// `watchdog.node` (awake). Fires after the watch, which has more evidence about a session.
    NodeCeiling(NodeIx),
    /// `watchdog.run` (awake).
    RunCeiling,
    /// The time by which an agent that has given its result must exit (awake).
    Result(NodeIx),
    /// The next step of stopping a process tree: after a grace, or after the time for which other processes may hold
    /// the pipes open once the main process has exited (awake).
    Step(NodeIx),
    /// The next check of a keeper that owes a report (awake).
    Keeper(NodeIx),
    /// The next attempt to start a job that failed to start for lack of a resource (awake).
    StartRetry(NodeIx),
    /// The end of a wait (boot).
    Wait(NodeIx),
    /// The next run of the wake probe (boot).
    Probe(NodeIx),
    /// A node's time budget (boot).
    NodeBudget(NodeIx),
    /// The run's time budget (boot).
    Budget,
    /// The end of the leash (boot).
    Leash,
    /// How long the end of the run waits for the last notifications (awake).
    LastNotifications,
    /// The next attempt to write the record (awake).
    RecordRetry,
}

impl Timer {
    /// Returns the node whose agent this timer judges. The verdict needs all output that the agent has produced.
    fn judges(self) -> Option<NodeIx> {
        if let Timer::Watch(ix) | Timer::Result(ix) | Timer::NodeCeiling(ix) = self { Some(ix) } else { None }
    }

    /// Returns whether the pipes must be drained before the timer fires. The watch of every session is due by the
    /// run's ceiling, so the sessions that the ceiling stops are drained for their own timers.
    fn needs_drained_pipes(self) -> bool {
        self == Timer::RunCeiling || self.judges().is_some()
    }
}

/// A point on one of the two clocks that timers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// A point on the awake clock.
    Awake(Awake),
    /// A point on the boot clock.
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

/// The next time the core needs a step, on either clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// The earliest deadline on the awake clock.
    pub awake: Option<Awake>,
    /// The earliest deadline on the boot clock.
    pub boot: Option<Boot>,
}

/// The table of all timers that are set.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    set: BTreeMap<Timer, Deadline>,
}

impl Timers {
    /// Sets a timer, replacing its earlier deadline.
    pub fn set(&mut self, timer: Timer, deadline: Deadline) {
        self.set.insert(timer, deadline);
    }

    /// Returns whether a timer is set and due.
    pub fn is_due(&self, timer: Timer, now: Moment) -> bool {
        self.set.get(&timer).is_some_and(|deadline| deadline.is_due(now))
    }

    /// Removes a timer.
    pub fn clear(&mut self, timer: Timer) {
        self.set.remove(&timer);
    }

    /// Returns whether a timer is set.
    pub fn is_set(&self, timer: Timer) -> bool {
        self.set.contains_key(&timer)
    }

    /// Removes and returns one timer that is due, in the order of the table. Timers that judge silence must have been
    /// due by `drained`, the moment up to which all output is known.
    pub fn take_due(&mut self, now: Moment, drained: Option<Awake>) -> Option<Timer> {
        let is_due = |timer: &Timer, deadline: &Deadline| match (timer.needs_drained_pipes(), drained) {
            (false, _) => deadline.is_due(now),
            (true, Some(drained)) => deadline.is_due(Moment { awake: drained.min(now.awake), ..now }),
            (true, None) => false,
        };
        let due = self.set.iter().find(|(t, d)| is_due(t, d)).map(|(t, _)| *t)?;
        self.set.remove(&due);
        Some(due)
    }

    /// Returns the nodes whose agents are judged for silence at this moment.
    pub fn to_judge(&self, now: Moment) -> BTreeSet<NodeIx> {
        self.set.iter().filter(|(_, d)| d.is_due(now)).filter_map(|(t, _)| t.judges()).collect()
    }

    /// Returns the earliest deadline on each clock.
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
        timers.set(Timer::Step(NodeIx(0)), Deadline::Awake(Awake(20)));
        assert_eq!(timers.next_wakeup(), Wakeup { awake: Some(Awake(20)), boot: Some(Boot(50)) });
        assert_eq!(timers.take_due(start.plus(Dur::from_millis(19)), None), None);
        let late = start.plus(Dur::from_millis(99));
        assert_eq!(timers.take_due(late, None), Some(Timer::Step(NodeIx(0))));
        assert_eq!(timers.take_due(late, None), Some(Timer::Budget));
        assert_eq!(timers.take_due(late, None), None);
        assert_eq!(timers.next_wakeup(), Wakeup::default());
    }

    #[test]
    fn silence_is_judged_only_after_the_pipes_are_drained_up_to_the_deadline() {
        let at = |ms| Moment::default().plus(Dur::from_millis(ms));
        let mut timers = Timers::default();
        timers.set(Timer::Watch(NodeIx(0)), Deadline::Awake(Awake(20)));
        timers.set(Timer::Result(NodeIx(1)), Deadline::Awake(Awake(30)));
        assert_eq!(timers.to_judge(at(19)), BTreeSet::new());
        assert_eq!(timers.to_judge(at(20)), BTreeSet::from([NodeIx(0)]));
        assert_eq!(timers.take_due(at(40), None), None, "the pipes are not drained yet");
        assert_eq!(timers.take_due(at(40), Some(Awake(29))), Some(Timer::Watch(NodeIx(0))));
        assert_eq!(
            timers.take_due(at(40), Some(Awake(29))),
            None,
            "its deadline is after the moment up to which the pipes were drained"
        );
        assert_eq!(timers.take_due(at(25), Some(Awake(99))), None, "a drain cannot cover the future");
        assert_eq!(timers.take_due(at(40), Some(Awake(40))), Some(Timer::Result(NodeIx(1))));
    }
}
