//! Idle streaks in virtual time: waits, limits, skipping, gates, wakes, pauses.

use dogwatch_core::record::event::{Event, InputDigest, Outcome, WaitEndedBy, WaitWhy};
use dogwatch_core::record::view::Doing;
use dogwatch_core::run::caller::Source;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::JobKind;
use dogwatch_core::settings::{IdlePolicy, Plan, Settings, StopAfter, Strategy, WakePolicy};
use dogwatch_core::time::dur::Dur;
use dogwatch_sim::plan::{command, plan};
use dogwatch_sim::{Act, Drive, World};

const MINUTE: Dur = Dur::from_mins(1);
const IDLE_ANSWER: u64 = 12_000;

fn idle_plan(change: impl FnOnce(&mut IdlePolicy)) -> Plan {
    let mut policy = IdlePolicy::default();
    change(&mut policy);
    plan(move |s| s.idle = Some(policy))
}

fn never_stops(p: &mut IdlePolicy) {
    p.stop_after = StopAfter::Never;
}

#[test]
fn origin_0_the_night_after_iteration_4_costs_less_and_less_and_ends_by_itself() {
    // Iterations 1 to 4 work; all later ones report that there is nothing to do.
    let mut world = World::new(
        idle_plan(|p| {
            p.stop_after = StopAfter::Never;
            p.max = Some(Dur::from_hours(6));
        }),
        |job| {
            if job.iteration.0 <= 4 {
                Act::works(Dur::from_millis(46_200))
            } else {
                Act::idles("unspecified")
            }
        },
    );
    let end = world.end();
    let waits = world.waits();
    assert_eq!(waits[..7], [30_000, 60_000, 120_000, 240_000, 300_000, 300_000, 300_000]);
    assert_eq!((end.outcome, end.exit_code), (Outcome::Idle, 0));
    // In six hours of idling, a loop without backoff would have made 1,800 calls.
    assert!(world.sessions.len() < 80, "{} calls", world.sessions.len());
}

#[test]
fn origin_3_layer_2_eight_times_no_pending_tasks_enter_sleep_mode() {
    let mut world = World::new(idle_plan(|_| {}), |_| Act::idles("no_pending_tasks"));
    let end = world.end();
    assert_eq!(world.sessions.len(), 8);
    assert_eq!((end.outcome, end.exit_code, end.idle, end.completed), (Outcome::Idle, 0, 8, 8));
    assert_eq!(end.reason, "no pending tasks; entering sleep mode after 8 idle iterations");
    assert_eq!(world.context.len(), 1);
    let entry = &world.context[0];
    assert_eq!((entry.entry_type, entry.topic), ("decision", "orchestrator_sleep"));
    assert_eq!(entry.content, "Stopped orchestrator after 8 idle ticks (no_pending_tasks)");
    assert_eq!(entry.metadata.consecutive_idle_ticks, 8);
}

#[test]
fn origin_3_work_resumption_resets_delay_count_and_reason() {
    let mut world = World::new(idle_plan(|_| {}), |job| match job.iteration.0 {
        5 => Act::works(MINUTE),
        _ => Act::idles("no_pending_tasks"),
    });
    let end = world.end();
    assert_eq!(world.waits()[..5], [30_000, 60_000, 120_000, 240_000, 30_000]);
    // 4 idle iterations, 1 with work, then 8 more idle ones.
    assert_eq!((end.iterations, end.idle), (13, 12));
}

#[test]
fn origin_3_mixed_idle_reasons_do_not_add_up() {
    let mut world = World::new(idle_plan(|_| {}), |job| match job.iteration.0 {
        8 => Act::idles("no_pending_tasks"),
        n if n < 20 => Act::idles("at_capacity"),
        _ => Act::idles("no_pending_tasks"),
    });
    let end = world.end();
    assert_eq!(end.iterations, 27);
}

#[test]
fn origin_3_the_limit_can_be_overridden() {
    for n in [1, 3] {
        let mut world = World::new(idle_plan(|p| p.stop_after = StopAfter::Count(n)), |_| Act::idles("x"));
        assert_eq!(world.end().iterations, u64::from(n));
    }
    let mut per_reason = World::new(
        idle_plan(|p| {
            p.stop_after = StopAfter::PerReason(vec![("blocked".into(), 2), ("at_capacity".into(), 4)])
        }),
        |_| Act::idles("at_capacity"),
    );
    assert_eq!(per_reason.end().iterations, 4);
}

