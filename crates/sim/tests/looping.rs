//! The loop in virtual time: iterations, failures, the circuit, budgets, limits.

use dogwatch_core::record::event::{Event, Outcome};
use dogwatch_core::run::job::JobKind;
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::watch::StopReason;
use dogwatch_core::watch::sign::AgentResult;
use dogwatch_sim::plan::{command, plan, session_limit};
use dogwatch_sim::{Act, World};

const MINUTE: Dur = Dur::from_mins(1);

#[test]
fn loop_40_n_3_means_three_agent_starts() {
    let mut world = World::new(plan(|s| s.max_iterations = Some(3)), |_| Act::works(MINUTE));
    let end = world.end();
    assert_eq!(world.sessions, [0, 60_000, 120_000]);
    assert_eq!((end.outcome, end.exit_code, end.completed, end.verified), (Outcome::Clean, 0, 3, false));
}

#[test]
fn loop_41_failures_are_counted_and_the_loop_continues() {
    let mut world = World::new(plan(|s| s.max_iterations = Some(3)), |job| {
        if job.iteration.0 == 2 { Act::fails() } else { Act::works(MINUTE) }
    });
    let end = world.end();
    assert_eq!((end.completed, end.failed, end.outcome, end.exit_code), (2, 1, Outcome::Clean, 0));
}

#[test]
fn loop_42_stop_on_error_means_one_start() {
    let mut plan = plan(|_| {});
    plan.stop_on_error = true;
    let mut world = World::new(plan, |_| Act::fails());
    let end = world.end();
    assert_eq!((world.sessions.len(), end.outcome, end.exit_code), (1, Outcome::StoppedOnError, 1));
    assert_eq!(end.reason, "iteration 1: exit code 1: it broke");
}

// promise: 12
#[test]
fn loop_43_a_session_over_its_limit_has_its_own_event_and_is_ended_step_by_step() {
    let limit = Dur::from_secs(900);
    let mut world = World::new(
        plan(|s| {
            session_limit(limit)(s);
            s.watchdog.idle = Limit::Off;
            s.max_iterations = Some(1);
        }),
        |_| Act::hangs().stubborn(),
    );
    let end = world.end();
    assert_eq!(
        world.story()[1..],
        [
            "iteration_started 1 first",
            "prompt_assembled",
            "session_started",
            "hard_stop SESSION_CEILING_EXCEEDED",
            "session_signalled interrupt",
            "session_signalled terminate",
            "session_signalled kill",
            "session_ended by watchdog",
            "iteration_timed_out",
            "run_ended catastrophic 1",
        ]
    );
    // The limit, then two graces of 10 s, and nothing else.
    assert_eq!(world.elapsed(), 920_000);
    assert_eq!(end.failed, 1);
}

// promise: 6, 11
#[test]
fn a_verdict_stores_its_evidence_and_is_recorded_before_the_first_signal() {
    let mut world = World::new(
        plan(|s| {
            session_limit(Dur::from_secs(5))(s);
            s.max_iterations = Some(1);
        }),
        |_| Act::hangs(),
    );
    world.end();
    let at = world.events.iter().position(|e| matches!(e.event, Event::HardStop { .. })).expect("a verdict");
    let Event::HardStop { reason, message, evidence_summary, .. } = &world.events[at].event else {
        unreachable!()
    };
    assert_eq!(*reason, StopReason::SessionCeilingExceeded);
    assert_eq!(message, "Total timeout: exceeded 5s limit (ran 5.0s, 0 messages)");
    assert_eq!(evidence_summary.len(), 4);
    assert!(matches!(world.events[at + 1].event, Event::SessionSignalled { .. }));
}

// promise: 7
#[test]
fn loop_45_events_come_in_their_order() {
    let mut world = World::new(plan(|s| s.max_iterations = Some(1)), |_| Act::works(MINUTE));
    world.end();
    assert_eq!(
        world.story(),
        [
            "run_started",
            "iteration_started 1 first",
            "prompt_assembled",
            "session_started",
            "session_ended by itself",
            "iteration_completed",
            "run_ended clean 0",
        ]
    );
}

