//! Resuming a run after its supervisor was lost, with the same numbering and budgets.
//!
//! First dogwatch takes a snapshot of every open iteration in all nodes, before anything can change the work.
//! Then it closes those iterations as interrupted; they count toward no limit. A wait continues for the rest of its
//! time, a pause stays in force, and a decision that was not recorded is made again.

use super::cx::Cx;
use super::node::Node;
use super::{Next, Run};
use crate::record::event::{Cause, Event, IterationEnd, NodeState, Outcome, RunResumed, WaitWhy};
use crate::record::ids::NodeIx;
use crate::record::view::{Doing, View};
use crate::settings::Plan;
use crate::time::dur::Dur;
use crate::time::moment::Wall;

/// The `by` of an iteration that was interrupted by the loss of its supervisor.
pub const SUPERVISOR_LOST: &str = "supervisor_lost";

pub(super) struct Resuming {
    resumed: RunResumed,
    /// The run had gone to sleep and is woken.
    woken: bool,
}

/// The state of the nodes that continue once the snapshots of the open iterations are taken.
pub(super) struct Rescue {
    before: Vec<(NodeIx, Before)>,
    woken: bool,
}

/// The reason a run cannot be resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResumeError {
    /// The record has no `run_started`.
    NeverStarted,
    /// The run has ended, and not by going to sleep.
    Ended(Outcome),
    /// The run went to sleep; `wake` continues it.
    Asleep,
}

impl Run {
    /// Restores a run from its record. `plan` replaces the recorded plan if that lacks secrets; `wake` continues a run
    /// that went to sleep.
    pub fn resume(
        view: View,
        plan: Option<Plan>,
        resumed: RunResumed,
        wake: bool,
    ) -> Result<Run, ResumeError> {
        match (view.ended.as_ref().map(|e| e.outcome), wake) {
            (Some(Outcome::Idle), false) => return Err(ResumeError::Asleep),
            // An operator may resume a run that an operator stopped.
            (None | Some(Outcome::Idle), _) | (Some(Outcome::Stopped | Outcome::Interrupted), false) => {}
            (Some(outcome), _) => return Err(ResumeError::Ended(outcome)),
        }
        let woken = wake && (view.ended.is_some() || view.is_asleep());
        let cx = Cx::resume(view, plan).ok_or(ResumeError::NeverStarted)?;
        let nodes =
            (0..cx.plan.nodes.len()).map(|i| Node::resume(NodeIx(i), cx.view.node(NodeIx(i)))).collect();
        Ok(Run::with(cx, nodes, Some(Resuming { resumed, woken })))
    }

    pub(super) fn begin_again(&mut self) {
        let Some(Resuming { resumed, woken }) = self.resuming.take() else { return };
        // Collect this first: nodes that start during the resume were not in progress before.
        let under_way =
            |ix: &NodeIx| self.scheduler.is_none() || self.cx.view.node(*ix).state == NodeState::Running;
        let before: Vec<(NodeIx, Before)> =
            self.every().filter(under_way).map(|ix| (ix, self.before(ix))).collect();
        self.cx.record(Event::RunResumed(resumed));
        self.cx.record_windows();
        self.resend_notifications();
        self.arm_budget();
        self.arm_run_ceiling();
        for (ix, before) in &before {
            if let Before::InIteration = before {
                self.rescue_or_close(*ix);
            }
        }
        self.rescue = Some(Rescue { before, woken });
        self.continue_if_rescued();
    }

    /// Takes a snapshot of an open iteration, unless it was already taken before the supervisor was lost.
    fn rescue_or_close(&mut self, ix: NodeIx) {
        let node = self.cx.view.node(ix);
        if self.cx.plan.snapshots && node.work.snapshot_of != Some(node.iteration) {
            self.nodes[ix.0].keep_lost(&mut self.cx);
        } else {
            self.close_lost_iteration(ix);
        }
    }

    /// Closes a node's lost iteration after its snapshot. The nodes may share a work tree, so each waits for the
    /// snapshots of all.
    pub(super) fn rescued(&mut self, ix: NodeIx) {
        let before = self.rescue.as_ref().and_then(|r| r.before.iter().find(|(node, _)| *node == ix));
        if let Some((_, Before::InIteration)) = before {
            self.close_lost_iteration(ix);
        }
        self.continue_if_rescued();
    }

    fn continue_if_rescued(&mut self) {
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
                self.continue_node(ix, before, woken);
            }
        }
        if self.scheduler.is_some() {
            self.fill();
        }
    }

    /// Returns what the node was doing when its supervisor was lost.
    fn before(&self, ix: NodeIx) -> Before {
        let node = self.cx.view.node(ix);
        match (&node.doing, node.current.started) {
            (_, Some(_)) => Before::InIteration,
            (Doing::Waiting { why: WaitWhy::Paused, .. }, None)
                if let Some((why, delay, until)) = node.waits.put_off =>
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

    fn continue_node(&mut self, ix: NodeIx, before: Before, woken: bool) {
        let next = match (&before, self.cx.view.node(ix).last.ending.clone()) {
            _ if self.converged(ix).is_some() => self.or_end(ix, Next::Begin),
            _ if woken => self.or_end(ix, Next::Begin),
            (Before::Waiting(why, delay, until), _) => {
                self.or_end(ix, self.rest_of_wait(*why, *delay, *until))
            }
            (Before::Asleep, Some(ending)) => self.continue_sleep(ix, &ending),
            (Before::Between, Some(ending)) => self.decide_next(ix, &ending),
            // The node had not started its first iteration.
            (Before::Between, None) if !woken => {
                let turn = self.nodes[ix.0].prepare(&mut self.cx, Cause::First);
                return self.turn(ix, turn);
            }
            (Before::InIteration | Before::Asleep | Before::Between, _) => self.or_end(ix, Next::Begin),
        };
        let cause = if woken { Cause::Wake } else { Cause::Resumed };
        self.follow(ix, next, cause);
    }

    /// Returns the rest of a wait. The wall clock measures it, because the boot clock may have restarted. A clock that
    /// was set back cannot make the wait longer than it was.
    fn rest_of_wait(&self, why: WaitWhy, delay: Dur, until: Wall) -> Next {
        match left_of(until, self.cx.now.wall).min(delay) {
            Dur::ZERO => Next::Begin,
            left => Next::Wait(why, Some(left)),
        }
    }

    fn close_lost_iteration(&mut self, ix: NodeIx) {
        let node = self.cx.view.node(ix);
        let end = IterationEnd {
            node: self.cx.name(ix),
            iteration: node.iteration,
            duration_s: node.current.lost_after.unwrap_or_default(),
            because: "its supervisor was lost".to_owned(),
            fingerprint: None,
        };
        self.cx.record(Event::IterationInterrupted { end, by: SUPERVISOR_LOST.to_owned() });
    }
}

/// Returns the time from `now` to `until` on the wall clock, or zero.
pub(super) fn left_of(until: Wall, now: Wall) -> Dur {
    Dur::from_millis(u64::try_from(until.0 - now.0).unwrap_or(0))
}

/// The activity of a node when its supervisor was lost.
enum Before {
    /// In an iteration.
    InIteration,
    /// In a wait: its reason, its length and its end.
    Waiting(WaitWhy, Dur, Wall),
    /// Asleep after an idle stop, until woken.
    Asleep,
    /// Between two iterations, without a wait.
    Between,
}
