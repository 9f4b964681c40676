//! Iterations do not overlap, end once, and never share a number.

use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::view::View;
use std::collections::BTreeMap;

pub(super) fn end_once(events: &[Recorded], live: &View) {
    let mut open = BTreeMap::new();
    for e in events {
        if let Event::IterationStarted { node, iteration, .. } = &e.event {
            let before = open.insert(node.clone(), *iteration);
            assert_eq!(before, None, "an iteration began inside another: {e:?}");
        }
        if let Some((_, end)) = e.event.ending() {
            let was = open.remove(&end.node);
            assert_eq!(was, Some(end.iteration), "an iteration ended that was not open: {e:?}");
        }
    }
    // A run whose operator does not wait for an unkillable process leaves its iteration to the next resume.
    let unkillable = |e: &Recorded| matches!(&e.event, Event::Trouble { kind, .. } if kind == "tree_stands");
    let over = live.is_over() && !events.iter().any(unkillable);
    assert!(open.is_empty() || !over, "the run ended with iterations {open:?} open");
}

/// Asserts that iteration numbers are never reused.
pub(super) fn have_unique_numbers(events: &[Recorded]) {
    let mut last = BTreeMap::new();
    for e in events {
        if let Event::IterationStarted { node, iteration, .. } = &e.event {
            let before = last.insert(node.clone(), iteration.0).unwrap_or(0);
            assert_eq!(iteration.0, before + 1, "iteration numbers jump: {e:?}");
        }
    }
}
