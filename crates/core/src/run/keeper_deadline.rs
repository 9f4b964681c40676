//! Reports that a keeper owes its supervisor, and when the supervisor stops waiting for them.
//!
//! A keeper that is stopped or starved can neither carry out an order nor report. The supervisor checks it
//! repeatedly and continues it each time. The supervisor gives up a keeper that is stopped at several checks or
//! does not report within the bound: it kills the keeper and ends its processes directly.

use crate::time::dur::Dur;
use crate::time::moment::Awake;

/// How long a keeper may take to report that a job has started or was refused.
pub const KEEPER_START_BOUND: Dur = Dur::from_secs(30);
/// How long a keeper may take to prove that a tree is empty once it kills. It reports after 5 s of killing in
/// any case, so this passes only when the keeper cannot run.
pub const KEEPER_END_BOUND: Dur = Dur::from_secs(8);
/// The pause between two checks of a keeper that owes a report.
pub const KEEPER_CHECK_INTERVAL: Dur = Dur::from_millis(500);
/// The number of checks that may find a keeper stopped before it is given up. Each check continues the keeper, so
/// another process must be stopping it repeatedly.
pub const MAX_STOPPED: u32 = 3;

/// A report that is due from a keeper, or an order that the keeper has yet to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperDeadline {
    /// When the report is overdue; `None` for an order that has no report.
    until: Option<Awake>,
    look: Awake,
    stopped: u32,
}

/// The state of a keeper at a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperState {
    /// The keeper was stopped. The check continued it.
    Stopped,
    /// The keeper can run. It has not read all of its orders yet, or that is unknown.
    Running,
    /// The keeper can run and has read all of its orders.
    Idle,
}

/// The result of a check of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperCheck {
    /// Check again at [`KeeperDeadline::due`].
    Wait,
    /// The keeper has taken the order that it was sent.
    Settled,
    /// Kill the keeper and end its processes.
    GiveUp,
}

impl KeeperDeadline {
    /// Returns a report that is due within this time.
    pub fn report(now: Awake, within: Dur) -> KeeperDeadline {
        KeeperDeadline { until: Some(now.plus(within)), ..KeeperDeadline::order(now) }
    }

    /// Returns the deadline of an order without a report: the keeper only has to read it.
    pub fn order(now: Awake) -> KeeperDeadline {
        KeeperDeadline { until: None, look: now.plus(KEEPER_CHECK_INTERVAL), stopped: 0 }
    }

    /// Returns when to check the keeper next.
    pub fn due(&self) -> Awake {
        self.look
    }

    /// Handles the result of a check.
    pub fn checked(&mut self, now: Awake, seen: KeeperState) -> KeeperCheck {
        self.look = now.plus(KEEPER_CHECK_INTERVAL);
        self.stopped += u32::from(seen == KeeperState::Stopped);
        let overdue = self.until.is_some_and(|until| now >= until);
        if overdue || self.stopped >= MAX_STOPPED {
            KeeperCheck::GiveUp
        } else if self.until.is_none() && seen == KeeperState::Idle {
            KeeperCheck::Settled
        } else {
            KeeperCheck::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_waited_for_up_to_its_bound_and_no_longer() {
        let mut deadline = KeeperDeadline::report(Awake(0), Dur::from_secs(8));
        let mut looks = 0;
        while deadline.checked(deadline.due(), KeeperState::Idle) == KeeperCheck::Wait {
            looks += 1;
        }
        assert_eq!(looks, 15, "one check each half second, the last at 8 s");
    }

    #[test]
    fn a_keeper_that_is_stopped_repeatedly_is_given_up_early() {
        for mut deadline in
            [KeeperDeadline::report(Awake(0), Dur::from_secs(8)), KeeperDeadline::order(Awake(0))]
        {
            assert_eq!(deadline.checked(deadline.due(), KeeperState::Stopped), KeeperCheck::Wait);
            assert_eq!(deadline.checked(deadline.due(), KeeperState::Stopped), KeeperCheck::Wait);
            assert_eq!(deadline.checked(deadline.due(), KeeperState::Stopped), KeeperCheck::GiveUp);
            assert_eq!(deadline.due(), Awake(2_000), "it was given up after 1.5 s");
        }
    }

    #[test]
    fn an_order_without_a_report_is_settled_once_the_keeper_has_read_it() {
        let mut deadline = KeeperDeadline::order(Awake(0));
        assert_eq!(deadline.checked(deadline.due(), KeeperState::Running), KeeperCheck::Wait);
        assert_eq!(deadline.checked(deadline.due(), KeeperState::Stopped), KeeperCheck::Wait);
        assert_eq!(deadline.checked(deadline.due(), KeeperState::Idle), KeeperCheck::Settled);
    }
}
