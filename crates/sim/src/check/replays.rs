//! A replay of the record comes to the same verdicts.

use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::watch::replay::{JournalReplay, SessionName};
use std::collections::{BTreeMap, BTreeSet};

/// Asserts that a replay under the recorded policy gives the same verdicts.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
pub(super) fn come_to_the_same_verdicts(events: &[Recorded]) {
    let mut replay = JournalReplay::new(None::<fn(&WatchPolicy, ReaderName) -> WatchPolicy>);
    events.iter().for_each(|e| replay.take(e));
    let replayed = replay.finish();
    let differing: Vec<&String> = replayed.iter().flat_map(|session| &session.differing).collect();
    assert!(differing.is_empty(), "{differing:?}");
    // A ceiling of the node or the run also ends jobs without a watch; those are not replayed. A session that lost its
    // supervisor may end in a verdict that never reached the disk.
    let (mut open, mut whole) = (BTreeMap::new(), BTreeSet::new());
    let mut stops = BTreeSet::new();
    for recorded in events {
        match &recorded.event {
            Event::SessionStarted { node, iteration, .. } => {
                open.insert(node.clone(), *iteration);
            }
            Event::SessionEnded(s) => {
                whole.extend(open.remove(&s.node).map(|iteration| (s.node.clone(), iteration)));
            }
            Event::RunResumed(_) => open.clear(),
            Event::HardStop { node, iteration, .. } if open.contains_key(node) => {
                stops.insert((node.clone(), *iteration));
            }
            _ => {}
        }
    }
    stops.retain(|name| whole.contains(name));
    let again: BTreeSet<(NodeName, Iteration)> = replayed
        .iter()
        .filter(|session| session.summary.reason.is_some())
        .filter_map(|session| match &session.summary.session {
            Some(SessionName::Iteration(name)) => Some((name.node.clone(), name.iteration)),
            Some(SessionName::Turn { .. }) | None => None,
        })
        .filter(|name| whole.contains(name))
        .collect();
    assert_eq!(again, stops, "hard stops");
}
