//! `dogwatch merge`: merges branches in a temporary worktree, and moves the user's branch only at the end.
//!
//! Until then nothing of the user's changes, so a conflict, a failing check or a kill at any moment leaves the branch,
//! the index and the work tree as they were. A merge that was killed leaves its temporary worktree; the next merge
//! removes it.

use super::{commit_tree, contains, identify, merge_trees, move_branch, tip};
use crate::git::snapshot::changes::{self, SnapshotError};
use crate::git::worktree::LOCK_BOUND;
use crate::git::worktree::make::{LOCK_FILE, common_dir, lock, path_text};
use crate::git::{Git, GitError};
use crate::store::{home, safe_file};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long all git commands of one step may take together: they check out files.
const STEP_BOUND: Duration = Duration::from_secs(300);
/// The name of the lock file in the repository's common directory that only one merge holds.
const MERGE_LOCK: &str = "dogwatch-merge.lock";
/// The directory in the state directory for temporary worktrees.
const MERGES: &str = "merges";

/// Why a merge cannot start or finish. Nothing of the user's was changed.
#[derive(Debug, thiserror::Error)]
pub enum LandingError {
    /// The directory has no git work tree.
    #[error("{0}")]
    NoWorkTree(String),
    /// HEAD names no branch, and the user named none.
    #[error("HEAD is detached")]
    Detached,
    /// Git does not allow this name.
    #[error("`{0}` is not a valid branch name")]
    BadName(String),
    /// The work tree of the branch has changes.
    #[error("{} has uncommitted changes in {}", dir.display(), dogwatch_core::text::figures::count(*files as u64, "file"))]
    Dirty {
        /// The work tree.
        dir: PathBuf,
        /// The number of changed files.
        files: usize,
    },
    /// Another operation is in progress in the work tree of the branch.
    #[error("a {what} is in progress in {}", dir.display())]
    UnderWay {
        /// The work tree.
        dir: PathBuf,
        /// The operation.
        what: &'static str,
    },
    /// Another merge of this repository is in progress.
    #[error("another `dogwatch merge` is in progress in this repository")]
    Busy,
    /// The branch has moved since the merge began.
    #[error("branch {0} has moved since the merge began")]
    Moved(String),
    /// Git or the operating system failed.
    #[error("{0}")]
    Failed(String),
}

impl From<GitError> for LandingError {
    fn from(error: GitError) -> LandingError {
        LandingError::Failed(error.to_string())
    }
}

impl From<std::io::Error> for LandingError {
    fn from(error: std::io::Error) -> LandingError {
        LandingError::Failed(error.to_string())
    }
}

/// The branch to merge into.
#[derive(Debug)]
pub struct Target {
    /// The top of the user's work tree.
    pub top: PathBuf,
    /// The branch.
    pub branch: String,
    /// The commit from which the merge starts.
    pub tip: String,
    /// Whether the branch does not exist yet.
    pub is_new: bool,
    /// The work tree in which the branch is checked out, if any.
    pub checked_out: Option<PathBuf>,
}

impl Target {
    /// Finds the branch: the named one, or the one that is checked out in this work tree. Refuses a branch whose work tree
    /// has changes in tracked files.
    pub fn find(work_dir: &Path, into: Option<&str>) -> Result<Target, LandingError> {
        let top = changes::top(work_dir).map_err(|error| match error {
            SnapshotError::NoWorkTree(why) => LandingError::NoWorkTree(why),
            SnapshotError::Failed(why) => LandingError::Failed(why),
        })?;
        let git = bounded(&top);
        let branch = match into {
            Some(name) => valid_name(&git, name)?,
            None => match git.word(&["symbolic-ref", "--quiet", "--short", "HEAD"]) {
                Ok(branch) => branch,
                Err(GitError::Refused { code: Some(1), .. }) => return Err(LandingError::Detached),
                Err(other) => return Err(other.into()),
            },
        };
        let existing = tip(&git, &branch)?;
        let is_new = existing.is_none();
        let tip = match existing {
            Some(tip) => tip,
            None => git.word(&["rev-parse", "--verify", "HEAD^{commit}"])?,
        };
        let checked_out = work_tree_of(&git, &branch)?;
        if let Some(dir) = &checked_out {
            refuse_changes(dir)?;
        }
        Ok(Target { top, branch, tip, is_new, checked_out })
    }
}

