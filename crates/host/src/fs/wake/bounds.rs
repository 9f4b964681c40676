//! The limits of path watching, and the coverage that was achieved.

use std::fmt;
use std::time::Duration;

/// The most directories that are watched, and never more than half of what the system allows. The rest is scanned.
pub const MAX_WATCHES: usize = 65_536;
/// The most files whose content is remembered to distinguish a change from a touch. For other files every write
/// counts.
pub const MAX_KNOWN_FILES: usize = 10_000;
/// Larger files are not read: every write to them counts.
pub const MAX_KNOWN_BYTES: u64 = 1024 * 1024;
/// The most that is read at the start, over all files. For files not read by then every write counts.
pub const MAX_FIRST_BYTES: u64 = 64 * 1024 * 1024;
/// The most entries that a survey visits.
pub const MAX_SURVEYED: u64 = 1_000_000;
/// The most new files that wait to be closed. Any more count at once.
pub const MAX_UNFINISHED: usize = 1_024;
/// The most changed files that are reread to compute the digest of the tree. With more, the digest stays unknown.
pub const MAX_DOUBTED: usize = 16;
/// How often unwatched directories are scanned.
pub const SCAN_EVERY: Duration = Duration::from_secs(5);
/// A scan may use at most this fraction of one core: 1/20.
pub(super) const SCAN_SHARE: u64 = 20;
/// A new file counts when it is closed, so that it is complete, or at the latest after this time.
pub const CLOSED_WITHIN: Duration = Duration::from_millis(200);

/// The limits, which tests can lower.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The number of inotify watches.
    pub watches: usize,
    /// The number of files whose content is remembered.
    pub known_files: usize,
    /// The largest file that is read to compare its content, in bytes.
    pub known_bytes: u64,
    /// The number of bytes that the first survey reads.
    pub first_bytes: u64,
    /// The number of entries that one survey visits.
    pub surveyed: u64,
    /// The number of open files that are waited for.
    pub unfinished: usize,
    /// The pause between two surveys without watches.
    pub scan_every: Duration,
    /// How long to wait until a written file is closed.
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

/// How the wake paths are covered. The text is suitable for a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every change is noticed at once.
    Watched {
        /// The number of directories.
        dirs: usize,
    },
    /// Some directories have no watch: changes there are noticed by the next scan.
    Scanned {
        /// The number of directories.
        dirs: usize,
        /// Why they are not watched.
        why: Shortage,
        /// The pause between two surveys.
        every: Duration,
    },
    /// There are more entries than a scan can visit: changes beyond the limit are not noticed.
    Partly {
        /// The number of entries that were visited.
        entries: u64,
    },
}

/// Why some directories are not watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The watches are used up (`fs.inotify.max_user_watches`).
    WatchLimit,
    /// The system refused an inotify instance (`fs.inotify.max_user_instances`).
    NoInstance,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Coverage::Watched { dirs } => write!(f, "wake paths: {dirs} directories watched"),
            Coverage::Scanned { dirs, why, every } => write!(
                f,
                "wake paths: {dirs} directories watched, the rest scanned every {} s: {why}",
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
