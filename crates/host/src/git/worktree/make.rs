//! Creates a worktree, one at a time per repository.

use super::{LOCK_BOUND, Request, Source};
use crate::fs::digest::real;
use crate::git::snapshot::changes::{self, SnapshotError};
use crate::git::{Git, GitError, merge};
use crate::store::safe_file;
use dogwatch_core::run::job::{Arranged, Conflict, Worktree};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// The name of the lock file in the repository's common directory.
pub(crate) const LOCK_FILE: &str = "dogwatch-worktrees.lock";

/// What git writes into its own lock of a worktree that is not complete.
const HALF_MADE: &[u8] = b"initializing";

/// Creates the worktree in this process, for [`super::main`] and for tests. It runs git and may take long.
pub fn make(request: &Request) -> Worktree {
    match ready(request) {
        Ok(ready) => Worktree::Ready(ready),
        Err(why) => Worktree::Failed { why },
    }
}

fn ready(request: &Request) -> Result<Arranged, String> {
    let top = changes::top(&request.repo).map_err(|nothing| match nothing {
        SnapshotError::NoWorkTree(why) => format!("a worktree needs git: {why}"),
        SnapshotError::Failed(why) => why,
    })?;
    let git = Git::at(&top);
    let common = common_dir(&git).map_err(|error| error.to_string())?;
    let _lock = lock(&common.join(LOCK_FILE), LOCK_BOUND)?;
    let known = is_there(&git, &common, &request.path)?;
    let reused = known && request.recorded;
    let (mut base, mut conflicts) = (None, Vec::new());
    if !reused {
        if !request.recorded {
            discard(&git, request, known)?;
        }
        let branch = merge::tip(&git, &request.branch).map_err(|error| error.to_string())?;
        if branch.is_none() {
            let start = base_commit(&git, &request.base)?;
            conflicts = build(&git, request, &start)?;
            base = Some(start);
        }
        add(&git, request)?;
    }
    let commit = Git::at(&request.path).word(&["rev-parse", "--verify", "--quiet", "HEAD"]);
    Ok(Arranged {
        path: request.path.display().to_string(),
        branch: request.branch.clone(),
        commit: commit.unwrap_or_default(),
        reused,
        base,
        conflicts,
    })
}

/// Removes a worktree that the record does not know, and its branch: a creation that was killed before it was recorded.
/// No agent has worked there.
fn discard(git: &Git, request: &Request, known: bool) -> Result<(), String> {
    let text = |error: GitError| error.to_string();
    if known {
        let path = path_text(&request.path)?;
        git.run(&["worktree", "remove", "--force", "--force", path]).map_err(text)?;
    }
    if merge::tip(git, &request.branch).map_err(text)?.is_some() {
        git.run(&["update-ref", "-d", &format!("refs/heads/{}", request.branch)]).map_err(text)?;
    }
    Ok(())
}

/// Creates the branch: from the base, with the branches of the dependencies merged in. Returns the conflicts.
fn build(git: &Git, request: &Request, start: &str) -> Result<Vec<Conflict>, String> {
    let text = |error: GitError| error.to_string();
    let mut conflicts = Vec::new();
    let mut ours = start.to_owned();
    merge::move_branch(git, &request.branch, &ours, None).map_err(text)?;
    for Source { node, branch } in &request.from {
        let theirs = merge::tip(git, branch).map_err(text)?;
        let theirs = theirs.ok_or_else(|| format!("branch {branch} of node {node} is gone"))?;
        if merge::contains(git, &ours, &theirs).map_err(text)? {
            continue;
        }
        let next = if merge::contains(git, &theirs, &ours).map_err(text)? {
            theirs
        } else {
            // The names of the branches are the labels of conflict markers.
            let merged = merge::merge_trees(git, &request.branch, branch).map_err(text)?;
            let message = format!("Merge branch '{branch}' into {}", request.branch);
            if !merged.files.is_empty() {
                let (from, files, detail) = (node.clone(), merged.files, merged.detail);
                conflicts.push(Conflict { from, files, detail });
            }
            merge::commit_tree(git, &merged.tree, &[&ours, &theirs], &message).map_err(text)?
        };
        merge::move_branch(git, &request.branch, &next, Some(&ours)).map_err(text)?;
        ours = next;
    }
    Ok(conflicts)
}

fn base_commit(git: &Git, base: &str) -> Result<String, String> {
    let commit = |name: &str| git.word(&["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")]);
    match commit(base) {
        Ok(commit) => Ok(commit),
        Err(GitError::Refused { .. }) if commit("HEAD").is_err() => {
            Err("the repository has no commit yet; create one with `git commit --allow-empty -m start`"
                .to_owned())
        }
        Err(GitError::Refused { .. }) => Err(format!("`{base}` is not a commit of this repository")),
        Err(other) => Err(other.to_string()),
    }
}

