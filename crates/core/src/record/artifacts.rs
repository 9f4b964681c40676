//! Files that agents saved through the agent channel.

use crate::record::ids::Iteration;
use std::collections::VecDeque;

/// The most artifacts listed per node; older ones are dropped from the list.
pub const MAX_NAMED: usize = 100;

/// A file that an agent saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The iteration whose directory holds the file.
    pub iteration: Iteration,
    /// The file's name.
    pub name: String,
    /// The file's size in bytes.
    pub bytes: u64,
}

/// The artifacts of one node, oldest first. A newer artifact replaces an older one with the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Artifacts {
    saved: VecDeque<Saved>,
}

impl Artifacts {
    /// Adds an artifact. The oldest one is dropped if the list is full.
    pub fn add(&mut self, iteration: Iteration, name: &str, bytes: u64) {
        self.saved.retain(|saved| saved.name != name);
        if self.saved.len() == MAX_NAMED {
            self.saved.pop_front();
        }
        self.saved.push_back(Saved { iteration, name: name.to_owned(), bytes });
    }

    /// Returns the artifacts, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Saved> {
        self.saved.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_of_each_name_is_listed_up_to_the_limit() {
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
