//! The watching core: turns events and surveys into changes. An event is only a hint; the file itself decides.
//!
//! It has no thread. Its owner polls [`TreeWatcher::fd`], calls [`TreeWatcher::turn`] and sleeps until
//! [`TreeWatcher::due`]. The receiver ([`Changes`]) decides what a change means: a wake, or workspace activity.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dogwatch_core::time::moment::Awake;
use rustix::fs::CWD;
use rustix::fs::inotify::ReadFlags;
use rustix::time::{ClockId, clock_gettime};

use super::bounds::{Bounds, Coverage, MAX_DOUBTED, SCAN_SHARE, Shortage};
use super::known::{FileState, Known};
use super::scope::Scope;
use super::watches::{Dir, Happened, Watches};
use crate::clock;
use crate::fs::digest::ignored::RULES_FILE;
use crate::fs::digest::look::{Content, Facts, Kind, Reader, wall_ns};

/// The most event buffers that are read per turn, so that a storm does not starve the owner's other work.
const READS_PER_TURN: usize = 16;

/// The receiver of changes.
pub(super) trait Changes {
    fn changed(&mut self, path: &Path);
    /// Receives the digest of the tree, if known. Called before every change.
    fn state(&mut self, digest: Option<u64>);
    /// Returns whether further changes would add nothing. Files are then not read.
    fn is_saturated(&self) -> bool;
    /// Returns whether watching is over. A survey then ends early.
    fn stopped(&self) -> bool;
}

#[derive(Debug)]
pub(super) struct TreeWatcher<C> {
    pub(super) scope: Scope,
    pub(super) bounds: Bounds,
    pub(super) changes: C,
    pub(super) watches: Watches,
    pub(super) known: Known,
    pub(super) reader: Reader,
    /// Where the last full survey began.
    pub(super) anchors: Vec<PathBuf>,
    /// The number of the last full survey.
    pub(super) turn: u64,
    /// Files changed after this time changed during the watch, by the clock that stamps files.
    pub(super) since_ns: i64,
    pub(super) first_bytes: u64,
    /// The number of entries visited by the current survey.
    pub(super) surveyed: u64,
    /// Whether a survey ended early since the last full one began.
    pub(super) cut: bool,
    survey_due: bool,
    scan_at: Option<Awake>,
    scan_every: Duration,
    /// New files, each with the time until which they may stay open, in that order.
    unfinished: VecDeque<(Awake, PathBuf)>,
    /// Files that changed while further changes added nothing. They are reread before the next change is passed on.
    doubted: Vec<PathBuf>,
}

impl<C: Changes> TreeWatcher<C> {
    pub(super) fn new(scope: Scope, bounds: Bounds, changes: C) -> TreeWatcher<C> {
        // The clock of file time stamps, which is never ahead of a later change.
        let stamp = clock_gettime(ClockId::RealtimeCoarse);
        TreeWatcher {
            scope,
            bounds,
            changes,
            watches: Watches::new(bounds.watches),
            known: Known::new(bounds.known_files),
            reader: Reader::new(bounds.known_bytes),
            anchors: Vec::new(),
            turn: 0,
            since_ns: stamp.tv_sec.saturating_mul(1_000_000_000).saturating_add(stamp.tv_nsec),
            first_bytes: 0,
            surveyed: 0,
            cut: false,
            survey_due: true,
            scan_at: None,
            scan_every: bounds.scan_every,
            unfinished: VecDeque::new(),
            doubted: Vec::new(),
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watches.fd()
    }

    pub(super) fn coverage(&self) -> Coverage {
        let dirs = self.watches.len();
        let scanned = |why| Coverage::Scanned { dirs, why, every: self.scan_every };
        if self.cut {
            Coverage::Partly { entries: self.bounds.surveyed }
        } else if !self.watches.has_fd() {
            scanned(Shortage::NoInstance)
        } else if self.watches.short {
            scanned(Shortage::WatchLimit)
        } else {
            Coverage::Watched { dirs }
        }
    }

    /// Returns when to take a turn even without an event.
    pub(super) fn due(&self) -> Option<Awake> {
        let unfinished = self.unfinished.front().map(|(until, _)| *until);
        let scan = self.scan_at.filter(|_| !self.changes.is_saturated());
        [unfinished, scan].into_iter().flatten().min()
    }

    /// Processes pending events and whatever is due.
    pub(super) fn turn(&mut self) {
        self.events();
        let now = clock::awake();
        while self.unfinished.front().is_some_and(|(until, _)| *until <= now) {
            let (_, path) = self.unfinished.pop_front().expect("not empty");
            self.compare(&path);
        }
        let scan = self.scan_at.is_some_and(|at| at <= now);
        // A survey would be pointless while further changes add nothing.
        if (self.survey_due || scan) && !self.changes.is_saturated() {
            self.survey_due = false;
            self.survey_all();
            self.plan_scan(now);
        } else if self.watches.short && self.scan_at.is_none() {
            self.plan_scan(now);
        }
    }

    /// Plans the next scan of unwatched directories, with a limited share of processor time.
    fn plan_scan(&mut self, began: Awake) {
        let now = clock::awake();
        let cost = Duration::from_millis(now.0.saturating_sub(began.0).saturating_mul(SCAN_SHARE));
        self.scan_every = self.bounds.scan_every.max(cost);
        let every_ms = u64::try_from(self.scan_every.as_millis()).unwrap_or(u64::MAX);
        self.scan_at = self.watches.short.then(|| Awake(now.0.saturating_add(every_ms)));
    }

    fn events(&mut self) {
        for _ in 0..READS_PER_TURN {
            let mut happened = Vec::new();
            let more = self.watches.read(&mut happened);
            for event in &happened {
                self.event(event);
            }
            if !more {
                break;
            }
        }
    }

    fn event(&mut self, event: &Happened) {
        if event.what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.survey_due = true;
        } else if event.what.contains(ReadFlags::IGNORED) {
            self.watches.forget(event.watch);
        } else {
            for dir in self.watches.dirs(event.watch) {
                self.in_dir(&dir, event);
            }
        }
    }