/// Returns the directory that all worktrees of the repository share.
pub(crate) fn common_dir(git: &Git) -> Result<PathBuf, GitError> {
    git.path(&["rev-parse", "--path-format=absolute", "--git-common-dir"]).map(|dir| real(&dir))
}

/// Waits for the lock. The kernel releases it when its holder exits.
pub(crate) fn lock(path: &Path, bound: Duration) -> Result<File, String> {
    let cannot = |error: io::Error| format!("cannot lock {}: {error}", path.display());
    let file = safe_file::update(path, safe_file::PLAIN).map_err(cannot)?;
    let (sender, receiver) = mpsc::channel();
    // The system call has no timeout. A thread that waits too long ends with this short-lived process.
    let wait = move || {
        let locked = file.lock();
        let _ = sender.send(locked.map(|()| file));
    };
    std::thread::Builder::new().name("lock".into()).spawn(wait).map_err(cannot)?;
    match receiver.recv_timeout(bound) {
        Ok(locked) => locked.map_err(cannot),
        Err(_) => Err(format!(
            "another dogwatch has been creating a worktree of this repository for {} s",
            bound.as_secs()
        )),
    }
}

/// Returns whether there is a complete worktree of this repository at the path. Removes an incomplete one.
fn is_there(git: &Git, common: &Path, path: &Path) -> Result<bool, String> {
    let text = |error: GitError| error.to_string();
    let own = Git::at(path);
    let is_ours = path.is_dir()
        && common_dir(&own).is_ok_and(|dir| dir == *common)
        && own.path(&["rev-parse", "--show-toplevel"]).is_ok_and(|top| real(&top) == real(path));
    if is_ours {
        // Git writes the index at the end of the checkout.
        if own.path(&["rev-parse", "--git-path", "index"]).map_err(text)?.exists() {
            finish(&own);
            return Ok(true);
        }
        let half = path_text(path)?;
        // The first `--force` is for changed files, the second for git's own lock.
        git.run(&["worktree", "remove", "--force", "--force", half]).map_err(text)?;
        return Ok(false);
    }
    if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
        // A project that was moved has worktrees whose links still lead to the old place.
        let repaired =
            path.join(".git").is_file() && git.run(&["worktree", "repair", path_text(path)?]).is_ok();
        if repaired && common_dir(&own).is_ok_and(|dir| dir == *common) {
            return Ok(true);
        }
        return Err(format!("{} is in the way: not a worktree of this repository", path.display()));
    }
    if is_known(git, path).map_err(text)? {
        // The directory is gone, so this only removes git's entry.
        git.run(&["worktree", "remove", "--force", "--force", path_text(path)?]).map_err(text)?;
    }
    Ok(false)
}

/// Unlocks a complete worktree whose creation was killed just before git would have unlocked it.
fn finish(own: &Git) {
    let Ok(lock) = own.path(&["rev-parse", "--git-path", "locked"]) else { return };
    if safe_file::read_up_to(&lock, HALF_MADE.len() as u64).is_ok_and(|text| text == HALF_MADE) {
        let _ = fs::remove_file(lock);
    }
}

/// Returns whether git lists a worktree at the path.
fn is_known(git: &Git, path: &Path) -> Result<bool, GitError> {
    let listing = git.run(&["worktree", "list", "--porcelain", "-z"])?;
    let wanted = real(path);
    let mut paths = listing.split(|byte| *byte == 0).filter_map(|line| line.strip_prefix(b"worktree "));
    Ok(paths.any(|listed| real(Path::new(std::ffi::OsStr::from_bytes(listed))) == wanted))
}

/// Checks out the branch, which exists.
fn add(git: &Git, request: &Request) -> Result<(), String> {
    if let Some(parent) = request.path.parent() {
        crate::store::home::make_private(parent)
            .map_err(|error| format!("cannot create {}: {error}", parent.display()))?;
    }
    let args = ["worktree", "add", "--quiet", path_text(&request.path)?, &request.branch];
    let mut command = git.command(&args);
    // Unlike a snapshot, a checkout may fetch what a partial clone is missing.
    command.env_remove("GIT_NO_LAZY_FETCH");
    let made = git.start(command, &args).and_then(|running| running.finish());
    made.map(drop).map_err(|error| error.to_string())
}

pub(crate) fn path_text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("the path of a worktree must be UTF-8: {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_the_lock_times_out_and_the_lock_ends_with_its_holder() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lock");
        let held = lock(&path, LOCK_BOUND).expect("free");
        let late = lock(&path, Duration::from_millis(1)).expect_err("held");
        assert!(late.contains("another dogwatch has been creating a worktree"), "{late}");
        drop(held);
        lock(&path, LOCK_BOUND).expect("free again");
    }
}
