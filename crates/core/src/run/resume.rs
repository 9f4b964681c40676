//! Going on after the supervisor was lost: same run, same numbers, same budgets.
//!
//! First the work of every open iteration is kept in a snapshot, in all nodes, before anything can change it.
//! Then the iteration is closed as interrupted and counts for nothing; a wait continues for the rest of its time; a
//! pause stays a pause; a decision that was not recorded is made again.

use super::cx::Cx;
use super::node::Node;
use super::schedule::Scheduler;
use super::stop::Stop;
use super::{Next, Run};
use crate::record::event::{Cause, Event, IterationEnd, NodeState, Outcome, RunResumed, WaitWhy};
use crate::record::ids::NodeIx;
use crate::record::view::{Doing, View};
use crate::settings::Plan;
use crate::time::dur::Dur;
use crate::time::moment::Wall;

/// By whom an iteration was interrupted that nobody ended.
pub const SUPERVISOR_LOST: &str = "supervisor_lost";

pub(super) struct Resuming {
    resumed: RunResumed,
    /// The run had gone to sleep and is woken.
    woken: bool,
}

/// What continues once the snapshots of the open iterations are taken.
pub(super) struct Rescue {
    before: Vec<(NodeIx, Before)>,
    woken: bool,
}

/// Why a run cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CannotResume {
    /// There is no `run_started` in its record.
    NeverStarted,
    /// It ended, and not by going to sleep.
    Ended(Outcome),
    /// It went to sleep; `wake` continues it.
    Asleep,
}

impl Run {
    /// A run that goes on from its record. `plan` stands in for the recorded one if that lacks secrets; `wake`
    /// continues a run that went to sleep.
    pub fn resume(
        view: View,
        plan: Option<Plan>,
        resumed: RunResumed,
        wake: bool,
    ) -> Result<Run, CannotResume> {
        match (view.ended.as_ref().map(|e| e.outcome), wake) {
            (Some(Outcome::Idle), false) => return Err(CannotResume::Asleep),
            // What a person stopped, a person may go on with.
            (None | Some(Outcome::Idle), _) | (Some(Outcome::Stopped | Outcome::Interrupted), false) => {}
            (Some(outcome), _) => return Err(CannotResume::Ended(outcome)),
        }
        let woken = wake && (view.ended.is_some() || view.is_asleep());
        let cx = Cx::resume(view, plan).ok_or(CannotResume::NeverStarted)?;
        let nodes =
            (0..cx.plan.nodes.len()).map(|i| Node::resume(NodeIx(i), cx.view.node(NodeIx(i)))).collect();
        let resuming = Some(Resuming { resumed, woken });
        let scheduler = Scheduler::new(&cx.plan);
        Ok(Run {
            cx,
            nodes,
            scheduler,
            filling: false,
            stop: Stop::default(),
            resuming,
            rescue: None,
            ending: None,
            asleep: None,
            last_words: None,
            finished: false,
        })
    }

    pub(super) fn begin_again(&mut self) {
        let Some(Resuming { resumed, woken }) = self.resuming.take() else { return };
        // What is begun on the way was not under way before.
        let under_way =
            |ix: &NodeIx| self.scheduler.is_none() || self.cx.view.node(*ix).state == NodeState::Running;
        let before: Vec<(NodeIx, Before)> =
            self.every().filter(under_way).map(|ix| (ix, self.before(ix))).collect();
        self.cx.record(Event::RunResumed(resumed));
        self.tell_again();
        self.arm_budget();
        self.arm_run_ceiling();
        for (ix, before) in &before {
            if let Before::InIteration(lasted) = before {
                self.rescue_or_close(*ix, *lasted);
            }
        }
        self.rescue = Some(Rescue { before, woken });
        self.go_on_if_rescued();
    }

    /// Keeps the work of an open iteration, unless its snapshot was taken before the supervisor was lost.
    fn rescue_or_close(&mut self, ix: NodeIx, lasted: Dur) {
        let node = self.cx.view.node(ix);
        if self.cx.plan.snapshots && node.kept != Some(node.iteration) {
            self.nodes[ix.0].keep_lost(&mut self.cx);
        } else {
            self.close_lost_iteration(ix, lasted);
        }
    }

