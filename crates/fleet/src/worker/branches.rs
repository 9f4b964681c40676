//! The branches of nodes that have worktrees of their own: pushed while the run works, restored after a takeover, and merged
//! at its end.

use super::command::{self, Cancel, CommandError};
use super::git::Checkout;
use super::journal::{self, Line, Remains};
use crate::names::JobId;
use dogwatch_core::record::ids::{NodeName, RunId};
use dogwatch_host::git::worktree;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How long the merge of all nodes may take, with its checks.
pub const MAX_MERGE: Duration = Duration::from_secs(3600);

/// The branches of a run, by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branches {
    all: BTreeMap<String, Branch>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Branch {
    name: String,
    /// The commit with all the work of a node that is done.
    done: Option<String>,
}

impl Branches {
    /// Returns the branches that the journal of an earlier claim names.
    pub fn of(remains: &Remains) -> Branches {
        let mut branches = Branches::default();
        for line in remains.journal.split(|byte| *byte == b'\n') {
            match journal::read_line(line) {
                Line::Worktree { node, branch } => branches.add(&node, &branch),
                Line::Committed { node, commit } => {
                    branches.all.entry(node).or_default().done = Some(commit);
                }
                Line::Started(_)
                | Line::Saved { .. }
                | Line::Moved
                | Line::Limited(_)
                | Line::Ended { .. }
                | Line::Other => {}
            }
        }
        branches
    }

    /// Adds the branch of a node.
    pub fn add(&mut self, node: &str, branch: &str) {
        branch.clone_into(&mut self.all.entry(node.to_owned()).or_default().name);
    }

    /// Returns whether the node has a worktree of its own.
    pub fn has(&self, node: &str) -> bool {
        self.all.contains_key(node)
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }

    /// Returns whether no node has a worktree of its own.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Pushes a commit with the work of a node.
    pub async fn push(
        &self,
        checkout: &Checkout,
        (id, epoch): (&JobId, u64),
        node: &str,
        what: &str,
    ) -> Result<(), CommandError> {
        let Some(branch) = self.all.get(node) else { return Ok(()) };
        let cancel = Cancel::never();
        let commit = checkout.commit_of(what, &cancel).await?;
        checkout.push(&commit, &id.branch_ref(epoch, last_part(&branch.name)), &cancel).await
    }

    /// Creates the branches again that an earlier claim pushed. A node that is done continues from the commit in the journal;
    /// the work of another one is as its last snapshot.
    pub async fn restore(
        &self,
        checkout: &Checkout,
        id: &JobId,
        cancel: &Cancel,
    ) -> Result<(), CommandError> {
        if self.is_empty() {
            return Ok(());
        }
        let cache = &checkout.cache;
        let spec = format!("+refs/dogwatch/{0}/*:refs/fetched/{0}/*", id.job);
        let fetch = ["fetch", "--quiet", "--no-tags", "--", &checkout.repo, &spec];
        checkout.git_in(cache, &fetch, cancel).await?;
        let pattern = format!("refs/fetched/{}/", id.job);
        let list = ["for-each-ref", "--format=%(refname) %(objectname)", &pattern];
        let pushed = checkout.git_in(cache, &list, cancel).await?;
        for branch in self.all.values() {
            let last = latest(&pushed, &pattern, last_part(&branch.name));
            let Some(commit) = branch.done.as_deref().or(last) else { continue };
            // A snapshot of an unchanged tree adds nothing to the branch.
            let same = ["diff", "--quiet", &format!("{commit}^1"), commit];
            let commit = match branch.done.is_none() && checkout.git_in(cache, &same, cancel).await.is_ok() {
                true => format!("{commit}^1"),
                false => commit.to_owned(),
            };
            let name = format!("refs/heads/{}", branch.name);
            checkout.git_in(cache, &["update-ref", &name, &commit], cancel).await?;
        }
        Ok(())
    }

    /// Merges the branches of all nodes that are done, with their checks, and returns the commit.
    pub async fn merge(
        &self,
        program: &Path,
        checkout: &Checkout,
        (id, epoch): (&JobId, u64),
        run: &RunId,
        cancel: &Cancel,
    ) -> Result<String, CommandError> {
        let into = format!("dogwatch-result/{}/{epoch}", id.job);
        let mut merge = std::process::Command::new(program);
        merge.args(["merge", run.as_str(), "--into", &into]).current_dir(&checkout.tree);
        command::run(merge, MAX_MERGE, cancel).await?;
        checkout.commit_of(&format!("refs/heads/{into}"), cancel).await
    }

    /// Removes the worktrees, and the branches from the cache. Leftovers do no harm.
    pub async fn remove(&self, checkout: &Checkout, (id, epoch): (&JobId, u64), run: &RunId) {
        for node in self.nodes() {
            let tree = tree_of(checkout, run, node).tree.display().to_string();
            let remove = ["worktree", "remove", "--force", "--force", &tree];
            let _ = checkout.git_in(&checkout.cache, &remove, &Cancel::never()).await;
        }
        let into = format!("dogwatch-result/{}/{epoch}", id.job);
        for name in self.all.values().map(|branch| branch.name.as_str()).chain([into.as_str()]) {
            let remove = ["update-ref", "-d", &format!("refs/heads/{name}")];
            let _ = checkout.git_in(&checkout.cache, &remove, &Cancel::never()).await;
        }
    }
}

/// Returns the part of a branch's name that names its node.
fn last_part(branch: &str) -> &str {
    branch.rsplit('/').next().unwrap_or(branch)
}

/// Returns the commit of a node that the latest claim pushed.
fn latest<'a>(refs: &'a str, prefix: &str, node: &str) -> Option<&'a str> {
    let pushed = refs.lines().filter_map(|line| {
        let (name, commit) = line.split_once(' ')?;
        let (epoch, of) = name.strip_prefix(prefix)?.split_once("/nodes/")?;
        (of == node).then_some((epoch.parse::<u64>().ok()?, commit))
    });
    pushed.max_by_key(|(epoch, _)| *epoch).map(|(_, commit)| commit)
}

/// Returns the worktree of a node.
pub fn tree_of(checkout: &Checkout, run: &RunId, node: &str) -> Checkout {
    let state = checkout.tree.join(".dogwatch");
    let tree = worktree::place(&state, run, &NodeName::new(node));
    checkout.beside(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_the_latest_claim_is_restored() {
        let refs = "refs/fetched/one/2/nodes/a aaa\nrefs/fetched/one/10/nodes/a bbb\n\
                    refs/fetched/one/10/nodes/ab ccc\nrefs/fetched/one/11/tree ddd\n";
        assert_eq!(latest(refs, "refs/fetched/one/", "a"), Some("bbb"));
        assert_eq!(latest(refs, "refs/fetched/one/", "c"), None);
    }

    #[test]
    fn the_branches_of_a_run_are_read_from_its_journal() {
        let journal = concat!(
            r#"{"event":"worktree_ready","node":"a","branch":"dogwatch/r/a"}"#,
            "\n",
            r#"{"event":"worktree_ready","node":"b","branch":"dogwatch/r/b"}"#,
            "\n",
            r#"{"event":"work_committed","node":"a","branch":"dogwatch/r/a","commit":"aaa"}"#,
            "\n",
        );
        let branches = Branches::of(&Remains { journal: journal.into(), tree: None });
        assert_eq!(branches.all["a"], Branch { name: "dogwatch/r/a".into(), done: Some("aaa".into()) });
        assert_eq!(branches.all["b"], Branch { name: "dogwatch/r/b".into(), done: None });
        assert!(branches.has("a") && !branches.has("c"));
    }
}
