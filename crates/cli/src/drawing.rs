//! Draws a plan: level by level for the terminal, or as a Mermaid flowchart.

use dogwatch_core::run::touch::Touches;
use dogwatch_core::settings::{NodePlan, Plan};
use dogwatch_core::text::printable;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The longest line, in columns.
const WIDTH: usize = 80;
/// The most nodes to draw; the rest of a larger graph is only counted.
const MAX_DRAWN: usize = 200;
/// The longest node id to show, in characters.
const MAX_ID: usize = 28;

/// The dependencies between nodes, and the order in which the nodes can run.
struct Order {
    /// For each node, the indices of the nodes that it depends on.
    waits_for: Vec<Vec<usize>>,
    /// Each node is one level below its deepest dependency. Within a level, nodes keep the order of the file.
    levels: Vec<Vec<usize>>,
}

impl Order {
    /// Sorts the nodes of a validated plan, which has no dependency cycles.
    fn of(plan: &Plan) -> Order {
        let names: BTreeMap<&str, usize> =
            plan.nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
        let waits_for: Vec<Vec<usize>> = plan
            .nodes
            .iter()
            .map(|node| node.depends_on.iter().filter_map(|on| names.get(on.as_str()).copied()).collect())
            .collect();
        let mut followers = vec![Vec::new(); plan.nodes.len()];
        let mut open: Vec<usize> = waits_for.iter().map(Vec::len).collect();
        for (at, on) in waits_for.iter().enumerate() {
            on.iter().for_each(|on| followers[*on].push(at));
        }
        let mut levels = Vec::new();
        let mut level: Vec<usize> = (0..open.len()).filter(|at| open[*at] == 0).collect();
        while !level.is_empty() {
            let mut next = Vec::new();
            for follower in level.iter().flat_map(|at| &followers[*at]) {
                open[*follower] -= 1;
                if open[*follower] == 0 {
                    next.push(*follower);
                }
            }
            next.sort_unstable();
            levels.push(std::mem::replace(&mut level, next));
        }
        Order { waits_for, levels }
    }
}

