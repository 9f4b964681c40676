//! Which node of a graph may begin: those whose ancestors are done, in the order of the file, as many at once
//! as allowed, never two that touch the same files, and none beside one that must be alone.
//!
//! Nothing in here looks at all nodes but the beginning, so that a graph of ten thousand costs what its edges
//! cost.

use crate::record::event::NodeState;
use crate::record::ids::{NodeIx, NodeName};
use crate::record::view::View;
use crate::run::touch::Touches;
use crate::settings::Plan;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Scheduler {
    max_parallel: usize,
    children: Vec<Vec<NodeIx>>,
    /// How many of its ancestors are not done yet.
    missing: Vec<usize>,
    touches: Vec<Touches>,
    /// Nodes that run beside no other.
    alone: Vec<bool>,
    ready: BTreeSet<NodeIx>,
    running: BTreeSet<NodeIx>,
    /// Nodes that are not done, failed or blocked.
    left: usize,
    over: Vec<bool>,
}

/// What a look at the record found: nodes that may begin, and nodes that never will, with the one that failed.
pub(super) struct Found {
    pub ready: Vec<NodeIx>,
    pub blocked: Vec<(NodeIx, NodeIx)>,
}

impl Scheduler {
    /// Of a graph's plan; a loop has nothing to schedule.
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
        // In a worktree of its own a node touches nobody else's files.
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

    /// Takes up what the record says; for a new run that is nothing.
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

    /// The next node that may begin now.
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

    /// The node is done: those that waited for nothing else may begin.
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

    /// The node failed: all that is below it never begins.
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

    /// Every node is done, failed or blocked.
    pub fn is_through(&self) -> bool {
        self.left == 0
    }
}
