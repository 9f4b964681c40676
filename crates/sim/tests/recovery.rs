//! Every row of the recovery table in virtual time: stuck, error loop, crash, limits, authentication, a missing
//! program, failing checks, ceilings.

use dogwatch_core::record::event::{Event, Observation, Outcome, RecoveryPlanned};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::run::input::{Input, NodeInput};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::{AgentPlan, ReaderName, Settings};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::{Awake, Wall};
use dogwatch_core::watch::health::HealthIssue;
use dogwatch_core::watch::{Channel, Fact};
use dogwatch_sim::plan::{checked, plan, session_limit};
use dogwatch_sim::{Act, Drive, World};

const MINUTE: Dur = Dur::from_mins(1);
const EPOCH: i64 = 1_794_773_733_000;

fn plans(world: &World) -> Vec<RecoveryPlanned> {
    let plan = |e: &Event| match e {
        Event::RecoveryPlanned(p) => Some(p.clone()),
        _ => None,
    };
    world.events.iter().filter_map(|r| plan(&r.event)).collect()
}

fn words(world: &World) -> Vec<String> {
    plans(world).iter().map(|p| format!("{} {}", p.class, p.action)).collect()
}

fn another(s: &mut Settings) {
    s.recovery.agents = vec![AgentPlan { agent: vec!["other".to_owned()], reader: ReaderName::Plain }];
}

/// Returns the agent of the chain that each session used.
fn agents(world: &World) -> Vec<u32> {
    let agent = |e: &Event| match e {
        Event::SessionStarted { agent, .. } => Some(*agent),
        _ => None,
    };
    world.events.iter().filter_map(|r| agent(&r.event)).collect()
}

/// Changes the work tree halfway through sessions of a minute, with waits of 2, 4 and 8 s in between.
fn working_from_time_to_time(mut world: World) -> World {
    for (iteration, at) in [(1, 30), (2, 92), (3, 156), (4, 224)] {
        let job = Job { node: NodeIx(0), iteration: Iteration(iteration), kind: JobKind::Session };
        let seen = Observation::single(Channel::Workspace, Awake(1_000 + at * 1_000));
        world = world.at(Dur::from_secs(at), Input::Job(job, NodeInput::Observed(seen)));
    }
    world
}

#[test]
fn a_stuck_session_is_retried_with_a_diagnosis() {
    let mut world =
        World::new(checked(&["t"], session_limit(MINUTE)), |job| match (job.kind, job.iteration.0) {
            (JobKind::Session, 1) => Act::hangs(),
            (JobKind::Check(_), 1) => Act::check_fails(1, "no"),
            _ => Act::works(Dur::from_secs(5)),
        });
    let end = world.end();
    assert_eq!(words(&world), ["stuck retry"]);
    assert_eq!(end.outcome, Outcome::CleanWithFlake);
    let diagnosis = world.prompt_contexts[1].diagnosis.clone().expect("a diagnosis");
    assert_eq!(diagnosis.reason, "SESSION_CEILING_EXCEEDED");
    assert!(diagnosis.message.starts_with("Total timeout"), "{}", diagnosis.message);
    assert_eq!((diagnosis.attempt, diagnosis.budget, diagnosis.evidence.len()), (1, 3, 4));
    assert!(world.story().contains(&"wait_started recovery 2s".to_owned()));
    assert!(world.story().contains(&"iteration_started 2 recovery".to_owned()));
    assert_eq!(world.prompt_contexts[0].diagnosis, None);
}

#[test]
fn two_equal_hard_stops_without_progress_end_the_run() {
    let mut world = World::new(plan(session_limit(MINUTE)), |_| Act::hangs());
    let end = world.end();
    assert_eq!(words(&world), ["stuck retry", "stuck stop"]);
    assert_eq!((end.outcome, end.exit_code, world.sessions.len()), (Outcome::ErrorLimit, 1, 2));
    assert_eq!(end.reason, "2 hard stops alike (SESSION_CEILING_EXCEEDED) without progress between them");
}

#[test]
fn with_progress_in_between_the_budget_decides_and_partial_work_is_kept() {
    let world = World::new(
        plan(|s| {
            session_limit(MINUTE)(s);
            s.recovery.budget = 3;
        }),
        |_| Act::hangs(),
    );
    let mut world = working_from_time_to_time(world);
    let end = world.end();
    assert_eq!(words(&world), ["stuck retry", "stuck retry", "stuck retry", "stuck stop"]);
    assert_eq!((end.outcome, end.exit_code, world.sessions.len()), (Outcome::BudgetExceeded, 3, 4));
    assert!(end.reason.starts_with("recovery.budget: 3 of 3 used, then Total timeout"), "{}", end.reason);
    assert_eq!(world.partials, ["loop.partial.md"]);
}