/// Draws a plan level by level. Nodes of one level may run in parallel unless a note says otherwise.
pub fn terminal(plan: &Plan) -> String {
    let order = Order::of(plan);
    let drawn: Vec<usize> = order.levels.iter().flatten().copied().take(MAX_DRAWN).collect();
    let id_width = drawn.iter().map(|at| shown(&plan.nodes[*at]).chars().count()).max().unwrap_or(0);
    let number_width = order.levels.len().to_string().len();
    let mut out = String::new();
    let mut left = MAX_DRAWN;
    for (number, level) in order.levels.iter().enumerate() {
        let here = &level[..level.len().min(left)];
        left -= here.len();
        let apart = apart(plan, here);
        for (i, at) in here.iter().enumerate() {
            let last = i + 1 == level.len();
            let (number, branch) = match (i, last) {
                (0, true) => ((number + 1).to_string(), '─'),
                (0, false) => ((number + 1).to_string(), '┬'),
                (_, false) => (String::new(), '├'),
                (_, true) => (String::new(), '└'),
            };
            let id = shown(&plan.nodes[*at]);
            let line = format!("{number:>number_width$} {branch} {id:id_width$}  ");
            let rest = WIDTH.saturating_sub(line.chars().count());
            let line = line + &cut(&tail(plan, &order, *at, apart.get(at).copied()), rest);
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    let count = plan.nodes.len();
    if count > MAX_DRAWN {
        let _ = writeln!(out, "… and {} more nodes", count - MAX_DRAWN);
    }
    out
}

/// Returns the text after a node's id: the nodes it cannot run beside, and the nodes it depends on.
fn tail(plan: &Plan, order: &Order, at: usize, apart: Option<usize>) -> String {
    let node = &plan.nodes[at];
    let mut notes = Vec::new();
    if !node.parallel_safe {
        notes.push("alone".to_owned());
    } else if let Some(other) = apart {
        notes.push(format!("not beside {}", shown(&plan.nodes[other])));
    }
    let waits: Vec<String> = order.waits_for[at].iter().map(|on| shown(&plan.nodes[*on])).collect();
    let notes = if notes.is_empty() { String::new() } else { format!("({}) ", notes.join(", ")) };
    let waits = if waits.is_empty() { String::new() } else { format!("← {}", waits.join(", ")) };
    format!("{notes}{waits}")
}

/// Returns, for each node of a level, the first other node that touches the same files.
fn apart(plan: &Plan, level: &[usize]) -> BTreeMap<usize, usize> {
    let touches: Vec<(usize, Touches)> = level
        .iter()
        .filter(|at| !plan.nodes[**at].touches.is_empty() && !plan.nodes[**at].settings.worktree)
        .map(|at| (*at, Touches::new(&plan.nodes[*at].touches)))
        .collect();
    let mut found = BTreeMap::new();
    for (i, (at, own)) in touches.iter().enumerate() {
        for (other, theirs) in &touches[i + 1..] {
            if own.overlap(theirs) {
                found.entry(*at).or_insert(*other);
                found.entry(*other).or_insert(*at);
            }
        }
    }
    found
}

fn shown(node: &NodePlan) -> String {
    cut(&printable(node.name.as_str()), MAX_ID)
}

/// Cuts a text to `max` characters, with an ellipsis if it was longer.
fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(max.saturating_sub(1)).collect();
    out.push('…');
    out
}

/// Draws a plan as a Mermaid flowchart whose arrows lead from a dependency to its dependents.
pub fn mermaid(plan: &Plan) -> String {
    let order = Order::of(plan);
    let mut out = "flowchart TD\n".to_owned();
    for (at, node) in plan.nodes.iter().enumerate() {
        let (open, close) = if node.parallel_safe { ("[", "]") } else { ("{{", "}}") };
        let _ = writeln!(out, "    n{at}{open}\"{}\"{close}", escaped(node.name.as_str()));
    }
    for (at, on) in order.waits_for.iter().enumerate() {
        for on in on {
            let _ = writeln!(out, "    n{on} --> n{at}");
        }
    }
    out
}

/// Escapes a label so that Mermaid shows it literally.
fn escaped(label: &str) -> String {
    let mut out = String::new();
    for c in printable(label).chars() {
        if c.is_alphanumeric() || " -_.".contains(c) {
            out.push(c);
        } else {
            let _ = write!(out, "#{};", u32::from(c));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::ids::NodeName;
    use dogwatch_core::settings::{Budget, GraphPlan, ReaderName, Settings};

    fn node(name: &str, on: &[&str]) -> NodePlan {
        let settings = Settings::of(vec!["sh".to_owned()], ReaderName::Plain);
        NodePlan {
            depends_on: on.iter().map(|on| NodeName::new(on)).collect(),
            ..NodePlan::alone(NodeName::new(name), settings)
        }
    }

    fn plan(nodes: Vec<NodePlan>) -> Plan {
        let graph = GraphPlan { max_parallel: 4, budget: Budget::default() };
        Plan { nodes, stop_on_error: false, snapshots: false, graph: Some(graph) }
    }

    #[test]
    fn a_graph_is_drawn_level_by_level() {
        let touching =
            |name: &str, glob: &str| NodePlan { touches: vec![glob.to_owned()], ..node(name, &["schema"]) };
        let drawn = terminal(&plan(vec![
            node("release", &["api", "ui", "worker"]),
            node("schema", &[]),
            touching("api", "src/**"),
            touching("ui", "src/ui/*"),
            NodePlan { parallel_safe: false, ..node("worker", &["schema"]) },
            node("notes", &[]),
        ]));
        assert_eq!(
            drawn,
            "\
1 ┬ schema
  └ notes
2 ┬ api      (not beside ui) ← schema
  ├ ui       (not beside api) ← schema
  └ worker   (alone) ← schema
3 ─ release  ← api, ui, worker
"
        );
    }

    #[test]
    fn a_drawing_is_limited_in_width_and_length() {
        let long: Vec<String> = (0..300).map(|n| format!("{}{n}", "x".repeat(40))).collect();
        let names: Vec<&str> = long.iter().map(String::as_str).collect();
        let mut nodes: Vec<NodePlan> = names.iter().map(|name| node(name, &[])).collect();
        nodes.push(node("last", &names));
        let drawn = terminal(&plan(nodes.clone()));
        assert_eq!(drawn.lines().count(), MAX_DRAWN + 1);
        assert!(drawn.lines().all(|line| line.chars().count() <= WIDTH), "{drawn}");
        assert!(drawn.ends_with("… and 101 more nodes\n"), "{drawn}");
        let few = terminal(&plan(nodes.split_off(290)));
        assert_eq!(few.lines().count(), 11);
        assert!(
            few.lines().last().is_some_and(|line| line.starts_with("2 ─ last ") && line.ends_with('…')),
            "{few}"
        );
    }

    #[test]
    fn mermaid_labels_are_escaped() {
        let drawn = mermaid(&plan(vec![
            node("a", &[]),
            NodePlan { parallel_safe: false, ..node("b\"]; click x <i> #9 `é", &["a"]) },
        ]));
        assert_eq!(
            drawn,
            "\
flowchart TD
    n0[\"a\"]
    n1{{\"b#34;#93;#59; click x #60;i#62; #35;9 #96;é\"}}
    n0 --> n1
"
        );
    }

    #[test]
    fn ten_thousand_nodes_are_sorted_quickly() {
        let nodes: Vec<NodePlan> = (0..10_000)
            .map(|n| match n {
                0 => node("n0", &[]),
                n => node(&format!("n{n}"), &[&format!("n{}", n - 1)]),
            })
            .collect();
        let order = Order::of(&plan(nodes));
        assert_eq!(order.levels.len(), 10_000);
    }
}
