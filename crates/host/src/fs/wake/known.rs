//! Remembers the files that count, to distinguish a change from a touch, and keeps a digest over all of them. The
//! digest is a sum over the files, so an update costs the same however many files there are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::fs::digest::look::{Facts, Hash128};

/// One file as it was last seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileState {
    /// The stamp of its facts; `None` while a later change might leave the same ones.
    pub(super) stamp: Option<u64>,
    /// `None` if the file was not read. Then every write is a change.
    pub(super) content: Option<Hash128>,
    /// The number of the survey that saw it last.
    pub(super) turn: u64,
}

/// A remembered file with its contribution to the digest.
#[derive(Debug)]
struct File {
    seen: FileState,
    part: u64,
}

/// Limits the digest to integers that every JSON parser represents exactly.
const DIGEST_BITS: u64 = (1 << 53) - 1;

#[derive(Debug, Default)]
pub(super) struct Known {
    files: HashMap<PathBuf, File>,
    /// The sum of all contributions.
    sum: u64,
    /// A counter that makes the contribution of unread content unique.
    unread: u64,
    /// Whether a full survey has finished, so that the sum is meaningful.
    whole: bool,
    max: usize,
    /// Whether some files did not fit.
    overflowed: bool,
    /// A hash over all files that did not fit, from the current and from the last full survey.
    overflow: u64,
    last_overflow: u64,
}

impl Known {
    pub(super) fn new(max: usize) -> Known {
        Known { max, ..Known::default() }
    }

    pub(super) fn get(&self, path: &Path) -> Option<&FileState> {
        self.files.get(path).map(|file| &file.seen)
    }

    /// Returns the digest of the tree: equal for equal contents. Unread content always makes a new digest. `None`
    /// before the first full survey has finished.
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

    /// Changes the digest to a new value, because a file that is not remembered changed.
    fn unknown(&mut self) {
        let part = self.part(Path::new(""), None);
        self.sum = self.sum.wrapping_add(part);
    }

    /// Remembers a file. Returns whether it differs from before; a file that was not remembered does.
    pub(super) fn put(&mut self, path: &Path, seen: FileState) -> bool {
        let full = self.is_full_for(path);
        if full {
            self.overflowed = true;
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

    /// Notes an event for a file that was not read. The next read counts as a change.
    pub(super) fn doubt(&mut self, path: &Path, turn: u64) {
        self.put(path, FileState { stamp: None, content: None, turn });
    }

    /// Forgets a removed file. Returns whether that is a change; for a file that came and went it is not.
    pub(super) fn remove(&mut self, path: &Path) -> bool {
        match self.files.remove(path) {
            Some(file) => {
                self.sum = self.sum.wrapping_sub(file.part);
                true
            }
            None => {
                if self.overflowed {
                    self.unknown();
                }
                self.overflowed
            }
        }
    }

    /// Forgets the files that match the predicate.
    fn forget(&mut self, gone: impl Fn(&Path, &FileState) -> bool) {
        let sum = &mut self.sum;
        self.files.retain(|path, file| {
            let gone = gone(path, &file.seen);
            if gone {
                *sum = sum.wrapping_sub(file.part);
            }
            !gone
        });
    }

    /// Forgets everything below a directory that was moved away. Returns one of the paths.
    pub(super) fn remove_below(&mut self, dir: &Path) -> Option<PathBuf> {
        let first = self.files.keys().find(|path| path.starts_with(dir)).cloned();
        if first.is_some() {
            self.forget(|path, _| path.starts_with(dir));
        }
        if self.overflowed {
            self.unknown();
        }
        first.or_else(|| self.overflowed.then(|| dir.to_path_buf()))
    }

    /// Returns whether the memory is full for this file, so that it is only counted in the overflow hash.
    pub(super) fn is_full_for(&self, path: &Path) -> bool {
        self.files.len() >= self.max && !self.files.contains_key(path)
    }

    pub(super) fn add_to_overflow(&mut self, path: &Path, facts: &Facts) {
        let mut hasher = DefaultHasher::new();
        (path, facts).hash(&mut hasher);
        self.overflow = self.overflow.wrapping_add(hasher.finish());
        self.overflowed = true;
    }

    /// Marks a file as seen by the survey of this turn.
    pub(super) fn mark(&mut self, path: &Path, turn: u64) {
        if let Entry::Occupied(mut seen) = self.files.entry(path.to_path_buf()) {
            seen.get_mut().seen.turn = turn;
        }
    }

    pub(super) fn begin_survey(&mut self) {
        self.overflow = 0;
        self.overflowed = false;
    }

    /// Ends a full survey. Returns one file that was not seen again, and whether the overflow hash changed.
    pub(super) fn end_survey(&mut self, turn: u64) -> (Option<PathBuf>, bool) {
        let gone = self.files.iter().find(|(_, file)| file.seen.turn < turn).map(|(path, _)| path.clone());
        if gone.is_some() {
            self.forget(|_, seen| seen.turn < turn);
        }
        self.whole = true;
        let overflow_changed = std::mem::replace(&mut self.last_overflow, self.overflow) != self.overflow;
        if overflow_changed {
            self.unknown();
        }
        (gone, overflow_changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(content: u8) -> FileState {
        FileState { stamp: None, content: Some([content; 16]), turn: 1 }
    }

    #[test]
    fn equal_contents_have_the_same_digest_and_unread_contents_a_new_one() {
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
        assert_ne!(known.digest(), first, "there is one more file");
        known.remove(b);
        assert_eq!(known.digest(), first);
        known.doubt(a, 1);
        let doubted = known.digest();
        known.doubt(a, 1);
        assert_ne!(known.digest(), doubted, "each doubt gives a new digest");
        known.put(a, seen(1));
        assert_eq!(known.digest(), first);
    }

    #[test]
    fn a_change_of_a_file_not_remembered_gives_a_new_digest() {
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
