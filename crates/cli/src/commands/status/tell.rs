//! A status in a few lines for people: what is at work first, and never a line too many.

use crate::screen::words;
use dogwatch_core::event::NodeState;
use dogwatch_core::status::{DoingStatus, NodeStatus, SpentStatus, State, Status};
use dogwatch_core::view::Used;

/// So many nodes are told of one by one; the others are counted.
const MAX_NODES: usize = 12;
/// So many failing checks of a node are named.
const MAX_FAILING: usize = 3;

/// So much of what ails agents stands in the first line.
const MAX_AILS: usize = 3;

/// A status in a few lines for people.
pub fn tell(status: &Status) -> String {
    let mut lines = vec![headline(status)];
    let mut nodes: Vec<&NodeStatus> = status.nodes.iter().collect();
    // What goes on and what went wrong is what somebody looks for. Within that, the file's order.
    nodes.sort_by_key(|node| rank(node));
    let (shown, others) = nodes.split_at(nodes.len().min(MAX_NODES));
    let told = Telling { of_several: status.nodes.len() > 1, live: status.live };
    lines.extend(shown.iter().flat_map(|node| of_node(node, told)));
    lines.extend(counted(others));
    lines.push(of_all(status));
    lines.extend(spent(&status.spent));
    lines.extend(status.told.first().map(|first| match status.told.len() {
        1 => format!("  told, for the next prompt: {first}"),
        n => format!("  told, for the next prompt: {first} (and {} more)", n - 1),
    }));
    if let Some(trouble) = &status.troubles.last {
        let count = words::count(status.troubles.count, "trouble");
        lines.push(format!("  {count}, the last: {} [{}]", trouble.detail, trouble.kind));
    }
    let text = lines.join("\n") + "\n";
    dogwatch_core::text::printable(&text).into_owned()
}

fn rank(node: &NodeStatus) -> u8 {
    match (&node.doing, node.state) {
        (DoingStatus::Nothing, NodeState::Failed) => 1,
        (DoingStatus::Nothing, NodeState::Blocked) => 2,
        (DoingStatus::Nothing, NodeState::Ready | NodeState::Running) => 3,
        (DoingStatus::Nothing, NodeState::Pending) => 4,
        (DoingStatus::Nothing, NodeState::Done) => 5,
        (_, _) => 0,
    }
}

#[derive(Clone, Copy)]
struct Telling {
    /// A node of several says how it stands; the one node of a loop is the run, and the first line has said that.
    of_several: bool,
    /// In a run that nobody supervises nobody is at work any more.
    live: bool,
}

fn of_node(node: &NodeStatus, Telling { of_several, live }: Telling) -> Vec<String> {
    let at_rest = matches!(node.doing, DoingStatus::Nothing);
    let why = node.reason.as_deref().map_or_else(String::new, |reason| format!(" ({reason})"));
    let how = match (of_several, at_rest) {
        (true, true) => format!("{}{why}", node.state.as_str()),
        (_, false) if !live => format!("was {}", doing(&node.doing)),
        _ => doing(&node.doing),
    };
    let mut lines = vec![match node.iteration.0 {
        0 => format!("  {}  {how}", node.name),
        n => format!("  {}  iteration {n}: {how}", node.name),
    }];
    lines.extend(ails(&node.doing).into_iter().map(|ails| format!("    {ails}")));
    if let Some(spell) = node.spell.as_ref().filter(|s| s.count > 0) {
        let lasted = words::span(spell.lasted_s);
        lines.push(format!("    idle {} in a row ({}), for {lasted}", spell.count, spell.reason));
    }
    if node.failures_in_row > 0 {
        lines.push(format!("    {} in a row", words::count(u64::from(node.failures_in_row), "failure")));
    }
    lines.extend(checks(node));
    if node.recoveries > 0 && node.state != NodeState::Done {
        lines.push(format!(
            "    {} since it last completed",
            words::count(u64::from(node.recoveries), "hard stop")
        ));
    }
    lines.extend(node.worktree.as_ref().map(|path| format!("    its worktree: {path}")));
    lines
}