#[test]
fn a_completed_iteration_refills_the_budget() {
    let mut world = World::new(
        plan(|s| {
            session_limit(MINUTE)(s);
            s.budget.iterations = Some(12);
            s.recovery.budget = 1;
        }),
        |job| if job.iteration.0 % 2 == 1 { Act::hangs() } else { Act::works(Dur::from_secs(5)) },
    );
    let end = world.end();
    assert_eq!((world.sessions.len(), end.reason.as_str()), (12, "budget.iterations: 12 of 12 used"));
}

#[test]
fn a_loop_with_an_iteration_limit_and_without_checks_continues() {
    let mut world = World::new(
        plan(|s| {
            session_limit(MINUTE)(s);
            s.max_iterations = Some(7);
        }),
        |_| Act::hangs(),
    );
    let end = world.end();
    assert_eq!((world.sessions.len(), end.outcome), (7, Outcome::Catastrophic));
    assert!(plans(&world).is_empty());
}

#[test]
fn a_stuck_agent_is_replaced_by_the_next_in_the_chain() {
    let mut world = World::new(
        checked(&["t"], |s| {
            session_limit(MINUTE)(s);
            another(s);
        }),
        |job| match (job.kind, job.iteration.0) {
            (JobKind::Session, 1 | 2) => Act::hangs(),
            (JobKind::Check(_), 1 | 2) => Act::check_fails(1, "no"),
            _ => Act::works(Dur::from_secs(5)),
        },
    );
    let end = world.end();
    assert_eq!(words(&world), ["stuck retry", "stuck next_agent"]);
    assert_eq!((agents(&world), end.outcome), (vec![0, 0, 1], Outcome::CleanWithFlake));
}

#[test]
fn an_error_loop_is_a_separate_class() {
    let mut world = World::new(plan(|s| s.watchdog.errors = Some(2)), |_| Act::hangs());
    for n in 1..=2u64 {
        let job = Job { node: NodeIx(0), iteration: Iteration(1), kind: JobKind::Session };
        let fact = Fact::Error { fingerprint: "no such file".to_owned() };
        world = world.at(Dur::from_secs(n), Input::Job(job, NodeInput::Noted(fact)));
    }
    world.drive(dogwatch_sim::Drive::Until(MINUTE));
    assert_eq!(words(&world), ["error_loop retry"]);
}

#[test]
fn an_agent_at_its_limit_cools_down_while_the_next_one_works() {
    let resets = Wall(EPOCH + 3_600_000);
    let mut world = World::new(
        checked(&["t"], |s| {
            another(s);
            s.max_iterations = Some(200);
        }),
        move |job| match (job.kind, job.iteration.0) {
            (JobKind::Session, 1) => Act::limited(Some(resets)),
            (JobKind::Check(_), n) if n < 90 => Act::check_fails(1, "no"),
            _ => Act::works(Dur::from_secs(5)),
        },
    );
    world.end();
    assert_eq!(words(&world), ["rate_limit next_agent"]);
    let plan = &plans(&world)[0];
    assert_eq!((plan.agent.as_deref(), plan.until), (Some("agent"), Some(Wall(resets.0 + 15_000))));
    let agents = agents(&world);
    assert_eq!(agents[..3], [0, 1, 1]);
    // After its cooldown, the first agent works again.
    assert_eq!(agents.last(), Some(&0));
    assert_eq!(
        world.sessions[1], 2_000,
        "a second of work, one of checks, and the next agent started at once"
    );
}

#[test]
fn a_limit_without_another_agent_is_waited_for() {
    let mut world = World::new(plan(|s| s.max_iterations = Some(1)), |job| match job.iteration.0 {
        1 => Act::limited(Some(Wall(EPOCH + 600_000))),
        _ => Act::works(MINUTE),
    });
    assert_eq!(world.end().outcome, Outcome::Clean);
    assert!(plans(&world).is_empty());
    assert_eq!(world.sessions[1], 615_000);
}

#[test]
fn an_overloaded_service_is_left_for_another_when_its_retries_are_used() {
    let mut world = World::new(
        plan(|s| {
            another(s);
            s.limits.overload_retries = 2;
            s.max_iterations = Some(1);
        }),
        |job| if job.iteration.0 <= 3 { Act::limited(None) } else { Act::works(MINUTE) },
    );
    assert_eq!(world.end().outcome, Outcome::Clean);
    assert_eq!((words(&world), agents(&world)), (vec!["overload next_agent".to_owned()], vec![0, 0, 0, 1]));
}

