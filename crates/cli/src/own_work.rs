//! Determines what is the work of a run in a work tree, so that an undo keeps everything else.

use crate::runs::{FoundRun, registered};
use crate::snapshot_index::SnapshotIndex;
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use dogwatch_core::time::moment::Wall;
use dogwatch_host::git::snapshot::{self, OthersWork, OwnWork};
use dogwatch_host::store::{home, journal};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// When the snapshots of a run were taken, and when its iterations ran.
#[derive(Default)]
pub struct Timeline {
    snapshots: Vec<(Wall, NodeName, Iteration)>,
    iterations: Vec<Span>,
}

/// The time from the start of an iteration to its snapshot.
#[derive(Clone)]
struct Span {
    node: NodeName,
    from: Wall,
    /// `None` while no later event of the node is known.
    to: Option<Wall>,
}

impl Timeline {
    /// Adds the next event of the record.
    pub fn add(&mut self, recorded: &Recorded) {
        let Some(node) = recorded.event.node() else { return };
        let is_snapshot = matches!(recorded.event, Event::SnapshotTaken { .. });
        let snapshot = recorded.event.iteration().filter(|_| is_snapshot);
        let starts = matches!(recorded.event, Event::IterationStarted { .. });
        if snapshot.is_some() || starts || recorded.event.ending().is_some() {
            let open = self.iterations.iter_mut().rfind(|span| span.node == *node);
            if let Some(span) = open.filter(|span| span.to.is_none()) {
                span.to = Some(recorded.at);
            }
        }
        if starts {
            self.iterations.push(Span { node: node.clone(), from: recorded.at, to: None });
        }
        if let Some(iteration) = snapshot {
            self.snapshots.push((recorded.at, node.clone(), iteration));
        }
    }
}

/// A snapshot in the work tree of an undo.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shot {
    at: Wall,
    name: String,
}

/// The part of a run that happened in one work tree.
struct RunInTree {
    run: RunId,
    /// The snapshots that git still has, in order of time.
    shots: Vec<Shot>,
    spans: Vec<(Wall, Wall)>,
}

impl RunInTree {
    fn of(found: &FoundRun, index: &SnapshotIndex, tree: &Path, stored: &BTreeSet<String>) -> RunInTree {
        let here = |node: &NodeName| index.dir(node).is_ok_and(|dir| home::work_tree(&dir) == tree);
        let timeline = index.timeline();
        let taken = timeline.snapshots.iter().filter(|(_, node, _)| here(node));
        let shots = taken
            .map(|(at, node, n)| Shot { at: *at, name: snapshot::ref_name(&found.id, node, *n) })
            .filter(|shot| stored.contains(&shot.name));
        let spans = timeline.iterations.iter().filter(|span| here(&span.node));
        RunInTree {
            run: found.id.clone(),
            shots: shots.collect(),
            spans: spans.map(|span| (span.from, span.to.unwrap_or(Wall(i64::MAX)))).collect(),
        }
    }
}

/// Returns what is the work of a run in `dir`. An undo restores the snapshot `to`.
pub fn own_work(found: &FoundRun, index: &SnapshotIndex, dir: &Path, to: &str) -> Result<OwnWork, String> {
    let stored = snapshot::stored(dir, snapshot::REFS)?.into_iter().map(|stored| stored.name).collect();
    let tree = home::work_tree(dir);
    let own = RunInTree::of(found, index, &tree, &stored);
    let mut others = Vec::new();
    // A snapshot that an undo saved is not on the timeline. Everything after it is newer than the run.
    if let Some(since) = own.shots.iter().find(|shot| shot.name == to).map(|shot| shot.at) {
        let mut runs: Vec<FoundRun> = crate::runs::runs_in(&home::StateDir::at(found.state_dir()).runs());
        runs.extend(registered());
        let mut seen = BTreeSet::from([found.id.clone()]);
        runs.retain(|run| seen.insert(run.id.clone()) && was_written_since(run, since));
        // A run without snapshots or without a readable record cannot be distinguished from the user.
        let indexed = runs.iter().filter_map(|run| Some((run, SnapshotIndex::of(run).ok()?)));
        let in_tree = indexed.map(|(run, index)| RunInTree::of(run, &index, &tree, &stored));
        others = others_work(&own, &in_tree.collect::<Vec<_>>(), since);
    }
    let snapshots = own.shots.into_iter().rev().map(|shot| shot.name).collect();
    Ok(OwnWork { snapshots, others })
}