/// What the user's checks have said.
fn checks(node: &NodeStatus) -> Option<String> {
    let said = &node.attempts;
    let attempts = words::count(said.count, "attempt");
    match (said.count, said.converged) {
        (0, _) => None,
        (_, true) => Some(format!("    its checks passed, after {attempts}")),
        (_, false) => {
            let named = said.failing.iter().take(MAX_FAILING).map(|f| format!("`{}` ({})", f.cmd, f.rc));
            let named = named.collect::<Vec<_>>().join(", ");
            let more = match said.failing.len().saturating_sub(MAX_FAILING) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            Some(format!("    {attempts}, {} failed by the checks: {named}{more}", said.failed))
        }
    }
}

/// How those stand that are not told of one by one.
fn counted(others: &[&NodeStatus]) -> Option<String> {
    let of = |state: NodeState| match others.iter().filter(|node| node.state == state).count() {
        0 => None,
        n => Some(format!("{n} {}", state.as_str())),
    };
    let all = NodeState::ALL.iter().copied().filter_map(of).collect::<Vec<_>>().join(", ");
    let nodes = words::count(others.len() as u64, "more node");
    (!others.is_empty()).then(|| format!("  {nodes}: {all} (all of them: --json)"))
}

fn of_all(status: &Status) -> String {
    let c = &status.counts;
    let iterations = words::count(c.iterations, "iteration");
    format!(
        "  {iterations}: {} completed, {} of them idle, {} failed, {} timed out, {} interrupted",
        c.completed, c.idle, c.failed, c.timed_out, c.interrupted
    )
}

/// What it has cost, if any session could have said so.
fn spent(spent: &SpentStatus) -> Option<String> {
    let used = Used {
        tokens: spent.tokens,
        cost_usd: spent.cost_usd,
        unknown_tokens: spent.unknown_tokens,
        unknown_cost: spent.unknown_cost,
    };
    (spent.tokens > 0 || spent.cost_usd > 0.0)
        .then(|| format!("  spent: {}, {}", words::tokens(&used), words::cost(&used)))
}

/// One line: which run, how it stands.
pub fn headline(status: &Status) -> String {
    let run = status.run.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    let path = status.path.as_deref().unwrap_or("?");
    let how = match (status.state, &status.ended) {
        (State::Ended, Some(end)) => {
            format!("ended: {} ({}), exit code {}", end.outcome, end.reason, end.exit_code)
        }
        (State::Lost, _) => "its dogwatch died; `dogwatch resume` goes on with it".to_owned(),
        (State::NeedsHuman, _) => "needs human".to_owned(),
        (state, _) => state.as_str().to_owned(),
    };
    // What ails an agent must be seen where runs are listed, too.
    let mut ailing = status.nodes.iter().flat_map(|node| ails(&node.doing));
    let mut parts = vec![how];
    parts.extend(ailing.by_ref().take(MAX_AILS));
    parts.extend(match ailing.count() {
        0 => None,
        n => Some(format!("{n} more such")),
    });
    let how = parts.join("; ");
    format!("run {run}  {path}  {how}")
}

/// What ails an agent that works, the most urgent first.
fn ails(doing: &DoingStatus) -> Vec<String> {
    let DoingStatus::Working { needs_human, retrying, drifted, .. } = doing else { return Vec::new() };
    let mut ails = Vec::new();
    if let Some(asks) = needs_human {
        let left = asks.left_s.map(|left| format!(" ({} left)", words::clock(left))).unwrap_or_default();
        ails.push(format!("needs a person{left}: {}", asks.what));
    }
    if let Some(retrying) = retrying {
        let since = retrying.since_s.map(|d| format!(", for {}", words::clock(d))).unwrap_or_default();
        ails.push(format!("{}{since}", words::retrying(retrying.status, retrying.delay_s)));
    }
    ails.extend(drifted.then(|| words::DRIFTED.to_owned()));
    ails
}

