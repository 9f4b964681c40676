//! The life cycle of the command's process tree: what to do next, and by when. Decides nothing about silence.
//!
//! The exit of the main process ends the command, not the end of its output. Processes that still hold its pipes
//! get the leak limit, then everything left is swept. Output is still delivered after that, however slowly it is
//! read.

use dogwatch_core::record::event::EndStep;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;

use crate::process::keeper::HowEnded;

/// The grace between TERM and KILL for processes that outlive the main one.
const SWEEP_GRACE: Dur = Dur::from_millis(500);

/// An order for the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Do {
    Step(EndStep),
    Sweep(Dur),
}

/// The exit of the main process.
#[derive(Debug, Clone, Copy)]
pub struct Gone {
    pub how: HowEnded,
    /// Whether no other process was left.
    pub alone: bool,
    /// Whether a signal was passed on to it before.
    pub signaled: bool,
    pub pipes_closed: bool,
}

/// The state of the command's process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Starting,
    Running,
    /// The watchdog is stopping it. The next step is due at the given time.
    Ending(EndStep, Option<Awake>),
    /// The main process has exited; its pipes are still open.
    Exited(HowEnded, Awake),
    Sweeping(HowEnded),
    /// No process is left, but output is still being delivered.
    Empty(HowEnded, Awake),
    Over(Option<HowEnded>),
}

impl Life {
    /// Returns whether everything is over.
    pub fn is_over(&self) -> bool {
        matches!(self, Life::Over(_))
    }

    /// Returns whether the watchdog has something to judge.
    pub fn is_watched(&self) -> bool {
        matches!(self, Life::Running)
    }

    /// Returns whether the keeper owes a report: that the command has started, or that no process is left.
    pub fn awaits_keeper(&self) -> bool {
        matches!(self, Life::Starting | Life::Ending(EndStep::Kill, _) | Life::Sweeping(_))
    }

    /// Returns how the main process ended, if it has.
    pub fn how(&self) -> Option<HowEnded> {
        match self {
            Life::Starting | Life::Running | Life::Ending(..) => None,
            Life::Exited(how, _) | Life::Sweeping(how) | Life::Empty(how, _) => Some(*how),
            Life::Over(how) => *how,
        }
    }

    /// Returns when `time_passed` has something to do.
    pub fn due(&self) -> Option<Awake> {
        match self {
            Life::Starting | Life::Running | Life::Sweeping(_) | Life::Over(_) => None,
            Life::Ending(_, at) => *at,
            Life::Exited(_, at) | Life::Empty(_, at) => Some(*at),
        }
    }

    /// Notes that the command has started.
    pub fn began(&mut self) {
        *self = Life::Running;
    }

    /// Stops the command for the watchdog. A known agent is interrupted, so that it can finish its turn; any other
    /// program is terminated.
    pub fn end(&mut self, now: Awake, grace: Dur, structured: bool) -> Option<Do> {
        let step = if structured { EndStep::Interrupt } else { EndStep::Terminate };
        *self = Life::Ending(step, Some(now.plus(grace)));
        Some(Do::Step(step))
    }

    /// Handles a request to end everything. A running command gets the signal itself.
    pub fn asked(&mut self) -> Option<Do> {
        match *self {
            Life::Starting | Life::Running | Life::Ending(..) | Life::Sweeping(_) | Life::Over(_) => None,
            Life::Exited(how, _) => {
                *self = Life::Sweeping(how);
                Some(Do::Sweep(SWEEP_GRACE))
            }
            // Do not wait any longer for a reader of the output.
            Life::Empty(how, _) => {
                *self = Life::Over(Some(how));
                None
            }
        }
    }

    /// Handles the exit of the main process. Remaining processes get the leak limit, unless the end was requested.
    pub fn exited(&mut self, now: Awake, gone: Gone, leak: Dur) -> Option<Do> {
        let Gone { how, alone, signaled, pipes_closed } = gone;
        let ours = signaled || matches!(self, Life::Ending(..));
        if alone {
            *self = Life::Sweeping(how);
            self.emptied(now, pipes_closed, leak);
            None
        } else if ours || pipes_closed {
            *self = Life::Sweeping(how);
            Some(Do::Sweep(SWEEP_GRACE))
        } else {
            *self = Life::Exited(how, now.plus(leak));
            None
        }
    }

