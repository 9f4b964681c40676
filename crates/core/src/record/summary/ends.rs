//! A list that keeps only its first and last entries.

use std::collections::VecDeque;

/// The number of first entries that are kept.
pub const MAX_FIRST: usize = 50;
/// The number of last entries that are kept.
pub const MAX_LAST: usize = 250;

/// The first and the last entries that were pushed, and the number of dropped entries between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Ends<T> {
    first: Vec<T>,
    last: VecDeque<T>,
    cut: u64,
}

impl<T> Default for Ends<T> {
    fn default() -> Ends<T> {
        Ends { first: Vec::new(), last: VecDeque::new(), cut: 0 }
    }
}

impl<T> Ends<T> {
    /// Appends an entry. The oldest of the last entries is dropped if the list is full.
    pub fn push(&mut self, item: T) {
        if self.first.len() < MAX_FIRST {
            self.first.push(item);
            return;
        }
        if self.last.len() == MAX_LAST {
            self.last.pop_front();
            self.cut += 1;
        }
        self.last.push_back(item);
    }

    /// Returns the kept entries in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.first.iter().chain(&self.last)
    }

    /// Returns the newest entry.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.last.back_mut().or(self.first.last_mut())
    }

    /// Returns the first entries, the number of dropped entries, and the last entries.
    pub fn parts(&self) -> (&[T], u64, impl Iterator<Item = &T>) {
        (&self.first, self.cut, self.last.iter())
    }

    /// Returns the number of entries that were pushed.
    pub fn count(&self) -> u64 {
        (self.first.len() + self.last.len()) as u64 + self.cut
    }

    /// Returns whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_kept_and_dropped_entries_are_counted() {
        let mut ends = Ends::default();
        assert!(ends.is_empty());
        for n in 0..MAX_FIRST + MAX_LAST {
            ends.push(n);
        }
        assert_eq!(ends.parts().1, 0);
        assert!(ends.iter().copied().eq(0..MAX_FIRST + MAX_LAST));
        ends.push(MAX_FIRST + MAX_LAST);
        let (first, cut, last) = ends.parts();
        assert_eq!((first.len(), cut), (MAX_FIRST, 1));
        assert!(last.copied().eq(MAX_FIRST + 1..=MAX_FIRST + MAX_LAST));
        assert_eq!(ends.count(), (MAX_FIRST + MAX_LAST + 1) as u64);
        assert_eq!(ends.last_mut(), Some(&mut (MAX_FIRST + MAX_LAST)));
    }
}
