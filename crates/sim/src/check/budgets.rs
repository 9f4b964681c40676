//! The usage that a budget counts only grows, even across a resume.

use dogwatch_core::record::event::Recorded;
use dogwatch_core::record::view::View;

/// Asserts that counters, used time and the tokens of ended sessions never decrease, not even across a resume. Within a
/// session the agent may correct its own figures.
pub(super) fn only_grow(events: &[Recorded]) {
    let mut view = View::default();
    let mut last = [0; 3];
    for e in events {
        view.apply(e);
        let tokens = view.nodes.iter().map(|node| node.usage.ended.tokens).sum();
        let now = [view.totals().iterations, view.supervised(e.boot_ms).as_millis(), tokens];
        let grew = now.iter().zip(&last).all(|(now, last)| now >= last);
        assert!(grew, "a budget ran backwards at {e:?}: {last:?} -> {now:?}");
        last = now;
    }
}
