//! The life of one process tree, from the order to start it to the proof that nothing of it is left.
//!
//! Exit, not end of output, ends a job: after the main process is gone its pipes get the leak limit, then
//! whatever is left is swept. A tree that must end is asked in steps: interrupt, terminate, kill, with a
//! grace between them.

use super::cx::Cx;
use crate::decision::Decision;
use crate::dur::Dur;
use crate::event::{EndStep, EndedBy, Event};
use crate::job::{Exit, Job, JobKind};
use crate::moment::Awake;
use crate::timer::{Deadline, Timer};

/// What processes that outlived the main one get between TERM and KILL.
pub(super) const SWEEP_GRACE: Dur = Dur::from_millis(500);

pub(super) struct Tree {
    pub job: Job,
    /// When it was started; for one that never was, when it was asked for.
    pub since: Awake,
    life: Life,
    pipes_closed: bool,
    ended_by: Option<EndedBy>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Starting,
    Alive,
    Ending(EndStep),
    /// The main process is gone; its pipes are still held.
    Exited(Exit),
    /// What is left is being ended.
    Sweeping(Exit),
}

impl Tree {
    pub fn start(cx: &mut Cx, job: Job) -> Tree {
        cx.out.push(Decision::Start(job));
        Tree { job, since: cx.now.awake, life: Life::Starting, pipes_closed: false, ended_by: None }
    }

    pub fn started(&mut self, cx: &Cx) {
        self.since = cx.now.awake;
        if self.life == Life::Starting {
            self.life = Life::Alive;
        }
    }

    pub fn lasted(&self, cx: &Cx) -> Dur {
        cx.now.awake.since(self.since)
    }

    pub fn exit(&self) -> Option<Exit> {
        match self.life {
            Life::Starting | Life::Alive | Life::Ending(_) => None,
            Life::Exited(exit) | Life::Sweeping(exit) => Some(exit),
        }
    }

    /// Who ended it, if anybody but itself.
    pub fn ended_by(&self) -> Option<EndedBy> {
        self.ended_by
    }

    /// The main process exited. What we were ending anyway is swept at once; otherwise whoever still
    /// holds the pipes may write for the length of the leak limit.
    pub fn exited(&mut self, cx: &mut Cx, exit: Exit, leak: Dur) {
        let ours = match self.life {
            Life::Starting | Life::Alive => false,
            Life::Ending(_) => true,
            Life::Exited(_) | Life::Sweeping(_) => return,
        };
        cx.timers.clear(Timer::Grace(self.job.node));
        self.life = Life::Exited(exit);
        if ours || self.pipes_closed {
            self.sweep(cx);
        } else {
            cx.timers.set(Timer::Leak(self.job.node), Deadline::Awake(cx.now.awake.plus(leak)));
        }
    }

    pub fn pipes_closed(&mut self, cx: &mut Cx) {
        self.pipes_closed = true;
        self.sweep(cx);
    }

    /// Ends what the main process left behind. Does nothing while the main process lives.
    pub fn sweep(&mut self, cx: &mut Cx) {
        if let Life::Exited(exit) = self.life {
            cx.timers.clear(Timer::Leak(self.job.node));
            self.life = Life::Sweeping(exit);
            cx.out.push(Decision::Sweep { job: self.job, grace: SWEEP_GRACE });
        }
    }

    /// Begins to end the tree. The first to ask is the one who ended it.
    pub fn end(&mut self, cx: &mut Cx, by: EndedBy) {
        match self.life {
            Life::Starting | Life::Alive => {
                self.ended_by = Some(by);
                // Commands have no turn to finish; they are told to go at once.
                let first = match self.job.kind {
                    JobKind::Session => EndStep::Interrupt,
                    JobKind::Command(_)
                    | JobKind::Gate
                    | JobKind::Probe
                    | JobKind::Snapshot
                    | JobKind::Check(_)
                    | JobKind::Worktree => EndStep::Terminate,
                };
                self.take_step(cx, first);
            }
            Life::Exited(_) => self.sweep(cx),
            Life::Ending(_) | Life::Sweeping(_) => {}
        }
    }

    /// The grace is over: the next step.
    pub fn next_step(&mut self, cx: &mut Cx) {
        match self.life {
            Life::Ending(EndStep::Interrupt) => self.take_step(cx, EndStep::Terminate),
            Life::Ending(EndStep::Terminate) => self.take_step(cx, EndStep::Kill),
            Life::Ending(EndStep::Kill)
            | Life::Starting
            | Life::Alive
            | Life::Exited(_)
            | Life::Sweeping(_) => {}
        }
    }

    /// No more grace.
    pub fn kill(&mut self, cx: &mut Cx, by: EndedBy) {
        match self.life {
            Life::Starting | Life::Alive | Life::Ending(EndStep::Interrupt | EndStep::Terminate) => {
                self.ended_by.get_or_insert(by);
                self.take_step(cx, EndStep::Kill);
            }
            Life::Ending(EndStep::Kill) | Life::Sweeping(_) => {}
            Life::Exited(_) => self.sweep(cx),
        }
    }

    fn take_step(&mut self, cx: &mut Cx, step: EndStep) {
        let node = self.job.node;
        self.life = Life::Ending(step);
        if self.job.kind == JobKind::Session {
            let ended_by = self.ended_by.unwrap_or(EndedBy::Operator);
            let name = cx.name(node);
            cx.record(Event::SessionSignalled { node: name, iteration: self.job.iteration, step, ended_by });
        }
        let grace = Deadline::Awake(cx.now.awake.plus(cx.settings(node).watchdog.grace));
        match step {
            EndStep::Interrupt => {
                cx.timers.set(Timer::Grace(node), grace);
                cx.out.push(Decision::Interrupt(self.job));
            }
            EndStep::Terminate => {
                cx.timers.set(Timer::Grace(node), grace);
                cx.out.push(Decision::Terminate(self.job));
            }
            EndStep::Kill => {
                cx.timers.clear(Timer::Grace(node));
                cx.out.push(Decision::Kill(self.job));
            }
        }
    }
}