#[test]
fn origin_3_an_unwritable_context_entry_is_trouble_and_does_not_prevent_the_stop() {
    let mut world = World::new(idle_plan(|_| {}), |_| Act::idles("no_pending_tasks"));
    world.context_fails = true;
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Idle, 0));
    assert!(world.story().contains(&"trouble context_not_kept".to_owned()));
}

#[test]
fn loop_60_an_idle_wait_replaces_the_delay() {
    let mut plan = idle_plan(|_| {});
    plan.nodes[0].settings.delay = Dur::from_hours(2);
    let mut world = World::new(plan, |_| Act::idles("no_pending_tasks"));
    world.end();
    assert_eq!(world.waits()[..2], [30_000, 60_000]);
}

#[test]
fn loop_61_failed_and_timed_out_iterations_end_the_idle_streak_and_interrupted_ones_do_not() {
    let mut world = World::new(idle_plan(never_stops), |job| match job.iteration.0 {
        3 => Act::fails(),
        6 => Act::hangs(),
        _ => Act::idles("x"),
    });
    world.drive(Drive::Until(Dur::from_hours(2)));
    let counts: Vec<u64> = world
        .events
        .iter()
        .filter_map(|e| match e.event {
            Event::IterationIdle { consecutive, .. } => Some(consecutive),
            _ => None,
        })
        .collect();
    assert_eq!(counts[..6], [1, 2, 1, 2, 1, 2]);
}

#[test]
fn loop_62_a_marker_without_an_idle_block_is_recorded_without_a_wait() {
    let mut world = World::new(plan(|s| s.max_iterations = Some(3)), |_| Act::idles("no_pending_tasks"));
    let end = world.end();
    assert_eq!((world.waits().len(), end.idle, end.outcome), (0, 3, Outcome::Clean));
    assert!(world.story().contains(&"marker_seen idle".to_owned()));
}

#[test]
fn idle_answers_without_an_idle_block_lead_to_one_notice() {
    for (turns, notices) in [(2, 0), (3, 1), (9, 1)] {
        let plan = plan(|s| s.max_iterations = Some(turns));
        let mut world = World::new(plan, |_| Act::idles("no_pending_tasks"));
        world.end();
        let said = world.story().iter().filter(|line| line.contains("idle_ignored")).count();
        assert_eq!(said, notices, "{turns} turns: {:?}", world.story());
    }
}

#[test]
fn a_loop_that_nothing_slows_down_leads_to_one_notice() {
    for (delay, max, check, session_ms, notices) in [
        (0, None, None, 100, 1),
        (0, None, None, 1_500, 0),
        (1, None, None, 100, 0),
        (0, Some(40), None, 100, 0),
        (0, None, Some("false"), 100, 0),
    ] {
        let plan = plan(|s| {
            (s.delay, s.max_iterations) = (Dur::from_secs(delay), max);
            s.checks.commands.extend(check.map(str::to_owned));
            s.budget.iterations = Some(40);
        });
        let mut world = World::new(plan, move |_| Act::works(Dur::from_millis(session_ms)));
        world.end();
        let said = world.story().iter().filter(|line| line.contains("hot_loop")).count();
        assert_eq!(said, notices, "{delay} {max:?} {check:?} {session_ms}: {:?}", world.story());
    }
}

#[test]
fn loop_65_a_wait_beyond_the_maximum_is_shortened_and_one_last_iteration_follows() {
    let mut world = World::new(
        idle_plan(|p| {
            never_stops(p);
            p.max = Some(Dur::from_mins(10));
        }),
        |_| Act::idles("x"),
    );
    let end = world.end();
    // The idle streak starts at the end of the first idle answer, at 12 s.
    let last_look = *world.sessions.last().expect("there were some");
    assert_eq!(last_look, IDLE_ANSWER + 600_000);
    assert_eq!(world.waits().iter().sum::<u64>() + (world.sessions.len() as u64 - 2) * IDLE_ANSWER, 600_000);
    assert_eq!(end.outcome, Outcome::Idle);
    assert!(end.reason.starts_with("idle for 10m12s (x)"), "{}", end.reason);
}

