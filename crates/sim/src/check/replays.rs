//! A replay of the record comes to the same verdicts.

use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::watch::replay::JournalReplay;
use std::collections::BTreeSet;

/// Asserts that a replay under the recorded policy gives the same verdicts.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
pub(super) fn come_to_the_same_verdicts(events: &[Recorded]) {
    let mut replay = JournalReplay::new(None::<fn(&WatchPolicy, ReaderName) -> WatchPolicy>);
    events.iter().for_each(|e| replay.take(e));
    let replayed = replay.finish();
    let differing: Vec<&String> = replayed.iter().flat_map(|session| &session.differing).collect();
    assert!(differing.is_empty(), "{differing:?}");
    // A ceiling of the node or the run also ends jobs without a watch; those are not replayed.
    let mut sessions = BTreeSet::new();
    let in_session = |e: &&Recorded| match &e.event {
        Event::SessionStarted { node, .. } => !sessions.insert(node.clone()),
        Event::SessionEnded(s) => !sessions.remove(&s.node),
        Event::RunResumed(_) => {
            sessions.clear();
            false
        }
        Event::HardStop { node, .. } => sessions.contains(node),
        _ => false,
    };
    let stops = events.iter().filter(in_session).count();
    let again = replayed.iter().filter(|session| session.summary.reason.is_some()).count();
    assert_eq!(again, stops, "hard stops");
}
