//! The changes between two snapshots, as git shows them.

use super::left_out::LeftOut;
use super::names::{node_refs, ref_name};
use crate::git::{Git, GitError};
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use dogwatch_core::text::printable_bytes;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit for short queries. The diff itself has none, because it lasts as long as it is read.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

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
    let git = Git::at(work_dir).until(Some(Instant::now() + QUERY_TIMEOUT));
    match git.word(&["rev-parse", "--verify", "--quiet", &format!("{ref_name}^{{commit}}")]) {
        Ok(commit) => Ok(Some(commit)),
        Err(GitError::Refused { code: Some(1), .. }) => Ok(None),
        Err(other) => Err(other.to_string()),
    }
}

/// Returns the files that one of these snapshots left out, without control characters, and whether there are more.
pub fn left_out(work_dir: &Path, refs: &[&str]) -> Result<(BTreeSet<String>, bool), String> {
    let git = Git::at(work_dir).until(Some(Instant::now() + QUERY_TIMEOUT));
    let (mut paths, mut more) = (BTreeSet::new(), false);
    for name in refs {
        let commit = git.run(&["cat-file", "commit", name]).map_err(|error| error.to_string())?;
        let found = LeftOut::read(&commit);
        paths.extend(found.paths.iter().map(|path| printable_bytes(path)));
        more |= found.more;
    }
    Ok((paths, more))
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

/// A file that differs between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileChange {
    /// The path below the top of the work tree, without control characters.
    pub path: String,
    /// The number of added lines; `None` for a binary file.
    pub added: Option<u64>,
    /// The number of removed lines; `None` for a binary file.
    pub removed: Option<u64>,
}

/// The beginning of a diff.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Patch {
    /// The diff, without control characters.
    pub text: String,
    /// Whether there is more of it.
    pub cut: bool,
}

/// Returns the files that differ between two snapshots.
pub fn changed_files(work_dir: &Path, from: &str, to: &str) -> Result<Vec<FileChange>, String> {
    let git = Git::at(work_dir).until(Some(Instant::now() + QUERY_TIMEOUT));
    let args = ["--no-pager", "diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--numstat", "-z"];
    let answer = git.run(&[&args[..], &[from, to, "--"]].concat()).map_err(|error| error.to_string())?;
    Ok(answer.split(|byte| *byte == 0).filter_map(file_change).collect())
}

/// Parses `12<TAB>3<TAB>path`. A binary file has dashes instead of counts.
fn file_change(line: &[u8]) -> Option<FileChange> {
    let mut parts = line.splitn(3, |byte| *byte == b'\t');
    let count = |part: Option<&[u8]>| std::str::from_utf8(part?).ok()?.parse().ok();
    let (added, removed) = (count(parts.next()), count(parts.next()));
    let path = printable_bytes(parts.next()?).replace(['\n', '\t'], " ");
    Some(FileChange { path, added, removed })
}

/// Returns the first `max` bytes of the diff between two snapshots.
pub fn patch(work_dir: &Path, from: &str, to: &str, max: usize) -> Result<Patch, String> {
    let git = Git::at(work_dir).until(Some(Instant::now() + QUERY_TIMEOUT));
    let args = ["--no-pager", "diff", "--no-ext-diff", "--no-textconv", "--submodule=short", "--color=never"];
    let args = [&args[..], &[from, to, "--"]].concat();
    let mut running = git.start(git.command(&args), &args).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    if let Some(stdout) = running.child.stdout.as_mut() {
        stdout.take(max as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    }
    let cut = bytes.len() > max;
    if cut {
        // The rest is not needed. Git ends when it is killed, and `finish` reaps it.
        let _ = running.child.kill();
        bytes.truncate(max);
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(whole);
    }
    match running.finish() {
        Err(error) if !cut => Err(error.to_string()),
        Ok(_) | Err(_) => Ok(Patch { text: printable_bytes(&bytes), cut }),
    }
}

/// Returns the first `max` bytes of the changes of an iteration, or `None` without a snapshot of it.
pub fn iteration_patch(
    work_dir: &Path,
    run: &RunId,
    node: &NodeName,
    iteration: Iteration,
    max: usize,
) -> Result<Option<Patch>, String> {
    let git = Git::at(work_dir).until(Some(Instant::now() + QUERY_TIMEOUT));
    let refs = git.run(&["for-each-ref", "--format=%(refname)", &node_refs(run, node)]);
    let refs = String::from_utf8_lossy(&refs.map_err(|error| error.to_string())?).into_owned();
    let taken: BTreeSet<u64> =
        refs.lines().filter_map(|name| name.rsplit('/').next()?.parse().ok()).collect();
    let before = taken.range(..iteration.0).next_back();
    let (Some(before), true) = (before, taken.contains(&iteration.0)) else { return Ok(None) };
    let [from, to] = [Iteration(*before), iteration].map(|n| ref_name(run, node, n));
    patch(work_dir, &from, &to, max).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_parsed_whatever_their_names_are() {
        let change = |added, removed, path: &str| FileChange { path: path.to_owned(), added, removed };
        assert_eq!(file_change(b"12\t3\tsrc/a.rs"), Some(change(Some(12), Some(3), "src/a.rs")));
        assert_eq!(file_change(b"-\t-\tlogo\x1b[2J.png"), Some(change(None, None, "logo.png")));
        assert_eq!(file_change(b"1\t0\ta\tb"), Some(change(Some(1), Some(0), "a b")));
        assert_eq!(file_change(b""), None);
    }
}