// promise: 4
#[test]
fn a_streak_of_a_million_idle_iterations_neither_overflows_nor_grows() {
    let mut world = World::new(idle_plan(never_stops), |_| Act::idles("x")).forgetting();
    while world.run().view().totals().idle < 1_000_000 {
        assert!(world.step_once());
    }
    let view = world.run().view();
    assert_eq!(view.nodes[0].idle_streak.count, 1_000_000);
    assert_eq!(view.nodes[0].idle_streak.last_delay, Dur::from_mins(5));
}

#[test]
fn jitter_is_drawn_from_the_recorded_seed() {
    let jitter = |p: &mut IdlePolicy| {
        never_stops(p);
        p.strategy = Strategy::Decorrelated;
    };
    let waits = || {
        let mut world = World::new(idle_plan(jitter), |_| Act::idles("x"));
        world.drive(Drive::Until(Dur::from_hours(3)));
        world.waits()
    };
    let first = waits();
    assert_eq!(first, waits());
    assert!(first.iter().all(|w| (30_000..=300_000).contains(w)));
    assert!(first.windows(2).any(|w| w[0] != w[1]));
}

#[test]
fn a_night_of_eight_idle_hours_calls_the_agent_once() {
    let mut world = World::new(
        idle_plan(|p| {
            never_stops(p);
            p.skip_unchanged = true;
        }),
        |_| Act::idles("no_pending_tasks"),
    );
    world.drive(Drive::Until(Dur::from_hours(8)));
    assert_eq!(world.sessions.len(), 1);
    assert!(world.run().view().totals().idle > 90);
}

#[test]
fn a_change_in_the_night_calls_the_agent_again() {
    let changed_at = Dur::from_hours(3).as_millis();
    let mut world = World::new(
        idle_plan(|p| {
            never_stops(p);
            p.skip_unchanged = true;
        }),
        |_| Act::idles("no_pending_tasks"),
    )
    .seeing(move |now| InputDigest {
        prompt: "p".into(),
        tree: if now < changed_at { "a" } else { "b" }.into(),
    });
    world.drive(Drive::Until(Dur::from_hours(8)));
    assert_eq!(world.sessions.len(), 2);
    assert!(world.sessions[1] >= changed_at && world.sessions[1] <= changed_at + 300_000);
}

fn gated(exit: i32) -> World {
    let settings = |s: &mut Settings| {
        s.work_when = Some("test -s TODO".into());
        s.idle = Some(IdlePolicy::default());
        s.commands = vec![command("status", MINUTE)];
    };
    World::new(plan(settings), move |job| match job.kind {
        JobKind::Gate => Act::exits(exit, Dur::from_secs(1)),
        _ => Act::works(MINUTE),
    })
}

#[test]
fn work_when_1_is_idle_without_paying_an_agent_and_the_commands_still_run() {
    let mut world = gated(1);
    let end = world.end();
    assert_eq!((world.sessions.len(), end.idle, end.outcome), (0, 8, Outcome::Idle));
    assert_eq!(world.story().iter().filter(|w| *w == "command_finished status").count(), 8);
}

#[test]
fn work_when_0_is_work_and_2_is_trouble_treated_as_work() {
    for (exit, trouble) in [(0, 0), (2, 1), (127, 1)] {
        let mut world = gated(exit).at(Dur::from_secs(90), Input::StopAsked);
        world.end();
        assert_eq!(world.sessions.len(), 1, "exit {exit}");
        assert_eq!(
            world.story().iter().filter(|w| *w == "trouble work_when").count(),
            trouble,
            "exit {exit}"
        );
    }
}

#[test]
fn a_wake_ends_an_idle_wait_at_once_and_does_not_end_the_idle_streak() {
    let mut world = World::new(idle_plan(|_| {}), |_| Act::idles("no_pending_tasks"))
        .at(Dur::from_secs(20), Input::WakeAsked(WaitEndedBy::Path));
    world.drive(Drive::Until(Dur::from_secs(60)));
    assert_eq!(world.sessions[1], 20_000);
    assert!(world.story().contains(&"iteration_idle no_pending_tasks 2".to_owned()));
    assert!(world.story().contains(&"wait_ended path".to_owned()));
}

