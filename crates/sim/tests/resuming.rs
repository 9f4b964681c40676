//! A run that is killed at any moment continues after a resume.

use dogwatch_core::record::event::{Event, Outcome, WaitEndedBy};
use dogwatch_core::run::ResumeError;
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::{IdlePolicy, Plan};
use dogwatch_core::time::dur::Dur;
use dogwatch_sim::plan::plan;
use dogwatch_sim::{Act, Crash, Drive, World};

const MINUTE: Dur = Dur::from_mins(1);

fn five() -> Plan {
    plan(|s| {
        s.max_iterations = Some(5);
        s.delay = Dur::from_mins(10);
    })
}

fn killed_after(world: &mut World, time: Dur, down: Dur) {
    world.drive(Drive::Until(time));
    assert_eq!(world.crash(0, down, false), Ok(true));
}

// promise: 2
#[test]
fn killed_in_a_session_the_iteration_is_interrupted_and_does_not_count() {
    let mut world = World::new(five(), |_| Act::works(MINUTE));
    killed_after(&mut world, Dur::from_secs(30), MINUTE);
    let end = world.end();
    assert_eq!((end.iterations, end.completed, end.outcome), (5, 5, Outcome::Clean));
    let story = world.story();
    assert!(story.contains(&"iteration_interrupted supervisor_lost".to_owned()));
    assert!(story.contains(&"iteration_started 2 resumed".to_owned()));
    assert_eq!(world.sessions.len(), 6);
}

#[test]
fn a_wait_continues_after_a_crash() {
    let mut world = World::new(five(), |_| Act::works(MINUTE));
    // One minute of work, four of ten minutes waited, two minutes down: four are left.
    killed_after(&mut world, Dur::from_mins(5), Dur::from_mins(2));
    world.drive(Drive::Until(Dur::from_mins(12)));
    assert_eq!(world.sessions, [0, 660_000]);
}

#[test]
fn a_clock_set_back_makes_no_wait_longer_than_it_was() {
    // A live wait does not change, because it is measured on the boot clock.
    let mut waiting = World::new(five(), |_| Act::works(MINUTE));
    waiting.drive(Drive::Until(Dur::from_mins(5)));
    waiting.set_clock_back(Dur::from_hours(5));
    waiting.drive(Drive::Until(Dur::from_mins(12)));
    assert_eq!(waiting.sessions, [0, 660_000]);
    // Killed during the wait, clock set back, resumed: the wall clock says five hours, but the wait was ten minutes.
    let mut killed = World::new(five(), |_| Act::works(MINUTE));
    killed.drive(Drive::Until(Dur::from_mins(5)));
    killed.set_clock_back(Dur::from_hours(5));
    let before = killed.elapsed();
    assert_eq!(killed.crash(0, MINUTE, false), Ok(true));
    killed.drive(Drive::Until(Dur::from_mins(30)));
    assert_eq!(killed.sessions[1], before + MINUTE.as_millis() + Dur::from_mins(10).as_millis());
}

#[test]
fn an_expired_wait_is_not_repeated_after_a_crash() {
    let mut world = World::new(five(), |_| Act::works(MINUTE));
    killed_after(&mut world, Dur::from_mins(5), Dur::from_hours(9));
    world.step_once();
    world.drive(Drive::Until(Dur::from_hours(10)));
    // The last event is the start of the wait, after one minute.
    assert_eq!(world.sessions[1], (Dur::from_hours(9).as_millis()) + 60_000);
}

#[test]
fn a_run_that_crashed_paused_resumes_paused() {
    let mut world = World::new(five(), |_| Act::works(MINUTE)).at(Dur::from_secs(30), Input::PauseAsked);
    killed_after(&mut world, Dur::from_mins(5), MINUTE);
    world.drive(Drive::Until(Dur::from_hours(5)));
    assert_eq!(world.sessions, [0]);
    world.now(Input::UnpauseAsked);
    assert_eq!(world.end().completed, 5);
}

#[test]
fn an_idle_streak_survives_a_crash_and_downtime_does_not_count() {
    let idle = plan(|s| {
        s.idle = Some(IdlePolicy {
            max: Some(Dur::from_hours(1)),
            stop_after: dogwatch_core::settings::StopAfter::Never,
            ..IdlePolicy::default()
        });
    });
    let mut world = World::new(idle, |_| Act::idles("x"));
    killed_after(&mut world, Dur::from_mins(30), Dur::from_hours(100));
    world.drive(Drive::Until(Dur::from_hours(100)));
    let idle_streak = world.run().view().nodes[0].idle_streak.clone();
    assert!(idle_streak.count > 5, "{idle_streak:?}");
    let end = world.end();
    assert_eq!(end.outcome, Outcome::Idle);
    assert!(world.elapsed() > Dur::from_hours(100).as_millis());
}