/// Scripts two sessions that report a refusal and then print nothing for two minutes, their limit.
fn refused_in_silence(set: impl FnOnce(&mut Settings)) -> World {
    let plan = checked(&["t"], |s| {
        s.reader = ReaderName::Codex;
        s.watchdog.idle = Limit::At(Dur::from_secs(120));
        set(s);
    });
    let mut world = World::new(plan, |job| match (job.kind, job.iteration.0) {
        (JobKind::Session, 1 | 2) => Act::hangs(),
        (JobKind::Check(_), 1 | 2) => Act::check_fails(1, "no"),
        _ => Act::works(Dur::from_secs(5)),
    });
    for (iteration, at) in [(1, 5), (2, 140)] {
        let job = Job { node: NodeIx(0), iteration: Iteration(iteration), kind: JobKind::Session };
        let issue = HealthIssue::Retrying { status: Some(429), delay: None };
        world = world.at(Dur::from_secs(at), Input::Job(job, NodeInput::HealthIssueFound(issue)));
    }
    world
}

#[test]
fn a_session_that_waits_silently_for_a_refusing_service_is_not_stuck() {
    let mut world = refused_in_silence(|_| {});
    let end = world.end();
    let story = world.story();
    let waits: Vec<_> = story.iter().filter(|e| e.starts_with("wait_started")).collect();
    assert_eq!(waits, ["wait_started rate_limit 15s", "wait_started rate_limit 30s"]);
    assert_eq!(end.outcome, Outcome::CleanWithFlake);
    assert!(plans(&world).is_empty(), "the recovery budget is unused");
    let because = |e: &Event| match e {
        Event::IterationTimedOut(end) => Some(end.because.clone()),
        _ => None,
    };
    let reason = world.events.iter().find_map(|r| because(&r.event));
    let wanted = "ended by the watchdog while it waited for a service that refused (429)";
    assert_eq!(reason.as_deref(), Some(wanted));
}

#[test]
fn repeated_silent_refusals_end_the_run_by_their_own_limit() {
    let mut world = refused_in_silence(|s| s.limits.overload_retries = 1);
    let end = world.end();
    assert_eq!((end.outcome, world.sessions.len()), (Outcome::ErrorLimit, 2));
    assert_eq!(end.reason, "the service refused 2 times in a row (limits.overload_retries: 1)");
}

#[test]
fn an_unauthenticated_agent_is_replaced_or_ends_the_run() {
    let script =
        |job: Job| if job.iteration.0 == 1 { Act::unknown_to_the_service() } else { Act::works(MINUTE) };
    let mut world = World::new(
        plan(|s| {
            another(s);
            s.max_iterations = Some(2);
        }),
        script,
    );
    assert_eq!(world.end().outcome, Outcome::Clean);
    assert_eq!((words(&world), agents(&world)), (vec!["authentication next_agent".to_owned()], vec![0, 1]));
    let mut alone = World::new(plan(|_| {}), script);
    assert_eq!((alone.end().outcome, alone.sessions.len()), (Outcome::AuthFailed, 1));
}

#[test]
fn a_missing_program_is_replaced_at_once() {
    let mut world = World::new(
        plan(|s| {
            another(s);
            s.max_iterations = Some(2);
        }),
        |job| if job.iteration.0 == 1 { Act::absent() } else { Act::works(MINUTE) },
    );
    assert_eq!(world.end().outcome, Outcome::Clean);
    assert_eq!((words(&world), agents(&world)), (vec!["missing_program next_agent".to_owned()], vec![1]));
}

#[test]
fn a_crashing_agent_is_replaced_when_its_circuit_opens() {
    let mut world = World::new(
        plan(|s| {
            another(s);
            s.errors.max = 3;
            s.max_iterations = Some(4);
        }),
        |job| if job.iteration.0 <= 3 { Act::fails() } else { Act::works(MINUTE) },
    );
    assert_eq!(world.end().outcome, Outcome::Clean);
    assert_eq!((words(&world), agents(&world)), (vec!["crash next_agent".to_owned()], vec![0, 0, 0, 1]));
}

#[test]
fn a_node_without_agents_left_has_failed() {
    let mut world = World::new(
        plan(|s| {
            another(s);
            s.errors.max = 2;
        }),
        |_| Act::fails(),
    );
    let end = world.end();
    assert_eq!(words(&world), ["crash next_agent", "crash stop"]);
    assert_eq!((end.outcome, agents(&world)), (Outcome::ErrorLimit, vec![0, 0, 1, 1]));
}

