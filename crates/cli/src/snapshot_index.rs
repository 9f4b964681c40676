//! The index of a run's snapshots, built from its record. Finds the snapshot that a command line selects.

use crate::error::CliError;
use crate::own_work::Timeline;
use crate::runs::FoundRun;
use dogwatch_core::record::event::{Event, RunStarted};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_host::git::snapshot;
use dogwatch_host::git::worktree;
use dogwatch_host::store::fleet_job;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The most nodes to name in an error.
const MAX_NAMED: usize = 10;

/// The snapshots of a run, by node and iteration.
pub struct SnapshotIndex {
    found: FoundRun,
    started: Box<RunStarted>,
    nodes: BTreeMap<NodeName, NodeIterations>,
    /// The snapshots after iterations, in order of time.
    taken: Vec<(NodeName, Iteration)>,
    /// The first and the latest snapshot of any node.
    first: (NodeName, Iteration),
    last: (NodeName, Iteration),
    timeline: Timeline,
    /// The record has the end of the run.
    is_over: bool,
}

/// The iterations of one node.
#[derive(Default)]
struct NodeIterations {
    /// The last iteration that started.
    last: Iteration,
    /// It has not ended.
    is_open: bool,
    /// The iterations after which a snapshot was taken. Number 0 is the snapshot before the first iteration.
    snapshots: BTreeSet<Iteration>,
}

