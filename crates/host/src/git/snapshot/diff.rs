//! What changed between two snapshots, as git shows it.

use crate::git::{Git, GitError};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// For the small questions; the diff itself lasts as long as somebody reads.
const ASKING: Duration = Duration::from_secs(30);

/// How a diff is wanted.
#[derive(Clone, Debug, Default)]
pub struct DiffWish {
    /// Which files changed by how much, instead of how.
    pub stat: bool,
    pub colour: bool,
    /// Only these paths; all if there are none.
    pub paths: Vec<String>,
}

/// The commit of a snapshot; `None` if its ref is gone.
pub fn commit_of(work_dir: &Path, ref_name: &str) -> Result<Option<String>, String> {
    let git = Git::at(work_dir).until(Some(Instant::now() + ASKING));
    match git.word(&["rev-parse", "--verify", "--quiet", &format!("{ref_name}^{{commit}}")]) {
        Ok(commit) => Ok(Some(commit)),
        Err(GitError::Refused { code: Some(1), .. }) => Ok(None),
        Err(other) => Err(other.to_string()),
    }
}

/// The git that shows it, not started. No program of the user's runs: neither pager nor diff tool nor converter.
pub fn diff(work_dir: &Path, from: &str, to: &str, wish: &DiffWish) -> Command {
    let mut args = vec!["--no-pager", "diff", "--no-ext-diff", "--no-textconv", "--submodule=short"];
    args.push(if wish.colour { "--color=always" } else { "--color=never" });
    if wish.stat {
        args.push("--stat");
    }
    args.extend([from, to, "--"]);
    args.extend(wish.paths.iter().map(String::as_str));
    let mut command = Git::at(work_dir).command(&args);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    command
}
