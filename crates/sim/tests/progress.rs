//! `attempts: progress` in virtual time: attempts that make progress are neither charged nor delayed.

use dogwatch_core::record::event::{Event, NodeAttempt, Outcome};
use dogwatch_core::record::view::View;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::Settings;
use dogwatch_core::time::dur::Dur;
use dogwatch_sim::plan::progressing;
use dogwatch_sim::{Act, World};

const MINUTE: Dur = Dur::from_mins(1);

/// Scripts a check whose output is `says(iteration)`. It passes without output.
fn check(says: impl Fn(u64) -> String + 'static) -> impl FnMut(Job) -> Act {
    move |job| match job.kind {
        JobKind::Check(_) => match says(job.iteration.0).as_str() {
            "" => Act::exits(0, Dur::ZERO),
            text => Act::check_fails(1, text),
        },
        JobKind::Snapshot => Act::exits(0, Dur::ZERO),
        _ => Act::works(MINUTE),
    }
}

fn failing_until(last: u64) -> impl Fn(u64) -> String {
    move |i| if i < last { format!("{} failed in 0.{i}s", last - i) } else { String::new() }
}

fn new_tree(iteration: u64) -> String {
    format!("tree {iteration}")
}

fn pytest(change: impl FnOnce(&mut Settings)) -> dogwatch_core::settings::Plan {
    progressing(&["pytest"], change)
}

fn attempts(world: &World) -> Vec<NodeAttempt> {
    let attempt = |e: &Event| match e {
        Event::NodeAttempt(a) => Some(a.clone()),
        _ => None,
    };
    world.events.iter().filter_map(|r| attempt(&r.event)).collect()
}

#[test]
fn productive_iterations_follow_each_other_without_a_wait_until_the_checks_pass() {
    let mut world = World::new(pytest(|_| {}), check(failing_until(12))).with_trees(new_tree);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, end.flake_retries, end.iterations), (Outcome::Clean, 0, 0, 12));
    assert_eq!(end.reason, "checks pass after 12 iterations");
    assert_eq!(world.waits(), [] as [u64; 0]);
    let progress: Vec<bool> = attempts(&world).iter().map(|a| a.progress).collect();
    assert_eq!(progress, [[true; 11].as_slice(), &[false]].concat());
}

#[test]
fn the_delay_applies_after_progress() {
    let mut world =
        World::new(pytest(|s| s.delay = Dur::from_secs(7)), check(failing_until(3))).with_trees(new_tree);
    world.end();
    assert_eq!(world.waits(), [7_000, 7_000]);
}

#[test]
fn snapshots_tell_whether_the_tree_is_new() {
    let mut plan = pytest(|_| {});
    plan.snapshots = true;
    let mut world = World::new(plan, check(failing_until(5))).with_trees(new_tree);
    assert_eq!(world.end().outcome, Outcome::Clean);
    assert_eq!(world.waits(), [] as [u64; 0]);
    // The agent changes nothing, although the checks fail differently each time.
    let mut plan = pytest(|_| {});
    plan.snapshots = true;
    let mut world = World::new(plan, check(failing_until(9))).with_trees(|_| "same".to_owned());
    let end = world.end();
    assert_eq!((end.iterations, end.outcome), (6, Outcome::Catastrophic));
    assert_eq!(end.reason, "6 iterations without progress; pytest still fails (3 failed)");
}

#[test]
fn six_iterations_in_a_row_without_progress_end_the_node_with_growing_waits() {
    // The tree changes, but the checks say the same, except for how long they took.
    let says = |i| format!("=== 4 failed in {i}.3s ===");
    let mut world = World::new(pytest(|_| {}), check(says)).with_trees(new_tree);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Catastrophic, 1));
    assert_eq!(end.reason, "6 iterations without progress; pytest still fails (4 failed)");
    // The first attempt has nothing to compare with: a changed tree is progress.
    assert_eq!((end.iterations, world.waits()), (7, vec![2_000, 4_000, 8_000, 16_000, 32_000]));
    assert_eq!(world.run().view().nodes[0].reason.as_deref(), Some("max_iterations_reached"));
}