    /// The node's lost work is kept. The nodes may share a work tree, so each waits for the snapshots of all.
    pub(super) fn rescued(&mut self, ix: NodeIx) {
        let before = self.rescue.as_ref().and_then(|r| r.before.iter().find(|(node, _)| *node == ix));
        if let Some((_, Before::InIteration(lasted))) = before {
            self.close_lost_iteration(ix, *lasted);
        }
        self.go_on_if_rescued();
    }

    fn go_on_if_rescued(&mut self) {
        if self.nodes.iter().any(Node::is_rescuing) {
            return;
        }
        let Some(Rescue { before, woken }) = self.rescue.take() else { return };
        if self.end_by_stop().is_some() {
            return self.finish_if_quiet();
        }
        self.take_up_graph();
        for (ix, before) in before {
            if !self.is_leaving() {
                self.cx.transition(ix, NodeState::Running, None);
                self.arm_node_budget(ix);
                self.arm_node_ceiling(ix);
                self.go_on(ix, before, woken);
            }
        }
        if self.scheduler.is_some() {
            self.fill();
        }
    }

    /// What the node was at when its supervisor was lost.
    fn before(&self, ix: NodeIx) -> Before {
        let node = self.cx.view.node(ix);
        match (&node.doing, node.open) {
            (_, Some(began)) => {
                let lasted = self.cx.view.last.awake.since(began);
                Before::InIteration(node.lost_after.unwrap_or(lasted))
            }
            (Doing::Waiting { why: WaitWhy::Paused, .. }, None)
                if let Some((why, delay, until)) = node.put_off =>
            {
                Before::Waiting(why, delay, until)
            }
            (Doing::Waiting { why, delay, until: Some(until) }, None) => {
                Before::Waiting(*why, *delay, *until)
            }
            (Doing::Waiting { why: WaitWhy::Asleep, .. }, None) => Before::Asleep,
            (
                Doing::Nothing
                | Doing::Preparing
                | Doing::Checking
                | Doing::Working { .. }
                | Doing::Waiting { .. },
                None,
            ) => Before::Between,
        }
    }

    fn go_on(&mut self, ix: NodeIx, before: Before, woken: bool) {
        let next = match (&before, self.cx.view.node(ix).last_ending.clone()) {
            _ if self.converged(ix).is_some() => self.or_end(ix, Next::Begin),
            _ if woken => self.or_end(ix, Next::Begin),
            (Before::Waiting(why, delay, until), _) => {
                self.or_end(ix, self.rest_of_wait(*why, *delay, *until))
            }
            (Before::Asleep, Some(ending)) => self.sleep_on(ix, &ending),
            (Before::Between, Some(ending)) => self.decide_next(ix, &ending),
            // It had not come to its first iteration.
            (Before::Between, None) if !woken => {
                let turn = self.nodes[ix.0].prepare(&mut self.cx, Cause::First);
                return self.turn(ix, turn);
            }
            (Before::InIteration(_) | Before::Asleep | Before::Between, _) => self.or_end(ix, Next::Begin),
        };
        let cause = if woken { Cause::Wake } else { Cause::Resumed };
        self.follow(ix, next, cause);
    }

    /// The wall clock says what is left: the boot clock may be another one by now. A clock that was set
    /// back cannot make the wait longer than it was.
    fn rest_of_wait(&self, why: WaitWhy, delay: Dur, until: Wall) -> Next {
        match left_of(until, self.cx.now.wall).min(delay) {
            Dur::ZERO => Next::Begin,
            left => Next::Wait(why, Some(left)),
        }
    }

    fn close_lost_iteration(&mut self, ix: NodeIx, lasted: Dur) {
        let end = IterationEnd {
            node: self.cx.name(ix),
            iteration: self.cx.view.node(ix).iteration,
            duration_s: lasted,
            because: "its supervisor was lost".to_owned(),
            fingerprint: None,
        };
        self.cx.record(Event::IterationInterrupted { end, by: SUPERVISOR_LOST.to_owned() });
    }
}

/// What the wall clock leaves of a wait.
pub(super) fn left_of(until: Wall, now: Wall) -> Dur {
    Dur::from_millis(u64::try_from(until.0 - now.0).unwrap_or(0))
}

enum Before {
    /// It had lasted so long when the last event was written.
    InIteration(Dur),
    Waiting(WaitWhy, Dur, Wall),
    /// An idle limit had stopped it, and it waited to be woken.
    Asleep,
    Between,
}
