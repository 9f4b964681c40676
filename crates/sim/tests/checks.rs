//! Checks in virtual time: how they decide, what counts as an attempt, and the context of the next prompt.

use dogwatch_core::Run;
use dogwatch_core::record::event::{Event, NodeAttempt, Outcome, Pin};
use dogwatch_core::record::view::View;
use dogwatch_core::run::decision::Decision;
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::{IdlePolicy, Tampered};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_sim::plan::{checked, resumed};
use dogwatch_sim::{Act, World};

const MINUTE: Dur = Dur::from_mins(1);

fn is_check(job: Job) -> bool {
    matches!(job.kind, JobKind::Check(_))
}

fn attempts(world: &World) -> Vec<NodeAttempt> {
    let attempt = |e: &Event| match e {
        Event::NodeAttempt(a) => Some(a.clone()),
        _ => None,
    };
    world.events.iter().filter_map(|r| attempt(&r.event)).collect()
}

/// Scripts a check that fails before this iteration.
fn passes_at(iteration: u64) -> impl FnMut(Job) -> Act {
    move |job| match job.kind {
        JobKind::Check(_) if job.iteration.0 < iteration => Act::check_fails(1, "1 test failed"),
        JobKind::Check(_) => Act::exits(0, Dur::from_secs(1)),
        _ => Act::works(MINUTE),
    }
}

// promise: 18
#[test]
fn a_flaky_node_fails_waits_two_seconds_and_passes() {
    let mut world = World::new(checked(&["pnpm test"], |_| {}), passes_at(2));
    let end = world.end();
    assert_eq!(
        world.story()[1..],
        [
            "checks_pinned 0",
            "iteration_started 1 first",
            "prompt_assembled",
            "session_started",
            "session_ended by itself",
            "checks_started",
            "node_attempt not_converged",
            "iteration_completed",
            "wait_started backoff 2s",
            "wait_ended timer",
            "iteration_started 2 check_failed",
            "prompt_assembled",
            "session_started",
            "session_ended by itself",
            "checks_started",
            "node_attempt converged",
            "iteration_completed",
            "run_ended clean_with_flake 0",
        ]
    );
    assert_eq!((end.outcome, end.flake_retries, end.exit_code), (Outcome::CleanWithFlake, 1, 0));
    assert!(end.verified);
    let attempts = attempts(&world);
    assert_eq!((attempts[0].backoff_s, attempts[0].converged), (None, false));
    assert_eq!((attempts[1].backoff_s, attempts[1].converged), (Some(Dur::from_secs(2)), true));
    assert_eq!(attempts[0].results[0].tail.as_deref(), Some("1 test failed"));
    assert_eq!(attempts[1].results[0].tail, None);
    assert_eq!(world.prompt_contexts[1].failed[0].tail.as_deref(), Some("1 test failed"));
    assert_eq!((world.prompt_contexts[1].attempt, world.prompt_contexts[1].max_attempts), (2, Some(6)));
}

#[test]
fn a_loop_whose_checks_pass_at_once_is_clean_and_verified() {
    let mut world = World::new(checked(&["true"], |_| {}), passes_at(1));
    let end = world.end();
    assert_eq!((end.outcome, end.flake_retries, end.verified, end.exit_code), (Outcome::Clean, 0, true, 0));
    assert_eq!(end.reason, "1 of 1 checks pass after 1 attempt");
}

// promise: 18
#[test]
fn only_the_checks_end_a_run_and_not_an_agent_that_claims_done() {
    let mut world = World::new(checked(&["false"], |_| {}), |job| match is_check(job) {
        true => Act::check_fails(1, "no"),
        false => Act::works(MINUTE).saying("all done, everything passes"),
    });
    let end = world.end();
    assert_eq!((world.sessions.len(), end.outcome, end.exit_code), (6, Outcome::Catastrophic, 1));
    assert!(!end.verified);
    assert_eq!(end.reason, "6 of 6 attempts used, and `false` exits 1");
    assert_eq!(world.waits(), [2_000, 4_000, 8_000, 16_000, 32_000]);
}

#[test]
fn the_agents_exit_code_is_recorded_and_decides_nothing() {
    let mut world = World::new(checked(&["true"], |_| {}), |job| match is_check(job) {
        true => Act::exits(0, Dur::ZERO),
        false => Act::exits(3, MINUTE).saying("it broke"),
    });
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, end.failed, end.verified), (Outcome::Clean, 0, 1, true));
}

