//! The life of the command's tree: what is to be done next, and by when. Decides nothing about silence.
//!
//! Exit, not end of output, ends it: whoever holds its pipes after that has the leak limit, then all that is left
//! is swept. What was printed is still delivered after that, however slowly it is read.

use dogwatch_core::record::event::EndStep;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;

use crate::process::keeper::HowEnded;

/// What processes that outlived the main one get between TERM and KILL.
const SWEEP_GRACE: Dur = Dur::from_millis(500);

/// What the keeper is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Do {
    Step(EndStep),
    Sweep(Dur),
}

/// The end of the main process.
#[derive(Debug, Clone, Copy)]
pub struct Gone {
    pub how: HowEnded,
    /// No other process of it was left.
    pub alone: bool,
    /// A signal was passed on to it before.
    pub told: bool,
    pub pipes_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Starting,
    Running,
    /// The watchdog has spoken; the next step is due then.
    Ending(EndStep, Option<Awake>),
    /// The main process is gone; its pipes are still held.
    Exited(HowEnded, Awake),
    Sweeping(HowEnded),
    /// Nothing is left of it but what it printed.
    Empty(HowEnded, Awake),
    Over(Option<HowEnded>),
}

impl Life {
    pub fn is_over(&self) -> bool {
        matches!(self, Life::Over(_))
    }

    /// There is something to be judged.
    pub fn is_watched(&self) -> bool {
        matches!(self, Life::Running)
    }

    /// The keeper owes a report: that it has started, or that nothing is left.
    pub fn awaits_keeper(&self) -> bool {
        matches!(self, Life::Starting | Life::Ending(EndStep::Kill, _) | Life::Sweeping(_))
    }

    pub fn how(&self) -> Option<HowEnded> {
        match self {
            Life::Starting | Life::Running | Life::Ending(..) => None,
            Life::Exited(how, _) | Life::Sweeping(how) | Life::Empty(how, _) => Some(*how),
            Life::Over(how) => *how,
        }
    }

    /// When `time_passed` has something to do.
    pub fn due(&self) -> Option<Awake> {
        match self {
            Life::Starting | Life::Running | Life::Sweeping(_) | Life::Over(_) => None,
            Life::Ending(_, at) => *at,
            Life::Exited(_, at) | Life::Empty(_, at) => Some(*at),
        }
    }

    pub fn began(&mut self) {
        *self = Life::Running;
    }

    /// The watchdog ends it. A known agent has a turn to finish; any other program is told to go.
    pub fn end(&mut self, now: Awake, grace: Dur, structured: bool) -> Option<Do> {
        let step = if structured { EndStep::Interrupt } else { EndStep::Terminate };
        *self = Life::Ending(step, Some(now.plus(grace)));
        Some(Do::Step(step))
    }

    /// Somebody wants an end of it all. What lives is told by the signal itself.
    pub fn asked(&mut self) -> Option<Do> {
        match *self {
            Life::Starting | Life::Running | Life::Ending(..) | Life::Sweeping(_) | Life::Over(_) => None,
            Life::Exited(how, _) => {
                *self = Life::Sweeping(how);
                Some(Do::Sweep(SWEEP_GRACE))
            }
            // Nobody waits any longer for what is not read.
            Life::Empty(how, _) => {
                *self = Life::Over(Some(how));
                None
            }
        }
    }

    /// The main process ended. Who is left gets the leak limit, unless somebody wanted its end.
    pub fn exited(&mut self, now: Awake, gone: Gone, leak: Dur) -> Option<Do> {
        let Gone { how, alone, told, pipes_closed } = gone;
        let ours = told || matches!(self, Life::Ending(..));
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

    /// All that was printed is delivered.
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

    /// No process of it is left.
    pub fn emptied(&mut self, now: Awake, pipes_closed: bool, leak: Dur) {
        if let Some(how) = self.how() {
            *self = if pipes_closed { Life::Over(Some(how)) } else { Life::Empty(how, now.plus(leak)) };
        }
    }

    /// `pending`: there is output left that somebody may still read.
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

    /// There is nothing more that could be done.
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

    fn gone(alone: bool, told: bool, pipes_closed: bool) -> Gone {
        Gone { how: DONE, alone, told, pipes_closed }
    }

    #[test]
    fn who_holds_the_pipes_of_one_who_left_has_the_leak_limit() {
        let mut life = Life::Running;
        assert_eq!(life.exited(Awake(0), gone(false, false, false), LEAK), None);
        assert_eq!(life.due(), Some(Awake(2_000)));
        assert_eq!(life.time_passed(Awake(2_000), GRACE, LEAK, true), Some(Do::Sweep(SWEEP_GRACE)));
        life.emptied(Awake(2_100), true, LEAK);
        assert_eq!(life, Life::Over(Some(DONE)));
    }

    #[test]
    fn nobody_is_waited_for_once_an_end_is_wanted_or_the_pipes_are_closed() {
        for gone in [gone(false, true, false), gone(false, false, true)] {
            assert_eq!(Life::Running.exited(Awake(0), gone, LEAK), Some(Do::Sweep(SWEEP_GRACE)));
        }
        let mut alone = Life::Running;
        assert_eq!(alone.exited(Awake(0), gone(true, false, true), LEAK), None);
        assert!(alone.is_over());
    }

    #[test]
    fn what_was_printed_is_delivered_as_long_as_there_is_some_left() {
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
    fn an_agent_is_interrupted_first_and_any_program_told_to_go_then_killed() {
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
