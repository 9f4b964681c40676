//! Formats a status as a few lines of text: active and failed nodes first, in bounded length.

use crate::local;
use crate::screen::words;
use dogwatch_core::record::event::{NodeState, Outcome, WaitWhy};
use dogwatch_core::record::status::{DoingStatus, NodeStatus, State, Status};
use dogwatch_host::store::fleet_job;
use std::path::Path;

/// The most nodes to list; the others are only counted.
const MAX_NODES: usize = 12;
/// The most failing checks to name per node.
const MAX_FAILING: usize = 3;
/// The most windows of accounts to show.
const MAX_WINDOWS: usize = 8;
/// The most of a tool call to show, in characters.
const MAX_CALL: usize = 80;
/// The most health issues of agents to show in the first line.
const MAX_ISSUES: usize = 3;

/// Formats a status as a few lines of text.
pub fn text(status: &Status) -> String {
    let mut lines = vec![headline(status)];
    let mut nodes: Vec<&NodeStatus> = status.nodes.iter().collect();
    // Active nodes come first, then failed ones. Within a rank, nodes keep the order of the file.
    nodes.sort_by_key(|node| rank(node));
    let (shown, others) = nodes.split_at(nodes.len().min(MAX_NODES));
    let context = Context { of_several: status.nodes.len() > 1, live: status.live };
    lines.extend(shown.iter().flat_map(|node| node_lines(node, context)));
    lines.extend(counted(others));
    lines.push(format!("  {}", words::iterations_with(&status.counts, status.unfinished)));
    lines.extend(spent(status));
    lines.extend(status.windows.iter().take(MAX_WINDOWS).map(|window| format!("  {}", window.describe())));
    lines.extend(status.limit_until.map(|until| format!("  limit set until {until}")));
    lines.extend(status.pending_messages.first().map(|first| match status.pending_messages.len() {
        1 => format!("  message for the next prompt: {first}"),
        n => format!("  message for the next prompt: {first} (and {} more)", n - 1),
    }));
    if let Some(trouble) = &status.troubles.last {
        let count = words::count(status.troubles.count, "problem");
        lines.push(format!("  {count}, latest: {} [{}]", trouble.detail, trouble.kind));
    }
    let text = lines.join("\n") + "\n";
    local::times(&dogwatch_core::text::printable(&text))
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

/// The part of the run's status that determines how its nodes are described.
#[derive(Clone, Copy)]
struct Context {
    /// The run has several nodes. The line of a single node omits its state, which the first line already shows.
    of_several: bool,
    /// The run has a supervisor. Nodes cannot run without one, so what they did last is shown in the past tense.
    live: bool,
}

fn node_lines(node: &NodeStatus, Context { of_several, live }: Context) -> Vec<String> {
    let inactive = matches!(node.doing, DoingStatus::Nothing);
    let why = node.reason.as_deref().map_or_else(String::new, |reason| format!(" ({reason})"));
    let over = matches!(node.state, NodeState::Done | NodeState::Failed | NodeState::Blocked);
    let how = match (of_several || over, inactive) {
        (true, true) if node.state == NodeState::Running && !live => "was running".to_owned(),
        (true, true) => format!("{}{why}", node.state.as_str()),
        (_, false) if !live => format!("was {}", doing(&node.doing)),
        _ => doing(&node.doing),
    };
    let mut lines = vec![match node.iteration.0 {
        0 => format!("  {}  {how}", node.name),
        n => format!("  {}  iteration {n}: {how}", node.name),
    }];
    lines.extend(health_issues(&node.doing).into_iter().map(|issue| format!("    {issue}")));
    if let DoingStatus::Waiting { why: WaitWhy::RateLimit, because: Some(because), .. } = &node.doing {
        lines.push(format!("    {because}"));
    }
    if let Some(streak) = node.idle_streak.as_ref().filter(|s| s.count > 0) {
        let (nth, lasted) = (words::nth(streak.count), words::span(streak.lasted_s));
        lines.push(format!("    idle ({nth} in a row, {}) for {lasted}", streak.reason));
    }
    if let Some(forecast) = node.forecast.as_ref().filter(|_| live) {
        lines.push(format!("    {}", forecast.explanation));
        if let Some(at) = forecast.expected_at {
            lines.push(format!("    work expected by {}", local::full(at)));
        }
    }
    if node.failures_in_row > 0 {
        lines.push(format!("    {} in a row", words::count(u64::from(node.failures_in_row), "failure")));
    }
    lines.extend(checks(node));
    if node.recoveries > 0 && node.state != NodeState::Done {
        lines.push(format!(
            "    {} since the last completed iteration",
            words::count(u64::from(node.recoveries), "hard stop")
        ));
    }
    lines.extend(node.worktree.as_ref().map(|path| format!("    worktree: {path}")));
    lines
}

/// Formats the results of the user's checks.
fn checks(node: &NodeStatus) -> Option<String> {
    let tried = &node.attempts;
    let attempts = words::count(tried.count, "attempt");
    match (tried.count, tried.converged) {
        (0, _) => None,
        (_, true) => Some(format!("    checks passed after {attempts}")),
        (_, false) => {
            let named =
                tried.failing.iter().take(MAX_FAILING).map(|f| format!("`{}` (exit {})", f.cmd, f.rc));
            let named = named.collect::<Vec<_>>().join(", ");
            let more = match tried.failing.len().saturating_sub(MAX_FAILING) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            Some(format!("    {attempts}, {} failed; failing checks: {named}{more}", tried.failed))
        }
    }
}

/// Counts the nodes that are not listed, by state.
fn counted(others: &[&NodeStatus]) -> Option<String> {
    let of = |state: NodeState| match others.iter().filter(|node| node.state == state).count() {
        0 => None,
        n => Some(format!("{n} {}", state.as_str())),
    };
    let all = NodeState::ALL.iter().copied().filter_map(of).collect::<Vec<_>>().join(", ");
    let nodes = words::count(others.len() as u64, "more node");
    (!others.is_empty()).then(|| format!("  {nodes}: {all} (list all with --json)"))
}

/// Formats tokens and cost, if any session used some or did not report them.
fn spent(status: &Status) -> Option<String> {
    let used = status.spent;
    let prices = status.prices.as_ref().map(|date| format!("; list prices of {date}")).unwrap_or_default();
    let unknown = used.unknown_tokens + used.unknown_cost > 0;
    (used.tokens > 0 || used.cost_usd > 0.0 || unknown)
        .then(|| format!("  spent: {}, {}{prices}", words::tokens(&used), words::cost(&used)))
}

/// Formats a status as one line: run id, path and state.
pub fn headline(status: &Status) -> String {
    let run = status.run.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    let path = status.path.as_deref().unwrap_or("?");
    let interrupted = status.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Interrupted);
    let tree = status.work_dir.as_deref().filter(|_| interrupted || status.state == State::Lost);
    let job = tree.and_then(|dir| fleet_job::of_tree(Path::new(dir)));
    let how = match (job, status.state, &status.ended) {
        // Only the fleet continues it.
        (Some(job), _, _) => {
            format!("belongs to job {job} of a fleet and does not run here; see `dogwatch fleet ls`")
        }
        (None, State::Ended, Some(end)) => {
            let outcome = words::outcome(end.outcome, end.verified);
            format!("ended: {outcome} ({}), exit code {}", end.reason, end.exit_code)
        }
        (None, State::Lost, _) => "supervisor died; continue with `dogwatch resume`".to_owned(),
        (None, State::NeedsHuman, _) => "needs human".to_owned(),
        (None, state, _) => state.as_str().to_owned(),
    };
    // `ps` prints only this line, so it includes health issues.
    let mut issues = status.nodes.iter().flat_map(|node| health_issues(&node.doing));
    let mut parts = vec![how];
    parts.extend(status.stopping.then(|| "stopping after the current iteration".to_owned()));
    let pausing = status.paused && status.state == State::Working;
    parts.extend(pausing.then(|| "pausing after the current iteration".to_owned()));
    parts.extend(status.record_problem.clone());
    parts.extend(issues.by_ref().take(MAX_ISSUES));
    parts.extend(match issues.count() {
        0 => None,
        n => Some(words::count(n as u64, "more issue")),
    });
    let how = parts.join("; ");
    format!("run {run}  {path}  {how}")
}

