//! The life cycle of a process tree: what to order next, and by when. Runs and `exec` share it.
//!
//! A tree ends with the exit of its main process, not with the end of its output. After the exit, other processes may
//! hold the pipes for the leak limit; then the leftover processes are swept. A tree is stopped in steps: interrupt,
//! terminate, kill, with a grace between them. The keeper owes a report of its start and of its end.

use crate::record::event::EndStep;
use crate::run::job::Exit;
use crate::run::keeper_deadline::{
    KEEPER_END_BOUND, KEEPER_START_BOUND, KeeperCheck, KeeperDeadline, KeeperState,
};
use crate::time::dur::Dur;
use crate::time::moment::Awake;

/// The grace between TERM and KILL for leftover processes.
pub const SWEEP_GRACE: Dur = Dur::from_millis(500);

/// An order for the keeper of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOrder {
    /// Take this step to stop the tree.
    Step(EndStep),
    /// Stop the leftover processes, with `SWEEP_GRACE` between TERM and KILL.
    Sweep,
}

/// The life of one process tree.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    state: State,
    pipes_closed: bool,
    /// When the current grace or the leak limit is over.
    due: Option<Awake>,
    keeper: Option<KeeperDeadline>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Starting,
    Alive,
    Ending(EndStep),
    /// The main process has exited; other processes still hold its pipes.
    Exited(Exit),
    /// The leftover processes are being stopped.
    Sweeping(Exit),
}

impl Default for Life {
    fn default() -> Life {
        Life { state: State::Starting, pipes_closed: false, due: None, keeper: None }
    }
}

impl Life {
    /// Returns whether the main process runs and nothing has asked it to end.
    pub fn is_alive(&self) -> bool {
        self.state == State::Alive
    }

    /// Returns how the main process exited, once it has.
    pub fn exit(&self) -> Option<Exit> {
        match self.state {
            State::Starting | State::Alive | State::Ending(_) => None,
            State::Exited(exit) | State::Sweeping(exit) => Some(exit),
        }
    }

    /// Returns when `time_passed` has something to do.
    pub fn due(&self) -> Option<Awake> {
        self.due
    }

    /// Returns when to check the keeper, if it owes a report.
    pub fn keeper_due(&self) -> Option<Awake> {
        self.keeper.map(|keeper| keeper.due())
    }

    /// Notes that the order to start was sent to the keeper.
    pub fn sent(&mut self, now: Awake) {
        if matches!(self.state, State::Starting | State::Ending(_)) && self.keeper.is_none() {
            self.keeper = Some(KeeperDeadline::report(now, KEEPER_START_BOUND));
        }
    }

    /// Notes an order that has no report. The keeper only has to read it.
    pub fn ordered(&mut self, now: Awake) {
        self.keeper.get_or_insert(KeeperDeadline::order(now));
    }

    /// Notes that the main process has started.
    pub fn started(&mut self) {
        if self.state == State::Starting {
            self.state = State::Alive;
        }
        // After a kill, the proof that the tree is empty is still due.
        if self.state != State::Ending(EndStep::Kill) {
            self.reported();
        }
    }

    /// Notes that the keeper owes no report any longer.
    pub fn reported(&mut self) {
        self.keeper = None;
    }

    /// Handles the result of a check of the keeper. A keeper that cannot report is given up. A report that
    /// arrives at the same time may not be the last one, so the tree waits for the end again.
    pub fn keeper_checked(&mut self, now: Awake, state: KeeperState) -> KeeperCheck {
        let Some(keeper) = &mut self.keeper else { return KeeperCheck::Settled };
        let check = keeper.checked(now, state);
        match check {
            KeeperCheck::Wait => {}
            KeeperCheck::Settled => self.keeper = None,
            KeeperCheck::GiveUp => self.keeper = Some(KeeperDeadline::report(now, KEEPER_END_BOUND)),
        }
        check
    }

    /// Handles the exit of the main process. In a hurry, or if the tree was being stopped, it is swept at once.
    /// Otherwise processes that still hold the pipes may write until the leak limit.
    pub fn exited(&mut self, now: Awake, exit: Exit, leak: Dur, hurry: bool) -> Option<TreeOrder> {
        let stopping = match self.state {
            State::Starting | State::Alive => false,
            State::Ending(_) => true,
            State::Exited(_) | State::Sweeping(_) => return None,
        };
        self.state = State::Exited(exit);
        self.due = Some(now.plus(leak));
        if hurry || stopping || self.pipes_closed { self.sweep(now) } else { None }
    }

    /// Handles the end of the output.
    pub fn pipes_closed(&mut self, now: Awake) -> Option<TreeOrder> {
        self.pipes_closed = true;
        self.sweep(now)
    }

    /// Stops the leftover processes. Does nothing while the main process is alive.
    pub fn sweep(&mut self, now: Awake) -> Option<TreeOrder> {
        let State::Exited(exit) = self.state else { return None };
        self.state = State::Sweeping(exit);
        self.due = None;
        self.keeper = Some(KeeperDeadline::report(now, SWEEP_GRACE.saturating_add(KEEPER_END_BOUND)));
        Some(TreeOrder::Sweep)
    }

    /// Starts to stop the tree with this step.
    pub fn end(&mut self, now: Awake, first: EndStep, grace: Dur) -> Option<TreeOrder> {
        match self.state {
            State::Starting | State::Alive => Some(self.step(now, first, grace)),
            State::Exited(_) => self.sweep(now),
            State::Ending(_) | State::Sweeping(_) => None,
        }
    }