fn bounded(dir: &Path) -> Git {
    Git::at(dir).until(Some(Instant::now() + STEP_BOUND))
}

fn valid_name(git: &Git, name: &str) -> Result<String, LandingError> {
    let bad = || LandingError::BadName(name.to_owned());
    if name.starts_with('-') {
        return Err(bad());
    }
    match git.run(&["check-ref-format", &format!("refs/heads/{name}")]) {
        Ok(_) => Ok(name.to_owned()),
        Err(GitError::Refused { .. }) => Err(bad()),
        Err(other) => Err(other.into()),
    }
}

/// Returns the work tree in which a branch is checked out.
fn work_tree_of(git: &Git, branch: &str) -> Result<Option<PathBuf>, GitError> {
    let listing = git.run(&["worktree", "list", "--porcelain", "-z"])?;
    let wanted = format!("branch refs/heads/{branch}");
    let mut path = None;
    for line in listing.split(|byte| *byte == 0) {
        if let Some(listed) = line.strip_prefix(b"worktree ") {
            path = Some(PathBuf::from(OsStr::from_bytes(listed)));
        } else if line == wanted.as_bytes() {
            return Ok(path);
        }
    }
    Ok(None)
}

/// Refuses a work tree with changes in tracked files. Untracked files do not matter: git refuses to overwrite them.
fn refuse_changes(dir: &Path) -> Result<(), LandingError> {
    let git = bounded(dir);
    if let Some(what) = git.under_way()? {
        return Err(LandingError::UnderWay { dir: dir.to_owned(), what });
    }
    let args =
        ["status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty"];
    let changes = git.run(&args)?;
    match changes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).count() {
        0 => Ok(()),
        files => Err(LandingError::Dirty { dir: dir.to_owned(), files }),
    }
}

/// The result of merging one branch.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The target already has everything of it.
    Contained,
    /// The branch was merged.
    Merged {
        /// The number of files that changed.
        files: u64,
    },
    /// The branch conflicts. The temporary worktree is unchanged.
    Conflict {
        /// The files in conflict.
        files: Vec<String>,
        /// The messages of git about them.
        detail: String,
    },
}

/// A temporary worktree in which branches are merged. It is removed when dropped.
#[derive(Debug)]
pub struct Staging {
    target: Target,
    common: PathBuf,
    dir: PathBuf,
    /// The commit with all merges up to now.
    tip: String,
    /// Released when this process ends.
    _lock: File,
}