#[test]
fn progress_starts_the_count_and_the_waits_afresh() {
    let says = |i| format!("{} failed", if i < 4 { 9 } else { 8 });
    let mut world = World::new(pytest(|_| {}), check(says)).with_trees(new_tree);
    let end = world.end();
    assert_eq!(end.iterations, 4 + 6);
    assert_eq!(world.waits(), [2_000, 4_000, 2_000, 4_000, 8_000, 16_000, 32_000]);
}

#[test]
fn a_tree_that_returns_to_an_earlier_state_is_not_progress() {
    let says = |i| format!("{} failed", i % 2);
    let mut world = World::new(pytest(|_| {}), check(says)).with_trees(|i| (i % 2).to_string());
    let end = world.end();
    // Only the first iteration reaches a state other than that at the start.
    assert_eq!(end.iterations, 7);
}

#[test]
fn max_iterations_set_by_the_user_is_an_absolute_count() {
    let plan = pytest(|s| {
        s.max_iterations = Some(3);
        s.checks.max_stalled = None;
    });
    let mut world = World::new(plan, check(failing_until(9))).with_trees(new_tree);
    let end = world.end();
    assert_eq!((end.iterations, end.exit_code), (3, 1));
    assert_eq!(end.reason, "3 of 3 iterations used; pytest still fails (6 failed)");
}

#[test]
fn a_check_that_passes_on_the_tree_it_failed_on_is_flaky() {
    let mut world = World::new(pytest(|_| {}), check(failing_until(3)))
        .with_trees(|i| if i < 2 { i.to_string() } else { "same".to_owned() });
    let end = world.end();
    assert_eq!((end.outcome, end.flake_retries), (Outcome::CleanWithFlake, 1));
    // The same with a recheck within one attempt.
    let mut checked = 0;
    let mut world = World::new(pytest(|s| s.checks.recheck = 1), move |job| match job.kind {
        JobKind::Check(_) if checked == 0 => {
            checked += 1;
            Act::check_fails(1, "no")
        }
        JobKind::Check(_) => Act::exits(0, Dur::ZERO),
        _ => Act::works(MINUTE),
    })
    .with_trees(new_tree);
    let end = world.end();
    assert_eq!((end.outcome, end.flake_retries), (Outcome::CleanWithFlake, 1));
    assert_eq!(end.reason, "checks pass after 1 iteration");
}

#[test]
fn a_tree_that_cannot_be_read_counts_as_new() {
    let mut world = World::new(pytest(|_| {}), check(failing_until(9)));
    assert_eq!(world.end().outcome, Outcome::Clean);
    assert_eq!(world.waits(), [] as [u64; 0]);
}

#[test]
fn an_agent_that_cannot_start_makes_no_progress() {
    let mut world = World::new(pytest(|_| {}), |job| match job.kind {
        JobKind::Check(_) => Act::check_fails(1, &format!("{} failed", job.iteration)),
        _ => Act::absent(),
    });
    assert_eq!(world.end().iterations, 6);
}

#[test]
fn many_uncharged_iterations_cause_a_notice_and_the_budget_ends_them() {
    let plan = pytest(|s| s.budget.iterations = Some(45));
    let mut world = World::new(plan, check(|i| format!("{i} failed"))).with_trees(new_tree);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, end.iterations), (Outcome::BudgetExceeded, 3, 45));
    let notices: Vec<&str> = world
        .events
        .iter()
        .filter_map(|r| match &r.event {
            Event::Notice { kind, message } if kind == "uncharged_iterations" => Some(message.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(notices[0].contains("20 iterations made progress"), "{}", notices[0]);
}

#[test]
fn a_resumed_run_remembers_its_trees_and_its_progress() {
    let mut world = World::new(pytest(|_| {}), check(failing_until(30)))
        .with_trees(new_tree)
        .at(MINUTE, Input::StopAsked);
    world.end();
    let live = &world.run().view().nodes[0].attempts;
    assert_eq!(*live, View::fold(&world.events).nodes[0].attempts);
    assert!(!live.is_new_tree("tree 1") && live.is_new_tree("tree 2"));
}
