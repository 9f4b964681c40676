//! The snapshots of a run, as its record tells of them, and which of them a person means.

use crate::error::Failure;
use crate::runs::FoundRun;
use dogwatch_core::event::{Event, RunStarted};
use dogwatch_core::ids::{Iteration, NodeName};
use dogwatch_host::{snapshot, worktree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Nodes that an error names.
const MAX_NAMED: usize = 10;

/// What a run has kept.
pub struct Kept {
    found: FoundRun,
    started: Box<RunStarted>,
    /// The iterations of each node, and those of them after which a snapshot was taken.
    nodes: BTreeMap<NodeName, Seen>,
    last: Option<NodeName>,
}

#[derive(Default)]
struct Seen {
    last: Iteration,
    snapshots: BTreeSet<Iteration>,
}

impl Kept {
    pub fn of(found: &FoundRun) -> Result<Kept, Failure> {
        let record = found.record()?;
        let mut started = None;
        let mut nodes: BTreeMap<NodeName, Seen> = BTreeMap::new();
        let mut last = None;
        for recorded in record.events {
            match recorded.event {
                Event::RunStarted(s) => started = Some(s),
                Event::IterationStarted { node, iteration, .. } => {
                    nodes.entry(node).or_default().last = iteration;
                }
                Event::SnapshotTaken { node, iteration, .. } => {
                    nodes.entry(node.clone()).or_default().snapshots.insert(iteration);
                    last = Some(node);
                }
                _ => {}
            }
        }
        let started =
            started.ok_or_else(|| Failure::usage(format!("run {} died before it began", found.id)))?;
        if last.is_none() {
            return Err(Failure::with_hint(
                format!("run {} kept no snapshots", found.id),
                "they are taken in a git work tree, before the first iteration and after every session",
            ));
        }
        Ok(Kept { found: found.clone(), started, nodes, last })
    }

    pub fn started(&self) -> &RunStarted {
        &self.started
    }

    /// The node that is meant: the only one, the one that is named, or the only one with that iteration.
    pub fn node(&self, wanted: Option<&str>, iteration: Option<Iteration>) -> Result<NodeName, Failure> {
        let names = || {
            let mut names: Vec<&str> = self.nodes.keys().map(NodeName::as_str).take(MAX_NAMED).collect();
            if self.nodes.len() > MAX_NAMED {
                names.push("…");
            }
            names.join(", ")
        };
        if let Some(wanted) = wanted {
            let known = self.nodes.keys().find(|name| name.as_str() == wanted).cloned();
            return known.ok_or_else(|| {
                Failure::with_hint(
                    format!("run {} kept nothing of a node `{wanted}`", self.found.id),
                    format!("of these it did: {}", names()),
                )
            });
        }
        let with = |seen: &Seen| iteration.is_none_or(|n| n <= seen.last);
        let mut fit = self.nodes.iter().filter(|(_, seen)| with(seen)).map(|(name, _)| name);
        match (fit.next(), fit.next(), iteration) {
            (Some(one), None, _) => Ok(one.clone()),
            (Some(_), Some(_), None) => Ok(self.last.clone().expect("there is a snapshot, so it has a node")),
            (Some(_), Some(_), Some(n)) => Err(Failure::with_hint(
                format!("several nodes of run {} have an iteration {n}", self.found.id),
                format!("name one with --node: {}", names()),
            )),
            (None, _, _) => Err(self.no_iteration(iteration.unwrap_or_default())),
        }
    }

    fn no_iteration(&self, n: Iteration) -> Failure {
        let last = self.nodes.values().map(|seen| seen.last).max().unwrap_or_default();
        Failure::usage(format!("run {} has no iteration {n}: the last is {last}", self.found.id))
    }

    /// The last iteration of a node that has a snapshot.
    pub fn last_of(&self, node: &NodeName) -> Result<Iteration, Failure> {
        let last = self.seen(node).snapshots.iter().next_back().copied();
        last.filter(|n| n.0 > 0).ok_or_else(|| {
            Failure::usage(format!(
                "run {} has no snapshot after an iteration of `{node}`, only the one before",
                self.found.id
            ))
        })
    }

    fn seen(&self, node: &NodeName) -> &Seen {
        &self.nodes[node]
    }

    /// The snapshot after an iteration.
    pub fn after(&self, node: &NodeName, n: Iteration) -> Result<Iteration, Failure> {
        let seen = self.seen(node);
        if n > seen.last || n.0 == 0 {
            return Err(self.no_iteration(n));
        }
        if seen.snapshots.contains(&n) {
            return Ok(n);
        }
        Err(Failure::usage(format!(
            "no snapshot was taken after iteration {n} of `{node}`: no agent was called in it, or it was the last before a kill"
        )))
    }

    /// The last snapshot before an iteration. One that called no agent has none, and changed nothing.
    pub fn before(&self, node: &NodeName, n: Iteration) -> Result<Iteration, Failure> {
        let seen = self.seen(node);
        if n > seen.last || n.0 == 0 {
            return Err(self.no_iteration(n));
        }
        let before = seen.snapshots.range(..n).next_back().copied();
        before
            .ok_or_else(|| Failure::usage(format!("no snapshot was taken before iteration {n} of `{node}`")))
    }

    /// The ref of a snapshot that the record tells of, if git still has it.
    pub fn name(&self, dir: &Path, node: &NodeName, n: Iteration) -> Result<String, Failure> {
        let name = snapshot::ref_name(&self.found.id, node, n);
        match snapshot::commit_of(dir, &name) {
            Ok(Some(_)) => Ok(name),
            Ok(None) => Err(Failure::with_hint(
                format!("the snapshot {name} is gone"),
                "the last 200 of a node are kept, and those of old runs go with `dogwatch gc`",
            )),
            Err(why) => Err(Failure::usage(format!("{}: {why}", dir.display()))),
        }
    }

    /// Where a node works: in the run's directory, or in a worktree of its own.
    pub fn dir(&self, node: &NodeName) -> Result<PathBuf, Failure> {
        let own = worktree::place(&self.found.state_dir(), &self.found.id, node);
        if own.is_dir() {
            return Ok(own);
        }
        let dir = PathBuf::from(&self.started.work_dir);
        if !dir.is_dir() {
            return Err(Failure::usage(format!("the run's directory {} is not there", dir.display())));
        }
        Ok(dir)
    }

    /// A node that had a worktree of its own has none any more.
    pub fn lost_worktree(&self, dir: &Path, node: &NodeName) -> Option<String> {
        let own = worktree::place(&self.found.state_dir(), &self.found.id, node);
        let branch = worktree::branch(&self.found.id, node);
        let known = snapshot::commit_of(dir, &format!("refs/heads/{branch}"));
        (dir != own && matches!(known, Ok(Some(_))))
            .then(|| format!("git worktree add {} {branch}", own.display()))
    }
}