/// Returns whether the record of a run was written to at or after a time.
fn was_written_since(run: &FoundRun, since: Wall) -> bool {
    let since = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(since.0).unwrap_or(0));
    let written = std::fs::metadata(run.dir.join(journal::FILE)).and_then(|meta| meta.modified());
    written.is_ok_and(|written| written >= since)
}

/// Returns the changes since a time that another run may have made: those between two successive snapshots of any of
/// these runs, while an iteration of another run was running.
fn others_work(own: &RunInTree, others: &[RunInTree], since: Wall) -> Vec<OthersWork> {
    let Some(end) = own.shots.iter().map(|shot| shot.at).max() else { return Vec::new() };
    let all = own.shots.iter().chain(others.iter().flat_map(|other| &other.shots));
    let mut shots: Vec<&Shot> = all.filter(|shot| (since..=end).contains(&shot.at)).collect();
    shots.sort();
    let during = |from: Wall, to: Wall| {
        others.iter().find(|other| other.spans.iter().any(|span| span.0 < to && span.1 > from))
    };
    let pairs = shots.windows(2).filter_map(|pair| {
        let (from, to) = (pair.first()?, pair.get(1)?);
        let other = during(from.at, to.at)?;
        let why = format!("run {} worked here at that time and may have changed it", other.run.tail());
        Some(OthersWork { from: from.name.clone(), to: to.name.clone(), why })
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, shots: &[i64], spans: &[(i64, i64)]) -> RunInTree {
        let shot = |at: &i64| Shot { at: Wall(*at), name: format!("{id}@{at}") };
        RunInTree {
            run: format!("20261115-201533-{id}").parse().expect("a run id"),
            shots: shots.iter().map(shot).collect(),
            spans: spans.iter().map(|(from, to)| (Wall(*from), Wall(*to))).collect(),
        }
    }

    fn pairs(own: &RunInTree, others: &[RunInTree], since: i64) -> Vec<(String, String)> {
        others_work(own, others, Wall(since)).into_iter().map(|work| (work.from, work.to)).collect()
    }

    #[test]
    fn runs_that_take_turns_are_told_apart() {
        let own = run("k3f9", &[0, 10, 30, 50], &[(1, 10), (21, 30), (41, 50)]);
        let other = || run("h7m2", &[5, 20, 40, 60], &[(11, 20), (31, 40), (51, 60)]);
        let theirs = [("k3f9@10", "h7m2@20"), ("k3f9@30", "h7m2@40")];
        let theirs = theirs.map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(pairs(&own, &[other()], 0), theirs);
        assert_eq!(pairs(&own, &[other()], 30), theirs[1..], "earlier changes do not matter");
        assert!(pairs(&own, &[], 0).is_empty());
    }

    #[test]
    fn what_changed_while_both_worked_may_be_of_the_other() {
        let own = run("k3f9", &[0, 20], &[(1, 20)]);
        let other = run("h7m2", &[1, 10], &[(2, 10)]);
        let shared = [("h7m2@1", "h7m2@10")].map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(pairs(&own, &[other], 0), shared);
        let dead = run("h7m2", &[1], &[(2, i64::MAX)]);
        let shared = [("h7m2@1", "k3f9@20")].map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(pairs(&own, &[dead], 0), shared, "it is not known when it ended");
    }
}
