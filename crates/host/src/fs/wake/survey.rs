//! Surveys: walk the directories that may contain matches, set watches and examine every file that counts.
//!
//! In each directory the watch is set before the listing is read, so that no change in between is lost.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};

use super::known::FileState;
use super::watcher::{Changes, TreeWatcher};
use crate::fs::digest::ignored::Rules;
use crate::fs::digest::look::{Facts, Kind};

/// How to treat a file found by a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// The first survey: the file existed before, unless it changed after the watch was requested.
    First,
    /// A repeated survey: compare every file with what is remembered.
    Again,
    /// A new directory: files that are not remembered came with it.
    Came,
}

impl<C: Changes> TreeWatcher<C> {
    /// Surveys everything: at the start, after an overflow, when a root or the ignore rules have changed, and on
    /// each scan. A file that differs from what is remembered, or is gone, is a change.
    pub(super) fn survey_all(&mut self) {
        let mode = if self.turn == 0 { Look::First } else { Look::Again };
        self.turn += 1;
        self.surveyed = 0;
        self.cut = false;
        self.watches.short = !self.watches.has_fd();
        self.scope.read_rules();
        self.known.begin_survey();
        self.anchors = self.scope.anchors().iter().map(|anchor| nearest(anchor)).collect();
        self.anchors.dedup();
        for anchor in self.anchors.clone() {
            if let Some(rules) = self.scope.enter(&anchor, &Rules::default()) {
                self.survey(anchor, rules, mode);
            }
        }
        // An incomplete survey does not know which files are gone.
        if self.cut || self.changes.stopped() {
            return;
        }
        self.watches.drop_older(self.turn);
        let (gone, overflow_changed) = self.known.end_survey(self.turn);
        let root = overflow_changed.then(|| self.scope.root.clone());
        if let Some(path) = gone.or(root).filter(|_| mode != Look::First) {
            self.changed(&path);
        }
    }

    /// Surveys a directory that was just created or moved here.
    pub(super) fn survey_new(&mut self, dir: PathBuf, rules: Rules) {
        self.surveyed = 0;
        self.survey(dir, rules, Look::Came);
    }

    fn survey(&mut self, dir: PathBuf, rules: Rules, mode: Look) {
        let mut todo = vec![(dir, rules)];
        while let Some((dir, rules)) = todo.pop() {
            if self.surveyed > self.bounds.surveyed || self.changes.stopped() {
                return;
            }
            self.survey_dir(&dir, &rules, mode, &mut todo);
        }
    }

    fn survey_dir(&mut self, path: &Path, rules: &Rules, mode: Look, todo: &mut Vec<(PathBuf, Rules)>) {
        let follow = self.scope.follows(path);
        self.watches.add(path, rules, follow, self.turn);
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !follow);
        // The directory cannot be read, so nothing in it is visible.
        let Ok(listing) = openat(CWD, path, flags, Mode::empty()).and_then(Dir::new) else { return };
        for entry in listing.map_while(Result::ok) {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.surveyed += 1;
            if self.surveyed > self.bounds.surveyed {
                self.cut = true;
                return;
            }
            let child = path.join(name);
            if self.is_dir(&child, entry.file_type()) {
                todo.extend(self.scope.enter(&child, rules).map(|rules| (child, rules)));
            } else if self.scope.counts(&child, rules) {
                self.survey_file(&child, mode);
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum belongs to another crate and may gain variants"
    )]
    fn is_dir(&self, path: &Path, listed: FileType) -> bool {
        match listed {
            FileType::Directory => true,
            FileType::Symlink => self.is_followed_dir(path),
            FileType::Unknown => {
                Facts::of(path).is_ok_and(|facts| facts.kind == Kind::Dir) || self.is_followed_dir(path)
            }
            _ => false,
        }
    }

    fn survey_file(&mut self, path: &Path, mode: Look) {
        match mode {
            Look::First => self.first_look(path),
            Look::Again => self.look_again(path),
            // Still empty: it is most likely about to be written.
            Look::Came if Facts::of(path).is_ok_and(|facts| facts.size == 0) => self.created(path),
            Look::Came => self.compare(path),
        }
    }

    fn first_look(&mut self, path: &Path) {
        let Ok(facts) = Facts::of(path) else { return };
        if self.known.is_full_for(path) {
            self.known.add_to_overflow(path, &facts);
        } else {
            self.first_bytes = self.first_bytes.saturating_add(facts.size);
            let unread = self.first_bytes > self.bounds.first_bytes;
            let seen = if unread {
                FileState { stamp: None, content: None, turn: self.turn }
            } else {
                self.look(path, &facts)
            };
            self.known.put(path, seen);
        }
        if facts.ctime_ns >= self.since_ns {
            self.changed(path);
        }
    }

    fn look_again(&mut self, path: &Path) {
        let Ok(facts) = Facts::of(path) else { return };
        if self.known.is_full_for(path) {
            self.known.add_to_overflow(path, &facts);
            return;
        }
        let stamp = self.known.get(path).and_then(|seen| seen.stamp);
        if stamp == Some(facts.stamp()) {
            self.known.mark(path, self.turn);
        } else {
            self.compare(path);
        }
    }
}

/// Returns the directory itself, or the nearest existing one above it.
fn nearest(dir: &Path) -> PathBuf {
    dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_path_buf()
}