#[test]
fn wakes_during_a_session_skip_the_next_wait_once() {
    let mut world = World::new(idle_plan(|_| {}), |_| Act::idles("x"));
    for ms in 1_000..3_000 {
        world = world.at(Dur::from_millis(ms), Input::WakeAsked(WaitEndedBy::Path));
    }
    world.drive(Drive::Until(Dur::from_secs(30)));
    assert_eq!(world.sessions, [0, IDLE_ANSWER]);
    assert_eq!(world.story().iter().filter(|w| w.starts_with("wake_remembered")).count(), 1);
}

#[test]
fn an_agent_that_touches_its_wake_files_cannot_keep_itself_awake() {
    let mut world = World::new(idle_plan(never_stops), |_| Act::idles("x").touching());
    world.drive(Drive::Until(Dur::from_hours(1)));
    // Two iterations are free, then the backoff applies: at most one call in five minutes.
    assert_eq!(world.sessions[..3], [0, 12_000, 24_000]);
    assert!(world.sessions.len() < 20, "{} calls in an hour", world.sessions.len());
}

#[test]
fn a_file_change_does_not_skip_the_backoff_of_a_failing_agent() {
    let mut world = World::new(plan(|s| s.errors.max = 3), |_| Act::fails());
    for ms in (0..4_000).step_by(50) {
        world = world.at(Dur::from_millis(ms), Input::WakeAsked(WaitEndedBy::Path));
    }
    world.end();
    assert_eq!(world.waits(), [1_000, 2_000]);
    assert_eq!(world.sessions, [0, 1_100, 3_200]);
}

fn probed(finds_work_at: u64) -> World {
    let settings = |s: &mut Settings| {
        s.idle = Some(IdlePolicy {
            delay: Dur::from_hours(1),
            max_delay: Dur::from_hours(1),
            ..IdlePolicy::default()
        });
        s.wake_on = WakePolicy { paths: vec![], probe: Some("probe".into()), every: MINUTE };
    };
    let mut probes = 0;
    World::new(plan(settings), move |job| match job.kind {
        JobKind::Probe => {
            probes += 1;
            Act::exits(i32::from(probes < finds_work_at), Dur::from_secs(2))
        }
        _ => Act::idles("x"),
    })
}

#[test]
fn a_probe_runs_at_its_interval_and_ends_the_wait_when_it_finds_work() {
    let mut world = probed(3);
    world.drive(Drive::Until(Dur::from_mins(10)));
    // A session of 12 s, then a probe every 60 s that takes 2 s.
    assert_eq!(world.sessions[1], 12_000 + 3 * 62_000);
    assert!(world.story().contains(&"wait_ended probe".to_owned()));
}

#[test]
fn a_wait_that_ends_during_a_probe_waits_for_the_probe_to_exit() {
    let mut world = probed(u64::MAX).at(Dur::from_millis(73_000), Input::WakeAsked(WaitEndedBy::Api));
    world.drive(Drive::Until(Dur::from_mins(3)));
    assert_eq!(world.sessions[1], 73_000);
}

#[test]
fn a_hanging_probe_is_bounded_and_reported_once() {
    let mut world = World::new(
        plan(|s| {
            s.idle = Some(IdlePolicy {
                delay: Dur::from_hours(1),
                max_delay: Dur::from_hours(1),
                ..IdlePolicy::default()
            });
            s.wake_on = WakePolicy { paths: vec![], probe: Some("probe".into()), every: MINUTE };
        }),
        |job| if job.kind == JobKind::Probe { Act::hangs().stubborn() } else { Act::idles("x") },
    );
    world.drive(Drive::Until(Dur::from_mins(50)));
    assert_eq!(world.story().iter().filter(|w| *w == "trouble wake_probe").count(), 1);
    assert_eq!(world.sessions.len(), 1);
}

#[test]
fn a_pause_suspends_a_wait_and_resuming_honors_the_rest() {
    let mut world = World::new(plan(|s| s.delay = Dur::from_mins(10)), |_| Act::works(MINUTE))
        .at(Dur::from_mins(2), Input::PauseAsked)
        .at(Dur::from_mins(5), Input::UnpauseAsked);
    world.drive(Drive::Until(Dur::from_mins(12)));
    assert_eq!(world.sessions, [0, 660_000]);
    let mut late = World::new(plan(|s| s.delay = Dur::from_mins(10)), |_| Act::works(MINUTE))
        .at(Dur::from_mins(2), Input::PauseAsked)
        .at(Dur::from_mins(50), Input::UnpauseAsked);
    late.drive(Drive::Until(Dur::from_mins(51)));
    assert_eq!(late.sessions, [0, 3_000_000]);
}

