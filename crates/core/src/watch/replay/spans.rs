//! Finds the suspensions of a timeline in advance.
//!
//! A timeline reports a suspension at its end, so lines within the span come before the line that reports it. They must
//! be judged with the deadlines already moved.

use crate::time::moment::Awake;
use std::collections::VecDeque;

/// The most suspensions of a timeline that are found in advance. Later ones take effect at their own lines.
pub const MAX_SPANS: usize = 100_000;

/// The suspensions of a timeline that have not been reported yet.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    waiting: VecDeque<Span>,
    /// Spans that were applied ahead of the lines that report them.
    applied: usize,
    last_end: Awake,
    full: bool,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: Awake,
    until: Awake,
    for_ms: u64,
}

impl Spans {
    /// Adds a suspension in the order of the file. Where two overlap, the later one begins at the end of the other.
    pub fn add(&mut self, until: Awake, for_ms: u64) {
        self.full |= self.waiting.len() >= MAX_SPANS;
        if !self.full {
            let from = Awake(until.0.saturating_sub(for_ms)).max(self.last_end);
            self.last_end = until;
            self.waiting.push_back(Span { from, until, for_ms });
        }
    }

    /// Returns the end and the length of a suspension that started before this line and is not applied yet.
    pub fn begun_before(&mut self, at: Awake) -> Option<(Awake, u64)> {
        let span = self.waiting.front().copied().filter(|span| span.from < at)?;
        self.waiting.pop_front();
        self.applied += 1;
        Some((span.until, span.for_ms))
    }

    /// Returns whether the suspension that the next such line reports was already applied.
    pub fn reported(&mut self) -> bool {
        if self.applied > 0 {
            self.applied -= 1;
            return true;
        }
        self.waiting.pop_front();
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_applied_before_the_first_line_within_it() {
        let mut spans = Spans::default();
        spans.add(Awake(100), 50);
        assert_eq!(spans.begun_before(Awake(50)), None, "the span has not begun");
        assert_eq!(spans.begun_before(Awake(51)), Some((Awake(100), 50)));
        assert_eq!(spans.begun_before(Awake(99)), None, "it is applied once");
        assert!(spans.reported());
    }

    #[test]
    fn a_span_without_lines_takes_effect_at_its_own_line() {
        let mut spans = Spans::default();
        spans.add(Awake(100), 50);
        spans.add(Awake(200), 50);
        assert!(!spans.reported());
        assert_eq!(spans.begun_before(Awake(180)), Some((Awake(200), 50)));
        assert!(spans.reported());
    }

    #[test]
    fn overlapping_spans_follow_each_other() {
        let mut spans = Spans::default();
        spans.add(Awake(100), 50);
        spans.add(Awake(120), 100);
        assert_eq!(spans.begun_before(Awake(60)), Some((Awake(100), 50)));
        assert_eq!(spans.begun_before(Awake(90)), None);
        assert!(spans.reported());
        assert_eq!(spans.begun_before(Awake(101)), Some((Awake(120), 100)));
    }

    #[test]
    fn spans_beyond_the_limit_are_not_applied_in_advance() {
        let mut spans = Spans::default();
        (1..=MAX_SPANS as u64 + 1).for_each(|n| spans.add(Awake(n * 10), 5));
        let ahead = std::iter::from_fn(|| spans.begun_before(Awake(u64::MAX))).count();
        assert_eq!(ahead, MAX_SPANS);
        assert!((0..MAX_SPANS).all(|_| spans.reported()) && !spans.reported());
    }
}
