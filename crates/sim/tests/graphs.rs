//! Graphs in virtual time: order, parallelism, touches, outcomes, budgets, resume.

use dogwatch_core::record::event::{Event, NodeState, Outcome};
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::{IdlePolicy, Plan};
use dogwatch_core::time::dur::Dur;
use dogwatch_sim::plan::{graph, plan};
use dogwatch_sim::{Act, World};
use std::time::Instant;

const MINUTE: Dur = Dur::from_mins(1);

/// Scripts sessions of a minute and checks that pass.
fn works(job: Job) -> Act {
    if job.kind == JobKind::Session { Act::works(MINUTE) } else { Act::exits(0, Dur::ZERO) }
}

/// Scripts work like `works`, but the checks of this node never pass.
fn all_but(node: usize) -> impl FnMut(Job) -> Act {
    move |job| match job.kind {
        JobKind::Check(_) if job.node.0 == node => Act::check_fails(1, "no"),
        _ => works(job),
    }
}

fn states(world: &World) -> Vec<(String, NodeState, Option<String>)> {
    let nodes = &world.run().view().nodes;
    nodes.iter().map(|n| (n.name.to_string(), n.state, n.reason.clone())).collect()
}

fn outcome(plan: Plan, script: impl FnMut(Job) -> Act + 'static) -> (Outcome, u8, World) {
    let mut world = World::new(plan, script);
    let end = world.end();
    (end.outcome, end.exit_code, world)
}

#[test]
fn nodes_run_in_dependency_order_and_in_parallel() {
    let diamond = graph(4, &[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])]);
    let (outcome, code, world) = outcome(diamond, works);
    assert_eq!((outcome, code), (Outcome::Clean, 0));
    assert_eq!(world.sessions, [0, 60_000, 60_000, 120_000]);
    let end = world.run().view().ended.clone().expect("ended");
    assert_eq!(
        (end.nodes.done, end.verified, end.reason.as_str()),
        (4, true, "4 nodes done, 0 failed, 0 blocked")
    );
}

#[test]
fn parallelism_is_limited() {
    let nodes: Vec<(String, [&str; 0])> = (0..10).map(|i| (format!("n{i}"), [])).collect();
    let nodes: Vec<(&str, &[&str])> = nodes.iter().map(|(n, p)| (n.as_str(), p.as_slice())).collect();
    let (_, _, world) = outcome(graph(3, &nodes), works);
    let starts: Vec<u64> = world.sessions.iter().map(|s| s / 60_000).collect();
    assert_eq!(starts, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]);
}

#[test]
fn nodes_that_touch_the_same_files_wait_for_each_other() {
    let mut plan = graph(4, &[("a", &[]), ("b", &[]), ("c", &[])]);
    plan.nodes[0].touches = vec!["src/**".to_owned()];
    plan.nodes[1].touches = vec!["src/db/*.rs".to_owned()];
    plan.nodes[2].touches = vec!["docs/**".to_owned()];
    let (_, _, world) = outcome(plan.clone(), works);
    assert_eq!(world.sessions, [0, 0, 60_000]);
    // In a separate worktree it cannot touch the files of other nodes.
    plan.nodes[1].settings.worktree = true;
    let (_, _, world) = outcome(plan, works);
    assert_eq!(world.sessions, [0, 0, 0]);
    assert!(world.story().contains(&"worktree_ready dogwatch/1".to_owned()));
}

#[test]
fn a_node_that_is_not_parallel_safe_runs_alone() {
    let mut plan = graph(4, &[("a", &[]), ("b", &[]), ("c", &[])]);
    plan.nodes[1].parallel_safe = false;
    let (_, _, world) = outcome(plan, works);
    assert_eq!(world.sessions, [0, 0, 60_000]);
}

