//! The life of the command's tree: what is to be done next, and by when. Decides nothing about silence.
//!
//! Exit, not end of output, ends it: whoever holds its pipes after that has the leak limit, then all that is left
//! is swept. What was printed is still delivered after that, however slowly it is read.

use dogwatch_core::dur::Dur;
use dogwatch_core::event::EndStep;
use dogwatch_core::moment::Awake;

use crate::keeper::HowEnded;

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
