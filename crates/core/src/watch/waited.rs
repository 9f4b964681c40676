//! Time spent waiting on children while no channel was fresh (row 2).
//!
//! Progress is told in records, channel by channel, so that what one channel saw may become known after a later record
//! of another: the last spans are kept open, and what turns out to have been fresh is taken out of them again.

use crate::time::dur::Dur;
use crate::time::moment::Awake;
use std::collections::VecDeque;

/// Spans that are still open to what is told late; older ones are only a sum.
const MAX_SPANS: usize = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Waited {
    /// Of spans that are closed.
    closed: Dur,
    /// The last spans, in order of time, apart from each other.
    spans: VecDeque<(Awake, Awake)>,
    /// Up to when it has been added up.
    pub upto: Awake,
}

impl Waited {
    pub fn since(started: Awake) -> Waited {
        Waited { upto: started, ..Waited::default() }
    }

    pub fn sum(&self) -> Dur {
        self.spans.iter().fold(self.closed, |sum, (from, to)| sum.saturating_add(to.since(*from)))
    }

    /// Waiting went on from then to then, which is after all that was added before.
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

    /// A channel was fresh from then to then, as is known by now.
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
    fn what_was_fresh_is_taken_out_wherever_it_lies() {
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
        assert_eq!(waited.sum().as_millis(), 3, "what is closed stays");
    }

    #[test]
    fn a_span_that_is_cut_in_two_keeps_to_the_limit() {
        let mut waited = Waited::default();
        for n in 0..MAX_SPANS as u64 {
            span(&mut waited, n * 10, n * 10 + 5);
        }
        waited.take_out(Awake(2), Awake(3));
        assert_eq!((waited.spans.len(), waited.sum().as_millis()), (MAX_SPANS, MAX_SPANS as u64 * 5 - 1));
    }
}