#[test]
fn every_outcome_of_a_graph_has_its_name_and_exit_code() {
    let chain = || graph(4, &[("a", &[]), ("b", &["a"]), ("c", &[])]);
    assert_eq!(outcome(chain(), works).0, Outcome::Clean);
    // Some nodes are done, some failed and some blocked.
    let (word, code, world) = outcome(chain(), all_but(0));
    assert_eq!((word, code), (Outcome::Stuck, 1));
    let states = states(&world);
    assert_eq!(states[0].2.as_deref(), Some("max_iterations_reached"));
    assert_eq!((states[1].1, states[1].2.as_deref()), (NodeState::Blocked, Some("ancestor_failed:a")));
    assert_eq!(states[2].1, NodeState::Done);
    // A node failed, but no other node depends on it.
    assert_eq!(outcome(chain(), all_but(1)).0, Outcome::Partial);
    // No node is done.
    let (word, code, _) = outcome(graph(4, &[("a", &[]), ("b", &["a"])]), all_but(0));
    assert_eq!((word, code), (Outcome::Catastrophic, 1));
    // All nodes are done, but one needed a second attempt.
    let (word, code, world) = outcome(chain(), |job| match job.kind {
        JobKind::Check(_) if job.node.0 == 1 && job.iteration.0 == 1 => Act::check_fails(1, "no"),
        _ => works(job),
    });
    assert_eq!((word, code), (Outcome::CleanWithFlake, 0));
    assert_eq!(world.run().view().flakes(), 1);
}

#[test]
fn all_descendants_of_a_failed_node_are_blocked_by_its_name() {
    let plan = graph(4, &[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &["c"]), ("e", &[])]);
    let (word, _, world) = outcome(plan, all_but(0));
    assert_eq!(word, Outcome::Stuck);
    let blocked: Vec<Option<String>> = states(&world)[1..4].iter().map(|s| s.2.clone()).collect();
    assert!(blocked.iter().all(|r| r.as_deref() == Some("ancestor_failed:a")), "{blocked:?}");
}

#[test]
fn a_node_without_checks_is_done_when_an_iteration_has_completed() {
    let mut plan = graph(4, &[("a", &[]), ("b", &["a"])]);
    plan.nodes[0].settings.checks.commands.clear();
    plan.nodes[0].settings.max_iterations = None;
    let (word, code, world) = outcome(plan, |job| match (job.node.0, job.kind, job.iteration.0) {
        (0, JobKind::Session, 1) => Act::fails(),
        _ => works(job),
    });
    assert_eq!((word, code), (Outcome::Clean, 0));
    assert!(!world.run().view().ended.as_ref().expect("ended").verified, "one node has no checks");
}

#[test]
fn an_exhausted_node_budget_fails_only_that_node() {
    let mut plan = graph(4, &[("a", &[]), ("b", &[])]);
    plan.nodes[0].settings.budget.time = Some(Dur::from_secs(30));
    let (word, code, world) = outcome(plan, works);
    assert_eq!((word, code), (Outcome::Partial, 1));
    let states = states(&world);
    assert_eq!((states[0].1, states[0].2.as_deref()), (NodeState::Failed, Some("budget_exceeded")));
    assert_eq!(states[1].1, NodeState::Done);
    assert_eq!(world.partials, ["a.partial.md"]);
}

#[test]
fn the_budget_of_the_graph_ends_everything_that_runs() {
    let mut plan = graph(4, &[("a", &[]), ("b", &[])]);
    plan.graph.as_mut().expect("a graph").budget.time = Some(Dur::from_secs(30));
    let (word, code, world) = outcome(plan, works);
    assert_eq!((word, code), (Outcome::BudgetExceeded, 3));
    assert_eq!(world.elapsed(), 30_000);
}

#[test]
fn an_authentication_failure_ends_the_whole_graph() {
    let (word, code, world) =
        outcome(graph(4, &[("a", &[]), ("b", &[]), ("c", &["a"])]), |job| match (job.node.0, job.kind) {
            (0, JobKind::Session) => Act::unknown_to_the_service(),
            _ => works(job),
        });
    assert_eq!((word, code), (Outcome::AuthFailed, 1));
    assert_eq!((world.sessions.len(), world.elapsed()), (2, 1_000));
}

