//! The changes between two snapshots, as git shows them.

use crate::git::{Git, GitError};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit for short queries. The diff itself has none, because it lasts as long as it is read.
const ASKING: Duration = Duration::from_secs(30);

/// Options of a diff.
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// Show which files changed and by how much, instead of the changes.
    pub stat: bool,
    /// Whether the output has colors.
    pub color: bool,
    /// Only these paths; all if empty.
    pub paths: Vec<String>,
}

/// Returns the commit of a snapshot, or `None` if its ref is gone.
pub fn commit_of(work_dir: &Path, ref_name: &str) -> Result<Option<String>, String> {
    let git = Git::at(work_dir).until(Some(Instant::now() + ASKING));
    match git.word(&["rev-parse", "--verify", "--quiet", &format!("{ref_name}^{{commit}}")]) {
        Ok(commit) => Ok(Some(commit)),
        Err(GitError::Refused { code: Some(1), .. }) => Ok(None),
        Err(other) => Err(other.to_string()),
    }
}

/// Returns the git command that shows the diff, not started. No program of the user runs: no pager, no diff tool,
/// no text converter.
pub fn diff(work_dir: &Path, from: &str, to: &str, options: &DiffOptions) -> Command {
    let mut args = vec!["--no-pager", "diff", "--no-ext-diff", "--no-textconv", "--submodule=short"];
    args.push(if options.color { "--color=always" } else { "--color=never" });
    if options.stat {
        args.push("--stat");
    }
    args.extend([from, to, "--"]);
    args.extend(options.paths.iter().map(String::as_str));
    let mut command = Git::at(work_dir).command(&args);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    command
}
