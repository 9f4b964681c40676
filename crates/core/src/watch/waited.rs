//! The time spent waiting on children while no channel was fresh (row 2).
//!
//! Progress arrives in records per channel, so a record of one channel may arrive after a later record of another. The
//! last spans are therefore kept, and time that turns out to have been fresh is removed from them.

use crate::time::dur::Dur;
use crate::time::moment::Awake;
use std::collections::VecDeque;

/// The most spans from which late records can still remove time; older ones are only summed.
const MAX_SPANS: usize = 16;

/// The time spent waiting on children.
#[derive(Clone, Debug, Default)]
pub(super) struct Waited {
    /// The sum of the closed spans.
    closed: Dur,
    /// The last spans, in order of time and disjoint.
    spans: VecDeque<(Awake, Awake)>,
    /// The moment up to which waiting was added.
    pub upto: Awake,
}

impl Waited {
    pub fn since(started: Awake) -> Waited {
        Waited { upto: started, ..Waited::default() }
    }

    pub fn sum(&self) -> Dur {
        self.spans.iter().fold(self.closed, |sum, (from, to)| sum.saturating_add(to.since(*from)))
    }

    /// Adds a span of waiting, which must come after all earlier spans.
    pub fn add(&mut self, from: Awake, to: Awake) {
        if to <= from {
            return;
        }
        match self.spans.back_mut() {
            Some((_, end)) if *end == from => *end = to,
            Some(_) | None => self.spans.push_back((from, to)),
        }
        self.close_old();
    }

    /// Removes a span in which a channel turned out to be fresh.
    pub fn take_out(&mut self, from: Awake, to: Awake) {
        if self.spans.back().is_none_or(|(_, end)| *end <= from) {
            return;
        }
        let left =
            self.spans.drain(..).flat_map(|(begin, end)| [(begin, end.min(from)), (begin.max(to), end)]);
        self.spans = left.filter(|(begin, end)| begin < end).collect();
        self.close_old();
    }

    fn close_old(&mut self) {
        while self.spans.len() > MAX_SPANS {
            if let Some((from, to)) = self.spans.pop_front() {
                self.closed = self.closed.saturating_add(to.since(from));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(waited: &mut Waited, from: u64, to: u64) {
        waited.add(Awake(from), Awake(to));
    }

    #[test]
    fn a_fresh_span_is_removed_wherever_it_is() {
        let cases: [(u64, u64, u64); 7] =
            [(0, 5, 40), (0, 15, 35), (12, 15, 37), (15, 35, 30), (10, 30, 30), (0, 99, 0), (20, 30, 40)];
        for (from, to, left) in cases {
            let mut waited = Waited::default();
            span(&mut waited, 10, 20);
            span(&mut waited, 30, 50);
            span(&mut waited, 50, 60);
            waited.take_out(Awake(from), Awake(to));
            assert_eq!(waited.sum().as_millis(), left, "{from} to {to}");
        }
    }

    #[test]
    fn spans_beyond_the_limit_are_closed_and_still_count() {
        let mut waited = Waited::default();
        let many = MAX_SPANS as u64 + 3;
        for n in 0..many {
            span(&mut waited, n * 10, n * 10 + 1);
        }
        assert_eq!((waited.spans.len(), waited.sum().as_millis()), (MAX_SPANS, many));
        waited.take_out(Awake(0), Awake(many * 10));
        assert_eq!(waited.sum().as_millis(), 3, "closed spans stay");
    }

    #[test]
    fn splitting_a_span_respects_the_limit() {
        let mut waited = Waited::default();
        for n in 0..MAX_SPANS as u64 {
            span(&mut waited, n * 10, n * 10 + 5);
        }
        waited.take_out(Awake(2), Awake(3));
        assert_eq!((waited.spans.len(), waited.sum().as_millis()), (MAX_SPANS, MAX_SPANS as u64 * 5 - 1));
    }
}
