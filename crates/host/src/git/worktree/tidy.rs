//! Removes worktrees that are no longer needed, and only those.

use super::make::{common_dir, lock};
use super::of_run;
use crate::fs::digest::real;
use crate::git::{Git, GitError};
use dogwatch_core::record::ids::RunId;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one worktree may take: git examines every file in it.
pub const BOUND: Duration = Duration::from_secs(60);

/// The most worktrees of a run that are examined in one call.
pub const MAX_TREES: usize = 10_000;

/// The result for one worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tidied {
    /// The worktree was removed; its branch is kept.
    Removed {
        /// The path of the worktree.
        path: PathBuf,
    },
    /// Work would have been lost, or might have been.
    Kept {
        /// The path of the worktree.
        path: PathBuf,
        /// Why it was kept.
        why: String,
    },
}

/// Tidies all worktrees of a run. With `remove: false` nothing is removed, and `Removed` marks those that could be.
pub fn tidy_run(state_dir: &Path, run: &RunId, remove: bool) -> Vec<Tidied> {
    let dir = of_run(state_dir, run);
    let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).take(MAX_TREES).collect();
    paths.sort();
    let tidied = paths.iter().map(|path| tidy(path, remove)).collect();
    if remove {
        // This succeeds only if the directory is empty.
        let _ = fs::remove_dir(&dir);
        let _ = dir.parent().map(fs::remove_dir);
    }
    tidied
}

/// Removes a worktree if everything in it is committed on a branch. Ignored files are removed with it.
pub fn tidy(path: &Path, remove: bool) -> Tidied {
    let path = path.to_owned();
    match removable(&path).and_then(|common| if remove { take_away(&path, &common) } else { Ok(()) }) {
        Ok(()) => Tidied::Removed { path },
        Err(why) => Tidied::Kept { path, why },
    }
}

fn git_at(dir: &Path) -> Git {
    Git::at(dir).until(Some(Instant::now() + BOUND))
}

/// Returns the repository of a worktree, if no work would be lost.
fn removable(path: &Path) -> Result<PathBuf, String> {
    let text = |error: GitError| error.to_string();
    let mut git = git_at(path);
    let top = git.path(&["rev-parse", "--show-toplevel"]).map_err(text)?;
    if real(&top) != real(path) {
        return Err("not a git worktree".to_owned());
    }
    git.turn_off_filters(&crate::git::snapshot::changes::filter_keys(&git).map_err(text)?);
    if let Some(what) = git.under_way().map_err(text)? {
        return Err(format!("a {what} is in progress"));
    }
    let changes =
        git.run(&["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none"]);
    let changes = changes.map_err(text)?;
    if !changes.is_empty() {
        let files = changes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).count();
        return Err(format!("uncommitted files: {files}"));
    }
    if !is_on_a_branch(&git).map_err(text)? {
        return Err("HEAD is detached, and no branch contains its commit".to_owned());
    }
    common_dir(&git).map_err(text)
}

/// Returns whether a branch contains the checked-out commit. Otherwise the commit would be lost.
fn is_on_a_branch(git: &Git) -> Result<bool, GitError> {
    match git.run(&["symbolic-ref", "--quiet", "HEAD"]) {
        Ok(_) => Ok(true),
        Err(GitError::Refused { code: Some(1), .. }) => {
            let holders =
                git.run(&["for-each-ref", "--count=1", "--contains=HEAD", "refs/heads/", "refs/tags/"])?;
            Ok(!holders.is_empty())
        }
        Err(other) => Err(other),
    }
}

/// Removes the worktree without `--force`, so that git checks it once more.
fn take_away(path: &Path, common: &Path) -> Result<(), String> {
    let _lock = lock(&common.join(super::make::LOCK_FILE), BOUND)?;
    let text = path.to_str().ok_or("the path is not UTF-8")?;
    let mut git = git_at(common);
    git.turn_off_filters(
        &crate::git::snapshot::changes::filter_keys(&git).map_err(|error| error.to_string())?,
    );
    git.run(&["worktree", "remove", text]).map(drop).map_err(|error| error.to_string())
}
