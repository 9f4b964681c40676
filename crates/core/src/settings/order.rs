//! The order of a graph's nodes by their dependencies.

use super::Plan;
use crate::record::ids::{NodeIx, NodeName};
use std::collections::{BTreeMap, BTreeSet};

impl Plan {
    /// Returns all nodes, each after its dependencies, otherwise in the order of the file.
    pub fn dependency_order(&self) -> Vec<NodeIx> {
        let parents = self.parents();
        let mut missing: Vec<usize> = parents.iter().map(BTreeSet::len).collect();
        let mut children = vec![Vec::new(); parents.len()];
        for (child, parents) in parents.iter().enumerate() {
            parents.iter().for_each(|parent| children[parent.0].push(NodeIx(child)));
        }
        let mut ready: BTreeSet<NodeIx> =
            (0..missing.len()).filter(|at| missing[*at] == 0).map(NodeIx).collect();
        let mut order = Vec::with_capacity(missing.len());
        while let Some(next) = ready.pop_first() {
            order.push(next);
            for child in &children[next.0] {
                missing[child.0] -= 1;
                if missing[child.0] == 0 {
                    ready.insert(*child);
                }
            }
        }
        order
    }

    /// Returns the nodes whose branches are merged before a node starts, in dependency order: its dependencies that have
    /// a worktree, and for a dependency without one the merge sources of that dependency. A branch contains the branches
    /// that were merged into it, so no others are needed.
    pub fn merge_sources(&self, ix: NodeIx) -> Vec<NodeIx> {
        let parents = self.parents();
        let (mut sources, mut seen, mut todo) = (BTreeSet::new(), BTreeSet::new(), vec![ix]);
        while let Some(next) = todo.pop() {
            for parent in parents[next.0].iter().filter(|parent| seen.insert(**parent)) {
                if self.nodes[parent.0].settings.worktree {
                    sources.insert(*parent);
                } else {
                    todo.push(*parent);
                }
            }
        }
        if sources.len() < 2 {
            return sources.into_iter().collect();
        }
        self.dependency_order().into_iter().filter(|ix| sources.contains(ix)).collect()
    }

    fn parents(&self) -> Vec<BTreeSet<NodeIx>> {
        let by_name: BTreeMap<&NodeName, NodeIx> =
            self.nodes.iter().enumerate().map(|(at, node)| (&node.name, NodeIx(at))).collect();
        let parents =
            |names: &[NodeName]| names.iter().filter_map(|name| by_name.get(name).copied()).collect();
        self.nodes.iter().map(|node| parents(&node.depends_on)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{GraphPlan, NodePlan, ReaderName, Settings};

    /// Builds a graph from `name: dependencies`; a name with `*` has no worktree.
    fn graph(nodes: &[(&str, &str)]) -> Plan {
        let node = |(name, depends_on): &(&str, &str)| {
            let mut settings = Settings::of(vec!["agent".to_owned()], ReaderName::Plain);
            settings.worktree = !name.ends_with('*');
            let mut node = NodePlan::alone(NodeName::new(name.trim_end_matches('*')), settings);
            node.depends_on = depends_on.split_whitespace().map(NodeName::new).collect();
            node
        };
        let graph = Some(GraphPlan { max_parallel: 4, budget: Default::default() });
        Plan { nodes: nodes.iter().map(node).collect(), stop_on_error: false, snapshots: true, graph }
    }

    fn names(plan: &Plan, order: &[NodeIx]) -> String {
        order.iter().map(|ix| plan.nodes[ix.0].name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_node_comes_after_its_dependencies() {
        let plan = graph(&[("d", "b c"), ("c", "a"), ("b", "a"), ("a", ""), ("e", "")]);
        assert_eq!(names(&plan, &plan.dependency_order()), "a c b d e");
    }

    #[test]
    fn sources_are_the_nearest_ancestors_with_a_worktree() {
        let plan = graph(&[("d", "b c"), ("c*", "a2 a"), ("b", "a"), ("a2", ""), ("a", ""), ("x", "d")]);
        let of = |at| names(&plan, &plan.merge_sources(NodeIx(at)));
        assert_eq!(
            (of(0).as_str(), of(2).as_str(), of(3).as_str(), of(5).as_str()),
            ("a2 a b", "a", "", "d")
        );
    }
}
