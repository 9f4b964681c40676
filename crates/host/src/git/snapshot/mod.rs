//! Snapshots: a snapshot is the work tree, including untracked files, as a commit under `refs/dogwatch/`. Taking
//! one changes nothing that belongs to the user: no index, branch, reflog or file.
//!
//! The driver starts [`Request::command`] as a job. The keeper runs it in a fork of itself, [`main`], which runs a
//! few git commands, prints one line of JSON ([`Outcome`]) and exits. The time limit of the job covers everything.
//! A snapshot that is killed halfway leaves no ref, only objects that git's own garbage collection removes.
//!
//! How the guarantees are met:
//! - No program of the user runs: hooks and fsmonitor are off, and every configured filter is overridden by name.
//!   File contents are read by us and passed to `git fast-import` unchanged, so that not even line endings are
//!   converted: a snapshot has the exact bytes of each file.
//! - Git works on a copy of the index, so a locked index does not matter. The copy gets the original's time stamp:
//!   git trusts entries older than the index file, and a younger copy would hide changes of the last second.
//! - Unchanged files are known from the index, so the cost depends on the number of changes.
//!
//! The commit is shaped like one of `git stash`: its first parent is HEAD, if there is one, and its last parent is
//! a commit of the index. A file that is the same in both trees was clean: the work tree had it as git checks it
//! out. Any other file is stored byte by byte. Submodules and nested repositories are stored as in the index. Other
//! files that were left out are listed in the outcome and in the commit message, so that a restore knows which
//! files it must not remove.

pub(crate) mod changes;
mod diff;
mod left_out;
mod loose;
mod modes;
pub(crate) mod names;
mod objects;
mod own;
mod pristine;
mod privacy;
mod prune;
mod put;
mod restore;
mod stream;
mod take;
mod tree;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::git::role;
use serde::{Deserialize, Serialize};

pub use diff::{
    DiffOptions, FileChange, Patch, changed_files, commit_of, diff, iteration_patch, left_out, patch,
};
pub use names::{REFS, UNDO, node_refs, ref_name, run_refs, undo_name};
pub use own::{OthersWork, OwnWork};
pub use pristine::{Pristine, PristineError};
pub(crate) use privacy::Privacy;
pub use prune::{Stored, forget, prune, stored};
pub use restore::{Prepared, Restored, Survey, Undo, prepare};
pub(crate) use take::is_left_out;
pub use take::{take, take_until};

/// The name of this part of dogwatch, for the keeper.
pub const ARGUMENT: &str = "__snapshot";

/// How long a snapshot may take before its job is killed.
pub const BOUND: Duration = Duration::from_secs(30);

/// The most left-out files that are named.
pub const MAX_NAMED: usize = 20;

/// The longest line that [`main`] prints, in bytes. The captured output of a job must have room for it.
pub const MAX_LINE: usize = 64 * 1024;

/// How much a snapshot may contain that is not in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// A larger file is left out. Each file is held in memory while it is passed on.
    pub file_bytes: u64,
    /// The most bytes in one snapshot.
    pub total_bytes: u64,
    /// The most files in one snapshot.
    pub files: u64,
    /// After this time no more contents are read. The snapshot contains what was read until then.
    pub reading: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            file_bytes: 32 * 1024 * 1024,
            total_bytes: 256 * 1024 * 1024,
            files: 100_000,
            // Leaves git the rest of the time limit to write its objects.
            reading: Duration::from_secs(15),
        }
    }
}

/// What to snapshot, and under which ref.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Any directory of the work tree; the whole tree is taken.
    #[serde(with = "role::path")]
    pub work_dir: PathBuf,
    /// From [`ref_name`].
    pub ref_name: String,
    /// A directory for the copy of the index. It is created, used by one snapshot at a time, and removed.
    #[serde(with = "role::path")]
    pub scratch: PathBuf,
    /// dogwatch's own directories, which are never included.
    #[serde(with = "role::paths")]
    pub state_dirs: Vec<PathBuf>,
    /// The limits on size and number of files.
    pub limits: Limits,
    /// How many of the node's snapshots to keep, in addition to number 0 and this one; all if `None`.
    pub keep: Option<u64>,
    /// The commit that the work tree is a fresh checkout of, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pristine: Option<Pristine>,
}

