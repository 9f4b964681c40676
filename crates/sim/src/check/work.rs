//! Invariants of checks, graphs and recovery.

use dogwatch_core::record::event::{Event, NodeState, Outcome, Recorded};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::record::view::View;
use dogwatch_core::run::recovery::{Action, Class};
use dogwatch_core::run::touch::Touches;
use dogwatch_core::settings::{NodePlan, Plan};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn all(events: &[Recorded], live: &View) {
    let Some(plan) = live.started.as_ref().map(|s| &s.settings) else { return };
    no_success_without_checks(events, plan);
    no_node_before_its_ancestors(events, plan);
    parallel_nodes_are_allowed(events, plan);
    a_finished_node_stays_finished(events, plan);
    attempts_stay_within_their_number(live, plan);
    recoveries_stay_within_their_budget(events);
    outcomes_follow_from_the_nodes(live, plan);
}

fn of<'p>(plan: &'p Plan, name: &NodeName) -> &'p NodePlan {
    plan.nodes.iter().find(|n| n.name == *name).expect("a node of the plan")
}

/// Asserts that a node with checks is done only after an attempt in which all of them passed, and that a run is
/// verified only if every node was.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
fn no_success_without_checks(events: &[Recorded], plan: &Plan) {
    let mut passed = BTreeSet::new();
    for e in events {
        match &e.event {
            Event::NodeAttempt(a) => {
                let all = !a.results.is_empty() && a.results.iter().all(|r| r.rc == 0);
                assert_eq!(a.converged, all, "{a:?}");
                if all {
                    passed.insert(a.node.clone());
                }
            }
            Event::NodeTransition { node, to: NodeState::Done, .. } => {
                let checked = of(plan, node).settings.checks.any();
                assert!(!checked || passed.contains(node), "{node} is done but its checks never passed");
            }
            Event::RunEnded(end) if end.verified => {
                assert_eq!(passed.len(), plan.nodes.len(), "verified without checks: {end:?}");
            }
            _ => {}
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
fn no_node_before_its_ancestors(events: &[Recorded], plan: &Plan) {
    let mut done = BTreeSet::new();
    for e in events {
        match &e.event {
            Event::NodeTransition { node, to: NodeState::Done, .. } => {
                done.insert(node.clone());
            }
            Event::IterationStarted { node, .. } => {
                let missing: Vec<_> =
                    of(plan, node).depends_on.iter().filter(|p| !done.contains(*p)).collect();
                assert!(missing.is_empty(), "{node} began before {missing:?}");
            }
            _ => {}
        }
    }
}

/// Asserts the limits of parallel nodes: not more than allowed, none with overlapping files, none beside a node that
/// must run alone.
fn parallel_nodes_are_allowed(events: &[Recorded], plan: &Plan) {
    let Some(graph) = &plan.graph else { return };
    let touches: BTreeMap<&NodeName, Touches> = plan
        .nodes
        .iter()
        .map(|n| (&n.name, if n.settings.worktree { Touches::default() } else { Touches::new(&n.touches) }))
        .collect();
    let mut running = BTreeSet::new();
    for e in events {
        let Event::NodeTransition { node, to, .. } = &e.event else { continue };
        if *to != NodeState::Running {
            running.remove(node);
            continue;
        }
        for other in &running {
            assert!(!touches[node].overlap(&touches[other]), "{node} and {other} touch the same files");
            let alone = !of(plan, node).parallel_safe || !of(plan, other).parallel_safe;
            assert!(!alone, "{node} and {other} run in parallel, but one must run alone");
        }
        running.insert(node.clone());
        assert!(running.len() <= graph.max_parallel as usize, "too many at once: {running:?}");
    }
}

fn a_finished_node_stays_finished(events: &[Recorded], plan: &Plan) {
    if plan.graph.is_none() {
        return;
    }
    for e in events {
        if let Event::NodeTransition { node, from, to, .. } = &e.event {
            let over = matches!(from, NodeState::Done | NodeState::Failed | NodeState::Blocked);
            assert!(!over, "{node} was {from} and became {to}");
        }
    }
}

fn attempts_stay_within_their_number(live: &View, plan: &Plan) {
    for (node, plan) in live.nodes.iter().zip(&plan.nodes) {
        if let (true, Some(max)) = (plan.settings.checks.any(), plan.settings.max_iterations) {
            assert!(node.attempts.count <= max, "{} of {max} attempts", node.attempts.count);
        }
        if let (true, Some(max)) = (plan.settings.checks.any(), plan.settings.checks.max_stalled) {
            assert!(node.attempts.stalled <= max, "{} of {max} without progress", node.attempts.stalled);
        }
    }
}

fn recoveries_stay_within_their_budget(events: &[Recorded]) {
    for e in events {
        if let Event::RecoveryPlanned(p) = &e.event {
            let hard = matches!(p.class, Class::Stuck | Class::ErrorLoop);
            let tried = matches!(p.action, Action::Retry | Action::NextAgent);
            assert!(!(hard && tried) || p.used <= p.budget, "{p:?}");
        }
    }
}

fn outcomes_follow_from_the_nodes(live: &View, plan: &Plan) {
    let (Some(end), Some(_)) = (&live.ended, &plan.graph) else { return };
    let n = end.nodes;
    let fits = match end.outcome {
        Outcome::Clean => n.failed + n.blocked == 0 && end.flake_retries == 0,
        Outcome::CleanWithFlake => n.failed + n.blocked == 0 && end.flake_retries > 0,
        Outcome::Catastrophic => n.done == 0,
        Outcome::Stuck => n.done > 0 && n.failed > 0 && n.blocked > 0,
        Outcome::Partial => n.done > 0 && n.failed > 0 && n.blocked == 0,
        Outcome::Idle
        | Outcome::Stopped
        | Outcome::StoppedOnError
        | Outcome::Interrupted
        | Outcome::ErrorLimit
        | Outcome::AuthFailed
        | Outcome::BudgetExceeded
        | Outcome::Ceiling
        | Outcome::RecordLost => true,
    };
    assert!(fits, "{end:?}");
    let all = (n.done + n.failed + n.blocked) as usize == plan.nodes.len();
    let by_itself = matches!(
        end.outcome,
        Outcome::Clean | Outcome::CleanWithFlake | Outcome::Catastrophic | Outcome::Stuck | Outcome::Partial
    );
    assert!(!by_itself || all, "ended with nodes left: {end:?}");
}
