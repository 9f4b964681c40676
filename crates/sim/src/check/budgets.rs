//! The usage that a budget counts only grows, even across a resume, and is that of all sessions that are over.

use dogwatch_core::record::event::Recorded;
use dogwatch_core::record::sessions::Sessions;
use dogwatch_core::record::view::{Used, View};

/// Asserts that counters, used time and the tokens of ended sessions never decrease, not even across a resume. Within a
/// session the agent may correct its own figures. The view counts the sessions that [`Sessions`] finds, so that the budgets of a
/// run, of a day and of a fleet's account agree.
pub(super) fn only_grow(events: &[Recorded]) {
    let mut view = View::default();
    let (mut sessions, mut over) = (Sessions::default(), Used::default());
    let mut last = [0; 3];
    for e in events {
        view.apply(e);
        over = sessions.apply(e).iter().map(|session| Used::of(&session.usage)).fold(over, Used::plus);
        let ended = view.nodes.iter().map(|node| node.usage.ended).fold(Used::default(), Used::plus);
        assert_eq!(figures(over), figures(ended), "the sessions that are over used something else at {e:?}");
        let tokens = view.nodes.iter().map(|node| node.usage.ended.tokens).sum();
        let now = [view.totals().iterations, view.supervised(e.boot_ms).as_millis(), tokens];
        let grew = now.iter().zip(&last).all(|(now, last)| now >= last);
        assert!(grew, "a budget ran backwards at {e:?}: {last:?} -> {now:?}");
        last = now;
    }
}

/// Returns the figures whose sum does not depend on the order.
fn figures(used: Used) -> [u64; 3] {
    [used.tokens, used.unknown_tokens, used.unknown_cost]
}
