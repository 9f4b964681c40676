//! The behavior after an idle stop in virtual time: the run ends, or sleeps until it is woken.

use dogwatch_core::record::event::{Event, Outcome, WaitEndedBy};
use dogwatch_core::record::status::{OrchestratorStatus, State, Status};
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::run::job::JobKind;
use dogwatch_core::settings::{AfterStop, IdlePolicy, Plan, StopAfter, WakePolicy};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::timer::Wakeup;
use dogwatch_sim::plan::plan;
use dogwatch_sim::{Act, Drive, World};

const DAY: Dur = Dur::from_hours(24);

/// Creates a plan that sleeps after two idle iterations.
fn sleeper(change: impl FnOnce(&mut dogwatch_core::settings::Settings)) -> Plan {
    plan(move |s| {
        let stop_after = StopAfter::Count(2);
        s.idle = Some(IdlePolicy { stop_after, after_stop: AfterStop::Watch, ..IdlePolicy::default() });
        change(s);
    })
}

fn asleep(world: &mut World) {
    world.drive(Drive::Until(DAY));
    assert!(world.run().view().is_asleep(), "{:?}", world.story());
    assert_eq!(world.exit_code, None);
}

fn names(world: &World) -> Vec<String> {
    let wanted = ["run_slept", "wait_started asleep", "wait_ended", "run_ended", "iteration_started"];
    world.story().into_iter().filter(|line| wanted.iter().any(|name| line.starts_with(name))).collect()
}

#[test]
fn an_idle_stop_is_recorded_before_the_run_ends() {
    let mut world = World::new(
        plan(|s| s.idle = Some(IdlePolicy { stop_after: StopAfter::Count(3), ..IdlePolicy::default() })),
        |_| Act::idles("at_capacity"),
    );
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Idle, 0));
    let story = world.story();
    let slept = story.iter().position(|line| line == "run_slept at_capacity 3").expect("it is marked");
    let ended = story.iter().position(|line| line == "run_ended idle 0").expect("it ended");
    assert!(slept < ended);
    let after = world.events.iter().find_map(|e| match &e.event {
        Event::RunSlept { after, streak_s, .. } => Some((*after, *streak_s)),
        _ => None,
    });
    // Two waits of 30 s and 60 s, and two more answers of 12 s.
    assert_eq!(after, Some((AfterStop::Exit, Dur::from_secs(114))));
    let entry = &world.context[0];
    assert_eq!(entry.run.as_ref(), world.run().view().started.as_ref().map(|s| &s.run));
    let at = entry.at.to_string();
    assert!(at.contains('T') && at.ends_with('Z'), "{at}");
}

#[test]
fn a_watching_run_sleeps_without_a_timer_and_records_it() {
    let mut world = World::new(sleeper(|_| {}), |_| Act::idles("no_pending_tasks"));
    asleep(&mut world);
    assert_eq!(world.sessions.len(), 2, "a day of sleep starts no agent");
    assert_eq!(world.run().next_wakeup(), Wakeup::default(), "and needs no timer");
    let names = names(&world);
    assert_eq!(names[names.len() - 2..], ["run_slept no_pending_tasks 2", "wait_started asleep"]);
    assert_eq!(world.context.len(), 1);
    let now = Some(world.run().view().last);
    assert_eq!(Status::of(world.run().view(), now).state, State::Asleep);
    assert!(!OrchestratorStatus::of(world.run().view(), now).running);
}

#[test]
fn every_kind_of_wake_continues_a_sleeping_run() {
    for by in [WaitEndedBy::Path, WaitEndedBy::Api, WaitEndedBy::Signal, WaitEndedBy::Operator] {
        let plan = sleeper(|s| s.max_iterations = Some(4));
        let mut world = World::new(plan, |job| match job.iteration.0 {
            1 | 2 => Act::idles("no_pending_tasks"),
            _ => Act::works(Dur::from_mins(1)),
        })
        .at(DAY, Input::WakeAsked(by));
        let end = world.end();
        assert_eq!((end.outcome, end.iterations), (Outcome::Clean, 4));
        assert_eq!(world.sessions[2], DAY.as_millis(), "{by}: at once");
        assert!(world.story().contains(&"iteration_started 3 wake".to_owned()));
    }
}

