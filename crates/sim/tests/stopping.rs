//! Stopping in virtual time: Ctrl-C once, twice, three times; TERM, HUP; in a session and in a wait.

use dogwatch_core::record::event::{Event, Outcome, Recorded, STOP_WITHDRAWN, STOPPING, WaitEndedBy};
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::run::job::JobKind;
use dogwatch_core::settings::{IdlePolicy, Plan, WakePolicy};
use dogwatch_core::time::dur::Dur;
use dogwatch_sim::plan::{checked, plan};
use dogwatch_sim::{Act, Drive, World};

const MINUTE: Dur = Dur::from_mins(1);

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

fn with_delay() -> Plan {
    plan(|s| s.delay = Dur::from_hours(1))
}

#[test]
fn loop_50_one_ctrl_c_lets_the_iteration_finish() {
    let mut world = World::new(plan(|_| {}), |_| Act::works(MINUTE)).at(secs(90), Input::Interrupted);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, end.completed), (Outcome::Stopped, 0, 2));
    assert_eq!(world.elapsed(), 120_000);
}

#[test]
fn two_ctrl_c_interrupt_the_agent() {
    let mut world = World::new(plan(|_| {}), |_| Act::hangs())
        .at(secs(90), Input::Interrupted)
        .at(secs(95), Input::Interrupted);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Interrupted, 130));
    assert_eq!(world.elapsed(), 95_000);
    assert!(world.story().contains(&"iteration_interrupted operator".to_owned()));
}

// promise: 3
#[test]
fn three_ctrl_c_kill_at_once() {
    let mut world = World::new(plan(|_| {}), |_| Act::hangs().stubborn())
        .at(secs(90), Input::Interrupted)
        .at(secs(95), Input::Interrupted)
        .at(secs(96), Input::Interrupted);
    let end = world.end();
    assert_eq!((end.exit_code, world.elapsed()), (130, 96_000));
    let story = world.story();
    assert!(!story.contains(&"session_signalled terminate".to_owned()), "{story:?}");
}

// promise: 3
#[test]
fn a_stubborn_agent_is_gone_within_the_graces() {
    let mut world = World::new(plan(|_| {}), |_| Act::hangs().stubborn())
        .at(secs(5), Input::EndAsked(EndSignal::Terminate));
    let end = world.end();
    assert_eq!((end.exit_code, world.elapsed()), (143, 25_000));
}

// promise: 13
#[test]
fn term_and_hup_end_the_run_with_their_codes() {
    for (signal, code) in [(EndSignal::Terminate, 143), (EndSignal::HangUp, 129)] {
        let mut world = World::new(plan(|_| {}), |_| Act::hangs()).at(secs(5), Input::EndAsked(signal));
        let end = world.end();
        assert_eq!((end.outcome, end.exit_code), (Outcome::Interrupted, code));
        let mut waiting =
            World::new(with_delay(), |_| Act::works(MINUTE)).at(secs(100), Input::EndAsked(signal));
        assert_eq!(waiting.end().exit_code, code);
        assert_eq!(waiting.elapsed(), 100_000);
    }
}

#[test]
fn in_a_wait_one_ctrl_c_runs_the_next_iteration_now() {
    let mut world = World::new(
        plan(|s| {
            s.delay = Dur::from_hours(1);
            s.max_iterations = Some(2);
        }),
        |_| Act::works(MINUTE),
    )
    .at(secs(100), Input::Interrupted);
    let end = world.end();
    assert_eq!(world.sessions, [0, 100_000]);
    assert_eq!((end.outcome, end.exit_code), (Outcome::Clean, 0));
    assert!(world.story().contains(&"iteration_started 2 wake".to_owned()));
}

#[test]
fn a_second_ctrl_c_within_two_seconds_stops_the_loop_even_if_a_session_has_begun() {
    let mut world = World::new(with_delay(), |_| Act::works(MINUTE))
        .at(secs(100), Input::Interrupted)
        .at(secs(102), Input::Interrupted);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, world.elapsed()), (Outcome::Interrupted, 130, 102_000));
}

#[test]
fn a_second_ctrl_c_after_more_than_two_seconds_is_a_first_one_again() {
    let mut world = World::new(with_delay(), |_| Act::works(MINUTE))
        .at(secs(100), Input::Interrupted)
        .at(Dur::from_millis(102_001), Input::Interrupted);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, world.elapsed()), (Outcome::Stopped, 0, 160_000));
}