#[test]
fn a_ceiling_of_the_run_or_the_node_ends_it() {
    for (of_run, reason) in [(true, "RUN"), (false, "NODE")] {
        let mut world = World::new(
            plan(|s| {
                let limit = Limit::At(Dur::from_secs(90));
                if of_run { s.watchdog.run = limit } else { s.watchdog.node = limit }
            }),
            |job| if job.iteration.0 == 1 { Act::works(MINUTE) } else { Act::hangs() },
        );
        let end = world.end();
        assert_eq!((end.outcome, end.exit_code, world.sessions.len()), (Outcome::Ceiling, 3, 2));
        assert_eq!(world.elapsed(), 90_000, "at its limit");
        let stop = world.events.iter().find_map(|r| match &r.event {
            Event::HardStop { reason, recoverable, .. } => Some((reason.to_string(), *recoverable)),
            _ => None,
        });
        assert_eq!(stop, Some((format!("{reason}_CEILING_EXCEEDED"), false)));
        assert_eq!(words(&world), ["configuration stop"]);
    }
}

#[test]
fn the_agents_own_session_is_resumed_if_the_policy_allows_it() {
    for (resume, class_is_stuck) in [(true, true), (false, true)] {
        let mut world = World::new(
            checked(&["t"], |s| {
                session_limit(MINUTE)(s);
                s.reader = ReaderName::Claude;
                s.recovery.resume = resume;
            }),
            |job| match (job.kind, job.iteration.0) {
                (JobKind::Session, 1) => Act::hangs().named("abc"),
                (JobKind::Check(_), 1) => Act::check_fails(1, "no"),
                _ => Act::works(Dur::from_secs(5)),
            },
        );
        world.end();
        let resumed: Vec<Option<String>> = world
            .events
            .iter()
            .filter_map(|r| match &r.event {
                Event::SessionStarted { resumes, .. } => Some(resumes.clone()),
                _ => None,
            })
            .collect();
        let wanted = (resume && class_is_stuck).then(|| "abc".to_owned());
        assert_eq!(resumed, [None, wanted]);
    }
}

#[test]
fn a_resumed_session_keeps_its_charged_usage() {
    let hung = |session: &str| {
        let mut act = Act::hangs().named(session);
        act.report.totals.tokens = Some(1_050);
        act
    };
    let mut world = World::new(
        checked(&["t"], |s| {
            session_limit(MINUTE)(s);
            s.reader = ReaderName::Claude;
            s.recovery.resume = true;
        }),
        move |job| match (job.kind, job.iteration.0) {
            (JobKind::Session, 1) => hung("abc"),
            (JobKind::Check(_), 1) => Act::check_fails(1, "no"),
            _ => Act::works(Dur::from_secs(5)),
        },
    );
    world.drive(Drive::Until(Dur::from_secs(66)));
    let plan = world.run().session(NodeIx(0));
    assert_eq!((plan.resumes, plan.charged.tokens), (Some("abc"), Some(1_050)));
    let node = world.run().view().node(NodeIx(0));
    assert_eq!(node.charged("another").tokens, None);
}

#[test]
fn cooldowns_are_kept_in_the_journal_and_survive_a_kill() {
    let resets = Wall(EPOCH + 3_600_000);
    let mut world = World::new(
        plan(|s| {
            another(s);
            s.max_iterations = Some(2);
        }),
        move |job| if job.iteration.0 == 1 { Act::limited(Some(resets)) } else { Act::works(MINUTE) },
    );
    while !world.story().iter().any(|e| e.starts_with("recovery_planned")) {
        assert!(world.step_once());
    }
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    world.end();
    assert!(agents(&world)[1..].iter().all(|a| *a == 1), "{:?}", agents(&world));
    assert_eq!(plans(&world).len(), 1, "the recovery is planned once");
}

// promise: 7
#[test]
fn a_session_of_a_fallback_agent_is_replayed_with_its_own_reader() {
    let plan = plan(|s| {
        s.reader = ReaderName::Claude;
        s.max_iterations = Some(2);
        another(s);
    });
    // Only a structured agent has a limit for its first line. The checkers replay every session.
    let mut world = World::new(plan, |job| if job.iteration.0 == 1 { Act::absent() } else { Act::hangs() });
    world.end();
    assert!(world.story().contains(&"hard_stop NO_OUTPUT_DEADLINE".to_owned()), "{:#?}", world.story());
}
