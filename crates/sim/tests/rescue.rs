//! After a crash, the work of a lost iteration is in a snapshot before anything can change it.

use dogwatch_core::record::event::{Event, Outcome};
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::Plan;
use dogwatch_core::time::dur::Dur;
use dogwatch_sim::plan::{command, graph, plan};
use dogwatch_sim::{Act, Drive, World};

const MINUTE: Dur = Dur::from_mins(1);
const SECOND: Dur = Dur::from_secs(1);

/// Scripts sessions of a minute, snapshots of ten seconds and one second for everything else.
fn works(job: Job) -> Act {
    match job.kind {
        JobKind::Session => Act::works(MINUTE),
        JobKind::Snapshot => Act::works(Dur::from_secs(10)),
        JobKind::Command(_)
        | JobKind::Gate
        | JobKind::Probe
        | JobKind::Check(_)
        | JobKind::Worktree
        | JobKind::Setup(_)
        | JobKind::Commit => Act::works(SECOND),
    }
}

fn kept(plan: Plan) -> Plan {
    Plan { snapshots: true, ..plan }
}

fn two() -> Plan {
    kept(plan(|s| {
        s.max_iterations = Some(2);
        s.commands = vec![command("c", MINUTE)];
    }))
}

/// Returns the events after the last resume as words.
fn since_resumed(world: &World) -> Vec<String> {
    let story = world.story();
    let at = story.iter().rposition(|word| word.starts_with("run_resumed")).expect("it was resumed");
    story[at + 1..].to_vec()
}

// promise: 15
#[test]
fn a_lost_iteration_is_snapshotted_before_the_next_command_starts() {
    let mut world = World::new(two(), works);
    world.drive(Drive::Until(Dur::from_secs(30)));
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    assert_eq!(world.end().outcome, Outcome::Clean);
    let words = since_resumed(&world);
    let order = ["snapshot_taken 1", "iteration_interrupted supervisor_lost", "iteration_started 2 resumed"];
    assert_eq!(words[..3], order, "{words:#?}");
}

// promise: 15
#[test]
fn a_second_crash_during_the_snapshot_does_not_forget_it() {
    let mut world = World::new(two(), works);
    world.drive(Drive::Until(Dur::from_secs(30)));
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    // The resumed run has only started the snapshot.
    assert!(world.step_once() && world.step_once());
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    assert_eq!(world.end().completed, 2);
    assert_eq!(since_resumed(&world)[0], "snapshot_taken 1");
    let lost = world.events.iter().find_map(|r| match &r.event {
        Event::IterationInterrupted { end, .. } => Some(end.duration_s),
        _ => None,
    });
    assert!(
        lost.is_some_and(|lasted| lasted < MINUTE),
        "the time without a supervisor does not count: {lost:?}"
    );
}

// promise: 15
#[test]
fn no_node_continues_before_the_lost_work_of_all_nodes_is_saved() {
    let slow_last = |job: Job| match job.kind {
        JobKind::Snapshot if job.node.0 == 2 => Act::works(Dur::from_secs(25)),
        _ => works(job),
    };
    let mut plan = kept(graph(3, &[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])]));
    plan.nodes[1].settings.worktree = true;
    let mut world = World::new(plan, slow_last);
    world.drive(Drive::Until(Dur::from_secs(45)));
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    // A wake and a resume request in between do not start anything either.
    world.now(Input::UnpauseAsked);
    assert_eq!(world.end().outcome, Outcome::Clean);
    let words = since_resumed(&world);
    let first_start = words.iter().position(|w| w.starts_with("iteration_started")).expect("an iteration");
    let snapshots = words[..first_start].iter().filter(|w| w.starts_with("snapshot_taken")).count();
    assert_eq!(snapshots, 3, "{words:#?}");
}

#[test]
fn an_iteration_gets_only_one_snapshot() {
    let slow_checks = |job: Job| match job.kind {
        JobKind::Check(_) => Act::works(MINUTE),
        _ => works(job),
    };
    let mut plan = kept(dogwatch_sim::plan::checked(&["check"], |_| {}));
    plan.stop_on_error = false;
    let mut world = World::new(plan, slow_checks);
    // Ten seconds for snapshot 0, a minute of work, ten seconds for snapshot 1, then the check.
    world.drive(Drive::Until(Dur::from_secs(90)));
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    world.end();
    assert_eq!(since_resumed(&world)[0], "iteration_interrupted supervisor_lost");
}

// promise: 15
#[test]
fn a_stop_waits_for_the_snapshot_of_work_and_a_second_one_does_not() {
    // 75 s is during the snapshot after the first session; 5 s is during the first snapshot, before any work.
    for (at, again, taken, over_by) in [(75, None, 2, 81_000), (75, Some(76), 1, 76_000), (5, None, 0, 5_000)]
    {
        let mut world =
            World::new(two(), works).at(Dur::from_secs(at), Input::EndAsked(EndSignal::Terminate));
        if let Some(again) = again {
            world = world.at(Dur::from_secs(again), Input::EndAsked(EndSignal::Terminate));
        }
        let end = world.end();
        assert_eq!((end.outcome, end.exit_code), (Outcome::Interrupted, 143));
        let snapshots = world.story().iter().filter(|w| w.starts_with("snapshot_taken")).count();
        assert_eq!((snapshots, world.elapsed()), (taken, over_by), "asked at {at} and {again:?}");
    }
}

#[test]
fn a_stop_waits_a_bounded_time_for_a_hanging_snapshot() {
    let hangs = |job: Job| match (job.kind, job.iteration.0) {
        (JobKind::Snapshot, 1) => Act::hangs(),
        _ => works(job),
    };
    let mut world = World::new(two(), hangs).at(Dur::from_secs(75), Input::EndAsked(EndSignal::Terminate));
    assert_eq!(world.end().exit_code, 143);
    assert_eq!(world.elapsed(), 71_000 + 30_000);
}

// promise: 15
#[test]
fn a_stop_during_the_rescue_keeps_the_work_and_then_ends() {
    let mut world = World::new(two(), works);
    world.drive(Drive::Until(Dur::from_secs(30)));
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    world.step_once();
    world.now(Input::EndAsked(EndSignal::Terminate));
    assert_eq!(world.end().exit_code, 143);
    let words = since_resumed(&world);
    assert_eq!(words[..2], ["snapshot_taken 1", "iteration_interrupted supervisor_lost"], "{words:#?}");
    assert!(!words.iter().any(|w| w.starts_with("iteration_started")));
}
