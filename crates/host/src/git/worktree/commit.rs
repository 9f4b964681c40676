//! Commits what a finished node left in its worktree, so that its branch has all its work.
//!
//! Filters are on, as at the checkout, so that a file behind one (Git LFS) is stored as the user's own commit would store
//! it. Hooks are off. Untracked files that a snapshot would leave out, because they are private or too large, are left
//! out here too. If the agent has switched to another branch, its work is merged into the node's branch as it is.

use super::Request;
use super::make::common_dir;
use crate::fs::digest::real;
use crate::git::merge::{commit_tree, contains, move_branch, tip};
use crate::git::snapshot::changes::{self, Change, Repository, SnapshotError};
use crate::git::snapshot::{Limits, Privacy, is_left_out};
use crate::git::{Git, GitError};
use dogwatch_core::run::job::{Commit, Made};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// Commits the work in this process. It runs git and may take long.
pub fn commit(request: &Request, message: &str) -> Commit {
    match made(request, message) {
        Ok(made) => Commit::Made(made),
        Err(why) => Commit::Failed { why },
    }
}

fn made(request: &Request, message: &str) -> Result<Made, String> {
    let Request { path, branch, .. } = request;
    if !path.is_dir() {
        return Err(format!("the worktree {} is gone", path.display()));
    }
    let text = |error: GitError| error.to_string();
    let why = |error: SnapshotError| match error {
        SnapshotError::NoWorkTree(why) | SnapshotError::Failed(why) => why,
    };
    let repository = Repository::find(&Git::at(path)).map_err(why)?;
    if real(&repository.top) != real(path) {
        return Err(format!("{} is not a git worktree", path.display()));
    }
    let git = Git::at(&repository.top);
    remove_stale_lock(&git);
    let scratch = common_dir(&git).map_err(text)?.join(format!("dogwatch-commit-{}", std::process::id()));
    let staged = stage(&git, repository, &scratch);
    let _ = fs::remove_dir_all(&scratch);
    let skipped = staged.map_err(why)?;
    let (commit, files) = onto_branch(&git, branch, message).map_err(text)?;
    Ok(Made { branch: branch.clone(), commit, files, skipped })
}

/// Removes the index lock of a git that was killed. No process of the node is alive, and nothing else works in its
/// worktree.
fn remove_stale_lock(git: &Git) {
    if let Ok(lock) = git.path(&["rev-parse", "--git-path", "index.lock"]) {
        let _ = fs::remove_file(lock);
    }
}

/// Adds all changes to the index. Returns how many untracked files were left out.
fn stage(git: &Git, repository: Repository, scratch: &Path) -> Result<u64, SnapshotError> {
    fs::create_dir_all(scratch)?;
    let found = changes::changes(&mut git.clone(), repository, scratch)?;
    let (limits, mut privacy) = (Limits::default(), Privacy::new(git.dir(), found.closed));
    let args = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"];
    let mut command = git.command(&args);
    command.stdin(Stdio::piped());
    let mut running = git.start(command, &args)?;
    let mut skipped = u64::from(!found.all_others);
    let mut written = Ok(());
    if let Some(mut stdin) = running.child.stdin.take() {
        for (path, change) in &found.changes {
            if *change == Change::Untracked && is_left_out(&mut privacy, path, &limits) {
                skipped += 1;
                continue;
            }
            written = stdin.write_all(path).and_then(|()| stdin.write_all(b"\0"));
            if written.is_err() {
                break;
            }
        }
    }
    // Git's own error message says more than the broken pipe.
    running.finish()?;
    written?;
    Ok(skipped)
}

/// Commits the index to the branch, wherever HEAD is. Returns the tip and the number of files in the commit.
fn onto_branch(git: &Git, branch: &str, message: &str) -> Result<(String, u64), GitError> {
    let tree = git.word(&["write-tree"])?;
    let head = git.word(&["rev-parse", "--verify", "HEAD^{commit}"])?;
    let old = tip(git, branch)?;
    let beside = match &old {
        Some(old) if !contains(git, &head, old)? => Some(old.as_str()),
        Some(_) | None => None,
    };
    let changed = git.run(&["diff-tree", "-r", "-z", "--name-only", "--no-renames", &head, &tree])?;
    let files = changed.iter().filter(|byte| **byte == 0).count() as u64;
    let commit = if files == 0 && beside.is_none() {
        head
    } else {
        let parents: Vec<&str> = [head.as_str()].into_iter().chain(beside).collect();
        commit_tree(git, &tree, &parents, message)?
    };
    if old.as_deref() != Some(commit.as_str()) {
        move_branch(git, branch, &commit, old.as_deref())?;
    }
    Ok((commit, files))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::role;

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let read = |line: &[u8]| role::read(line, "commit", |why| Commit::Failed { why });
        let made = Made { branch: "b".to_owned(), commit: "c".to_owned(), files: 1, skipped: 2 };
        for result in [Commit::Made(made), Commit::Failed { why: "w".to_owned() }] {
            let line = serde_json::to_vec(&result).expect("strings and numbers");
            assert_eq!(read(&line), result);
        }
        assert!(matches!(read(b"fatal: no"), Commit::Failed { .. }));
    }
}
