//! The leash in virtual time: a run lives until the last time that arrived, and not longer.

use dogwatch_core::record::event::{EndedBy, Event, Outcome, WaitEndedBy};
use dogwatch_core::run::input::Input;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Boot;
use dogwatch_sim::plan::plan;
use dogwatch_sim::{Act, Drive, World};

const MINUTE: Dur = Dur::from_mins(1);
/// The boot clock at the start of the simulation, in milliseconds.
const START: u64 = 5_000;

fn until(s: u64) -> Input {
    Input::LeashRenewed { until: Boot(START + s * 1_000) }
}

fn ended_by(world: &World) -> Option<EndedBy> {
    let by = |e: &Event| match e {
        Event::SessionEnded(s) => Some(s.ended_by),
        _ => None,
    };
    world.events.iter().rev().find_map(|r| by(&r.event))
}

#[test]
fn a_run_whose_leash_expires_is_killed_and_can_be_resumed() {
    let mut world = World::new(plan(|_| {}), |_| Act::hangs().stubborn())
        .at(Dur::ZERO, until(60))
        .at(Dur::from_secs(50), until(90));
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Interrupted, 6));
    assert_eq!(end.reason, "the leash expired: no later time arrived; continue with `dogwatch resume`");
    assert_eq!(
        (world.elapsed(), ended_by(&world)),
        (90_000, Some(EndedBy::Leash)),
        "at once, without a grace"
    );
    let story = world.story();
    assert!(story.contains(&"iteration_interrupted leash".to_owned()), "{story:?}");
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    world.drive(Drive::Until(Dur::from_mins(5)));
    assert_eq!(world.sessions.len(), 2, "the resumed run works again");
}

#[test]
fn a_closed_leash_ends_the_run_at_once_even_in_a_wait() {
    let mut world = World::new(plan(|s| s.delay = Dur::from_hours(1)), |_| Act::works(MINUTE))
        .at(Dur::ZERO, until(36_000))
        .at(Dur::from_mins(5), Input::LeashClosed);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, world.elapsed()), (Outcome::Interrupted, 6, 300_000));
    assert!(end.reason.starts_with("the leash was closed at its other end"), "{}", end.reason);
}

#[test]
fn a_leash_may_be_shortened_and_a_renewed_one_changes_nothing() {
    let mut shorter = World::new(plan(|_| {}), |_| Act::hangs())
        .at(Dur::ZERO, until(3_600))
        .at(Dur::from_secs(10), until(20));
    shorter.end();
    assert_eq!(shorter.elapsed(), 20_000);
    let mut renewed =
        World::new(plan(|s| s.max_iterations = Some(3)), |_| Act::works(MINUTE)).at(Dur::ZERO, until(100));
    for s in [60, 120, 170] {
        renewed = renewed.at(Dur::from_secs(s), until(s + 100));
    }
    let end = renewed.end();
    assert_eq!((end.outcome, end.completed), (Outcome::Clean, 3));
}

// promise: 5
#[test]
fn what_arrives_at_the_end_of_the_leash_is_not_recorded_after_the_end_of_the_run() {
    let mut world = World::new(plan(|s| s.delay = Dur::from_hours(1)), |_| Act::works(MINUTE))
        .at(Dur::ZERO, until(90))
        .at(Dur::from_secs(90), Input::Suspended { lasted: MINUTE, unwatched: false });
    assert_eq!((world.end().exit_code, world.elapsed()), (6, 90_000));
    let last = world.events.last().map(|last| &last.event);
    assert!(matches!(last, Some(Event::RunEnded(_))), "{last:?}");
}

#[test]
fn a_wake_that_arrives_at_the_end_of_the_leash_starts_no_iteration() {
    let mut world = World::new(plan(|s| s.delay = Dur::from_hours(1)), |_| Act::works(MINUTE))
        .at(Dur::ZERO, until(90))
        .at(Dur::from_secs(90), Input::WakeAsked(WaitEndedBy::Operator));
    assert_eq!((world.end().exit_code, world.elapsed()), (6, 90_000));
    let story = world.story();
    assert_eq!(story.iter().filter(|line| line.starts_with("iteration_started")).count(), 1, "{story:?}");
}

#[test]
fn nothing_is_started_after_the_end_not_even_a_snapshot() {
    let mut snapshots = plan(|_| {});
    snapshots.snapshots = true;
    let mut world = World::new(snapshots, |_| Act::works(MINUTE)).at(Dur::ZERO, until(90));
    let end = world.end();
    assert_eq!((end.exit_code, world.elapsed()), (6, 90_000));
}