/// Lists the health issues of a working agent, the most urgent first.
fn health_issues(doing: &DoingStatus) -> Vec<String> {
    let DoingStatus::Working { needs_human, retrying, drifted, .. } = doing else { return Vec::new() };
    let mut issues = Vec::new();
    if let Some(asks) = needs_human {
        let left = asks.left_s.map(|left| format!(" ({} left)", words::clock(left))).unwrap_or_default();
        issues.push(format!("{}{left}: {}", words::NEEDS_HUMAN, asks.what));
    }
    if let Some(retrying) = retrying {
        let since = retrying.since_s.map(|d| format!(", for {}", words::clock(d))).unwrap_or_default();
        issues.push(format!("{}{since}", words::retrying(retrying.status, retrying.delay_s)));
    }
    issues.extend(drifted.then(|| words::DRIFTED.to_owned()));
    issues
}

fn doing(doing: &DoingStatus) -> String {
    match doing {
        DoingStatus::Nothing => "not running".to_owned(),
        DoingStatus::Preparing => "preparing".to_owned(),
        DoingStatus::Checking => "running checks".to_owned(),
        DoingStatus::Working { pid, working_s, messages, call: Some(call), .. } => {
            let so_long = working_s.map_or_else(String::new, |d| format!(" for {}", words::clock(d)));
            let messages = words::count(*messages, "message");
            format!("working{so_long} (pid {pid}), {messages} {}", call.text(MAX_CALL))
        }
        DoingStatus::Working { pid, working_s, messages, last_evidence, .. } => {
            let last = match last_evidence.as_ref().map(|evidence| evidence.age_s) {
                Some(Some(age)) => format!(", last output {} ago", words::clock(age)),
                // Without a supervisor, ages are unknown.
                Some(None) => String::new(),
                None => ", no output yet".to_owned(),
            };
            let so_long = working_s.map_or_else(String::new, |d| format!(" for {}", words::clock(d)));
            format!("working{so_long} (pid {pid}), {}{last}", words::count(*messages, "message"))
        }
        DoingStatus::Waiting { why, left_s, until, .. } => match (left_s, until) {
            (Some(left), Some(until)) => {
                format!("waiting ({why}), {} left, until {}", words::clock(*left), local::clock(*until))
            }
            (None, Some(until)) => format!("waiting ({why}) until {}", local::full(*until)),
            (_, None) => format!("waiting ({why})"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::view::View;
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
    fn active_and_failed_nodes_are_listed_first_and_the_rest_is_counted() {
        let rest = json!({"what": "nothing"});
        let mut nodes: Vec<Value> = (0..9_998).map(|i| node(&format!("n{i}"), "done", &rest)).collect();
        nodes.push(node("broken", "failed", &rest));
        nodes.push(node("busy", "running", &json!({"what": "checking"})));
        let shown = text(&status(nodes));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), MAX_NODES + 3, "{shown}");
        assert_eq!(lines[1], "  busy  iteration 1: was running checks");
        assert_eq!(lines[2], "  broken  iteration 1: failed");
        assert_eq!(lines[3], "  n0  iteration 1: done");
        assert_eq!(lines[MAX_NODES + 1], "  9988 more nodes: 9988 done (list all with --json)");
    }

    #[test]
    fn failing_checks_hard_stops_and_cost_are_shown() {
        let mut one = node("tidy", "running", &json!({"what": "preparing"}));
        let failing: Vec<Value> = (1..=5).map(|rc| json!({"cmd": format!("check {rc}"), "rc": rc})).collect();
        one["attempts"] = json!({"count": 2, "failed": 2, "converged": false, "failing": failing});
        one["recoveries"] = json!(1);
        let mut status = status(vec![one]);
        status.spent.tokens = 1200;
        status.spent.cost_usd = 0.5;
        let shown = text(&status);
        let checks = "    2 attempts, 2 failed; failing checks: `check 1` (exit 1), `check 2` (exit 2), `check 3` (exit 3) and 2 more";
        assert!(shown.contains(checks), "{shown}");
        assert!(shown.contains("    1 hard stop since the last completed iteration"), "{shown}");
        assert!(shown.contains("  spent: 1200 tokens, $0.50"), "{shown}");
    }

    #[test]
    fn the_first_line_stays_short_when_a_hundred_agents_have_issues() {
        let drifted = json!({"what": "working", "pid": 7, "working_s": 1, "messages": 0, "last_evidence": null, "drifted": true});
        let nodes = (0..100).map(|i| node(&format!("n{i}"), "running", &drifted)).collect();
        let line = headline(&status(nodes));
        assert!(line.ends_with("97 more issues") && line.len() < 600, "{line}");
    }
}