    /// Kills the tree without further grace.
    pub fn kill(&mut self, now: Awake) -> Option<TreeOrder> {
        match self.state {
            State::Starting | State::Alive | State::Ending(EndStep::Interrupt | EndStep::Terminate) => {
                Some(self.step(now, EndStep::Kill, Dur::ZERO))
            }
            State::Exited(_) => self.sweep(now),
            State::Ending(EndStep::Kill) | State::Sweeping(_) => None,
        }
    }

    /// Takes the step that is due: the next one after a grace, or the sweep after the leak limit.
    pub fn time_passed(&mut self, now: Awake, grace: Dur) -> Option<TreeOrder> {
        if self.due.is_none_or(|due| now < due) {
            return None;
        }
        match self.state {
            State::Ending(EndStep::Interrupt) => Some(self.step(now, EndStep::Terminate, grace)),
            State::Ending(EndStep::Terminate) => Some(self.step(now, EndStep::Kill, grace)),
            State::Exited(_) => self.sweep(now),
            State::Ending(EndStep::Kill) | State::Starting | State::Alive | State::Sweeping(_) => None,
        }
    }

    fn step(&mut self, now: Awake, step: EndStep, grace: Dur) -> TreeOrder {
        self.state = State::Ending(step);
        self.due = match step {
            EndStep::Interrupt | EndStep::Terminate => Some(now.plus(grace)),
            EndStep::Kill => None,
        };
        if step == EndStep::Kill {
            self.keeper = Some(KeeperDeadline::report(now, KEEPER_END_BOUND));
        }
        TreeOrder::Step(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Dur = Dur::from_secs(10);
    const LEAK: Dur = Dur::from_secs(2);
    const DONE: Exit = Exit::Code(0);

    fn alive() -> Life {
        let mut life = Life::default();
        life.sent(Awake(0));
        life.started();
        assert!(life.is_alive() && life.keeper_due().is_none());
        life
    }

    #[test]
    fn processes_that_hold_the_pipes_after_the_exit_get_the_leak_limit() {
        let mut life = alive();
        assert_eq!(life.exited(Awake(0), DONE, LEAK, false), None);
        assert_eq!((life.due(), life.exit()), (Some(Awake(2_000)), Some(DONE)));
        assert_eq!(life.time_passed(Awake(1_999), GRACE), None);
        assert_eq!(life.time_passed(Awake(2_000), GRACE), Some(TreeOrder::Sweep));
        assert_eq!((life.due(), life.keeper_due()), (None, Some(Awake(2_500))));
    }

    #[test]
    fn leftovers_are_swept_at_once_in_a_hurry_after_closed_pipes_and_while_stopping() {
        assert_eq!(alive().exited(Awake(0), DONE, LEAK, true), Some(TreeOrder::Sweep));
        let mut closed = alive();
        assert_eq!(closed.pipes_closed(Awake(0)), None);
        assert_eq!(closed.exited(Awake(1), DONE, LEAK, false), Some(TreeOrder::Sweep));
        let mut stopping = alive();
        stopping.end(Awake(0), EndStep::Terminate, GRACE);
        assert_eq!(stopping.exited(Awake(1), DONE, LEAK, false), Some(TreeOrder::Sweep));
        let mut leaking = alive();
        leaking.exited(Awake(0), DONE, LEAK, false);
        assert_eq!(leaking.pipes_closed(Awake(1)), Some(TreeOrder::Sweep));
        assert_eq!(leaking.sweep(Awake(2)), None, "only once");
    }

    #[test]
    fn a_tree_is_stopped_in_steps_with_a_grace_between_them() {
        for (first, steps) in [
            (EndStep::Interrupt, &[EndStep::Interrupt, EndStep::Terminate, EndStep::Kill][..]),
            (EndStep::Terminate, &[EndStep::Terminate, EndStep::Kill]),
        ] {
            let mut life = alive();
            let mut taken = vec![(0, life.end(Awake(0), first, GRACE))];
            while let Some(at) = life.due() {
                taken.push((at.0, life.time_passed(at, GRACE)));
            }
            let wanted = steps.iter().zip(0..).map(|(step, n)| (n * 10_000, Some(TreeOrder::Step(*step))));
            assert_eq!(taken, wanted.collect::<Vec<_>>());
            assert!(life.keeper_due().is_some(), "the proof that the tree is empty is due");
            assert_eq!(life.kill(Awake(60_000)), None, "only once");
        }
    }

    #[test]
    fn a_kill_before_the_start_is_reported_keeps_the_end_due() {
        let mut life = Life::default();
        life.sent(Awake(0));
        assert_eq!(life.kill(Awake(1)), Some(TreeOrder::Step(EndStep::Kill)));
        life.started();
        assert!(!life.is_alive() && life.keeper_due().is_some());
    }

    #[test]
    fn a_keeper_that_is_given_up_is_waited_for_once_more() {
        let mut life = alive();
        assert_eq!(life.keeper_checked(Awake(0), KeeperState::Running), KeeperCheck::Settled);
        life.kill(Awake(0));
        let overdue = Awake(KEEPER_END_BOUND.as_millis());
        assert_eq!(life.keeper_checked(overdue, KeeperState::Running), KeeperCheck::GiveUp);
        assert!(life.keeper_due().is_some_and(|due| due > overdue));
    }
}