#[test]
fn loop_48_a_failing_agent_does_not_spin_and_the_circuit_opens() {
    let mut world = World::new(plan(|_| {}), |_| Act::fails());
    let end = world.end();
    assert_eq!(world.sessions.len(), 5);
    assert_eq!(world.waits(), [1_000, 2_000, 4_000, 8_000]);
    assert_eq!((end.outcome, end.exit_code), (Outcome::ErrorLimit, 1));
    assert!(end.reason.contains("5 identical failures within 5m: exit code 1: it broke"), "{}", end.reason);
}

#[test]
fn a_missing_agent_program_opens_the_circuit() {
    let mut world = World::new(plan(|_| {}), |_| Act::absent());
    let end = world.end();
    assert_eq!((world.sessions.len(), end.failed, end.outcome), (0, 5, Outcome::ErrorLimit));
}

#[test]
fn failures_that_take_their_time_and_differ_never_open_the_circuit() {
    let mut world = World::new(plan(|s| s.max_iterations = Some(20)), |job| {
        Act::exits(1, MINUTE).saying(&format!("failure of kind {}", "x".repeat(job.iteration.0 as usize)))
    });
    let end = world.end();
    assert_eq!((end.outcome, end.failed), (Outcome::Catastrophic, 20));
    assert_eq!(world.waits().last(), Some(&60_000));
}

#[test]
fn success_closes_the_circuit_and_resets_the_wait() {
    let mut world = World::new(plan(|s| s.max_iterations = Some(40)), |job| {
        if job.iteration.0 % 5 == 0 { Act::works(MINUTE) } else { Act::fails() }
    });
    let end = world.end();
    assert_eq!((end.outcome, end.completed, end.failed), (Outcome::Clean, 8, 32));
    assert!(world.waits().iter().all(|w| *w <= 8_000));
}

#[test]
fn loop_49_the_delay_applies_between_iterations_and_not_after_the_last() {
    let mut world = World::new(
        plan(|s| {
            s.max_iterations = Some(3);
            s.delay = Dur::from_secs(30);
        }),
        |_| Act::works(MINUTE),
    );
    world.end();
    assert_eq!(world.waits(), [30_000, 30_000]);
    assert_eq!(world.sessions, [0, 90_000, 180_000]);
    assert_eq!(world.elapsed(), 240_000);
}

#[test]
fn an_error_wait_replaces_the_delay_whatever_their_lengths() {
    let mut world = World::new(
        plan(|s| {
            s.max_iterations = Some(2);
            s.delay = Dur::from_hours(1);
        }),
        |_| Act::fails(),
    );
    world.end();
    assert_eq!(world.waits(), [1_000]);
}

#[test]
fn an_iteration_budget_ends_the_run_with_exit_code_3() {
    let mut world = World::new(plan(|s| s.budget.iterations = Some(4)), |_| Act::works(MINUTE));
    let end = world.end();
    assert_eq!((world.sessions.len(), end.outcome, end.exit_code), (4, Outcome::BudgetExceeded, 3));
    assert_eq!(end.reason, "budget.iterations: 4 of 4 used");
}

#[test]
fn a_time_budget_applies_during_a_session() {
    let mut world = World::new(plan(|s| s.budget.time = Some(Dur::from_secs(90))), |_| Act::works(MINUTE));
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, end.completed), (Outcome::BudgetExceeded, 3, 1));
    assert_eq!(world.elapsed(), 90_000);
    assert_eq!(
        world.story().iter().rev().take(3).collect::<Vec<_>>(),
        ["run_ended budget_exceeded 3", "iteration_interrupted budget", "session_ended by budget",]
    );
}

#[test]
fn a_time_budget_applies_during_a_wait() {
    let mut world = World::new(
        plan(|s| {
            s.budget.time = Some(Dur::from_secs(90));
            s.delay = Dur::from_hours(1);
        }),
        |_| Act::works(MINUTE),
    );
    let end = world.end();
    assert_eq!((end.outcome, world.elapsed()), (Outcome::BudgetExceeded, 90_000));
}

#[test]
fn commands_run_one_after_the_other_in_every_iteration() {
    let mut world = World::new(
        plan(|s| {
            s.commands = vec![command("a", MINUTE), command("b", MINUTE)];
            s.max_iterations = Some(1);
        }),
        |job| match job.kind {
            JobKind::Command(i) => Act::exits(i as i32, Dur::from_secs(2)),
            _ => Act::works(MINUTE),
        },
    );
    world.end();
    assert_eq!(
        world.story()[1..5],
        ["iteration_started 1 first", "command_finished a", "command_finished b", "prompt_assembled",]
    );
    assert_eq!(world.sessions, [4_000]);
}

