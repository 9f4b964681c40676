//! Compares the settings of two plans, in the words that the user writes.

use crate::explain::value;
use crate::keys::KEYS;
use crate::layers::Layers;
use dogwatch_core::settings::{NodePlan, Plan};

/// A key whose value differs between two plans. A node that was added or removed has the key `node`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The dotted path of the key.
    pub key: &'static str,
    /// The names of the nodes that it applies to; empty for a loop.
    pub nodes: Vec<String>,
    /// The earlier value.
    pub old: String,
    /// The present value.
    pub new: String,
}

/// Keys that do not belong to the files: arguments come from the command line, and external agents to no run.
fn is_compared(key: &str) -> bool {
    key != "args" && !key.starts_with("external.")
}

/// Returns the keys whose values differ, in the order of the key table. Keys in `given` came from flags, which the
/// operator typed.
pub fn changes(old: &Plan, new: &Plan, given: &[String]) -> Vec<Change> {
    let mut found: Vec<Change> = Vec::new();
    let several = old.nodes.len() > 1 || new.nodes.len() > 1;
    let named = |node: &NodePlan| several.then(|| node.name.to_string());
    for node in &new.nodes {
        let Some(before) = old.nodes.iter().find(|before| before.name == node.name) else {
            found.extend(named(node).map(|name| present("none", "added", name)));
            continue;
        };
        for key in KEYS.iter().filter(|key| is_compared(key.path) && !given.iter().any(|g| g == key.path)) {
            let shown = |plan: &Plan, node: &NodePlan| {
                value(key.path, &node.settings, plan.graph.as_ref(), &Layers::default()).unwrap_or_default()
            };
            let (old, new) = (shown(old, before), shown(new, node));
            if old == new {
                continue;
            }
            match found.iter_mut().find(|c| c.key == key.path && (&c.old, &c.new) == (&old, &new)) {
                Some(same) => same.nodes.extend(named(node)),
                None => {
                    found.push(Change { key: key.path, nodes: named(node).into_iter().collect(), old, new })
                }
            }
        }
    }
    let gone = old.nodes.iter().filter(|before| new.nodes.iter().all(|node| node.name != before.name));
    found.extend(gone.filter_map(|node| Some(present("present", "removed", named(node)?))));
    found
}

fn present(old: &str, new: &str, node: String) -> Change {
    Change { key: "node", nodes: vec![node], old: old.to_owned(), new: new.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::ids::NodeName;
    use dogwatch_core::settings::{ReaderName, Settings};

    fn plan(nodes: &[(&str, &str)]) -> Plan {
        let node = |(name, check): &(&str, &str)| {
            let mut settings = Settings::of(vec!["a".to_owned()], ReaderName::Plain);
            settings.checks.commands = vec![(*check).to_owned()];
            NodePlan::alone(NodeName::new(name), settings)
        };
        Plan { nodes: nodes.iter().map(node).collect(), stop_on_error: false, snapshots: true, graph: None }
    }

    fn shown(change: &Change) -> String {
        format!("{} {:?} {} -> {}", change.key, change.nodes, change.old, change.new)
    }

    #[test]
    fn a_changed_check_is_listed_and_one_from_a_flag_is_not() {
        let (old, new) = (plan(&[("a", "make test")]), plan(&[("a", "true")]));
        let all: Vec<String> = changes(&old, &new, &[]).iter().map(shown).collect();
        assert_eq!(all, ["done_when [] make test -> true"]);
        assert_eq!(changes(&old, &new, &["done_when".to_owned()]), []);
        assert_eq!(changes(&old, &old, &[]), []);
    }

    #[test]
    fn the_same_change_of_several_nodes_is_one_and_added_and_removed_nodes_are_named() {
        let old = plan(&[("a", "x"), ("b", "x"), ("gone", "x")]);
        let new = plan(&[("a", "y"), ("b", "y"), ("new", "y")]);
        let all: Vec<String> = changes(&old, &new, &[]).iter().map(shown).collect();
        assert_eq!(
            all,
            [
                "done_when [\"a\", \"b\"] x -> y",
                "node [\"new\"] none -> added",
                "node [\"gone\"] present -> removed"
            ]
        );
    }
}