#[test]
fn all_checks_run_in_their_order_also_after_one_that_failed() {
    let mut world =
        World::new(checked(&["a", "b", "c"], |s| s.max_iterations = Some(1)), |job| match job.kind {
            JobKind::Check(1) => Act::check_fails(2, "b says no"),
            JobKind::Check(_) => Act::exits(0, Dur::from_secs(3)),
            _ => Act::works(MINUTE),
        });
    let end = world.end();
    let attempt = &attempts(&world)[0];
    let ran: Vec<(&str, i32)> = attempt.results.iter().map(|r| (r.cmd.as_str(), r.rc)).collect();
    assert_eq!(ran, [("a", 0), ("b", 2), ("c", 0)]);
    assert_eq!(end.reason, "1 of 1 attempts used, and `b` exits 2");
}

#[test]
fn a_check_that_hangs_is_ended_at_its_limit_and_has_failed() {
    let mut world = World::new(
        checked(&["sleep inf"], |s| {
            s.max_iterations = Some(1);
            s.checks.timeout = Dur::from_secs(30);
        }),
        |job| if is_check(job) { Act::hangs().stubborn() } else { Act::works(MINUTE) },
    );
    world.end();
    let result = &attempts(&world)[0].results[0];
    assert_eq!((result.rc, result.timed_out), (124, true));
    // A minute of work, thirty seconds, and one grace between TERM and KILL.
    assert_eq!(world.elapsed(), 100_000);
}

#[test]
fn a_check_that_cannot_be_started_has_failed() {
    let mut world = World::new(checked(&["x"], |s| s.max_iterations = Some(1)), |job| {
        if is_check(job) { Act::absent() } else { Act::works(MINUTE) }
    });
    world.end();
    let result = &attempts(&world)[0].results[0];
    assert_eq!((result.rc, result.tail.as_deref()), (127, Some("no such program")));
}

#[test]
fn a_recheck_on_the_same_tree_that_passes_is_flaky_and_adds_nothing() {
    let mut runs = 0;
    let mut world = World::new(checked(&["t"], |s| s.checks.recheck = 1), move |job| {
        runs += u32::from(is_check(job));
        match is_check(job) {
            true if runs == 1 => Act::check_fails(7, "network"),
            true => Act::exits(0, Dur::from_secs(1)),
            false => Act::works(MINUTE),
        }
    });
    let end = world.end();
    assert_eq!((end.outcome, end.flake_retries), (Outcome::Clean, 0));
    let result = &attempts(&world)[0].results[0];
    assert_eq!((result.rc, result.first_rc, result.flaky), (0, Some(7), true));
}

#[test]
fn idle_and_limited_iterations_are_not_attempts_but_their_checks_may_pass() {
    let idle = |s: &mut dogwatch_core::settings::Settings| s.idle = Some(IdlePolicy::default());
    let mut world = World::new(checked(&["t"], idle), |job| match (is_check(job), job.iteration.0) {
        (true, n) if n < 4 => Act::check_fails(1, "not yet"),
        (true, _) => Act::exits(0, Dur::ZERO),
        (false, 1) => Act::idles("waiting_for_review"),
        (false, 2) => Act::limited(Some(Wall(1_794_773_733_000 + 600_000))),
        (false, _) => Act::idles("waiting_for_review"),
    });
    let end = world.end();
    let attempts = attempts(&world);
    assert!(attempts[..3].iter().all(|a| a.uncounted && a.backoff_s.is_none()), "{attempts:#?}");
    // No failure counted, so passing now is not flaky.
    assert_eq!((end.outcome, end.flake_retries, end.exit_code), (Outcome::Clean, 0, 0));
    assert_eq!(world.run().view().nodes[0].attempts.count, 1);
}

#[test]
fn a_loop_that_sleeps_with_failing_checks_does_not_end_clean() {
    let idle = |s: &mut dogwatch_core::settings::Settings| s.idle = Some(IdlePolicy::default());
    let mut world = World::new(checked(&["t"], idle), |job| match is_check(job) {
        true => Act::check_fails(1, "no"),
        false => Act::idles("no_pending_tasks"),
    });
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, end.verified), (Outcome::Idle, 1, false));
}

#[test]
fn without_an_idle_block_an_idle_marker_is_a_normal_attempt() {
    let mut world = World::new(checked(&["t"], |s| s.max_iterations = Some(2)), |job| match is_check(job) {
        true => Act::check_fails(1, "no"),
        false => Act::idles("no_pending_tasks"),
    });
    assert_eq!((world.end().outcome, world.sessions.len()), (Outcome::Catastrophic, 2));
}