fn doing(doing: &DoingStatus) -> String {
    match doing {
        DoingStatus::Nothing => "at rest".to_owned(),
        DoingStatus::Preparing => "preparing".to_owned(),
        DoingStatus::Checking => "running its checks".to_owned(),
        DoingStatus::Working { pid, working_s, messages, last_evidence, .. } => {
            let last = match last_evidence.as_ref().map(|evidence| evidence.age_s) {
                Some(Some(age)) => format!(", last output {} ago", words::clock(age)),
                // In a run that nobody supervises nothing grows older.
                Some(None) => String::new(),
                None => ", no output yet".to_owned(),
            };
            let so_long = working_s.map_or_else(String::new, |d| format!(" for {}", words::clock(d)));
            format!("working{so_long} (pid {pid}), {}{last}", words::count(*messages, "message"))
        }
        DoingStatus::Waiting { why, left_s, until, .. } => match (left_s, until) {
            (Some(left), Some(until)) => {
                format!("waiting ({why}), {} left, until {until}", words::clock(*left))
            }
            (None, Some(until)) => format!("waiting ({why}) until {until}"),
            (_, None) => format!("waiting ({why})"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::view::View;
    use serde_json::{Value, json};

    fn node(name: &str, state: &str, doing: &Value) -> Value {
        let counts = json!({"iterations": 1, "completed": 0, "idle": 0, "failed": 0, "timed_out": 0, "interrupted": 0});
        json!({
            "name": name, "state": state, "iteration": 1, "doing": doing, "counts": counts,
            "spell": null, "failures_in_row": 0, "last_end": null,
        })
    }

    fn status(nodes: Vec<Value>) -> Status {
        let mut status = serde_json::to_value(Status::of(&View::default(), None)).expect("it is JSON");
        status["nodes"] = Value::Array(nodes);
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn of_ten_thousand_nodes_those_at_work_and_those_that_failed_are_told_of_and_the_others_counted() {
        let rest = json!({"what": "nothing"});
        let mut nodes: Vec<Value> = (0..9_998).map(|i| node(&format!("n{i}"), "done", &rest)).collect();
        nodes.push(node("broken", "failed", &rest));
        nodes.push(node("busy", "running", &json!({"what": "checking"})));
        let told = tell(&status(nodes));
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), MAX_NODES + 3, "{told}");
        assert_eq!(lines[1], "  busy  iteration 1: was running its checks");
        assert_eq!(lines[2], "  broken  iteration 1: failed");
        assert_eq!(lines[3], "  n0  iteration 1: done");
        assert_eq!(lines[MAX_NODES + 1], "  9988 more nodes: 9988 done (all of them: --json)");
    }

    #[test]
    fn what_the_checks_said_and_what_it_cost_is_told() {
        let mut one = node("tidy", "running", &json!({"what": "preparing"}));
        let failing: Vec<Value> = (1..=5).map(|rc| json!({"cmd": format!("check {rc}"), "rc": rc})).collect();
        one["attempts"] = json!({"count": 2, "failed": 2, "converged": false, "failing": failing});
        one["recoveries"] = json!(1);
        let mut status = status(vec![one]);
        status.spent.tokens = 1200;
        status.spent.cost_usd = 0.5;
        let told = tell(&status);
        let checks =
            "    2 attempts, 2 failed by the checks: `check 1` (1), `check 2` (2), `check 3` (3) and 2 more";
        assert!(told.contains(checks), "{told}");
        assert!(told.contains("    1 hard stop since it last completed"), "{told}");
        assert!(told.contains("  spent: 1200 tokens, $0.50"), "{told}");
    }

    #[test]
    fn a_hundred_agents_that_ail_leave_the_first_line_short() {
        let ailing = json!({"what": "working", "pid": 7, "working_s": 1, "messages": 0, "last_evidence": null, "drifted": true});
        let nodes = (0..100).map(|i| node(&format!("n{i}"), "running", &ailing)).collect();
        let line = headline(&status(nodes));
        assert!(line.ends_with("97 more such") && line.len() < 600, "{line}");
    }
}