#[test]
fn a_stop_request_in_a_wait_ends_the_run_at_once() {
    let mut world = World::new(with_delay(), |_| Act::works(MINUTE)).at(secs(100), Input::StopAsked);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, world.elapsed()), (Outcome::Stopped, 0, 100_000));
}

#[test]
fn a_pending_stop_is_announced_once_and_a_resume_withdraws_it() {
    let notices = |world: &World, of: &str| {
        let notice = |r: &&Recorded| matches!(&r.event, Event::Notice { kind, .. } if kind == of);
        world.events.iter().filter(notice).count()
    };
    let mut world = World::new(with_delay(), |_| Act::works(MINUTE))
        .at(secs(10), Input::StopAsked)
        .at(secs(20), Input::StopAsked)
        .at(secs(30), Input::UnpauseAsked)
        .at(secs(90), Input::StopAsked);
    while world.elapsed() < 25_000 {
        world.step_once();
    }
    assert!(world.run().view().stopping);
    let end = world.end();
    assert_eq!((end.outcome, end.completed, world.elapsed()), (Outcome::Stopped, 1, 90_000));
    assert_eq!((notices(&world, STOPPING), notices(&world, STOP_WITHDRAWN)), (1, 1));
}

#[test]
fn a_wake_ends_a_wait_and_is_recorded_with_its_source() {
    let mut world = World::new(with_delay(), |_| Act::works(MINUTE))
        .at(secs(100), Input::WakeAsked(WaitEndedBy::Signal))
        .at(secs(300), Input::StopAsked);
    world.end();
    assert!(world.story().contains(&"wait_ended signal".to_owned()));
    assert_eq!(world.sessions, [0, 100_000]);
}

// promise: 10
#[test]
fn a_run_whose_record_is_lost_starts_nothing_new_and_ends_with_5() {
    let lost = Input::RecordLost { detail: "gone".into() };
    let mut world = World::new(plan(|_| {}), |_| Act::works(MINUTE)).at(secs(30), lost);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, end.completed), (Outcome::RecordLost, 5, 1));
    assert_eq!(world.sessions, [0]);
}

#[test]
fn stopping_while_a_command_runs_ends_the_command_and_starts_no_session() {
    use dogwatch_sim::plan::command;
    let mut world = World::new(plan(|s| s.commands = vec![command("slow", MINUTE)]), |_| Act::hangs())
        .at(secs(5), Input::EndAsked(EndSignal::Terminate));
    let end = world.end();
    assert_eq!((end.exit_code, world.sessions.len(), world.elapsed()), (143, 0, 5_000));
}

#[test]
fn a_run_stopped_on_request_exits_with_1_while_its_checks_fail_unless_the_operator_accepts_that() {
    for (stops, code) in [
        (vec![Input::StopAsked], 1),
        (vec![Input::StopAccepted], 0),
        (vec![Input::StopAsked, Input::StopAccepted], 0),
        (vec![Input::StopAccepted, Input::StopAsked], 0),
        (vec![Input::Interrupted], 1),
    ] {
        let mut world = World::new(checked(&["false"], |_| {}), |job| match job.kind {
            JobKind::Check(_) => Act::check_fails(1, "1 test failed"),
            _ => Act::works(MINUTE),
        });
        for stop in &stops {
            world = world.at(secs(30), stop.clone());
        }
        let end = world.end();
        assert_eq!((end.outcome, end.exit_code), (Outcome::Stopped, code), "{stops:?}");
    }
}

#[test]
fn a_pause_while_the_probe_of_an_ended_wait_is_killed_holds() {
    let idle = plan(|s| {
        s.idle = Some(IdlePolicy::default());
        s.wake_on = WakePolicy { probe: Some("p".into()), every: secs(10), ..WakePolicy::default() };
    });
    // The wait after the first idle iteration ends at 42 s; its probe takes until 45 s to die.
    let mut world = World::new(idle, |job| match job.kind {
        JobKind::Probe => Act { unkillable: secs(3), ..Act::hangs() },
        _ => Act::idles("no_pending_tasks"),
    })
    .at(secs(43), Input::PauseAsked);
    world.drive(Drive::Until(Dur::from_hours(1)));
    assert_eq!(world.sessions, [0], "{:#?}", world.story());
    world.now(Input::UnpauseAsked);
    world.drive(Drive::Until(Dur::from_mins(61)));
    assert_eq!(world.sessions[1], 45_000, "nothing of the wait is left");
}