#[test]
fn a_limit_of_one_node_delays_all_nodes_with_that_agent() {
    let resets = dogwatch_core::time::moment::Wall(1_794_773_733_000 + 600_000);
    let (word, _, world) = outcome(graph(1, &[("a", &[]), ("b", &["a"]), ("c", &[])]), move |job| {
        match (job.node.0, job.kind, job.iteration.0) {
            (0, JobKind::Session, 1) => Act::limited(Some(resets)),
            (0, JobKind::Check(_), 1) => Act::check_fails(1, "no"),
            _ => works(job),
        }
    });
    assert_eq!(word, Outcome::Clean);
    assert_eq!(world.sessions[1], 615_000, "{:?}", world.sessions);
}

#[test]
fn a_stop_lets_running_nodes_finish_and_starts_no_new_ones() {
    let mut world = World::new(graph(2, &[("a", &[]), ("b", &[]), ("c", &[])]), works)
        .at(Dur::from_secs(10), Input::StopAsked);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, world.sessions.len()), (Outcome::Stopped, 0, 2));
    assert_eq!(end.nodes.done, 2);
}

/// Scripts a first node whose session takes 20 s and whose checks fail, and other nodes that work for a minute.
fn the_first_fails_early(job: Job) -> Act {
    match (job.node.0, job.kind) {
        (0, JobKind::Session) => Act::works(Dur::from_secs(20)),
        (0, JobKind::Check(_)) => Act::check_fails(1, "no"),
        _ => works(job),
    }
}

#[test]
fn a_stop_lets_every_node_finish_its_iteration_even_if_the_checks_of_another_fail() {
    let plan = graph(2, &[("a", &[]), ("b", &[]), ("c", &[])]);
    let mut world = World::new(plan, the_first_fails_early).at(Dur::from_secs(10), Input::StopAsked);
    let end = world.end();
    assert_eq!((end.outcome, end.nodes.done, world.elapsed()), (Outcome::Stopped, 1, 60_000));
    assert!(!world.story().iter().any(|line| line.starts_with("session_signalled")), "{:?}", world.story());
}

#[test]
fn a_withdrawn_stop_continues_the_graph_with_the_nodes_that_ended_an_iteration_meanwhile() {
    let plan = graph(2, &[("a", &[]), ("b", &[]), ("c", &[])]);
    let mut world = World::new(plan, the_first_fails_early)
        .at(Dur::from_secs(10), Input::StopAsked)
        .at(Dur::from_secs(30), Input::UnpauseAsked);
    let end = world.end();
    assert_eq!((end.outcome, end.nodes.done, end.nodes.failed), (Outcome::Partial, 2, 1));
    assert_eq!(world.sessions[..3], [0, 0, 30_000], "the first node starts again at once");
}

#[test]
fn a_terminated_graph_gives_every_session_its_grace() {
    let plan = graph(2, &[("a", &[]), ("b", &[])]);
    let grace = plan.nodes[0].settings.watchdog.grace.as_millis();
    let mut world = World::new(plan, |job| match (job.node.0, job.kind) {
        (1, JobKind::Session) => Act::works(MINUTE).stubborn(),
        _ => works(job),
    })
    .at(Dur::from_secs(10), Input::EndAsked(EndSignal::Terminate));
    assert_eq!(world.end().outcome, Outcome::Interrupted);
    assert!(world.elapsed() >= 10_000 + grace, "the second session was killed at {}", world.elapsed());
}

#[test]
fn a_paused_graph_starts_nothing_until_resumed() {
    let mut world = World::new(graph(1, &[("a", &[]), ("b", &["a"])]), works)
        .at(Dur::from_secs(10), Input::PauseAsked)
        .at(Dur::from_secs(600), Input::UnpauseAsked);
    let end = world.end();
    assert_eq!((end.outcome, world.sessions.clone()), (Outcome::Clean, vec![0, 600_000]));
}