#[test]
fn a_wait_suspended_by_a_pause_survives_a_crash() {
    // After the first session, the wait would end at eleven minutes.
    for (lifted, begins) in [(5, 660_000), (30, 1_800_000)] {
        let mut world = World::new(plan(|s| s.delay = Dur::from_mins(10)), |_| Act::works(MINUTE))
            .at(Dur::from_mins(2), Input::PauseAsked)
            .at(Dur::from_mins(lifted), Input::UnpauseAsked);
        for _ in 0..2 {
            world.drive(Drive::Until(Dur::from_mins(3)));
            assert_eq!(world.crash(0, Dur::from_secs(30), false), Ok(true));
        }
        world.drive(Drive::Until(Dur::from_millis(begins + 60_000)));
        assert_eq!(world.sessions, [0, begins], "{:#?}", world.story());
    }
}

#[test]
fn a_pause_during_a_session_lets_it_finish_and_starts_nothing() {
    let mut world =
        World::new(plan(|_| {}), |_| Act::works(MINUTE)).at(Dur::from_secs(30), Input::PauseAsked);
    world.drive(Drive::Until(Dur::from_hours(9)));
    assert_eq!(world.sessions, [0]);
    let doing = &world.run().view().nodes[0].doing;
    assert!(matches!(doing, Doing::Waiting { why: WaitWhy::Paused, until: None, .. }), "{doing:?}");
    world.now(Input::UnpauseAsked);
    world.drive(Drive::Until(Dur::from_hours(10)));
    assert!(world.sessions.len() > 1);
}

#[test]
fn a_wake_does_not_end_a_pause() {
    let mut world = World::new(plan(|_| {}), |_| Act::works(MINUTE))
        .at(Dur::from_secs(30), Input::PauseAsked)
        .at(Dur::from_mins(10), Input::WakeAsked(WaitEndedBy::Api));
    world.drive(Drive::Until(Dur::from_hours(1)));
    assert_eq!(world.sessions, [0]);
}

#[test]
fn a_wake_during_a_pause_ends_the_suspended_wait() {
    let mut world = World::new(plan(|s| s.delay = Dur::from_hours(1)), |_| Act::works(MINUTE))
        .at(Dur::from_mins(2), Input::PauseAsked)
        .at(Dur::from_mins(5), Input::WakeAsked(WaitEndedBy::Api))
        .at(Dur::from_mins(9), Input::UnpauseAsked);
    world.drive(Drive::Until(Dur::from_mins(12)));
    assert_eq!(world.sessions, [0, 540_000]);
}

#[test]
fn operator_messages_wait_for_the_next_prompt_within_bounds() {
    let mut world = World::new(plan(|_| {}), |_| Act::works(MINUTE));
    for n in 0..60 {
        world = world.at(
            Dur::from_secs(10),
            Input::MessageReceived { text: format!("line {n}"), from: Source::Operator },
        );
    }
    world.drive(Drive::Until(Dur::from_secs(50)));
    assert_eq!(world.run().view().pending_messages.len(), dogwatch_core::run::MAX_PENDING_MESSAGES);
    world.drive(Drive::Until(Dur::from_secs(70)));
    assert!(world.run().view().pending_messages.is_empty());
}

#[test]
fn a_year_of_idling_takes_no_time_to_simulate() {
    let mut world = World::new(idle_plan(never_stops), |_| Act::idles("x")).forgetting();
    world.drive(Drive::Until(Dur::from_hours(24 * 365)));
    assert!(world.run().view().totals().idle > 100_000);
}

#[test]
fn the_reason_of_an_idle_stop_counts_only_the_iterations_of_its_limit() {
    let mut world = World::new(idle_plan(|_| {}), |job| match job.iteration.0 {
        ..=7 => Act::idles("at_capacity"),
        _ => Act::idles("no_pending_tasks"),
    });
    let end = world.end();
    assert_eq!((end.iterations, end.idle), (15, 15));
    assert_eq!(end.reason, "no pending tasks; entering sleep mode after 8 idle iterations");
}
