//! A node's wait: a timer, an optional probe that periodically checks whether the wait should end, and an
//! optional pause that interrupts it.

use super::cx::Cx;
use super::job_tree::JobTree;
use super::node::{Turn, clear_job_timers};
use super::resume::left_of;
use crate::learn::Basis;
use crate::record::event::{Cause, EndedBy, Event, WaitEndedBy, WaitWhy};
use crate::record::ids::{Iteration, NodeIx};
use crate::run::decision::Decision;
use crate::run::input::NodeInput;
use crate::run::job::{Exit, Job, JobKind};
use crate::settings::CommandPlan;
use crate::time::dur::Dur;
use crate::time::moment::Boot;
use crate::time::timer::{Deadline, Timer};

pub(super) struct Wait {
    ix: NodeIx,
    iteration: Iteration,
    why: WaitWhy,
    /// When the wait ends by itself. A pause has no such time.
    until: Option<Boot>,
    /// The wait that a pause interrupted: its reason and its end.
    put_off: Option<(WaitWhy, Boot)>,
    probe: Option<JobTree>,
    /// Set when the wait ends as soon as the probe's process tree is empty.
    leaving: Option<(WaitEndedBy, Cause)>,
    /// Set once a problem with the probe has been reported; it is reported once per wait.
    reported: bool,
}

impl Wait {
    /// Starts a wait and records it.
    pub fn begin(cx: &mut Cx, ix: NodeIx, iteration: Iteration, why: WaitWhy, delay: Option<Dur>) -> Wait {
        let until = delay.map(|d| cx.now.boot.plus(d));
        // A pause that continues after its supervisor was lost still holds the wait that it interrupted.
        let put_off = cx
            .view
            .node(ix)
            .waits
            .put_off
            .filter(|_| why == WaitWhy::Paused)
            .map(|(why, delay, until)| (why, cx.now.boot.plus(left_of(until, cx.now.wall).min(delay))));
        let mut wait =
            Wait { ix, iteration, why, until, put_off, probe: None, leaving: None, reported: false };
        wait.record_and_arm(cx, delay);
        wait
    }

    /// Returns the reason for the wait.
    pub fn why(&self) -> WaitWhy {
        self.why
    }

    /// Returns the running probe.
    pub fn probe(&self) -> Option<&JobTree> {
        self.probe.as_ref()
    }

    /// Returns the running probe.
    pub fn probe_mut(&mut self) -> Option<&mut JobTree> {
        self.probe.as_mut()
    }

    fn record_and_arm(&mut self, cx: &mut Cx, delay: Option<Dur>) {
        match self.until {
            Some(at) => cx.timers.set(Timer::Wait(self.ix), Deadline::Boot(at)),
            None => cx.timers.clear(Timer::Wait(self.ix)),
        }
        self.arm_probe(cx);
        let until = delay.map(|d| cx.now.wall.plus(d));
        let utc_offset_s = cx.utc_offset_s.filter(|_| self.why == WaitWhy::Idle);
        let because = self.because(cx);
        let node = cx.name(self.ix);
        cx.record(Event::WaitStarted { node, why: self.why, delay_s: delay, until, utc_offset_s, because });
        self.release_keepers(cx);
    }

    /// Returns why the wait is as long as it is, if there is more to say than its kind.
    fn because(&self, cx: &Cx) -> Option<String> {
        if self.why == WaitWhy::RateLimit {
            return cx.opens(self.ix).and_then(|(_, why)| why);
        }
        let decided = cx.learned_wait(self.ix).filter(|_| self.why == WaitWhy::Idle)?;
        let history = cx.view.node(self.ix).learned.as_deref()?;
        match decided.basis {
            Basis::Plain => None,
            Basis::Learned | Basis::Guard => Some(history.arrivals.reason(decided.basis)),
        }
    }

    /// Releases the keepers of a sleeping run, which holds no process but itself, even between two probes.
    fn release_keepers(&self, cx: &mut Cx) {
        if self.why == WaitWhy::Asleep {
            cx.out.push(Decision::ReleaseKeepers);
        }
    }

    /// Sets the timer of the next probe. Only an idle or sleeping node probes for work.
    fn arm_probe(&self, cx: &mut Cx) {
        let wake_on = &cx.settings(self.ix).wake_on;
        let idle = matches!(self.why, WaitWhy::Idle | WaitWhy::Asleep);
        let wanted = wake_on.probe.is_some() && idle && self.leaving.is_none();
        match wanted {
            true => {
                let at = cx.now.boot.plus(cx.until_probe(self.ix));
                cx.timers.set(Timer::Probe(self.ix), Deadline::Boot(at));
            }
            false => cx.timers.clear(Timer::Probe(self.ix)),
        }
    }