    fn in_dir(&mut self, dir: &Dir, event: &Happened) {
        let lost = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        if event.what.intersects(lost) {
            // For other directories, the parent directory reports the change.
            self.survey_due |= self.anchors.contains(&dir.path);
            return;
        }
        if event.name == RULES_FILE && dir.path.starts_with(&self.scope.root) {
            self.survey_due = true;
        }
        let path = dir.path.join(&event.name);
        let came = event.what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        if event.what.contains(ReadFlags::ISDIR) || (came && self.is_followed_dir(&path)) {
            self.dir_event(dir, &path, event.what);
        } else if self.scope.counts(&path, &dir.rules) {
            self.file_event(&path, event.what);
        }
    }

    fn dir_event(&mut self, above: &Dir, path: &Path, what: ReadFlags) {
        if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            if let Some(rules) = self.scope.enter(path, &above.rules) {
                self.survey_new(path.to_path_buf(), rules);
            }
        } else if what.contains(ReadFlags::MOVED_FROM) {
            self.watches.drop_below(path);
            let may_hold = self.scope.enter(path, &above.rules).is_some();
            if let Some(gone) = self.known.remove_below(path).filter(|_| may_hold) {
                self.changed(&gone);
            }
        }
    }

    fn file_event(&mut self, path: &Path, what: ReadFlags) {
        if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            if self.known.remove(path) {
                self.changed(path);
            }
        } else if what.contains(ReadFlags::CREATE) {
            self.created(path);
        } else {
            self.compare(path);
        }
    }

    pub(super) fn created(&mut self, path: &Path) {
        if self.waits_for_close(path) {
            let ms = u64::try_from(self.bounds.closed_within.as_millis()).unwrap_or(u64::MAX);
            self.unfinished.push_back((Awake(clock::awake().0.saturating_add(ms)), path.to_path_buf()));
        } else {
            self.compare(path);
        }
    }

    /// Returns whether to wait until a new file is closed. A hard link or a special file is complete at once.
    fn waits_for_close(&self, path: &Path) -> bool {
        !self.changes.is_saturated()
            && self.unfinished.len() < self.bounds.unfinished
            && Facts::of(path).is_ok_and(|facts| matches!(facts.kind, Kind::File { .. }) && facts.links == 1)
    }

    pub(super) fn is_followed_dir(&self, path: &Path) -> bool {
        self.scope.follows(path) && path.is_dir()
    }

    /// Passes on a change if a file differs from what is remembered.
    pub(super) fn compare(&mut self, path: &Path) {
        if self.changes.is_saturated() {
            self.known.doubt(path, self.turn);
            if self.doubted.len() < MAX_DOUBTED && !self.doubted.iter().any(|known| known == path) {
                self.doubted.push(path.to_path_buf());
            }
            return;
        }
        if self.differs(path) {
            self.changed(path);
        }
    }

    /// Rereads the files that were skipped, so that the digest is known again. After a storm only a few are read,
    /// because the digest is then new in any case.
    pub(super) fn recheck(&mut self) {
        for path in std::mem::take(&mut self.doubted) {
            self.differs(&path);
        }
        self.changes.state(self.known.digest());
    }

    pub(super) fn changed(&mut self, path: &Path) {
        self.changes.state(self.known.digest());
        self.changes.changed(path);
    }

    fn differs(&mut self, path: &Path) -> bool {
        match Facts::of(path) {
            Ok(facts) => {
                let seen = self.look(path, &facts);
                self.known.put(path, seen)
            }
            Err(_) => self.known.remove(path),
        }
    }

    pub(super) fn look(&mut self, path: &Path, facts: &Facts) -> FileState {
        let content = match self.reader.content(CWD, path, facts) {
            Content::Is(hash) => Some(hash),
            Content::TooLarge | Content::Unreadable | Content::OutOfTime => None,
        };
        let stamp = facts.settled(wall_ns()).then(|| facts.stamp());
        FileState { stamp, content, turn: self.turn }
    }
}
