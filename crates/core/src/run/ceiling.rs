//! Row 3 of the watchdog's table. `watchdog.node` and `watchdog.run` apply at all times, including waits, commands,
//! gates, probes and checks.
//!
//! While a session runs, its watch reaches the same verdict at the same moment, with evidence. The timers here cover
//! everything else, and no iteration starts past a ceiling.

use super::Run;
use super::over::{End, NodeEnd};
use crate::record::event::{NodeState, Outcome, WaitEndedBy};
use crate::record::ids::NodeIx;
use crate::time::dur::{Dur, Limit};
use crate::time::timer::{Deadline, Timer};
use crate::time::watched::WatchedTime;
use crate::watch::{NODE_TIMEOUT, RUN_TIMEOUT, StopReason, exceeded};

impl Run {
    /// Returns the run's limit. Every node has one; if they differ, the shortest applies.
    fn run_limit(&self) -> Limit {
        let limits = self.cx.plan.nodes.iter().filter_map(|node| node.settings.watchdog.run.duration());
        limits.min().map_or(Limit::Off, Limit::At)
    }

    pub(super) fn arm_run_ceiling(&mut self) {
        self.arm_ceiling(Timer::RunCeiling, self.run_limit(), self.cx.view.watched);
    }

    pub(super) fn arm_node_ceiling(&mut self, ix: NodeIx) {
        let limit = self.cx.settings(ix).watchdog.node;
        self.arm_ceiling(Timer::NodeCeiling(ix), limit, self.cx.view.node(ix).time.watched);
    }

    fn arm_ceiling(&mut self, timer: Timer, limit: Limit, watched: WatchedTime) {
        if let Some(limit) = limit.duration() {
            let now = self.cx.now.awake;
            let left = limit.saturating_sub(watched.lasted(now));
            self.cx.timers.set(timer, Deadline::Awake(now.plus(left)));
        }
    }

    /// Sets the ceiling timers again after time was subtracted from the clocks.
    pub(super) fn rearm_ceilings(&mut self) {
        self.arm_run_ceiling();
        for ix in self.every() {
            if self.cx.view.node(ix).state == NodeState::Running {
                self.arm_node_ceiling(ix);
            }
        }
    }

    pub(super) fn end_by_node_ceiling(&self, ix: NodeIx) -> Option<NodeEnd> {
        let message = self
            .stopped_for(ix, StopReason::NodeCeilingExceeded)
            .or_else(|| self.node_ceiling_message(ix))?;
        Some(NodeEnd::failed("node_ceiling_exceeded", End::new(Outcome::Ceiling, 3, message)))
    }

    pub(super) fn end_by_run_ceiling(&self, ix: NodeIx) -> Option<End> {
        let limit = self.cx.settings(ix).watchdog.run;
        let message = self
            .stopped_for(ix, StopReason::RunCeilingExceeded)
            .or_else(|| self.run_ceiling_message(limit))?;
        Some(End::new(Outcome::Ceiling, 3, message))
    }

    /// Returns the message of a verdict on the current iteration, which has more detail than the clock alone.
    fn stopped_for(&self, ix: NodeIx, reason: StopReason) -> Option<String> {
        let node = self.cx.view.node(ix);
        let stopped = node.recovery.last.as_ref();
        stopped.filter(|s| s.reason == reason && s.iteration == node.iteration).map(|s| s.message.clone())
    }

    fn node_ceiling_message(&self, ix: NodeIx) -> Option<String> {
        let limit = self.cx.settings(ix).watchdog.node.duration()?;
        reached(NODE_TIMEOUT, limit, self.cx.view.node(ix).time.watched.lasted(self.cx.now.awake))
    }

    fn run_ceiling_message(&self, limit: Limit) -> Option<String> {
        reached(RUN_TIMEOUT, limit.duration()?, self.cx.view.watched.lasted(self.cx.now.awake))
    }

    /// Handles a node that has reached its ceiling. The other nodes of a graph continue.
    pub(super) fn node_ceiling_reached(&mut self, ix: NodeIx) {
        if self.is_leaving() || self.is_stopping_now() {
            return;
        }
        let Some(message) = self.node_ceiling_message(ix) else { return self.arm_node_ceiling(ix) };
        let node = &mut self.nodes[ix.0];
        node.reach_ceiling(&mut self.cx, StopReason::NodeCeilingExceeded, &message);
        if self.asleep.is_some() {
            self.stop_at_ceiling(message);
        } else if node.waiting().is_some() {
            self.leave_wait(ix, WaitEndedBy::Ceiling);
        }
    }

    pub(super) fn run_ceiling_reached(&mut self) {
        if self.is_leaving() || self.is_stopping_now() {
            return;
        }
        let Some(message) = self.run_ceiling_message(self.run_limit()) else { return self.arm_run_ceiling() };
        for node in self.nodes.iter_mut().filter(|node| node.is_busy()) {
            node.reach_ceiling(&mut self.cx, StopReason::RunCeilingExceeded, &message);
        }
        self.stop_at_ceiling(message);
    }
}

fn reached(what: &str, limit: Dur, lasted: Dur) -> Option<String> {
    (lasted >= limit).then(|| exceeded(what, limit, lasted, None))
}
