//! Removing worktrees that nobody needs any more, and only those.

use super::make::{common_dir, lock};
use super::of_run;
use crate::fs::digest::real;
use crate::git::{Git, GitError};
use dogwatch_core::record::ids::RunId;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one worktree may take: git looks at every file of it.
pub const BOUND: Duration = Duration::from_secs(60);

/// Worktrees of a run that are looked at in one go.
pub const MAX_TREES: usize = 10_000;

/// What became of a worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tidied {
    /// Its branch is kept.
    Removed { path: PathBuf },
    /// Something would have been lost, or might have been.
    Kept { path: PathBuf, why: String },
}

/// Tidies all worktrees of a run. `remove: false` only looks: `Removed` are those that could go.
pub fn tidy_run(state_dir: &Path, run: &RunId, remove: bool) -> Vec<Tidied> {
    let dir = of_run(state_dir, run);
    let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).take(MAX_TREES).collect();
    paths.sort();
    let tidied = paths.iter().map(|path| tidy(path, remove)).collect();
    if remove {
        // Only if they are empty.
        let _ = fs::remove_dir(&dir);
        let _ = dir.parent().map(fs::remove_dir);
    }
    tidied
}

/// Removes a worktree if all that is in it is committed, on a branch. Ignored files go with it.
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

/// The repository that it belongs to, if nothing would be lost.
fn removable(path: &Path) -> Result<PathBuf, String> {
    let text = |error: GitError| error.to_string();
    let mut git = git_at(path);
    let top = git.path(&["rev-parse", "--show-toplevel"]).map_err(text)?;
    if real(&top) != real(path) {
        return Err("it is no git worktree".to_owned());
    }
    git.turn_off_filters(&crate::git::snapshot::tree::filter_keys(&git).map_err(text)?);
    if let Some(what) = git.under_way().map_err(text)? {
        return Err(format!("a {what} is under way in it"));
    }
    let changes =
        git.run(&["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none"]);
    let changes = changes.map_err(text)?;
    if !changes.is_empty() {
        let files = changes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).count();
        return Err(format!("{files} of its files are not committed"));
    }
    if !is_on_a_branch(&git).map_err(text)? {
        return Err("its HEAD is on no branch, and no branch has its commit".to_owned());
    }
    common_dir(&git).map_err(text)
}

/// Branches stay; a commit that none of them has would go.
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

/// Not by force: git looks once more.
fn take_away(path: &Path, common: &Path) -> Result<(), String> {
    let _lock = lock(&common.join(super::make::LOCK_FILE), BOUND)?;
    let text = path.to_str().ok_or("its path is not UTF-8")?;
    let mut git = git_at(common);
    git.turn_off_filters(&crate::git::snapshot::tree::filter_keys(&git).map_err(|error| error.to_string())?);
    git.run(&["worktree", "remove", text]).map(drop).map_err(|error| error.to_string())
}
