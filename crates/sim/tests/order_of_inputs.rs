//! The order in which the driver passes on what happens at nearly the same time.

use dogwatch_core::record::event::{Event, Recorded, WaitEndedBy};
use dogwatch_core::run::caller::Source;
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::settings::{IdlePolicy, Ttl};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::watch::feed::Stream;
use dogwatch_sim::plan::{graph, plan};
use dogwatch_sim::{Act, Does, Drive, World};

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

/// Returns the position of the first event that this holds for.
fn first(world: &World, what: &str, is_it: impl Fn(&Event) -> bool) -> usize {
    let found = world.events.iter().position(|recorded| is_it(&recorded.event));
    found.unwrap_or_else(|| panic!("no {what}: {:?}", world.story()))
}

// promise: 12
#[test]
fn silence_is_judged_with_changes_of_the_work_tree_that_are_not_recorded_yet() {
    let once = plan(|s| {
        s.max_iterations = Some(1);
        s.watchdog.idle = Limit::At(secs(60));
        s.watchdog.evidence_ttl = Ttl::Fixed(secs(30));
        s.recovery.budget = 0;
    });
    // The second change comes too soon after the first one to be recorded separately.
    let changes = |at: u64| (secs(at), Does::Changes(Some(at)));
    let mut world = World::new(once, move |_| Act { script: vec![changes(55), changes(58)], ..Act::hangs() });
    world.end();
    let stop = |recorded: &Recorded| match &recorded.event {
        Event::HardStop { .. } => Some(recorded.awake_ms.0 - 1_000),
        _ => None,
    };
    let stops: Vec<u64> = world.events.iter().filter_map(stop).collect();
    assert_eq!(stops, [88_000], "30 s after the last change");
}

#[test]
fn a_suspend_is_recorded_before_what_arrived_during_it() {
    let message = Input::MessageReceived { text: "be brief".to_owned(), from: Source::Operator };
    let mut world = World::new(plan(|s| s.max_iterations = Some(1)), |_| Act::works(secs(600)))
        .together()
        .stopped(secs(100), secs(200))
        .at(secs(150), message);
    world.drive(Drive::Until(secs(400)));
    let suspended = first(&world, "suspend", |event| matches!(event, Event::Suspended { .. }));
    let message = first(&world, "message", |event| matches!(event, Event::MessageReceived { .. }));
    assert!(suspended < message, "{:?}", world.story());
}

#[test]
fn output_before_the_report_of_the_start_is_recorded_after_it() {
    let prints = (secs(1), Does::Prints(Stream::Stdout, (*b"hello\n").into()));
    let act = Act { start_report_after: secs(10), script: vec![prints], ..Act::works(secs(30)) };
    let mut world = World::new(plan(|s| s.max_iterations = Some(1)), move |_| act.clone());
    assert_eq!(world.end().completed, 1);
    let started = first(&world, "start", |event| matches!(event, Event::SessionStarted { .. }));
    let early = first(
        &world,
        "early output",
        |event| matches!(event, Event::Observed { seen, .. } if seen.first_ms.0 == 2_000),
    );
    assert!(started < early, "the first output is recorded at {early}, the start at {started}");
}

#[test]
fn a_wake_before_the_report_of_the_start_is_remembered_for_the_next_wait() {
    let idle = plan(|s| {
        s.idle = Some(IdlePolicy::default());
        s.max_iterations = Some(2);
    });
    let mut world =
        World::new(idle, |_| Act { start_report_after: secs(4), ..Act::idles("no_pending_tasks") })
            .at(secs(2), Input::WakeAsked(WaitEndedBy::Api));
    world.drive(Drive::Until(secs(20)));
    assert_eq!(world.sessions, [0, 12_000], "the agent may have missed it, so it is called again at once");
}

// promise: 3
#[test]
fn a_job_that_waits_to_start_when_the_run_is_stopped_never_starts() {
    let nodes = ["a", "b", "c", "d", "e"].map(|name| (name, [].as_slice()));
    let mut world = World::new(graph(5, &nodes), |_| Act::hangs())
        .at(Dur::from_millis(15), Input::EndAsked(EndSignal::Terminate));
    world.start_takes = Dur::from_millis(10);
    assert_eq!(world.end().exit_code, 143);
    assert_eq!(world.sessions, [10, 20], "the signal arrives while the second one starts");
}
