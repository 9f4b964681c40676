//! The record has no gap, and time does not run backwards in it.

use dogwatch_core::record::event::{Event, Recorded};

pub(super) fn has_no_gaps(events: &[Recorded]) {
    for (i, e) in events.iter().enumerate() {
        assert_eq!(e.seq, i as u64 + 1, "the sequence has a gap at {e:?}");
    }
    // The clocks may restart before a resume.
    for pair in events.windows(2).filter(|pair| !matches!(pair[1].event, Event::RunResumed(_))) {
        assert!(pair[0].awake_ms <= pair[1].awake_ms, "time runs backwards at {:?}", pair[1]);
        assert!(pair[0].boot_ms <= pair[1].boot_ms, "time runs backwards at {:?}", pair[1]);
    }
}

pub(super) fn only_a_resume_follows_an_end(events: &[Recorded]) {
    for pair in events.windows(2) {
        let ended = matches!(pair[0].event, Event::RunEnded(_));
        assert!(!ended || matches!(pair[1].event, Event::RunResumed(_)), "{:?} follows the end", pair[1]);
    }
}