impl SnapshotIndex {
    /// Reads the snapshots of a run from its record.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    pub fn of(found: &FoundRun) -> Result<SnapshotIndex, CliError> {
        let record = found.record()?;
        let mut started = None;
        let mut nodes: BTreeMap<NodeName, NodeIterations> = BTreeMap::new();
        let (mut first, mut last, mut taken) = (None, None, Vec::new());
        let (mut timeline, mut is_over) = (Timeline::default(), false);
        for recorded in record.events {
            timeline.add(&recorded);
            if let (Some(_), Some(node)) = (recorded.event.ending(), recorded.event.node()) {
                nodes.entry(node.clone()).or_default().is_open = false;
            }
            match recorded.event {
                Event::RunStarted(s) => started = Some(s),
                Event::RunResumed(_) => is_over = false,
                Event::RunEnded(_) => is_over = true,
                Event::IterationStarted { node, iteration, .. } => {
                    let seen = nodes.entry(node).or_default();
                    (seen.last, seen.is_open) = (iteration, true);
                }
                Event::SnapshotTaken { node, iteration, .. } => {
                    nodes.entry(node.clone()).or_default().snapshots.insert(iteration);
                    first.get_or_insert((node.clone(), iteration));
                    if iteration.0 > 0 {
                        taken.push((node.clone(), iteration));
                    }
                    last = Some((node, iteration));
                }
                _ => {}
            }
        }
        let started = started
            .ok_or_else(|| CliError::usage(format!("run {} ended before its first event", found.id)))?;
        let Some((first, last)) = first.zip(last) else {
            return Err(CliError::with_help(
                format!("run {} has no snapshots", found.id),
                "snapshots need a git work tree; they are taken before the first iteration and after every session",
            ));
        };
        Ok(SnapshotIndex { found: found.clone(), started, nodes, taken, first, last, timeline, is_over })
    }

    /// Returns the iterations that have a snapshot, in order of time.
    pub fn iterations(&self) -> impl Iterator<Item = (NodeName, Iteration)> {
        self.taken.iter().cloned()
    }

    /// Returns when the snapshots were taken and when the iterations ran.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns how the run was started.
    pub fn started(&self) -> &RunStarted {
        &self.started
    }

    /// Returns the selected node: the named one, the only one, or the only one with that iteration. Without a name and
    /// an iteration, returns the node of the latest snapshot.
    pub fn node(&self, wanted: Option<&str>, iteration: Option<Iteration>) -> Result<NodeName, CliError> {
        let names = || self.names();
        if let Some(wanted) = wanted {
            let known = self.nodes.keys().find(|name| name.as_str() == wanted).cloned();
            return known.ok_or_else(|| {
                CliError::with_help(
                    format!("run {} has no snapshots of a node `{wanted}`", self.found.id),
                    format!("nodes with snapshots: {}", names()),
                )
            });
        }
        let with = |seen: &NodeIterations| iteration.is_none_or(|n| n <= seen.last);
        let mut fit = self.nodes.iter().filter(|(_, seen)| with(seen)).map(|(name, _)| name);
        match (fit.next(), fit.next(), iteration) {
            (Some(one), None, _) => Ok(one.clone()),
            (Some(_), Some(_), None) => Ok(self.last.0.clone()),
            (Some(_), Some(_), Some(n)) => Err(CliError::with_help(
                format!("several nodes of run {} have an iteration {n}", self.found.id),
                format!("select one with --node: {}", names()),
            )),
            (None, _, _) => Err(self.no_iteration(iteration.unwrap_or_default())),
        }
    }

    fn names(&self) -> String {
        let mut names: Vec<&str> = self.nodes.keys().map(NodeName::as_str).take(MAX_NAMED).collect();
        if self.nodes.len() > MAX_NAMED {
            names.push("…");
        }
        names.join(", ")
    }

    /// Returns the work tree, and the refs of the first and the last snapshot: of a node, or of all nodes if they share
    /// the work tree.
    pub fn whole(&self, wanted: Option<&str>) -> Result<(PathBuf, String, String), CliError> {
        let (first, last) = match wanted {
            None if self.nodes.len() > 1 => {
                if self.started.settings.nodes.iter().any(|node| node.settings.worktree) {
                    return Err(CliError::with_help(
                        format!("the nodes of run {} have separate worktrees", self.found.id),
                        format!("select one with --node: {}", self.names()),
                    ));
                }
                (self.first.clone(), self.last.clone())
            }
            _ => {
                let node = self.node(wanted, None)?;
                let last = self.last_of(&node)?;
                let first = self.seen(&node).snapshots.first().copied().filter(|first| *first < last);
                let first = first.map_or_else(|| self.before(&node, last), Ok)?;
                ((node.clone(), first), (node, last))
            }
        };
        let dir = self.dir(&last.0)?;
        let from = self.name(&dir, &first.0, first.1)?;
        let to = self.name(&dir, &last.0, last.1)?;
        Ok((dir, from, to))
    }

    fn no_iteration(&self, n: Iteration) -> CliError {
        let last = self.nodes.values().map(|seen| seen.last).max().unwrap_or_default();
        CliError::with_help(
            format!("run {} has no iteration {n}; the last is {last}", self.found.id),
            format!("`dogwatch events {}` lists the iterations", self.found.tail()),
        )
    }

    /// Returns the last iteration of a node that has a snapshot.
    pub fn last_of(&self, node: &NodeName) -> Result<Iteration, CliError> {
        let last = self.seen(node).snapshots.iter().next_back().copied();
        last.filter(|n| n.0 > 0).ok_or_else(|| {
            let what = format!(
                "run {} has no snapshot after an iteration of `{node}`, only the one from the start",
                self.found.id
            );
            self.without_snapshot(node, what)
        })
    }

    /// Returns the error for a missing snapshot. If the supervisor was lost during the last iteration of the node, its
    /// help names the command that takes the snapshot.
    fn without_snapshot(&self, node: &NodeName, what: String) -> CliError {
        let is_lost = self.seen(node).is_open && !self.is_over && !self.found.is_live();
        // Only the fleet continues its jobs.
        if !is_lost || fleet_job::of_tree(Path::new(&self.started.work_dir)).is_some() {
            return CliError::usage(what);
        }
        let run = self.found.tail();
        CliError::with_help(
            what,
            format!(
                "dogwatch was killed during the last iteration, whose work is in the work tree; \
                 `dogwatch resume {run}` takes its snapshot and continues the run"
            ),
        )
    }

    fn seen(&self, node: &NodeName) -> &NodeIterations {
        &self.nodes[node]
    }

    /// Returns the snapshot after an iteration.
    pub fn after(&self, node: &NodeName, n: Iteration) -> Result<Iteration, CliError> {
        let seen = self.seen(node);
        if n > seen.last || n.0 == 0 {
            return Err(self.no_iteration(n));
        }
        if seen.snapshots.contains(&n) {
            return Ok(n);
        }
        if n == seen.last && seen.is_open && self.found.is_live() {
            return Err(CliError::with_help(
                format!("iteration {n} of `{node}` is still running"),
                "its snapshot is taken when the session ends",
            ));
        }
        let what = format!(
            "no snapshot after iteration {n} of `{node}`: it did not call the agent, or dogwatch was killed during it"
        );
        Err(if n == seen.last { self.without_snapshot(node, what) } else { CliError::usage(what) })
    }

    /// Returns the last snapshot before an iteration. Iterations that did not call the agent changed nothing and have
    /// no snapshot, so this may be an earlier one.
    pub fn before(&self, node: &NodeName, n: Iteration) -> Result<Iteration, CliError> {
        let seen = self.seen(node);
        if n > seen.last || n.0 == 0 {
            return Err(self.no_iteration(n));
        }
        let before = seen.snapshots.range(..n).next_back().copied();
        before.ok_or_else(|| CliError::usage(format!("no snapshot before iteration {n} of `{node}`")))
    }

    /// Returns the ref of a recorded snapshot, or an error if git no longer has it.
    pub fn name(&self, dir: &Path, node: &NodeName, n: Iteration) -> Result<String, CliError> {
        let name = snapshot::ref_name(&self.found.id, node, n);
        match snapshot::commit_of(dir, &name) {
            Ok(Some(_)) => Ok(name),
            Ok(None) => Err(CliError::with_help(
                format!("the snapshot {name} is gone"),
                "dogwatch keeps the last 200 snapshots of a node, and `dogwatch gc` removes those of old runs",
            )),
            Err(why) => Err(CliError::usage(format!("{}: {why}", dir.display()))),
        }
    }

    /// Returns the directory in which a node works: its worktree, or the directory of the run.
    pub fn dir(&self, node: &NodeName) -> Result<PathBuf, CliError> {
        let own = worktree::place(&self.found.state_dir(), &self.found.id, node);
        if own.is_dir() {
            return Ok(own);
        }
        let dir = PathBuf::from(&self.started.work_dir);
        if !dir.is_dir() {
            return Err(CliError::usage(format!(
                "the directory of the run does not exist: {}",
                dir.display()
            )));
        }
        Ok(dir)
    }

    /// Returns the command that restores the worktree of a node, if the node had one and it is gone.
    pub fn lost_worktree(&self, dir: &Path, node: &NodeName) -> Option<String> {
        let own = worktree::place(&self.found.state_dir(), &self.found.id, node);
        let branch = worktree::branch(&self.found.id, node);
        let known = snapshot::commit_of(dir, &format!("refs/heads/{branch}"));
        (dir != own && matches!(known, Ok(Some(_))))
            .then(|| format!("git worktree add {} {branch}", own.display()))
    }
}
