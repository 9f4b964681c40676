//! The end of a node and the end of the run.

use super::{Next, Run};
use crate::record::event::{Event, NodeState, Outcome, RunEnded, WaitWhy};
use crate::record::ids::NodeIx;
use crate::run::decision::{ContextEntry, Decision};
use crate::run::ending::Ending;
use crate::settings::AfterStop;
use crate::text::figures::count;
use crate::time::timer::Timer;

/// The end of the run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct End {
    pub outcome: Outcome,
    pub reason: String,
    pub exit_code: u8,
}

impl End {
    /// Creates the end of a run.
    pub fn new(outcome: Outcome, exit_code: u8, reason: impl Into<String>) -> End {
        End { outcome, reason: reason.into(), exit_code }
    }
}

/// The end of a node. If the run has only this node, the run ends the same way.
#[derive(Debug)]
pub(super) struct NodeEnd {
    state: NodeState,
    /// The machine-readable reason.
    word: String,
    end: End,
}

impl NodeEnd {
    /// Creates the end of a node that is done.
    pub fn done(word: &str, end: End) -> NodeEnd {
        NodeEnd { state: NodeState::Done, word: word.to_owned(), end }
    }

    /// Creates the end of a node that failed.
    pub fn failed(word: &str, end: End) -> NodeEnd {
        NodeEnd { state: NodeState::Failed, word: word.to_owned(), end }
    }
}

impl Run {
    /// Ends a node. In a loop the run ends with it; in a graph the next nodes may start.
    pub(super) fn node_over(&mut self, ix: NodeIx, over: NodeEnd) {
        if over.state == NodeState::Failed && over.word == "budget_exceeded" {
            self.keep_partial(ix);
        }
        self.cx.timers.clear(Timer::NodeBudget(ix));
        self.cx.timers.clear(Timer::NodeCeiling(ix));
        let work = &self.cx.view.node(ix).work;
        if over.state == NodeState::Done && work.worktree.is_some() && work.commit.is_none() {
            return self.nodes[ix.0].commit(&mut self.cx, over);
        }
        if self.scheduler.is_none() {
            if over.end.outcome == Outcome::Idle && self.after_stop(ix) == AfterStop::Watch {
                return self.fall_asleep(ix, over.end);
            }
            self.cx.transition(ix, over.state, Some(over.word));
            return self.finish(over.end);
        }
        self.cx.transition(ix, over.state, Some(over.word));
        self.update_dependents(ix, over.state);
        self.fill();
    }