#[test]
fn killed_at_any_step_no_node_is_started_twice_at_once_and_no_finished_one_again() {
    let plan = || {
        let mut plan = graph(2, &[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"]), ("e", &[])]);
        plan.snapshots = true;
        plan
    };
    let mut steps = 0;
    loop {
        let mut world = World::new(plan(), works);
        for _ in 0..steps {
            if !world.step_once() {
                return;
            }
        }
        if world.exit_code.is_some() {
            return;
        }
        if world.crash(0, MINUTE, false) == Ok(true) {
            let end = world.end();
            assert_eq!((end.outcome, end.nodes.done), (Outcome::Clean, 5), "killed after {steps} steps");
            let again: Vec<_> = world
                .events
                .iter()
                .scan(std::collections::BTreeSet::new(), |done, r| {
                    match &r.event {
                        Event::NodeTransition { node, to: NodeState::Done, .. } => {
                            done.insert(node.clone());
                        }
                        Event::IterationStarted { node, .. } if done.contains(node) => {
                            return Some(Some(node.clone()));
                        }
                        _ => {}
                    }
                    Some(None)
                })
                .flatten()
                .collect();
            assert!(again.is_empty(), "{again:?} after {steps} steps");
        }
        steps += 1;
    }
}

#[test]
fn a_terminated_graph_can_be_resumed() {
    let mut world = World::new(graph(1, &[("a", &[]), ("b", &["a"]), ("c", &["b"])]), works)
        .at(Dur::from_secs(90), Input::EndAsked(EndSignal::Terminate));
    assert_eq!(world.end().outcome, Outcome::Interrupted);
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    let end = world.end();
    assert_eq!((end.outcome, end.nodes.done), (Outcome::Clean, 3));
    assert_eq!(world.sessions.len(), 4, "a once, b twice, c once");
}

#[test]
fn after_a_resume_a_worktree_is_prepared_before_it_is_used() {
    let mut plan = graph(1, &[("a", &[]), ("b", &["a"])]);
    plan.nodes[0].settings.worktree = true;
    let mut world = World::new(plan, works).at(Dur::from_secs(30), Input::EndAsked(EndSignal::Terminate));
    assert_eq!(world.end().outcome, Outcome::Interrupted);
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    assert_eq!(world.end().outcome, Outcome::Clean);
    let places: Vec<_> = world
        .events
        .iter()
        .filter_map(|r| match &r.event {
            Event::WorktreeReady { .. } => Some("worktree"),
            Event::SessionStarted { node, .. } if node.as_str() == "a" => Some("session"),
            _ => None,
        })
        .collect();
    assert_eq!(places, ["worktree", "session", "worktree", "session"]);
}

#[test]
fn an_idle_node_does_not_stop_while_others_work() {
    let mut plan = graph(2, &[("idle", &[]), ("busy", &[])]);
    plan.nodes[0].settings = dogwatch_sim::plan::settings();
    plan.nodes[1].settings.watchdog.idle = dogwatch_core::time::dur::Limit::Off;
    plan.nodes[0].settings.idle =
        Some(IdlePolicy { delay: Dur::from_secs(1), backoff: 1.0, ..IdlePolicy::default() });
    let (word, _, world) = outcome(plan, |job| match (job.node.0, job.kind) {
        (0, JobKind::Session) => Act::idles("no_pending_tasks"),
        (1, JobKind::Session) => Act::works(Dur::from_mins(30)),
        _ => Act::exits(0, Dur::ZERO),
    });
    assert_eq!(word, Outcome::Clean);
    assert!(world.elapsed() > 30 * 60_000, "it waited until the other node was done");
}

// Scheduling must be linear. The time bound is loose, because the number of comparisons is what matters.
#[test]
fn ten_thousand_nodes_are_scheduled_without_quadratic_cost() {
    let mut plan = plan(|_| {});
    let template = plan.nodes[0].clone();
    plan.graph = graph(50, &[]).graph;
    plan.nodes = (0..10_000)
        .map(|i| {
            let mut node = template.clone();
            node.name = dogwatch_core::record::ids::NodeName::new(&format!("n{i}"));
            if i >= 100 {
                node.depends_on = vec![dogwatch_core::record::ids::NodeName::new(&format!("n{}", i - 100))];
            }
            node.touches = vec![format!("src/{i}/**")];
            node
        })
        .collect();
    let began = Instant::now();
    let mut world = World::new(plan, works).forgetting();
    let end = world.end();
    assert_eq!((end.outcome, end.nodes.done), (Outcome::Clean, 10_000));
    let each = began.elapsed().as_micros() / 10_000;
    println!("{each} µs a node, start to end");
    assert!(each < 5_000, "{each} µs a node");
}
