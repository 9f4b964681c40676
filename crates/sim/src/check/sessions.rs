//! One session at a time per node.

use dogwatch_core::record::event::{Event, Recorded};
use std::collections::BTreeSet;

#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
pub(super) fn are_one_at_a_time(events: &[Recorded]) {
    let mut open = BTreeSet::new();
    for e in events {
        match &e.event {
            Event::SessionStarted { node, .. } => {
                assert!(open.insert(node.clone()), "two sessions of a node at once: {e:?}")
            }
            Event::SessionEnded(s) => {
                open.remove(&s.node);
            }
            Event::RunResumed(_) => open.clear(),
            _ => {}
        }
    }
}
