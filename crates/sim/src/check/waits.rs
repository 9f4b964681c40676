//! A wait lasts as long as announced.

use dogwatch_core::record::event::{Event, Recorded, WaitEndedBy};
use std::collections::BTreeMap;

/// Asserts that a wait that its timer ended was not too short and, if it can be `exact`, exactly as long as
/// announced.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
pub(super) fn last_as_long_as_they_say(events: &[Recorded], exact: bool) {
    let mut open = BTreeMap::new();
    for e in events {
        match &e.event {
            Event::WaitStarted { node, delay_s, .. } => {
                open.insert(node.clone(), delay_s.map(|d| e.boot_ms.plus(d)));
            }
            Event::WaitEnded { node, by: WaitEndedBy::Timer } => {
                let until = open.remove(node).flatten().expect("a wait with an end is open");
                assert!(until <= e.boot_ms, "a wait was too short: {e:?}");
                assert!(!exact || until == e.boot_ms, "a wait was too long: {e:?}");
            }
            Event::WaitEnded { node, .. } => {
                open.remove(node);
            }
            Event::RunResumed(_) => open.clear(),
            _ => {}
        }
    }
}