impl Staging {
    /// Creates the worktree at the tip of the target.
    pub fn open(target: Target, state_dir: &Path) -> Result<Staging, LandingError> {
        let git = bounded(&target.top);
        let common = common_dir(&git)?;
        let own = safe_file::update(&common.join(MERGE_LOCK), safe_file::PLAIN)?;
        match own.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(LandingError::Busy),
            Err(fs::TryLockError::Error(error)) => return Err(error.into()),
        }
        let merges = state_dir.join(MERGES);
        home::make_private(&merges)?;
        for left in fs::read_dir(&merges)?.flatten() {
            remove(&common, &left.path());
        }
        let dir = merges.canonicalize()?.join(format!(
            "{}-{}",
            target.branch.replace('/', "-"),
            std::process::id()
        ));
        let tip = target.tip.clone();
        let staging = Staging { target, common, dir, tip, _lock: own };
        staging.check_out_new()?;
        Ok(staging)
    }

    fn check_out_new(&self) -> Result<(), LandingError> {
        let git = bounded(&self.target.top);
        let _lock = lock(&self.common.join(LOCK_FILE), LOCK_BOUND).map_err(LandingError::Failed)?;
        let path = path_text(&self.dir).map_err(LandingError::Failed)?;
        let args = ["worktree", "add", "--quiet", "--detach", path, &self.tip];
        let mut command = git.command(&args);
        // Unlike a snapshot, a checkout may fetch what a partial clone is missing.
        command.env_remove("GIT_NO_LAZY_FETCH");
        git.start(command, &args)?.finish()?;
        Ok(())
    }

    /// Returns the target of the merge.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the directory of the temporary worktree.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether anything was merged.
    pub fn has_changes(&self) -> bool {
        self.tip != self.target.tip
    }

    /// Returns the commit with all merges up to now.
    pub fn tip(&self) -> &str {
        &self.tip
    }

    /// Returns whether a branch has all the work of another one.
    pub fn has(&self, branch: &str, other: &str) -> Result<bool, LandingError> {
        Ok(contains(&bounded(&self.dir), branch, other)?)
    }

    /// Merges a branch and checks out the result. Every merge is a separate commit, so that it can be reverted alone.
    pub fn merge(&mut self, branch: &str, message: &str) -> Result<Step, LandingError> {
        let git = bounded(&self.dir);
        if contains(&git, &self.tip, branch)? {
            return Ok(Step::Contained);
        }
        let merged = merge_trees(&git, "HEAD", branch)?;
        if !merged.files.is_empty() {
            return Ok(Step::Conflict { files: merged.files, detail: merged.detail });
        }
        let theirs = git.word(&["rev-parse", "--verify", &format!("{branch}^{{commit}}")])?;
        let commit = commit_tree(&git, &merged.tree, &[&self.tip, &theirs], message)?;
        let args = ["reset", "--hard", "--quiet", &commit];
        let mut command = git.command(&args);
        command.env_remove("GIT_NO_LAZY_FETCH");
        git.start(command, &args)?.finish()?;
        let changed =
            git.run(&["diff-tree", "-r", "-z", "--name-only", "--no-renames", &self.tip, &commit])?;
        self.tip = commit;
        Ok(Step::Merged { files: changed.iter().filter(|byte| **byte == 0).count() as u64 })
    }

    /// Moves the branch to everything that was merged. If the branch is checked out, its index and files follow.
    pub fn land(self) -> Result<(), LandingError> {
        let Target { top, branch, tip: from, is_new, checked_out } = &self.target;
        let moved = || LandingError::Moved(branch.clone());
        let git = bounded(checked_out.as_deref().unwrap_or(top));
        if tip(&git, branch)?.as_ref() != Some(from).filter(|_| !is_new) {
            return Err(moved());
        }
        let Some(dir) = checked_out else {
            let old = Some(from.as_str()).filter(|_| !is_new);
            return move_branch(&git, branch, &self.tip, old).map_err(|_| moved());
        };
        if work_tree_of(&git, branch)?.as_ref() != Some(dir) {
            return Err(moved());
        }
        refuse_changes(dir)?;
        // The reflog is the user's way back.
        let args = ["-c", "core.logAllRefUpdates=true", "merge", "--ff-only", "--quiet", &self.tip];
        let mut command = git.command(&args);
        command.env_remove("GIT_NO_LAZY_FETCH").env("GIT_REFLOG_ACTION", "dogwatch merge");
        identify(&mut command);
        git.start(command, &["merge"])?.finish()?;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        remove(&self.common, &self.dir);
    }
}

/// Removes a temporary worktree. One that cannot be removed now is removed by the next merge.
fn remove(common: &Path, dir: &Path) {
    let Ok(path) = path_text(dir) else { return };
    let Ok(_lock) = lock(&common.join(LOCK_FILE), LOCK_BOUND) else { return };
    // The first `--force` is for changed files, the second for git's own lock.
    if bounded(common).run(&["worktree", "remove", "--force", "--force", path]).is_err() {
        let _ = fs::remove_dir_all(dir);
        let _ = bounded(common).run(&["worktree", "prune"]);
    }
}
