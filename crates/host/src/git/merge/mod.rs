//! Merges branches without a work tree: git writes the merged tree as objects, and a commit is made of it.
//!
//! Hooks are off. The user's merge drivers are on, because they decide what a file looks like after a merge. Merge
//! commits have a fixed identity, so they need no settings of the user.

mod landing;

use crate::git::{Git, GitError};
use dogwatch_core::text::{clip, printable};
use std::process::Command;

pub use landing::{LandingError, Staging, Step, Target};

/// The most files in conflict that are named.
pub const MAX_FILES: usize = 100;
/// The most of git's messages about conflicts that is kept, in bytes.
pub const MAX_DETAIL: usize = 4 * 1024;

/// The name and address of everything that dogwatch commits.
const IDENTITY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "dogwatch"),
    ("GIT_AUTHOR_EMAIL", "dogwatch@localhost"),
    ("GIT_COMMITTER_NAME", "dogwatch"),
    ("GIT_COMMITTER_EMAIL", "dogwatch@localhost"),
];

/// A merged tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MergedTree {
    /// The tree. Files in conflict have conflict markers in it.
    pub tree: String,
    /// The files in conflict; at most [`MAX_FILES`].
    pub files: Vec<String>,
    /// The messages of git about the conflicts.
    pub detail: String,
}

/// Merges two commits into a tree. The names of the commits are the labels of conflict markers.
pub(crate) fn merge_trees(git: &Git, ours: &str, theirs: &str) -> Result<MergedTree, GitError> {
    let args =
        ["merge-tree", "--write-tree", "-z", "--name-only", "--allow-unrelated-histories", ours, theirs];
    // An older git knows no `--write-tree` and prints its usage.
    let (_, answer) = git.start(git.command(&args), &args)?.finish_with(&[1, USAGE])?;
    read_merged(&answer).ok_or_else(|| {
        let said = "this git cannot merge without a work tree; install git 2.38 or later".to_owned();
        GitError::Refused { what: "merge-tree".to_owned(), code: None, said }
    })
}

/// The exit code of a git that does not know an option.
const USAGE: i32 = 129;

/// Parses `merge-tree -z`: the tree, the files in conflict, an empty field, then messages: the number of their paths, the
/// paths, the kind and the text.
fn read_merged(answer: &[u8]) -> Option<MergedTree> {
    let text = String::from_utf8_lossy(answer);
    let mut fields = text.split('\0');
    let tree =
        fields.next().filter(|tree| tree.len() >= 40 && tree.bytes().all(|b| b.is_ascii_hexdigit()))?;
    let files: Vec<String> =
        fields.by_ref().take_while(|file| !file.is_empty()).map(str::to_owned).take(MAX_FILES).collect();
    let detail: String =
        fields.filter(|field| field.starts_with("CONFLICT") && field.ends_with('\n')).collect();
    let detail = clip(&printable(&detail), MAX_DETAIL).trim_end().to_owned();
    Some(MergedTree { tree: tree.to_owned(), files, detail })
}

/// Creates a commit of a tree and returns its id. No branch moves.
pub(crate) fn commit_tree(
    git: &Git,
    tree: &str,
    parents: &[&str],
    message: &str,
) -> Result<String, GitError> {
    let mut args = vec!["commit-tree", "-m", message];
    parents.iter().for_each(|parent| args.extend(["-p", parent]));
    args.push(tree);
    let mut command = git.command(&args);
    identify(&mut command);
    let answer = git.start(command, &args)?.finish()?;
    Ok(String::from_utf8_lossy(&answer).trim().to_owned())
}

/// Sets the identity of what a git command commits.
fn identify(command: &mut Command) {
    command.envs(IDENTITY);
}

/// Moves a branch, or creates it. Fails if it is no longer at `from`.
pub(crate) fn move_branch(git: &Git, branch: &str, to: &str, from: Option<&str>) -> Result<(), GitError> {
    let name = format!("refs/heads/{branch}");
    // No old value means any; an empty one means that the branch must not exist.
    git.run(&["update-ref", &name, to, from.unwrap_or("")]).map(drop)
}

/// Returns the commit at the tip of a branch, if the branch exists.
pub(crate) fn tip(git: &Git, branch: &str) -> Result<Option<String>, GitError> {
    let name = format!("refs/heads/{branch}^{{commit}}");
    match git.word(&["rev-parse", "--verify", "--quiet", &name]) {
        Ok(commit) => Ok(Some(commit)),
        Err(GitError::Refused { code: Some(1), .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Returns whether a commit is part of the history of another one.
pub(crate) fn contains(git: &Git, history: &str, commit: &str) -> Result<bool, GitError> {
    match git.run(&["merge-base", "--is-ancestor", commit, history]) {
        Ok(_) => Ok(true),
        Err(GitError::Refused { code: Some(1), .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "4c663de8cc337a3218b3780879ab9fe530e2da6e";

    #[test]
    fn files_and_messages_of_a_conflict_are_read() {
        let answer = format!(
            "{TREE}\0del\0f\0\x001\0del\0CONFLICT (modify/delete)\0CONFLICT (modify/delete): del deleted in b.\n\0\
             1\0f\0Auto-merging\0Auto-merging f\n\0"
        );
        let merged = read_merged(answer.as_bytes()).expect("well formed");
        assert_eq!((merged.tree.as_str(), merged.files.join(" ").as_str()), (TREE, "del f"));
        assert_eq!(merged.detail, "CONFLICT (modify/delete): del deleted in b.");
        let clean = read_merged(format!("{TREE}\0").as_bytes()).expect("well formed");
        assert_eq!((clean.files.len(), clean.detail.as_str()), (0, ""));
        assert_eq!(read_merged(b"usage: git merge-tree"), None);
    }

    #[test]
    fn long_lists_of_conflicts_are_cut() {
        let files: String = (0..=MAX_FILES).map(|n| format!("f{n}\0")).collect();
        let message = format!("CONFLICT {}\n", "x".repeat(MAX_DETAIL));
        let merged = read_merged(format!("{TREE}\0{files}\x001\0f\0CONFLICT\0{message}\0").as_bytes());
        let merged = merged.expect("well formed");
        assert_eq!((merged.files.len(), merged.detail.len()), (MAX_FILES, MAX_DETAIL));
    }
}