    /// Updates the nodes that depend on this one: they become ready or blocked.
    fn update_dependents(&mut self, ix: NodeIx, state: NodeState) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let (below, to, reason) = if state == NodeState::Done {
            (scheduler.done(ix), NodeState::Ready, None)
        } else {
            let why = format!("ancestor_failed:{}", self.cx.name(ix));
            (scheduler.failed(ix), NodeState::Blocked, Some(why))
        };
        for child in below {
            self.cx.transition(child, to, reason.clone());
        }
    }

    /// Keeps a summary of a node's unfinished work and records its file name.
    fn keep_partial(&mut self, ix: NodeIx) {
        let node = self.cx.view.node(ix);
        let (iteration, snapshot) = (node.iteration, node.work.snapshot.clone());
        let file = format!("{}.partial.md", self.cx.name(ix));
        self.cx.record(Event::PartialKept {
            node: self.cx.name(ix),
            iteration,
            file: file.clone(),
            snapshot,
        });
        self.cx.out.push(Decision::KeepPartial { node: ix, iteration, file });
    }

    /// Starts all nodes that may start. Ends the run if every node of the graph is over.
    pub(super) fn fill(&mut self) {
        if self.end_by_stop().is_some() {
            return self.finish_if_quiet();
        }
        if self.is_leaving() || self.rescue.is_some() {
            return;
        }
        // A node may end as soon as it starts and call this again. The loop that is already running handles that.
        if std::mem::replace(&mut self.filling, true) {
            return;
        }
        while let Some(ix) = self.next_node() {
            self.start_node(ix);
        }
        self.filling = false;
        if self.scheduler.as_ref().is_some_and(|s| s.is_through()) {
            let end = self.graph_end();
            self.finish(end);
        }
    }

    fn next_node(&mut self) -> Option<NodeIx> {
        let may = !self.is_leaving() && !self.cx.view.paused && self.end_by_stop().is_none();
        self.scheduler.as_mut().filter(|_| may)?.next()
    }

    /// Returns the end of a graph: one outcome for all nodes.
    fn graph_end(&self) -> End {
        let nodes = self.cx.view.node_counts();
        let flakes = self.cx.view.flakes();
        let outcome = match (nodes.done, nodes.failed, nodes.blocked) {
            (_, 0, 0) if flakes > 0 => Outcome::CleanWithFlake,
            (_, 0, 0) => Outcome::Clean,
            (0, _, _) => Outcome::Catastrophic,
            (_, 1.., 1..) => Outcome::Stuck,
            (_, _, _) => Outcome::Partial,
        };
        let exit_code = u8::from(nodes.failed + nodes.blocked > 0);
        let done = count(nodes.done, "node");
        let reason = format!("{done} done, {} failed, {} blocked", nodes.failed, nodes.blocked);
        End::new(outcome, exit_code, reason)
    }

    /// Returns whether the run is ending: nothing new starts.
    pub(super) fn is_leaving(&self) -> bool {
        self.finished || self.ending.is_some() || self.pending_end.is_some()
    }

    /// Ends the run for one of its nodes. Other work in progress is stopped first.
    pub(super) fn end_run(&mut self, end: End) {
        if self.nodes.iter().any(|n| n.is_busy()) { self.stop_for(end) } else { self.finish(end) }
    }

    /// Ends the run. An idle stop is first recorded in the journal and in the context file; a run that slept has
    /// already done so.
    pub(super) fn finish(&mut self, end: End) {
        if self.is_leaving() {
            return;
        }
        if end.outcome == Outcome::Idle && self.asleep.is_none() {
            self.ending = Some(end);
            self.record_sleep();
        } else {
            self.close(end);
        }
    }

    pub(super) fn context_kept(&mut self, error: Option<String>) {
        if let Some(error) = error {
            self.cx.trouble("context_not_kept", error);
        }
        if let Some(end) = self.ending.take() {
            self.close(end);
        }
    }

    fn after_stop(&self, ix: NodeIx) -> AfterStop {
        self.cx.settings(ix).idle.as_ref().map_or(AfterStop::Exit, |idle| idle.after_stop)
    }

    /// Records the idle stop of the node with the longest streak.
    fn record_sleep(&mut self) {
        let Some(ix) = self.every().max_by_key(|ix| self.cx.view.node(*ix).idle_streak.count) else { return };
        let idle_streak = &self.cx.view.node(ix).idle_streak;
        let (reason, consecutive, streak_s) =
            (idle_streak.reason.clone(), idle_streak.count, idle_streak.lasted(self.cx.now.boot));
        let run = self.cx.view.started.as_ref().map(|started| started.run.clone());
        let entry = ContextEntry::sleep(self.cx.now.wall, run, &reason, consecutive);
        let (node, after) = (self.cx.name(ix), self.after_stop(ix));
        self.cx.record(Event::RunSlept { node, reason, consecutive, streak_s, after });
        self.cx.out.push(Decision::KeepContext(Box::new(entry)));
    }

    /// Puts the run to sleep after an idle stop: no agent runs until the run is woken. `end` is how the run ends if it is
    /// never woken. The ceilings and the budget still hold: a sleeping run that reaches one ends this way.
    fn fall_asleep(&mut self, ix: NodeIx, end: End) {
        self.record_sleep();
        self.asleep = Some(end);
        self.arm_node_ceiling(ix);
        self.wait(ix, WaitWhy::Asleep, None);
    }

    /// Continues the sleep of a run whose supervisor was lost while it slept. The idle stop is already recorded. A pause
    /// applies once the run is woken.
    pub(super) fn continue_sleep(&mut self, ix: NodeIx, ending: &Ending) -> Next {
        let Some(over) = self.end_by_idling(ix, ending) else { return self.decide_next(ix, ending) };
        self.asleep = Some(over.end.clone());
        match self.or_end(ix, Next::Begin) {
            Next::Begin | Next::Wait(..) => Next::Wait(WaitWhy::Asleep, None),
            Next::NodeOver(_) | Next::Finish(_) | Next::Stop => Next::Finish(over.end),
        }
    }

    fn close(&mut self, end: End) {
        if self.scheduler.is_none() {
            self.close_loop(&end);
        }
        let totals = self.cx.view.totals();
        let ended = RunEnded {
            outcome: end.outcome,
            reason: end.reason,
            verified: self.verified(),
            iterations: totals.iterations,
            completed: totals.completed,
            failed: totals.failed + totals.timed_out,
            idle: totals.idle,
            nodes: self.cx.view.node_counts(),
            flake_retries: self.cx.view.flakes(),
            total_duration_s: self.cx.view.supervised(self.cx.now.boot),
            exit_code: end.exit_code,
        };
        self.leave(ended);
    }

    /// Sets the final state of a loop's node. With checks, the node is done if they passed; without checks, if any
    /// iteration completed.
    fn close_loop(&mut self, end: &End) {
        for ix in self.every() {
            let node = self.cx.view.node(ix);
            let over = matches!(node.state, NodeState::Done | NodeState::Failed);
            let done = match self.cx.settings(ix).checks.any() {
                true => node.attempts.converged,
                false => node.counts.completed > 0,
            };
            if !over {
                let state = if done { NodeState::Done } else { NodeState::Failed };
                self.cx.transition(ix, state, Some(end.outcome.as_str().to_owned()));
            }
        }
    }

    /// Returns whether the checks of every node have passed.
    fn verified(&self) -> bool {
        self.every().all(|ix| self.cx.view.node(ix).attempts.converged)
    }
}
