//! What is remembered of the files that count, to tell a change from a touch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::digest::look::{Facts, Hash128};

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

#[derive(Debug)]
pub(super) struct Known {
    files: HashMap<PathBuf, Seen>,
    max: usize,
    /// Some did not fit.
    crowded: bool,
    /// One number over all that did not fit, as the running and as the last full survey saw them.
    crowd: u64,
    last_crowd: u64,
}

impl Known {
    pub(super) fn new(max: usize) -> Known {
        Known { files: HashMap::new(), max, crowded: false, crowd: 0, last_crowd: 0 }
    }

    pub(super) fn get(&self, path: &Path) -> Option<&Seen> {
        self.files.get(path)
    }

    /// Remembers a file, and says whether it is another than before. What was not remembered is new.
    pub(super) fn put(&mut self, path: &Path, seen: Seen) -> bool {
        if let Some(before) = self.files.get_mut(path) {
            let same = before.content.is_some() && before.content == seen.content;
            *before = seen;
            return !same;
        }
        if self.files.len() < self.max {
            self.files.insert(path.to_path_buf(), seen);
        } else {
            self.crowded = true;
        }
        true
    }

    /// Something happened to it and nobody looked: whatever comes next counts.
    pub(super) fn doubt(&mut self, path: &Path, turn: u64) {
        self.put(path, Seen { stamp: None, content: None, turn });
    }

    /// Forgets a file that is gone, and says whether that is a change: a file that came and went is none.
    pub(super) fn remove(&mut self, path: &Path) -> bool {
        self.files.remove(path).is_some() || self.crowded
    }

    /// Forgets all below a directory that was moved away; gives one of them.
    pub(super) fn remove_below(&mut self, dir: &Path) -> Option<PathBuf> {
        let gone = |path: &PathBuf| path.starts_with(dir);
        let first = self.files.keys().find(|path| gone(path)).cloned();
        if first.is_some() {
            self.files.retain(|path, _| !gone(path));
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
            seen.get_mut().turn = turn;
        }
    }

    pub(super) fn begin_survey(&mut self) {
        self.crowd = 0;
        self.crowded = false;
    }

    /// A full survey is over. Gives one file that it did not see again, and whether the crowd is another.
    pub(super) fn end_survey(&mut self, turn: u64) -> (Option<PathBuf>, bool) {
        let gone = self.files.iter().find(|(_, seen)| seen.turn < turn).map(|(path, _)| path.clone());
        if gone.is_some() {
            self.files.retain(|_, seen| seen.turn >= turn);
        }
        let other_crowd = std::mem::replace(&mut self.last_crowd, self.crowd) != self.crowd;
        (gone, other_crowd)
    }
}
