//! The first snapshot of a work tree that was checked out a moment ago. Its contents are known, so no git command has to
//! run before the first session.

use super::left_out::LeftOut;
use super::loose;
use super::modes::Modes;
use super::objects::{Hash, Objects};
use super::{Request, Taken};
use crate::store::safe_file;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest file of a repository that is read: a path, a ref or a configuration.
const MAX_FILE: u64 = 1024 * 1024;

/// A commit whose files are the work tree, without any change, and its tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pristine {
    /// The commit.
    pub commit: String,
    /// Its tree.
    pub tree: String,
}

impl fmt::Display for Pristine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.commit, self.tree)
    }
}

/// A text that is not `COMMIT:TREE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected COMMIT:TREE, two object ids of git")]
pub struct PristineError;

impl FromStr for Pristine {
    type Err = PristineError;

    fn from_str(text: &str) -> Result<Pristine, PristineError> {
        let (commit, tree) = text.split_once(':').ok_or(PristineError)?;
        let hash = Hash::of(commit).ok_or(PristineError)?;
        match Hash::of(tree) == Some(hash) {
            true => Ok(Pristine { commit: commit.to_owned(), tree: tree.to_owned() }),
            false => Err(PristineError),
        }
    }
}

/// Takes the snapshot of a pristine work tree. Returns `None` if it has to be taken in the usual way.
pub(super) fn take(request: &Request, when: i64) -> Option<Taken> {
    let Pristine { commit, tree } = request.pristine.as_ref()?;
    let common = common_dir(&request.work_dir, commit)?;
    let objects = Objects::new(common.join("objects"), Hash::of(tree)?);
    let message = super::take::message(&request.ref_name, &LeftOut::default(), &Modes::default());
    let refs = common.join(super::REFS);
    let made = loose::write_commits(&objects, when, [commit, tree, tree], &message).ok()?;
    loose::set_ref(&refs, &request.ref_name, &made).ok()?;
    let (ref_name, tree) = (request.ref_name.clone(), tree.clone());
    Some(Taken { ref_name, commit: made, tree, ..Taken::default() })
}

/// Returns the repository of a linked worktree whose HEAD is this commit, if objects and refs are plain files there.
fn common_dir(work_dir: &Path, commit: &str) -> Option<PathBuf> {
    let read = |path: PathBuf| String::from_utf8(safe_file::read_named_whole(&path, MAX_FILE).ok()?).ok();
    let git_dir = read(work_dir.join(".git"))?;
    let git_dir = work_dir.join(git_dir.strip_prefix("gitdir: ")?.trim_end_matches('\n'));
    if read(git_dir.join("HEAD"))?.trim_end() != commit {
        return None;
    }
    let common = git_dir.join(read(git_dir.join("commondir"))?.trim_end_matches('\n'));
    let config = read(common.join("config"))?.to_ascii_lowercase();
    (!config.contains("extensions") && !config.contains("sharedrepository")).then_some(common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_and_its_tree_are_read_and_other_texts_are_refused() {
        let (commit, tree) = ("a".repeat(40), "0".repeat(40));
        let pristine = Pristine { commit: commit.clone(), tree };
        assert_eq!(pristine.to_string().parse(), Ok(pristine));
        for bad in
            [String::new(), commit.clone(), format!("{commit}:main"), format!("{commit}:{}", "0".repeat(64))]
        {
            assert_eq!(bad.parse::<Pristine>(), Err(PristineError), "{bad}");
        }
    }
}