#[test]
fn loop_36_a_command_that_times_out_is_ended_and_the_run_continues() {
    let mut world = World::new(
        plan(|s| {
            s.commands = vec![command("stuck", Dur::from_secs(60))];
            s.max_iterations = Some(1);
        }),
        |job| match job.kind {
            JobKind::Command(_) => Act::hangs().stubborn(),
            _ => Act::works(MINUTE),
        },
    );
    let end = world.end();
    assert!(world.story().contains(&"command_finished stuck timed_out".to_owned()));
    // Terminated at 60 s, killed one grace later.
    assert_eq!(world.sessions, [70_000]);
    assert_eq!(end.completed, 1);
}

#[test]
fn loop_37_a_command_that_cannot_start_is_trouble_and_the_run_continues() {
    let mut world = World::new(
        plan(|s| {
            s.commands = vec![command("absent", MINUTE)];
            s.max_iterations = Some(1);
        }),
        |job| match job.kind {
            JobKind::Command(_) => Act::absent(),
            _ => Act::works(MINUTE),
        },
    );
    let end = world.end();
    assert!(world.story().contains(&"trouble command_not_started".to_owned()));
    assert_eq!(end.completed, 1);
}

// promise: 1
#[test]
fn exit_not_end_of_output_ends_a_session_and_held_pipes_get_the_leak_limit() {
    for (held, took) in [(Some(Dur::ZERO), 60_000), (Some(Dur::from_secs(1)), 61_000), (None, 62_000)] {
        let mut world =
            World::new(plan(|s| s.max_iterations = Some(1)), move |_| Act::works(MINUTE).holding_pipes(held));
        let end = world.end();
        assert_eq!((world.elapsed(), end.completed), (took, 1), "pipes held for {held:?}");
    }
}

#[test]
fn an_authentication_failure_stops_at_once() {
    let mut world = World::new(plan(|s| s.reader = dogwatch_core::settings::ReaderName::Claude), |_| {
        let refused = AgentResult { api_status: Some(401), ..AgentResult::new("Invalid API key", true) };
        Act::exits(1, MINUTE).answering(refused)
    });
    let end = world.end();
    assert_eq!((world.sessions.len(), end.outcome, end.exit_code), (1, Outcome::AuthFailed, 1));
}

#[test]
fn a_late_or_spurious_wake_up_changes_nothing() {
    use dogwatch_core::run::input::Input;
    let mut world = World::new(plan(|s| s.max_iterations = Some(2)), |_| Act::works(MINUTE));
    for second in 0..200 {
        world = world.at(Dur::from_secs(second), Input::TimePassed);
    }
    world.end();
    assert_eq!(world.sessions, [0, 60_000]);
}

#[test]
fn snapshots_are_taken_before_the_first_iteration_and_after_every_session() {
    let mut plan = plan(|s| s.max_iterations = Some(2));
    plan.snapshots = true;
    let mut world = World::new(plan, |job| match job.kind {
        JobKind::Session if job.iteration.0 == 2 => Act::hangs(),
        _ => Act::works(Dur::from_secs(1)),
    });
    world.end();
    let story: Vec<String> = world
        .story()
        .into_iter()
        .filter(|w| w.starts_with("snapshot") || w.starts_with("iteration"))
        .collect();
    assert_eq!(
        story,
        [
            "snapshot_taken 0",
            "iteration_started 1 first",
            "snapshot_taken 1",
            "iteration_completed",
            "iteration_started 2 next",
            "snapshot_taken 2",
            "iteration_timed_out",
        ]
    );
}

#[test]
fn a_hanging_or_failing_snapshot_is_trouble_and_the_run_continues() {
    for act in [Act::hangs().stubborn(), Act::exits(1, MINUTE), Act::absent()] {
        let mut plan = plan(|s| s.max_iterations = Some(1));
        plan.snapshots = true;
        let mut world = World::new(plan, move |job| match job.kind {
            JobKind::Snapshot => act.clone(),
            _ => Act::works(MINUTE),
        });
        let end = world.end();
        assert_eq!((end.completed, end.exit_code), (1, 0));
        assert_eq!(world.story().iter().filter(|w| *w == "trouble snapshot").count(), 2);
    }
}
