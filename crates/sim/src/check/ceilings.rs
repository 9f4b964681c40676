//! Asserts that `watchdog.node` and `watchdog.run` hold at every moment of the run.

use dogwatch_core::record::event::{Event, NodeState, Outcome, Recorded};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::record::view::View;
use dogwatch_core::time::dur::Dur;

/// How long a run may last beyond a ceiling: two graces, the leak limit and a sweep, a bounded snapshot and its own end,
/// and the last notifications.
const SLACK: Dur = Dur::from_secs(90);
/// How much longer a node with a worktree may last: its finished work is committed within this time, whatever the ceiling.
const COMMIT: Dur = Dur::from_mins(5);

/// Asserts that nothing starts after a ceiling and that running jobs end soon after it.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
pub(super) fn hold(events: &[Recorded], live: &View) {
    let Some(plan) = live.started.as_ref().map(|s| &s.settings) else { return };
    let limits = |name: &NodeName| {
        let watchdog =
            &plan.nodes.iter().find(|n| n.name == *name).expect("a node of the plan").settings.watchdog;
        (watchdog.node.duration(), watchdog.run.duration())
    };
    let commits = plan.nodes.iter().any(|node| node.settings.worktree);
    let slack = if commits { SLACK.saturating_add(COMMIT) } else { SLACK };
    let mut view = View::default();
    for e in events {
        let begins = match &e.event {
            Event::IterationStarted { node, .. }
            | Event::ChecksStarted { node, .. }
            | Event::WaitStarted { node, .. } => Some(node),
            _ => None,
        };
        if let Some((name, (node, run))) = begins.map(|name| (name, limits(name))) {
            let (in_node, in_run) = (view.node_watched(name, e.awake_ms), view.watched.lasted(e.awake_ms));
            assert!(node.is_none_or(|limit| in_node < limit), "past the node's ceiling ({in_node}): {e:?}");
            assert!(run.is_none_or(|limit| in_run < limit), "past the run's ceiling ({in_run}): {e:?}");
        }
        let is_resume = matches!(e.event, Event::RunResumed(_));
        view.apply(e);
        // Time without a supervisor does not count, and a resumed supervisor needs a moment to notice.
        if is_resume || view.is_over() {
            continue;
        }
        let in_run = view.watched.lasted(e.awake_ms);
        for node in &view.nodes {
            let (limit, run_limit) = limits(&node.name);
            let lasted = node.time.watched.lasted(e.awake_ms);
            let running = node.state == NodeState::Running;
            assert!(
                !running || limit.is_none_or(|limit| lasted <= limit.saturating_add(slack)),
                "{} still runs after {lasted}: {e:?}",
                node.name
            );
            assert!(
                run_limit.is_none_or(|limit| in_run <= limit.saturating_add(slack)),
                "the run still runs after {in_run}: {e:?}"
            );
        }
    }
    let ceiling = view.ended.as_ref().filter(|end| end.outcome == Outcome::Ceiling);
    assert!(ceiling.is_none_or(|end| end.exit_code == 3 && end.reason.contains("exceeded")), "{ceiling:?}");
}
