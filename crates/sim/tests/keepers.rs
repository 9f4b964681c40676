//! Keepers that cannot report, and starts that fail for lack of a resource, in virtual time.

use dogwatch_core::drive::MAX_KEEPERS_PER_TURN;
use dogwatch_core::record::event::Event;
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_sim::plan::{graph, plan};
use dogwatch_sim::{Act, Keeper, World};
use std::cell::Cell;

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

fn troubles(world: &World, wanted: &str) -> usize {
    let is_it = |event: &Event| matches!(event, Event::Trouble { kind, .. } if kind == wanted);
    world.events.iter().filter(|recorded| is_it(&recorded.event)).count()
}

#[test]
fn a_silent_keeper_is_abandoned_after_its_limit() {
    let mut world = World::new(plan(|_| {}), |_| Act::hangs().under(Keeper::Silent))
        .at(secs(5), Input::EndAsked(EndSignal::Terminate));
    let end = world.end();
    assert_eq!((end.exit_code, world.elapsed()), (143, 33_000), "two graces of 10 s, then 8 s");
    assert_eq!(troubles(&world, "keeper_silent"), 1);
}

// promise: 3
#[test]
fn a_keeper_that_is_stopped_again_and_again_is_given_up_within_two_seconds() {
    let mut world = World::new(plan(|_| {}), |_| Act::hangs().under(Keeper::Stopped))
        .at(secs(5), Input::EndAsked(EndSignal::Terminate));
    let end = world.end();
    assert_eq!((end.exit_code, world.elapsed()), (143, 26_500), "two graces of 10 s, then three checks");
    assert_eq!(troubles(&world, "keeper_silent"), 1);
}

#[test]
fn a_sweep_without_a_report_delays_the_run_for_a_bounded_time() {
    let once = plan(|s| s.max_iterations = Some(2));
    let mut world = World::new(once, |job: Job| match job.iteration.0 {
        1 => Act::works(secs(10)).under(Keeper::Silent),
        _ => Act::works(secs(10)),
    });
    let end = world.end();
    assert_eq!((end.exit_code, end.completed), (0, 2));
    assert_eq!(world.sessions, [0, 18_500], "0.5 s of grace and 8 s for the keeper");
}

#[test]
fn a_start_that_lacks_a_resource_is_retried_with_backoff() {
    let tries = Cell::new(0);
    let once = plan(|s| s.max_iterations = Some(1));
    let mut world = World::new(once, move |_| {
        tries.set(tries.get() + 1);
        if tries.get() < 4 { Act::short_of_processes() } else { Act::works(secs(1)) }
    });
    let end = world.end();
    assert_eq!((end.exit_code, end.completed), (0, 1));
    assert_eq!(world.sessions, [500 + 1_000 + 2_000]);
    assert_eq!(troubles(&world, "start_failed"), 3);
}

#[test]
fn a_start_that_keeps_lacking_a_resource_fails_after_half_a_minute() {
    let once = plan(|s| s.max_iterations = Some(1));
    let mut world = World::new(once, |_| Act::short_of_processes());
    let end = world.end();
    assert_eq!((end.exit_code, end.failed), (1, 1));
    assert_eq!(troubles(&world, "start_failed"), 6);
    assert_eq!(world.elapsed(), 31_500);
}

#[test]
fn a_run_that_waits_for_a_retry_can_be_ended_at_once() {
    let mut world = World::new(plan(|_| {}), |_| Act::short_of_processes())
        .at(secs(2), Input::EndAsked(EndSignal::Terminate));
    let end = world.end();
    assert_eq!((end.exit_code, world.elapsed()), (143, 2_000));
}

#[test]
fn a_session_that_exits_at_its_limit_among_many_others_is_not_stopped() {
    let names: Vec<String> = (0..3 * MAX_KEEPERS_PER_TURN).map(|n| format!("n{n}")).collect();
    let nodes: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    let mut all = graph(100, &nodes);
    for node in &mut all.nodes {
        node.settings.watchdog.session = Limit::At(secs(60));
    }
    // All reports arrive at the moment of the limit, more of them than one turn of the driver takes.
    let act = |job: Job| Act::works(if job.kind == JobKind::Session { secs(60) } else { Dur::ZERO });
    let mut world = World::new(all, act).together();
    let end = world.end();
    let is_stop = |event: &Event| matches!(event, Event::HardStop { .. });
    assert_eq!(world.events.iter().filter(|recorded| is_stop(&recorded.event)).count(), 0);
    assert_eq!(end.completed, 3 * MAX_KEEPERS_PER_TURN as u64);
}

// promise: 1
#[test]
fn processes_that_outlive_their_keeper_are_killed_until_they_are_gone() {
    let twice = plan(|s| s.max_iterations = Some(2));
    let mut world = World::new(twice, |job: Job| match job.iteration.0 {
        1 => Act { keeper_dies: Some(secs(5)), unkillable: secs(12), ..Act::hangs() },
        _ => Act::works(secs(10)),
    });
    let end = world.end();
    assert_eq!((end.completed, end.failed), (1, 1));
    assert_eq!(
        world.sessions,
        [0, 21_000],
        "killed again every 5 s until 20 s, then the wait after a failure"
    );
    assert_eq!(troubles(&world, "tree_stands"), 1);
}

/// Returns the signals that ended the sessions, as recorded.
fn signals(world: &World) -> Vec<Option<i32>> {
    let signal =
        |event: &Event| if let Event::SessionEnded(ended) = event { Some(ended.signal) } else { None };
    world.events.iter().filter_map(|recorded| signal(&recorded.event)).collect()
}

#[test]
fn a_session_whose_keeper_died_is_recorded_as_killed() {
    let once = plan(|s| s.max_iterations = Some(1));
    let mut world = World::new(once, |_| Act { keeper_dies: Some(secs(5)), ..Act::hangs() });
    let end = world.end();
    assert_eq!((end.failed, world.elapsed()), (1, 5_000));
    assert_eq!(signals(&world), [Some(9)]);
}

#[test]
fn a_session_that_ran_before_its_keeper_died_is_not_called_again() {
    let once = plan(|s| s.max_iterations = Some(1));
    let dies_early = || Act { start_report_after: secs(10), keeper_dies: Some(secs(5)), ..Act::hangs() };
    let mut world = World::new(once, move |_| dies_early());
    let end = world.end();
    assert_eq!((end.failed, world.sessions.len()), (1, 1), "{:?}", world.story());
    assert_eq!(signals(&world), [Some(9)]);
}

#[test]
fn a_repeated_report_about_an_earlier_job_changes_nothing() {
    let twice = plan(|s| s.max_iterations = Some(2));
    let mut world = World::new(twice, |_| Act { repeats_exit: Some(secs(4)), ..Act::works(secs(10)) });
    let end = world.end();
    assert_eq!((end.completed, end.failed, world.elapsed()), (2, 0, 20_000));
}
