//! The scheduler of a graph. A node may start once its ancestors are done. Nodes start in the order of the file, up
//! to the parallel limit, never two that touch the same files, and never beside a node that must run alone.
//!
//! Only the start of a run scans all nodes, so that the cost of a graph of ten thousand nodes grows with its edges.

use crate::record::event::NodeState;
use crate::record::ids::{NodeIx, NodeName};
use crate::record::view::View;
use crate::run::touch::Touches;
use crate::settings::Plan;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Scheduler {
    max_parallel: usize,
    children: Vec<Vec<NodeIx>>,
    /// For each node, the number of direct dependencies that are not done yet.
    missing: Vec<usize>,
    touches: Vec<Touches>,
    /// For each node, whether it must run alone.
    alone: Vec<bool>,
    ready: BTreeSet<NodeIx>,
    running: BTreeSet<NodeIx>,
    /// The number of nodes that are not done, failed or blocked.
    left: usize,
    over: Vec<bool>,
}

/// The state of a graph according to its record.
pub(super) struct Found {
    /// Nodes that may start.
    pub ready: Vec<NodeIx>,
    /// Nodes that will never start, each with the failed ancestor.
    pub blocked: Vec<(NodeIx, NodeIx)>,
}

impl Scheduler {
    /// Creates the scheduler of a graph. Returns `None` for a loop, which has nothing to schedule.
    pub fn new(plan: &Plan) -> Option<Scheduler> {
        let graph = plan.graph.as_ref()?;
        let by_name: BTreeMap<&NodeName, NodeIx> =
            plan.nodes.iter().enumerate().map(|(i, n)| (&n.name, NodeIx(i))).collect();
        let mut children = vec![Vec::new(); plan.nodes.len()];
        let mut missing = vec![0; plan.nodes.len()];
        for (i, node) in plan.nodes.iter().enumerate() {
            let parents: BTreeSet<NodeIx> =
                node.depends_on.iter().filter_map(|name| by_name.get(name).copied()).collect();
            missing[i] = parents.len();
            parents.into_iter().for_each(|p| children[p.0].push(NodeIx(i)));
        }
        // A node in its own worktree cannot touch the files of other nodes.
        let touches = |n: &crate::settings::NodePlan| {
            if n.settings.worktree { Touches::default() } else { Touches::new(&n.touches) }
        };
        Some(Scheduler {
            max_parallel: usize::try_from(graph.max_parallel).unwrap_or(usize::MAX).max(1),
            children,
            missing,
            touches: plan.nodes.iter().map(touches).collect(),
            alone: plan.nodes.iter().map(|n| !n.parallel_safe).collect(),
            ready: BTreeSet::new(),
            running: BTreeSet::new(),
            left: plan.nodes.len(),
            over: vec![false; plan.nodes.len()],
        })
    }

    /// Restores the states of the nodes from the record. The record of a new run has none.
    pub fn take_up(&mut self, view: &View) -> Found {
        let mut found = Found { ready: Vec::new(), blocked: Vec::new() };
        for (i, node) in view.nodes.iter().enumerate() {
            match node.state {
                NodeState::Done => {
                    self.end(NodeIx(i));
                    self.children[i].iter().for_each(|c| self.missing[c.0] -= 1);
                }
                NodeState::Failed | NodeState::Blocked => self.end(NodeIx(i)),
                NodeState::Running => {
                    self.running.insert(NodeIx(i));
                }
                NodeState::Pending | NodeState::Ready => {}
            }
        }
        for i in (0..view.nodes.len()).filter(|i| view.nodes[*i].state == NodeState::Failed) {
            found.blocked.extend(self.block_below(NodeIx(i)).into_iter().map(|b| (b, NodeIx(i))));
        }
        for i in 0..view.nodes.len() {
            let waits = matches!(view.nodes[i].state, NodeState::Pending | NodeState::Ready);
            if waits && self.missing[i] == 0 && !self.over[i] {
                self.ready.insert(NodeIx(i));
                found.ready.push(NodeIx(i));
            }
        }
        found
    }

    /// Returns the next node that may start now and marks it as running.
    pub fn next(&mut self) -> Option<NodeIx> {
        if self.running.len() >= self.max_parallel || self.running.iter().any(|r| self.alone[r.0]) {
            return None;
        }
        let next = self.ready.iter().copied().find(|ix| self.may_run(*ix))?;
        self.ready.remove(&next);
        self.running.insert(next);
        Some(next)
    }

    fn may_run(&self, ix: NodeIx) -> bool {
        let touches = &self.touches[ix.0];
        (self.running.is_empty() || !self.alone[ix.0])
            && (touches.is_empty() || !self.running.iter().any(|r| touches.overlap(&self.touches[r.0])))
    }

    /// Marks a node as done. Returns the nodes that become ready.
    pub fn done(&mut self, ix: NodeIx) -> Vec<NodeIx> {
        self.end(ix);
        let mut ready = Vec::new();
        for child in &self.children[ix.0] {
            self.missing[child.0] -= 1;
            if self.missing[child.0] == 0 && !self.over[child.0] {
                ready.push(*child);
            }
        }
        self.ready.extend(&ready);
        ready
    }

    /// Marks a node as failed. Returns all its descendants, which are now blocked.
    pub fn failed(&mut self, ix: NodeIx) -> Vec<NodeIx> {
        self.end(ix);
        self.block_below(ix)
    }

    fn block_below(&mut self, ix: NodeIx) -> Vec<NodeIx> {
        let mut blocked = Vec::new();
        let mut todo = self.children[ix.0].clone();
        while let Some(child) = todo.pop() {
            if !self.over[child.0] {
                self.end(child);
                blocked.push(child);
                todo.extend(&self.children[child.0]);
            }
        }
        blocked.sort();
        blocked
    }

    fn end(&mut self, ix: NodeIx) {
        self.ready.remove(&ix);
        self.running.remove(&ix);
        if !std::mem::replace(&mut self.over[ix.0], true) {
            self.left -= 1;
        }
    }

    /// Returns whether every node is done, failed or blocked.
    pub fn is_through(&self) -> bool {
        self.left == 0
    }
}