#[test]
fn a_run_woken_without_work_runs_once_and_sleeps_again() {
    let mut world = World::new(sleeper(|_| {}), |_| Act::idles("no_pending_tasks"))
        .at(Dur::from_hours(1), Input::WakeAsked(WaitEndedBy::Path));
    asleep(&mut world);
    assert_eq!(world.sessions.len(), 3);
    let expected = ["run_slept no_pending_tasks 3", "wait_started asleep"];
    let names = names(&world);
    assert_eq!(names[names.len() - 2..], expected, "{names:?}");
}

#[test]
fn a_probe_runs_while_the_run_sleeps() {
    let probe = WakePolicy { probe: Some("p".into()), every: Dur::from_mins(10), ..WakePolicy::default() };
    let mut looks = 0;
    let mut world = World::new(
        sleeper(|s| {
            s.wake_on = probe;
            s.max_iterations = Some(3);
        }),
        move |job| match job.kind {
            JobKind::Probe => {
                looks += 1;
                if looks < 20 { Act::fails() } else { Act::works(Dur::ZERO) }
            }
            _ if job.iteration.0 <= 2 => Act::idles("no_pending_tasks"),
            _ => Act::works(Dur::from_mins(1)),
        },
    );
    assert_eq!(world.end().iterations, 3);
    assert!(world.story().contains(&"wait_ended probe".to_owned()));
}

#[test]
fn ctrl_c_or_stop_ends_a_sleeping_run_like_the_idle_stop() {
    for input in [Input::Interrupted, Input::StopAsked] {
        let mut world =
            World::new(sleeper(|_| {}), |_| Act::idles("no_pending_tasks")).at(DAY, input.clone());
        let end = world.end();
        assert_eq!((end.outcome, end.exit_code), (Outcome::Idle, 0), "{input:?}");
        assert_eq!(end.reason, "no pending tasks; entering sleep mode after 2 idle iterations");
        let slept = world.story().into_iter().filter(|line| line.starts_with("run_slept")).count();
        assert_eq!((slept, world.context.len()), (1, 1), "the stop is recorded once");
    }
    let mut term = World::new(sleeper(|_| {}), |_| Act::idles("no_pending_tasks"))
        .at(DAY, Input::EndAsked(EndSignal::Terminate));
    let end = term.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Interrupted, 143));
}

#[test]
fn a_time_budget_that_expires_during_sleep_ends_the_run_as_idle() {
    let mut world =
        World::new(sleeper(|s| s.budget.time = Some(Dur::from_hours(8))), |_| Act::idles("no_pending_tasks"));
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Idle, 0));
}

#[test]
fn a_pause_during_sleep_applies_after_the_wake() {
    let mut world = World::new(sleeper(|_| {}), |_| Act::idles("no_pending_tasks"))
        .at(Dur::from_hours(1), Input::PauseAsked)
        .at(Dur::from_hours(2), Input::WakeAsked(WaitEndedBy::Api));
    world.drive(Drive::Until(DAY));
    assert_eq!(world.sessions.len(), 2);
    assert!(world.story().contains(&"wait_started paused".to_owned()), "{:?}", world.story());
    world.now(Input::UnpauseAsked);
    world.drive(Drive::Until(DAY.saturating_add(DAY)));
    assert_eq!(world.sessions.len(), 3);
}

#[test]
fn a_sleeping_run_survives_a_crash_and_a_wake_continues_it() {
    let mut world = World::new(sleeper(|_| {}), |_| Act::idles("no_pending_tasks"));
    asleep(&mut world);
    assert_eq!(world.crash(0, Dur::from_hours(1), false), Ok(true));
    world.drive(Drive::Until(DAY.saturating_add(DAY)));
    assert!(world.run().view().is_asleep());
    assert_eq!((world.sessions.len(), world.context.len()), (2, 1), "the stop is not recorded twice");
    assert_eq!(world.crash(0, Dur::from_hours(1), true), Ok(true));
    world.drive(Drive::Until(DAY.saturating_add(DAY).saturating_add(DAY)));
    assert_eq!(world.sessions.len(), 3);
    world.now(Input::Interrupted);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Idle, 0));
}
