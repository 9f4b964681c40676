//! What is remembered of the files that count, to tell a change from a touch, and one number over all of it: the state of
//! the tree. It is a sum over the files, so that a change costs the same however many files there are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::fs::digest::look::{Facts, Hash128};

/// One file as it was last seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Of its facts; None while a later change might leave the same ones.
    pub(super) stamp: Option<u64>,
    /// None when it was not read: then every write is a change.
    pub(super) content: Option<Hash128>,
    /// The survey that saw it last.
    pub(super) turn: u64,
}

/// A remembered file with its part of the tree's state.
#[derive(Debug)]
struct File {
    seen: Seen,
    part: u64,
}

/// A digest fits into a number that every reader of JSON knows.
const DIGEST_BITS: u64 = (1 << 53) - 1;

#[derive(Debug)]
pub(super) struct Known {
    files: HashMap<PathBuf, File>,
    /// The sum of all parts.
    sum: u64,
    /// Makes a part that was never there before, for content that nobody has read.
    unread: u64,
    /// A full survey has seen everything, so that the sum means something.
    whole: bool,
    max: usize,
    /// Some did not fit.
    crowded: bool,
    /// One number over all that did not fit, as the running and as the last full survey saw them.
    crowd: u64,
    last_crowd: u64,
}

impl Known {
    pub(super) fn new(max: usize) -> Known {
        Known {
            files: HashMap::new(),
            sum: 0,
            unread: 0,
            whole: false,
            max,
            crowded: false,
            crowd: 0,
            last_crowd: 0,
        }
    }

    pub(super) fn get(&self, path: &Path) -> Option<&Seen> {
        self.files.get(path).map(|file| &file.seen)
    }

    /// The state of the tree: equal for equal contents, as far as they were read; content that was not read makes it
    /// a new one. None before the first full survey.
    pub(super) fn digest(&self) -> Option<u64> {
        self.whole.then_some(self.sum & DIGEST_BITS)
    }

    fn part(&mut self, path: &Path, content: Option<Hash128>) -> u64 {
        let mut hasher = DefaultHasher::new();
        match content {
            Some(content) => (path, content).hash(&mut hasher),
            None => {
                self.unread += 1;
                (path, self.unread).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Something changed that is not remembered: the tree is in a state of its own.
    fn unknown(&mut self) {
        let part = self.part(Path::new(""), None);
        self.sum = self.sum.wrapping_add(part);
    }

    /// Remembers a file, and says whether it is another than before. What was not remembered is new.
    pub(super) fn put(&mut self, path: &Path, seen: Seen) -> bool {
        let full = self.is_full_for(path);
        if full {
            self.crowded = true;
            self.unknown();
            return true;
        }
        let part = self.part(path, seen.content);
        self.sum = self.sum.wrapping_add(part);
        let Some(before) = self.files.get_mut(path) else {
            self.files.insert(path.to_path_buf(), File { seen, part });
            return true;
        };
        let same = before.seen.content.is_some() && before.seen.content == seen.content;
        self.sum = self.sum.wrapping_sub(before.part);
        *before = File { seen, part };
        !same
    }

    /// Something happened to it and nobody looked: whatever comes next counts.
    pub(super) fn doubt(&mut self, path: &Path, turn: u64) {
        self.put(path, Seen { stamp: None, content: None, turn });
    }

    /// Forgets a file that is gone, and says whether that is a change: a file that came and went is none.
    pub(super) fn remove(&mut self, path: &Path) -> bool {
        match self.files.remove(path) {
            Some(file) => {
                self.sum = self.sum.wrapping_sub(file.part);
                true
            }
            None => {
                if self.crowded {
                    self.unknown();
                }
                self.crowded
            }
        }
    }

    /// Forgets the files for which this holds.
    fn forget(&mut self, gone: impl Fn(&Path, &Seen) -> bool) {
        let sum = &mut self.sum;
        self.files.retain(|path, file| {
            let gone = gone(path, &file.seen);
            if gone {
                *sum = sum.wrapping_sub(file.part);
            }
            !gone
        });
    }

    /// Forgets all below a directory that was moved away; gives one of them.
    pub(super) fn remove_below(&mut self, dir: &Path) -> Option<PathBuf> {
        let first = self.files.keys().find(|path| path.starts_with(dir)).cloned();
        if first.is_some() {
            self.forget(|path, _| path.starts_with(dir));
        }
        if self.crowded {
            self.unknown();
        }
        first.or_else(|| self.crowded.then(|| dir.to_path_buf()))
    }

    /// True when nothing more is remembered, so that this file belongs to the crowd.
    pub(super) fn is_full_for(&self, path: &Path) -> bool {
        self.files.len() >= self.max && !self.files.contains_key(path)
    }

    pub(super) fn add_to_crowd(&mut self, path: &Path, facts: &Facts) {
        let mut hasher = DefaultHasher::new();
        (path, facts).hash(&mut hasher);
        self.crowd = self.crowd.wrapping_add(hasher.finish());
        self.crowded = true;
    }

    /// Still there, by a survey of this turn.
    pub(super) fn mark(&mut self, path: &Path, turn: u64) {
        if let Entry::Occupied(mut seen) = self.files.entry(path.to_path_buf()) {
            seen.get_mut().seen.turn = turn;
        }
    }

    pub(super) fn begin_survey(&mut self) {
        self.crowd = 0;
        self.crowded = false;
    }

    /// A full survey is over. Gives one file that it did not see again, and whether the crowd is another.
    pub(super) fn end_survey(&mut self, turn: u64) -> (Option<PathBuf>, bool) {
        let gone = self.files.iter().find(|(_, file)| file.seen.turn < turn).map(|(path, _)| path.clone());
        if gone.is_some() {
            self.forget(|_, seen| seen.turn < turn);
        }
        self.whole = true;
        let other_crowd = std::mem::replace(&mut self.last_crowd, self.crowd) != self.crowd;
        if other_crowd {
            self.unknown();
        }
        (gone, other_crowd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(content: u8) -> Seen {
        Seen { stamp: None, content: Some([content; 16]), turn: 1 }
    }

    #[test]
    fn the_state_comes_back_with_the_contents_and_not_with_what_nobody_read() {
        let mut known = Known::new(10);
        let (a, b) = (Path::new("a"), Path::new("b"));
        known.put(a, seen(1));
        assert_eq!(known.digest(), None, "before the first survey is over");
        known.end_survey(1);
        let first = known.digest();
        assert!(first.is_some());
        known.put(a, seen(2));
        assert_ne!(known.digest(), first);
        known.put(b, seen(1));
        known.put(a, seen(1));
        assert_ne!(known.digest(), first, "there is one more");
        known.remove(b);
        assert_eq!(known.digest(), first);
        known.doubt(a, 1);
        let doubted = known.digest();
        known.doubt(a, 1);
        assert_ne!(known.digest(), doubted, "each time another");
        known.put(a, seen(1));
        assert_eq!(known.digest(), first);
    }

    #[test]
    fn a_change_of_what_is_not_remembered_is_a_new_state() {
        let mut known = Known::new(1);
        known.put(Path::new("a"), seen(1));
        known.end_survey(1);
        let first = known.digest();
        known.put(Path::new("b"), seen(1));
        let second = known.digest();
        known.put(Path::new("b"), seen(1));
        assert!(first != second && second != known.digest());
    }
}
