//! A disk that fails for a moment in virtual time: the record stays whole, the run continues, and nothing starts meanwhile.

use dogwatch_core::record::event::Outcome;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::feed::Stream;
use dogwatch_sim::machine::DiskFaults;
use dogwatch_sim::plan::{graph, plan};
use dogwatch_sim::{Act, Does, Drive, World};

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

/// Runs two sessions of 20 s, with these faults from 10 s on. Crashes and resumes afterwards, which compares the journal
/// with the events that were shown.
fn survives(faults: DiskFaults) {
    let act = |_| {
        let line = |at| (secs(at), Does::Prints(Stream::Stdout, (*b"a line\n").into()));
        Act { script: vec![line(1), line(8)], ..Act::works(secs(20)) }
    };
    let mut world = World::new(plan(|s| s.max_iterations = Some(3)), act);
    world.drive(Drive::Until(secs(10)));
    world.disk.borrow_mut().faults = faults;
    world.drive(Drive::Until(secs(35)));
    assert_eq!(world.disk.borrow().faults, DiskFaults::default(), "every fault happened");
    let story = world.story();
    assert!(story.contains(&"trouble record_failed".to_owned()), "{story:?}");
    assert!(story.contains(&"iteration_started 2 next".to_owned()), "{story:?}");
    assert_eq!(world.sessions, [0, 25_000], "withheld until the record is retried after 5 s");
    assert_eq!(world.crash(0, secs(60), false), Ok(true));
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Clean, 0), "{faults:?}: {}", end.reason);
}

// promise: 5
#[test]
fn half_a_line_is_cut_off_and_the_run_continues() {
    survives(DiskFaults { writes: 1, ..DiskFaults::default() });
    survives(DiskFaults { writes: 1, truncates: 1, ..DiskFaults::default() });
}

// promise: 5
#[test]
fn lines_whose_sync_failed_are_written_again_and_the_run_continues() {
    survives(DiskFaults { syncs: 1, ..DiskFaults::default() });
}

// promise: 10
#[test]
fn no_session_starts_while_the_prompt_of_another_cannot_be_written() {
    let mut world = World::new(graph(2, &[("a", &[]), ("b", &[])]), |_| Act::works(secs(10)));
    world.disk.borrow_mut().faults.prompts = 1;
    let end = world.end();
    assert_eq!((end.outcome, end.completed), (Outcome::Clean, 2));
    assert_eq!(world.sessions, [5_000, 5_000], "both wait until the record is retried");
}
