//! The limits of watching, and how much of what was asked for is watched.

use std::fmt;
use std::time::Duration;

/// More directories than this are not watched but scanned; nor more than half of what the system allows.
pub const MAX_WATCHES: usize = 65_536;
/// Of so many files the content is remembered, to tell a change from a touch; of the others every write counts.
pub const MAX_KNOWN_FILES: usize = 10_000;
/// A larger file is not read: every write to it counts.
pub const MAX_KNOWN_BYTES: u64 = 1024 * 1024;
/// Read at the start, over all files; of those not read by then every write counts.
pub const MAX_FIRST_BYTES: u64 = 64 * 1024 * 1024;
/// A survey goes no further than this.
pub const MAX_SURVEYED: u64 = 1_000_000;
/// New files that wait for their writer to close them; more count at once.
pub const MAX_UNFINISHED: usize = 1_024;
/// Files that changed before the last change was taken and are read again for the tree's state; more leave it unknown.
pub const MAX_DOUBTED: usize = 16;
/// What cannot be watched is looked at this often.
pub const SCAN_EVERY: Duration = Duration::from_secs(5);
/// A scan may take this part of one core: 1/20.
pub(super) const SCAN_SHARE: u64 = 20;
/// A new file counts when it is closed, so that it is seen whole; at the latest after this.
pub const CLOSED_WITHIN: Duration = Duration::from_millis(200);

/// The limits, to be set lower by tests.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub watches: usize,
    pub known_files: usize,
    pub known_bytes: u64,
    pub first_bytes: u64,
    pub surveyed: u64,
    pub unfinished: usize,
    pub scan_every: Duration,
    pub closed_within: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            watches: MAX_WATCHES,
            known_files: MAX_KNOWN_FILES,
            known_bytes: MAX_KNOWN_BYTES,
            first_bytes: MAX_FIRST_BYTES,
            surveyed: MAX_SURVEYED,
            unfinished: MAX_UNFINISHED,
            scan_every: SCAN_EVERY,
            closed_within: CLOSED_WITHIN,
        }
    }
}

/// How the wake paths are looked after. Its text is fit for a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every change is seen at once.
    Watched { dirs: usize },
    /// Some directories have no watch: changes there are seen at the next scan.
    Scanned { dirs: usize, why: Shortage, every: Duration },
    /// There is more than a scan can look at: changes beyond are not seen.
    Partly { entries: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The watches are used up (`fs.inotify.max_user_watches`).
    WatchLimit,
    /// The system gave no inotify instance (`fs.inotify.max_user_instances`).
    NoInstance,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Coverage::Watched { dirs } => write!(f, "wake paths: {dirs} directories watched"),
            Coverage::Scanned { dirs, why, every } => write!(
                f,
                "wake paths: {dirs} directories watched, the rest looked at every {} s: {why}",
                every.as_secs_f32()
            ),
            Coverage::Partly { entries } => {
                write!(f, "wake paths: only the first {entries} entries are watched; narrow the globs")
            }
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shortage::WatchLimit => "out of watches (raise fs.inotify.max_user_watches)",
            Shortage::NoInstance => "no inotify instance (raise fs.inotify.max_user_instances)",
        })
    }
}
