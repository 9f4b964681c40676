//! Files that an agent saved through the agent channel, as the record names them.

use crate::record::ids::Iteration;
use std::collections::VecDeque;

/// The number of artifacts of a node that are named; the oldest are dropped.
pub const MAX_NAMED: usize = 100;

/// One saved file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The iteration whose directory holds it.
    pub iteration: Iteration,
    pub name: String,
    pub bytes: u64,
}

/// The artifacts of one node, oldest first. Of each name only the newest counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Artifacts {
    saved: VecDeque<Saved>,
}

impl Artifacts {
    pub fn add(&mut self, iteration: Iteration, name: &str, bytes: u64) {
        self.saved.retain(|saved| saved.name != name);
        if self.saved.len() == MAX_NAMED {
            self.saved.pop_front();
        }
        self.saved.push_back(Saved { iteration, name: name.to_owned(), bytes });
    }

    pub fn iter(&self) -> impl Iterator<Item = &Saved> {
        self.saved.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_each_name_is_kept_and_only_so_many() {
        let mut all = Artifacts::default();
        all.add(Iteration(1), "plan.md", 10);
        all.add(Iteration(1), "notes.md", 20);
        all.add(Iteration(2), "plan.md", 30);
        let shown: Vec<_> = all.iter().map(|s| (s.iteration.0, s.name.as_str(), s.bytes)).collect();
        assert_eq!(shown, [(1, "notes.md", 20), (2, "plan.md", 30)]);
        for n in 0..MAX_NAMED {
            all.add(Iteration(3), &n.to_string(), 1);
        }
        assert_eq!(all.iter().count(), MAX_NAMED);
        assert!(all.iter().all(|saved| saved.iteration == Iteration(3)));
    }
}