    /// Handles the end of all output.
    pub fn pipes_closed(&mut self) -> Option<Do> {
        match *self {
            Life::Starting | Life::Running | Life::Ending(..) | Life::Sweeping(_) | Life::Over(_) => None,
            Life::Exited(how, _) => {
                *self = Life::Sweeping(how);
                Some(Do::Sweep(SWEEP_GRACE))
            }
            Life::Empty(how, _) => {
                *self = Life::Over(Some(how));
                None
            }
        }
    }

    /// Handles the report that no process is left.
    pub fn emptied(&mut self, now: Awake, pipes_closed: bool, leak: Dur) {
        if let Some(how) = self.how() {
            *self = if pipes_closed { Life::Over(Some(how)) } else { Life::Empty(how, now.plus(leak)) };
        }
    }

    /// Takes the step that is due. `pending` means that some output may still be read.
    pub fn time_passed(&mut self, now: Awake, grace: Dur, leak: Dur, pending: bool) -> Option<Do> {
        match *self {
            Life::Starting | Life::Running | Life::Sweeping(_) | Life::Over(_) => None,
            Life::Ending(EndStep::Interrupt, _) => {
                *self = Life::Ending(EndStep::Terminate, Some(now.plus(grace)));
                Some(Do::Step(EndStep::Terminate))
            }
            Life::Ending(EndStep::Terminate | EndStep::Kill, _) => {
                *self = Life::Ending(EndStep::Kill, None);
                Some(Do::Step(EndStep::Kill))
            }
            Life::Exited(how, _) => {
                *self = Life::Sweeping(how);
                Some(Do::Sweep(SWEEP_GRACE))
            }
            Life::Empty(how, _) => {
                *self = if pending { Life::Empty(how, now.plus(leak)) } else { Life::Over(Some(how)) };
                None
            }
        }
    }

    /// Gives up: nothing more can be done.
    pub fn give_up(&mut self) {
        *self = Life::Over(self.how());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Dur = Dur::from_secs(10);
    const LEAK: Dur = Dur::from_secs(2);
    const DONE: HowEnded = HowEnded::Code(0);

    fn gone(alone: bool, signaled: bool, pipes_closed: bool) -> Gone {
        Gone { how: DONE, alone, signaled, pipes_closed }
    }

    #[test]
    fn processes_that_hold_the_pipes_after_the_exit_get_the_leak_limit() {
        let mut life = Life::Running;
        assert_eq!(life.exited(Awake(0), gone(false, false, false), LEAK), None);
        assert_eq!(life.due(), Some(Awake(2_000)));
        assert_eq!(life.time_passed(Awake(2_000), GRACE, LEAK, true), Some(Do::Sweep(SWEEP_GRACE)));
        life.emptied(Awake(2_100), true, LEAK);
        assert_eq!(life, Life::Over(Some(DONE)));
    }

    #[test]
    fn leftovers_are_swept_at_once_after_a_signal_or_closed_pipes() {
        for gone in [gone(false, true, false), gone(false, false, true)] {
            assert_eq!(Life::Running.exited(Awake(0), gone, LEAK), Some(Do::Sweep(SWEEP_GRACE)));
        }
        let mut alone = Life::Running;
        assert_eq!(alone.exited(Awake(0), gone(true, false, true), LEAK), None);
        assert!(alone.is_over());
    }

    #[test]
    fn output_is_delivered_until_none_is_left() {
        let mut life = Life::Running;
        life.exited(Awake(0), gone(true, false, false), LEAK);
        for round in 1..5 {
            assert_eq!(life.time_passed(Awake(round * 2_000), GRACE, LEAK, true), None);
            assert!(!life.is_over());
        }
        life.time_passed(Awake(10_000), GRACE, LEAK, false);
        assert!(life.is_over(), "an outsider holds the pipe");
    }

    #[test]
    fn an_agent_is_interrupted_first_and_other_programs_are_terminated() {
        for (structured, steps) in [
            (true, &[EndStep::Interrupt, EndStep::Terminate, EndStep::Kill][..]),
            (false, &[EndStep::Terminate, EndStep::Kill]),
        ] {
            let mut life = Life::Running;
            let mut taken = vec![life.end(Awake(0), GRACE, structured)];
            while let Some(at) = life.due() {
                taken.push(life.time_passed(at, GRACE, LEAK, false));
            }
            assert_eq!(taken, steps.iter().map(|step| Some(Do::Step(*step))).collect::<Vec<_>>());
        }
    }
}
