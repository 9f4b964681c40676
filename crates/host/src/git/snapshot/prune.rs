//! Removes old snapshots of a node. Git's next garbage collection removes the objects that only they used.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::REFS;
use crate::git::{Git, GitError};

/// Removes all snapshots below a prefix from [`super::run_refs`] or [`super::node_refs`], except the newest `keep`
/// of each node and its number 0. Returns how many were removed.
pub fn prune(work_dir: &Path, prefix: &str, keep: u64) -> Result<u64, String> {
    if !prefix.starts_with(REFS) {
        return Err(format!("`{prefix}` is not below {REFS}"));
    }
    let git = Git::at(work_dir);
    let refs = refs_below(&git, prefix).map_err(|error| error.to_string())?;
    let mut nodes: Vec<&str> = refs.iter().filter_map(|name| Some(name.rsplit_once('/')?.0)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let is_of = |name: &str, node: &str| name.rsplit_once('/').is_some_and(|(of, _)| of == node);
    let surplus_of = |node: &str| surplus(refs.iter().filter(|name| is_of(name, node)), keep);
    let gone: Vec<String> = nodes.iter().flat_map(|node| surplus_of(node)).collect();
    delete(&git, &gone).map_err(|error| error.to_string())
}

/// A stored snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The name of the ref.
    pub name: String,
    /// When it was taken.
    pub at: dogwatch_core::time::moment::Wall,
}

/// How long git may take to list or remove snapshots outside a job.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns all snapshots below a prefix. `work_dir` may be any directory of the repository.
pub fn stored(work_dir: &Path, prefix: &str) -> Result<Vec<Stored>, String> {
    let git = Git::at(work_dir).until(Some(Instant::now() + QUERY_TIMEOUT));
    let format = "--format=%(committerdate:unix) %(refname)";
    let answer = git.run(&["for-each-ref", format, prefix]).map_err(|error| error.to_string())?;
    let line = |line: &str| {
        let (seconds, name) = line.split_once(' ')?;
        let at = seconds.parse::<i64>().ok()?.checked_mul(1000)?;
        Some(Stored { name: name.to_owned(), at: dogwatch_core::time::moment::Wall(at) })
    };
    Ok(String::from_utf8_lossy(&answer).lines().filter_map(line).collect())
}

/// Removes these snapshots, all or none. Git's next garbage collection removes the objects that only they used.
pub fn forget(work_dir: &Path, refs: &[String]) -> Result<u64, String> {
    if let Some(other) = refs.iter().find(|name| !name.starts_with(REFS)) {
        return Err(format!("`{other}` is not below {REFS}"));
    }
    let git = Git::at(work_dir).until(Some(Instant::now() + QUERY_TIMEOUT));
    delete(&git, refs).map_err(|error| error.to_string())
}

/// Like [`prune`], for the node of one ref.
pub(super) fn prune_node(git: &Git, ref_name: &str, keep: u64) -> Result<u64, GitError> {
    let Some((node, number)) = ref_name.rsplit_once('/') else { return Ok(0) };
    // Most runs never reach this number.
    if number.parse::<u64>().is_ok_and(|number| number <= keep) {
        return Ok(0);
    }
    let refs = refs_below(git, &format!("{node}/"))?;
    // The newest is the one that was just taken.
    delete(git, &surplus(refs.iter(), keep.saturating_add(1)))
}

fn refs_below(git: &Git, prefix: &str) -> Result<Vec<String>, GitError> {
    let answer = git.run(&["for-each-ref", "--format=%(refname)", prefix])?;
    Ok(String::from_utf8_lossy(&answer).lines().map(str::to_owned).collect())
}

/// Returns the refs beyond the newest `keep`, except number 0. Refs without a number stay: dogwatch did not create them.
fn surplus<'a>(refs: impl Iterator<Item = &'a String>, keep: u64) -> Vec<String> {
    let number = |name: &str| name.rsplit_once('/')?.1.parse::<u64>().ok();
    let mut numbered: Vec<(u64, &String)> = refs.filter_map(|name| Some((number(name)?, name))).collect();
    numbered.retain(|(number, _)| *number > 0);
    numbered.sort_unstable();
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    let gone = numbered.len().saturating_sub(keep);
    numbered.into_iter().take(gone).map(|(_, name)| name.clone()).collect()
}

/// Deletes all of the refs or none.
fn delete(git: &Git, refs: &[String]) -> Result<u64, GitError> {
    if refs.is_empty() {
        return Ok(0);
    }
    let args = ["update-ref", "--stdin"];
    let mut command = git.command(&args);
    command.stdin(Stdio::piped());
    let mut running = git.start(command, &args)?;
    if let Some(mut stdin) = running.child.stdin.take() {
        for name in refs {
            writeln!(stdin, "delete {name}")?;
        }
    }
    running.finish()?;
    Ok(refs.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_by_number_and_the_first_stay() {
        let refs: Vec<String> =
            [0, 1, 2, 9, 10, 11].iter().map(|n| format!("refs/dogwatch/r/n/{n}")).collect();
        assert_eq!(
            surplus(refs.iter(), 2),
            ["refs/dogwatch/r/n/1", "refs/dogwatch/r/n/2", "refs/dogwatch/r/n/9"]
        );
        assert!(surplus(refs.iter(), 5).is_empty());
        assert_eq!(surplus(refs.iter(), 0).len(), 5);
        let other = ["refs/dogwatch/r/n/mine".to_owned()];
        assert!(surplus(other.iter(), 0).is_empty());
    }
}