#[test]
fn a_time_budget_counts_supervised_time_only() {
    let mut world = World::new(plan(|s| s.budget.time = Some(Dur::from_mins(10))), |_| Act::works(MINUTE));
    killed_after(&mut world, Dur::from_mins(6), Dur::from_hours(5));
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::BudgetExceeded, 3));
    assert!(end.total_duration_s <= Dur::from_mins(10));
    assert!(end.completed >= 9, "{end:?}");
}

#[test]
fn the_time_between_the_last_event_and_a_noticed_loss_counts() {
    // The agent is silent, so nothing is recorded until it is killed.
    let silent = plan(|s| s.budget.time = Some(Dur::from_mins(20)));
    let mut world = World::new(silent, |_| Act::works(Dur::from_hours(2)));
    for killed_at in [7, 5 * 60 + 14] {
        world.drive(Drive::Until(Dur::from_mins(killed_at)));
        let crash =
            Crash { lost_bytes: 0, down: Dur::from_hours(5), reboots: false, wake: false, noticed: true };
        assert_eq!(world.crash_by(crash), Ok(true));
    }
    let end = world.end();
    assert_eq!((end.outcome, end.total_duration_s), (Outcome::BudgetExceeded, Dur::from_mins(20)));
    let story = world.events.iter().filter_map(|recorded| match &recorded.event {
        Event::IterationInterrupted { end, .. } => Some(end.duration_s),
        _ => None,
    });
    let lasted: Vec<Dur> = story.collect();
    assert_eq!(
        lasted.iter().fold(Dur::ZERO, |sum, one| sum.saturating_add(*one)),
        Dur::from_mins(20),
        "{lasted:?}"
    );
    assert!(lasted.len() == 3 && lasted.iter().all(|one| *one > Dur::from_mins(5)), "{lasted:?}");
}

#[test]
fn consecutive_failures_survive_a_crash_so_the_circuit_opens() {
    let mut world = World::new(plan(|_| {}), |_| Act::fails());
    killed_after(&mut world, Dur::from_secs(2), Dur::from_secs(1));
    let end = world.end();
    assert_eq!((end.outcome, end.failed), (Outcome::ErrorLimit, 5));
}

#[test]
fn wake_continues_a_sleeping_run_and_resume_does_not() {
    let mut world =
        World::new(plan(|s| s.idle = Some(IdlePolicy::default())), |_| Act::idles("no_pending_tasks"));
    world.end();
    assert_eq!(world.crash(0, MINUTE, false), Err(ResumeError::Asleep));
    assert_eq!(world.crash(0, MINUTE, true), Ok(true));
    let end = world.end();
    // The idle streak continues: after one more iteration the run sleeps again.
    assert_eq!((end.outcome, end.iterations), (Outcome::Idle, 9));
    assert!(world.story().contains(&"iteration_started 9 wake".to_owned()));
}

#[test]
fn a_run_stopped_by_a_person_can_be_resumed() {
    for stop in [Input::StopAsked, Input::EndAsked(dogwatch_core::run::input::EndSignal::HangUp)] {
        let mut world = World::new(five(), |_| Act::works(MINUTE)).at(Dur::from_secs(90), stop);
        let end = world.end();
        assert!(matches!(end.outcome, Outcome::Stopped | Outcome::Interrupted));
        assert_eq!(world.crash(0, MINUTE, false), Ok(true));
        let end = world.end();
        assert_eq!((end.outcome, end.completed), (Outcome::Clean, 5));
    }
}

#[test]
fn a_run_with_any_other_outcome_is_not_resumed() {
    let mut world = World::new(plan(|s| s.max_iterations = Some(1)), |_| Act::works(MINUTE));
    world.end();
    for wake in [false, true] {
        assert_eq!(world.crash(0, MINUTE, wake), Err(ResumeError::Ended(Outcome::Clean)));
    }
}

// promise: 6, 7
#[test]
fn killed_between_any_two_writes_it_comes_to_the_same_end() {
    // Crashes at step k, loses the last j unsettled events and resumes, for all k and j.
    for k in 1..400 {
        for lost in 0..4 {
            let mut world = World::new(five(), |_| Act::works(MINUTE))
                .at(Dur::from_mins(3), Input::WakeAsked(WaitEndedBy::Api));
            for _ in 0..k {
                world.step_once();
            }
            match world.crash(lost, Dur::from_secs(7), false) {
                Ok(true) => {}
                Ok(false) | Err(ResumeError::Ended(Outcome::Clean)) => continue,
                Err(other) => panic!("step {k}: {other:?}"),
            }
            let end = world.end();
            assert_eq!(
                (end.outcome, end.completed, end.iterations),
                (Outcome::Clean, 5, 5),
                "step {k}, lost {lost}"
            );
        }
    }
}

// promise: 7
#[test]
fn a_session_that_lost_its_supervisor_is_replayed_up_to_its_last_event() {
    let mut world = World::new(five(), |job| match job.iteration.0 {
        1 => Act::hangs(),
        _ => Act::works(MINUTE),
    });
    // The checkers replay every session. In the hour without a supervisor no limit applies.
    killed_after(&mut world, Dur::from_secs(30), Dur::from_hours(1));
    assert_eq!(world.end().completed, 5);
}