    /// Handles a fact and returns what follows from it.
    pub fn handle(&mut self, cx: &mut Cx, fact: NodeInput) -> Turn {
        let fact = match &mut self.probe {
            Some(probe) => match probe.handle(cx, fact) {
                Some(fact) => fact,
                None => return Turn::Stay,
            },
            None => fact,
        };
        match (fact, &mut self.probe) {
            (NodeInput::Due(Timer::Wait(_)), _) => return self.leave(cx, WaitEndedBy::Timer, Cause::Next),
            (NodeInput::Due(Timer::Probe(_)), None) => {
                let job = Job { node: self.ix, iteration: self.iteration, kind: JobKind::Probe };
                self.probe = Some(JobTree::start(cx, job));
            }
            (NodeInput::Started { .. }, Some(probe)) => {
                probe.started(cx);
                let at = cx.now.awake.plus(CommandPlan::DEFAULT_TIMEOUT);
                cx.timers.set(Timer::PrepJob(self.ix), Deadline::Awake(at));
            }
            (NodeInput::Refused { error }, Some(_)) => return self.probe_over(cx, None, Some(error)),
            (NodeInput::Ended(_), Some(probe)) => {
                let (exit, timed_out) = (probe.exit(), probe.ended_by() == Some(EndedBy::Watchdog));
                let trouble = timed_out.then(|| format!("ended after {}", CommandPlan::DEFAULT_TIMEOUT));
                return self.probe_over(cx, exit, trouble);
            }
            // A late or foreign fact is harmless.
            (
                NodeInput::Due(_)
                | NodeInput::Observed(_)
                | NodeInput::Noted(_)
                | NodeInput::HealthIssueFound(_)
                | NodeInput::Reported(_)
                | NodeInput::Used(_)
                | NodeInput::ResultSeen
                | NodeInput::PromptAssembled { .. }
                | NodeInput::PinsHashed { .. }
                | NodeInput::Sent
                | NodeInput::Unstarted { .. }
                | NodeInput::KeeperSeen { .. }
                | NodeInput::Exited(_)
                | NodeInput::PipesClosed,
                _,
            )
            | (NodeInput::Started { .. } | NodeInput::Refused { .. } | NodeInput::Ended(_), None) => {}
        }
        Turn::Stay
    }

    fn probe_over(&mut self, cx: &mut Cx, exit: Option<Exit>, trouble: Option<String>) -> Turn {
        clear_job_timers(cx, self.ix);
        self.probe = None;
        if let Some(detail) = trouble
            && !std::mem::replace(&mut self.reported, true)
        {
            cx.trouble("wake_probe", format!("wake_on.probe: {detail}"));
        }
        match (self.leaving, exit) {
            (Some((by, cause)), _) => self.leave(cx, by, cause),
            (None, Some(Exit::Code(0))) => self.leave(cx, WaitEndedBy::Probe, Cause::Wake),
            (None, _) => {
                self.arm_probe(cx);
                self.release_keepers(cx);
                Turn::Stay
            }
        }
    }

    /// Ends the wait. A running probe is killed first, so that only one process tree is alive at a time.
    pub fn leave(&mut self, cx: &mut Cx, by: WaitEndedBy, cause: Cause) -> Turn {
        cx.timers.clear(Timer::Wait(self.ix));
        cx.timers.clear(Timer::Probe(self.ix));
        if let Some(probe) = &mut self.probe {
            self.leaving.get_or_insert((by, cause));
            probe.kill(cx, EndedBy::Operator);
            return Turn::Stay;
        }
        cx.record(Event::WaitEnded { node: cx.name(self.ix), by });
        Turn::WaitOver(cause)
    }

    /// Interrupts the wait with a pause. A running probe may finish. A sleeping run keeps sleeping: nothing would start
    /// anyway, and the pause applies once it is woken.
    pub fn pause(&mut self, cx: &mut Cx) {
        if self.why == WaitWhy::Asleep {
            return;
        }
        // A wait that only waits for its probe to end is over, so nothing of it is left after the pause.
        self.put_off = match (self.leaving.take(), self.until) {
            (Some(_), _) => None,
            (None, Some(until)) => Some((self.why, until)),
            (None, None) => self.put_off,
        };
        (self.why, self.until) = (WaitWhy::Paused, None);
        self.record_and_arm(cx, None);
    }

    /// Lifts the pause: the interrupted wait continues, or the wait ends.
    pub fn unpause(&mut self, cx: &mut Cx, by: WaitEndedBy) -> Turn {
        if self.why != WaitWhy::Paused {
            return Turn::Stay;
        }
        match self.put_off.take() {
            Some((why, until)) if until > cx.now.boot => {
                cx.record(Event::WaitEnded { node: cx.name(self.ix), by });
                (self.why, self.until) = (why, Some(until));
                let left = until.since(cx.now.boot);
                self.record_and_arm(cx, Some(left));
                Turn::Stay
            }
            Some(_) | None => self.leave(cx, by, Cause::Wake),
        }
    }
}