fn pin(path: &str, sha: &str) -> Pin {
    Pin { path: path.to_owned(), sha256: Some(sha.to_owned()) }
}

#[test]
fn a_changed_pinned_file_invalidates_passing_checks() {
    let mut world = World::new(checked(&["./t"], |s| s.max_iterations = Some(2)), |_| Act::works(MINUTE))
        .pinning(|i| Ok(vec![pin("t", if i.0 == 1 { "changed" } else { "as it was" })]));
    let end = world.end();
    assert!(world.story().contains(&"check_tampered t".to_owned()));
    assert_eq!(world.prompt_contexts[1].tampered, ["t"]);
    // The file was restored, so the results of the checks count.
    assert_eq!((end.outcome, world.sessions.len()), (Outcome::CleanWithFlake, 2));
}

#[test]
fn changed_pinned_files_are_one_failed_check() {
    let mut world = World::new(checked(&["./t"], |s| s.max_iterations = Some(1)), |_| Act::works(MINUTE))
        .pinning(|i| {
            Ok(["a", "b"].map(|file| pin(file, if i.0 == 1 { "changed" } else { "as it was" })).into())
        });
    world.end();
    let results = &world.run().view().nodes[0].attempts.last;
    let [one] = results.as_slice() else { panic!("{results:?}") };
    let tail = "changed: a\nchanged: b\nno check counts until these pinned files have their original content";
    assert_eq!((one.cmd.as_str(), one.rc, one.tail.as_deref()), ("pinned files", 1, Some(tail)));
}

#[test]
fn tampering_can_be_configured_as_a_warning() {
    let warn = |s: &mut dogwatch_core::settings::Settings| s.checks.tampered = Tampered::Warn;
    let mut world = World::new(checked(&["./t"], warn), |_| Act::works(MINUTE))
        .pinning(|i| Ok(vec![pin("t", if i.0 == 1 { "changed" } else { "as it was" })]));
    assert_eq!((world.end().outcome, world.sessions.len()), (Outcome::Clean, 1));
    assert!(world.story().contains(&"check_tampered t".to_owned()));
}

#[test]
fn a_run_with_unpinnable_checks_does_not_start() {
    let mut world = World::new(checked(&["./t"], |_| {}), |_| Act::works(MINUTE))
        .pinning(|_| Err("more than 10000 files".to_owned()));
    let end = world.end();
    assert_eq!((world.sessions.len(), end.exit_code), (0, 1));
    assert_eq!(end.reason, "the checks cannot be pinned: more than 10000 files");
}

#[test]
fn a_stop_during_the_checks_ends_them_and_counts_no_attempt() {
    let mut world = World::new(checked(&["t"], |_| {}), |job| match is_check(job) {
        true => Act::hangs(),
        false => Act::works(MINUTE),
    })
    .at(Dur::from_secs(70), Input::EndAsked(EndSignal::Terminate));
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Interrupted, 143));
    assert!(attempts(&world).is_empty());
}

#[test]
fn a_crash_between_the_checks_and_the_end_keeps_the_result() {
    let mut world = World::new(checked(&["t"], |_| {}), passes_at(1));
    world.end();
    let at = world.events.iter().position(|r| matches!(r.event, Event::NodeAttempt(_))).expect("there");
    let view = View::fold(&world.events[..=at]);
    let mut run = Run::resume(view, None, resumed(), false).expect("it had not ended");
    let decisions = run.step(world.events[at].moment().plus(MINUTE), Input::Began);
    assert!(!decisions.iter().any(|d| matches!(d, Decision::Start(_))), "nothing is started again");
    let end = run.view().ended.as_ref().expect("ended");
    assert_eq!((end.outcome, end.verified, end.exit_code), (Outcome::Clean, true, 0));
}

#[test]
fn the_reason_of_an_end_names_the_first_failing_checks_and_counts_the_rest() {
    let names: Vec<String> = (0..50).map(|n| format!("check {n} {}", "x".repeat(500))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (checks, rest) in [(50, "and 45 more checks fail"), (6, "and 1 more check fails"), (5, "exits 1")] {
        let plan = checked(&names[..checks], |s| s.max_iterations = Some(1));
        let mut world =
            World::new(
                plan,
                |job| if is_check(job) { Act::check_fails(1, "no") } else { Act::works(MINUTE) },
            );
        let reason = world.end().reason;
        assert!(reason.starts_with("1 of 1 attempts used, and `check 0 xxx"), "{reason}");
        assert!(reason.ends_with(rest) && reason.len() < 700, "{reason}");
    }
}
