//! `watchdog.node` and `watchdog.run` in virtual time: they apply to waits, commands, gates, probes and checks.

use dogwatch_core::record::event::{Event, Outcome, RunEnded, WaitEndedBy};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::JobKind;
use dogwatch_core::settings::{AfterStop, IdlePolicy, Plan, Settings, StopAfter, WakePolicy};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Wall;
use dogwatch_sim::plan::{checked, command, graph, plan};
use dogwatch_sim::{Act, Drive, World};

const LIMIT: Dur = Dur::from_secs(90);
const MINUTE: Dur = Dur::from_mins(1);
const HOUR: Dur = Dur::from_hours(1);

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

/// Returns the plan with each of the two ceilings, and the stop reason to expect.
fn with_each_ceiling(plan: &Plan) -> [(Plan, &'static str); 2] {
    let limited = |change: fn(&mut Settings)| {
        let mut plan = plan.clone();
        plan.nodes.iter_mut().for_each(|node| change(&mut node.settings));
        plan
    };
    [
        (limited(|s| s.watchdog.node = Limit::At(LIMIT)), "NODE"),
        (limited(|s| s.watchdog.run = Limit::At(LIMIT)), "RUN"),
    ]
}

fn assert_ceiling(end: &RunEnded, what: &str) {
    assert_eq!((end.outcome, end.exit_code), (Outcome::Ceiling, 3), "{end:?}");
    let wanted = if what == "NODE" { "Node timeout" } else { "Run timeout" };
    assert!(end.reason.starts_with(&format!("{wanted}: exceeded 90s limit (ran 90.0s")), "{}", end.reason);
}

fn hard_stops(world: &World) -> Vec<String> {
    let reason = |e: &dogwatch_core::record::event::Recorded| match &e.event {
        Event::HardStop { reason, recoverable, evidence_summary, .. } => {
            assert!(!recoverable && evidence_summary.len() == 4);
            Some(reason.to_string())
        }
        _ => None,
    };
    world.events.iter().filter_map(reason).collect()
}

// promise: 12
#[test]
fn a_ceiling_ends_every_kind_of_wait_at_its_moment() {
    type Session = fn() -> Act;
    let act = |job: dogwatch_core::run::job::Job, first: Act| match job.kind {
        JobKind::Session => first,
        _ => Act::check_fails(1, "no"),
    };
    let idle = || IdlePolicy { delay: HOUR, max_delay: HOUR, ..IdlePolicy::default() };
    let waits: Vec<(&str, Plan, Session)> = vec![
        ("delay", plan(|s| s.delay = HOUR), || Act::works(MINUTE)),
        ("idle", plan(|s| s.idle = Some(idle())), || Act::idles("no_pending_tasks")),
        ("error", plan(|s| s.errors.max = 50), Act::fails),
        ("rate_limit", plan(|_| {}), || Act::limited(Some(Wall(1_794_777_333_000)))),
        ("backoff", checked(&["t"], |s| s.max_iterations = Some(50)), || Act::works(secs(1))),
    ];
    for (why, plan, first) in waits {
        for (plan, what) in with_each_ceiling(&plan) {
            let mut world = World::new(plan, move |job| act(job, first()));
            let end = world.end();
            assert_ceiling(&end, what);
            assert_eq!(world.elapsed(), 90_000, "{why}");
            assert!(hard_stops(&world).is_empty(), "{why}: no process was alive");
            assert_eq!(end.failed, world.events.iter().filter(|e| is_failure(&e.event)).count() as u64);
            let story = world.story();
            assert!(story.iter().any(|word| word.starts_with(&format!("wait_started {why}"))), "{story:?}");
        }
    }
}

/// Creates a plan that sleeps after its first idle iteration.
fn sleeper() -> Plan {
    plan(|s| {
        let (stop_after, after_stop) = (StopAfter::Count(1), AfterStop::Watch);
        s.idle = Some(IdlePolicy { stop_after, after_stop, ..IdlePolicy::default() });
        s.delay = HOUR;
    })
}

// promise: 12
#[test]
fn a_ceiling_ends_a_sleeping_run_at_its_moment_with_the_outcome_of_its_idle_stop() {
    for (plan, what) in with_each_ceiling(&sleeper()) {
        let mut world = World::new(plan.clone(), |_| Act::idles("no_pending_tasks"));
        let end = world.end();
        assert_eq!((end.outcome, end.exit_code, world.elapsed()), (Outcome::Idle, 0, 90_000), "{what}");
        // A pause does not change the sleep, and neither does the loss of the supervisor.
        let mut resumed =
            World::new(plan, |_| Act::idles("no_pending_tasks")).at(secs(20), Input::PauseAsked);
        resumed.drive(Drive::Until(secs(30)));
        assert!(resumed.run().view().is_asleep(), "{:?}", resumed.story());
        assert_eq!(resumed.crash(0, HOUR, false), Ok(true));
        resumed.drive(Drive::Until(HOUR.saturating_add(secs(35))));
        assert!(resumed.run().view().is_asleep(), "{:?}", resumed.story());
        let end = resumed.end();
        assert_eq!((end.outcome, resumed.sessions.len()), (Outcome::Idle, 1), "{what}");
        assert_eq!(resumed.elapsed(), 90_000 + HOUR.as_millis(), "{what}");
    }
}

#[test]
fn a_ceiling_holds_in_the_waits_of_a_run_that_was_woken_from_its_sleep() {
    for (plan, what) in with_each_ceiling(&sleeper()) {
        let mut world = World::new(plan, |job| match job.iteration.0 {
            1 => Act::idles("no_pending_tasks"),
            _ => Act::works(secs(5)),
        })
        .at(secs(30), Input::WakeAsked(WaitEndedBy::Operator));
        assert_ceiling(&world.end(), what);
        assert_eq!((world.elapsed(), world.sessions.len()), (90_000, 2));
    }
}

fn is_failure(event: &Event) -> bool {
    matches!(event, Event::IterationFailed(_) | Event::IterationTimedOut(_))
}

#[test]
fn a_paused_run_reaches_its_ceiling() {
    for (plan, what) in with_each_ceiling(&plan(|_| {})) {
        let mut world = World::new(plan, |_| Act::works(secs(20))).at(secs(5), Input::PauseAsked);
        assert_ceiling(&world.end(), what);
        assert_eq!((world.elapsed(), world.sessions.len()), (90_000, 1));
    }
}

#[test]
fn the_ceiling_ends_commands_gates_probes_and_checks_and_nothing_new_starts() {
    let long = |s: &mut Settings| s.commands = vec![command("slow", HOUR)];
    let probe = |s: &mut Settings| {
        s.idle = Some(IdlePolicy { delay: HOUR, max_delay: HOUR, ..IdlePolicy::default() });
        s.wake_on = WakePolicy { paths: Vec::new(), probe: Some("probe".into()), every: secs(60) };
    };
    let jobs: Vec<(JobKind, Plan)> = vec![
        (JobKind::Command(0), plan(long)),
        (JobKind::Gate, plan(|s| s.work_when = Some("gate".into()))),
        (JobKind::Probe, plan(probe)),
        (JobKind::Check(0), checked(&["t"], |s| s.checks.timeout = HOUR)),
    ];
    for (kind, plan) in jobs {
        for (plan, what) in with_each_ceiling(&plan) {
            let mut world = World::new(plan, move |job| match job.kind {
                // The default timeout of a gate and a probe is a minute.
                JobKind::Command(_) | JobKind::Check(_) => Act::hangs(),
                JobKind::Gate if job.iteration.0 == 1 => Act::works(secs(50)),
                JobKind::Gate | JobKind::Probe => Act::hangs(),
                JobKind::Session => Act::idles("no_pending_tasks"),
                _ => Act::works(secs(1)),
            });
            let end = world.end();
            assert_ceiling(&end, what);
            assert_eq!(world.elapsed(), 90_000, "{kind:?}");
            assert_eq!(hard_stops(&world), [format!("{what}_CEILING_EXCEEDED")], "{kind:?}");
            assert_eq!(end.failed, 0, "{kind:?}");
        }
    }
}

#[test]
fn checks_do_not_start_after_a_session_that_a_ceiling_ended() {
    for (plan, what) in with_each_ceiling(&checked(&["t"], |_| {})) {
        let mut world = World::new(plan, |_| Act::hangs());
        let end = world.end();
        assert_ceiling(&end, what);
        assert_eq!((world.elapsed(), hard_stops(&world).len()), (90_000, 1));
        assert!(!world.story().contains(&"checks_started".to_owned()));
    }
}

#[test]
fn preparation_before_the_first_iteration_counts() {
    for (mut plan, what) in with_each_ceiling(&graph(1, &[("a", &[])])) {
        plan.nodes[0].settings.worktree = true;
        let mut world = World::new(plan, |_| Act::hangs());
        let end = world.end();
        assert_eq!((world.elapsed(), world.sessions.len()), (90_000, 0));
        match what {
            "RUN" => assert_ceiling(&end, what),
            _ => assert_eq!((end.outcome, end.nodes.failed), (Outcome::Catastrophic, 1)),
        }
    }
}

#[test]
fn a_node_ceiling_ends_that_node_and_a_run_ceiling_ends_the_graph() {
    let slow_check = |job: dogwatch_core::run::job::Job| match job.kind {
        JobKind::Check(_) if job.node.0 == 0 => Act::check_fails(1, "no"),
        _ => Act::works(secs(40)),
    };
    let nodes = graph(2, &[("a", &[]), ("b", &[]), ("c", &["b"])]);
    let [(mut of_node, _), (of_run, _)] = with_each_ceiling(&nodes);
    of_node.nodes[0].settings.max_iterations = Some(50);
    let mut world = World::new(of_node, slow_check);
    let end = world.end();
    assert_eq!((end.outcome, end.nodes.done, end.nodes.failed), (Outcome::Partial, 2, 1), "{end:?}");
    let reason = world.events.iter().find_map(|e| match &e.event {
        Event::NodeTransition { node, reason: Some(reason), .. } if node.as_str() == "a" => {
            Some(reason.clone())
        }
        _ => None,
    });
    assert_eq!(reason.as_deref(), Some("node_ceiling_exceeded"));
    let mut world = World::new(of_run, slow_check);
    assert_ceiling(&world.end(), "RUN");
    assert_eq!(world.elapsed(), 90_000);
}

#[test]
fn a_resumed_run_keeps_its_used_time() {
    for (plan, what) in with_each_ceiling(&plan(|s| s.delay = HOUR)) {
        let mut world = World::new(plan, |_| Act::works(secs(30)));
        world.drive(Drive::Until(secs(40)));
        // The last event is the start of the wait, at 30 s; the time after it is not known to be supervised.
        assert_eq!(world.crash(0, HOUR, false), Ok(true));
        let resumed_at = world.elapsed();
        assert_ceiling(&world.end(), what);
        assert_eq!(world.elapsed() - resumed_at, 60_000);
    }
}

#[test]
fn time_in_which_dogwatch_was_suspended_does_not_count() {
    let stopped = Input::Suspended { lasted: secs(25), unwatched: true };
    let slept = Input::Suspended { lasted: HOUR, unwatched: false };
    for act in [|| Act::works(secs(10)), Act::hangs] {
        for (plan, what) in with_each_ceiling(&plan(|s| s.delay = HOUR)) {
            let mut world =
                World::new(plan, move |_| act()).at(secs(50), stopped.clone()).at(secs(60), slept.clone());
            assert_ceiling(&world.end(), what);
            assert_eq!(world.elapsed(), 115_000);
        }
    }
}