impl Request {
    /// Returns the command that takes the snapshot, to be run as a job in `work_dir`. Its output is for
    /// [`role::read`].
    pub fn command(&self) -> Vec<String> {
        role::command(ARGUMENT, self)
    }

    /// Parses the arguments of [`Request::command`], without the first two.
    fn parse(args: impl Iterator<Item = OsString>) -> Option<Request> {
        let request: Request = role::parse(args)?;
        let whole = !request.ref_name.is_empty() && request.scratch.is_absolute();
        whole.then_some(request)
    }
}

/// The result of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "snapshot", rename_all = "snake_case")]
pub enum Outcome {
    /// The snapshot was taken.
    Taken(Taken),
    /// The directory is not in a work tree: worth one notice per run.
    NoWorkTree {
        /// The reason, for people.
        why: String,
    },
    /// The snapshot failed; the work tree is unchanged. Worth a trouble event.
    Failed {
        /// The reason, for people.
        why: String,
    },
}

/// A snapshot that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The git ref.
    #[serde(rename = "ref")]
    pub ref_name: String,
    /// The commit.
    pub commit: String,
    /// The tree of the commit.
    pub tree: String,
    /// The number of files whose contents differ from the index, or may differ, including untracked ones.
    pub files: u64,
    /// The number of files that differ from HEAD: untracked, changed or staged.
    #[serde(default)]
    pub changed: u64,
    /// The number of untracked files.
    pub untracked: u64,
    /// The number of deleted files.
    pub deleted: u64,
    /// The size of the contents of `files`.
    pub bytes: u64,
    /// Files that were left out: their number, and the first of them by name.
    pub skipped: u64,
    /// Some of the skipped files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<Skipped>,
    /// How many older snapshots of this node were removed.
    #[serde(default)]
    pub pruned: u64,
    /// Why the older ones could not be removed. Worth a trouble event; the snapshot itself is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune_failed: Option<String>,
}

/// A file that is not in the snapshot as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The path of the file.
    pub path: String,
    /// Why it was skipped.
    pub why: String,
}

/// Takes the snapshot described by the arguments and prints the outcome. Returns the exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    // Otherwise the process would be called like the keeper.
    let _ = rustix::thread::set_name(c"dogwatch-snap");
    let outcome = match Request::parse(args) {
        Some(request) => take(&request),
        None => Outcome::Failed { why: "invalid arguments for the snapshot process".to_owned() },
    };
    let failed = matches!(outcome, Outcome::Failed { .. });
    role::answer(&outcome, !failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn request_is_read_as_it_was_written() {
        let odd = PathBuf::from(std::ffi::OsStr::from_bytes(b"/a b/\xff%\n=c"));
        let limits = Limits { file_bytes: 1, total_bytes: 2, files: 3, reading: Duration::from_millis(1500) };
        let request = Request {
            work_dir: odd.clone(),
            ref_name: "refs/dogwatch/x".to_owned(),
            scratch: odd.clone(),
            state_dirs: vec![odd, "/b".into()],
            limits,
            keep: Some(7),
            pristine: format!("{0}:{0}", "a".repeat(40)).parse().ok(),
        };
        let words = request.command().into_iter().skip(2).map(OsString::from);
        assert_eq!(Request::parse(words), Some(request));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        let parse = |words: &[&str]| Request::parse(words.iter().map(OsString::from));
        let good = Request {
            work_dir: "/a".into(),
            ref_name: "refs/dogwatch/x".to_owned(),
            scratch: "/b".into(),
            state_dirs: vec![],
            limits: Limits::default(),
            keep: None,
            pristine: None,
        };
        let relative = Request { scratch: "relative".into(), ..good.clone() };
        let nameless = Request { ref_name: String::new(), ..good.clone() };
        let [good, relative, nameless] =
            [good, relative, nameless].map(|request| request.command().remove(2));
        assert!(parse(&[&good]).is_some());
        for words in [&[][..], &["ref"], &["{}"], &[&good, "more"], &[&relative], &[&nameless]] {
            assert_eq!(parse(words), None, "{words:?}");
        }
    }

    #[test]
    fn silence_and_nonsense_are_failures() {
        for output in [&b""[..], b"fatal: no", b"{\"snapshot\":\"taken\""] {
            let outcome = role::read(output, "snapshot", |why| Outcome::Failed { why });
            assert!(matches!(outcome, Outcome::Failed { .. }));
        }
    }
}
