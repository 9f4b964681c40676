//! Decides which runs to remove, and which to keep and why. This module changes nothing.

use crate::runs::{FoundRun, registered, runs_in, state_dir};
use dogwatch_core::record::event::{Outcome, RunStarted};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::view::View;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::git::snapshot::{self, Stored};
use dogwatch_host::git::worktree::{self, Tidied};
use dogwatch_host::store::home;
use dogwatch_host::store::retire;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The most runs to remove at once; the next `gc` removes the rest.
pub const MAX_GONE: usize = 1_000;

/// The rule that keeps recent runs.
pub struct Retention {
    pub keep: u64,
    pub older_than: Dur,
    pub now: Wall,
}

impl Retention {
    fn is_old(&self, at: Wall) -> bool {
        at.plus(self.older_than) < self.now
    }
}

/// The runs and snapshots to remove.
#[derive(Default)]
pub struct Plan {
    pub gone: Vec<Gone>,
    /// Snapshots of runs whose record no longer exists.
    pub strays: Vec<Stray>,
    /// Runs that are old enough but must be kept, with the reason.
    pub kept: Vec<(RunId, String)>,
    /// Directories to clear of removals that were interrupted.
    pub runs_dirs: Vec<PathBuf>,
}

/// A run to remove.
pub struct Gone {
    pub found: FoundRun,
    pub outcome: Outcome,
    /// The checks of every node have passed.
    pub verified: bool,
    pub bytes: u64,
    /// The repository that holds the snapshots.
    pub repo: PathBuf,
    pub refs: Vec<String>,
    pub trees: usize,
    /// The first event of the run.
    pub started: Option<RunStarted>,
}

/// Snapshots without a record.
pub struct Stray {
    pub run: String,
    pub repo: PathBuf,
    pub refs: Vec<String>,
}

impl Plan {
    /// Plans which runs and snapshots to remove from these state directories.
    pub fn make(states: &BTreeSet<PathBuf>, retention: &Retention) -> Plan {
        let mut plan = Plan::default();
        let known: BTreeSet<RunId> = registered().map(|run| run.id).collect();
        for state in states {
            plan.plan_runs(state, retention);
            plan.plan_strays(state, &known, retention);
        }
        plan
    }

    fn plan_runs(&mut self, state: &Path, retention: &Retention) {
        let runs = state_dir(Some(state)).runs();
        let found = runs_in(&runs);
        self.runs_dirs.push(runs);
        let keep = usize::try_from(retention.keep).unwrap_or(usize::MAX);
        for found in found.into_iter().skip(keep) {
            if self.gone.len() >= MAX_GONE {
                return;
            }
            match judge(&found, retention) {
                Judged::Young => {}
                Judged::Stays(why) => self.kept.push((found.id.clone(), why)),
                Judged::Goes(gone) => self.gone.push(*gone),
            }
        }
    }

    /// Finds snapshots without a record. They are removed only by age, because their record may be in an unknown
    /// state directory.
    fn plan_strays(&mut self, state: &Path, known: &BTreeSet<RunId>, retention: &Retention) {
        let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
        let Some(project) = state.parent() else { return };
        let repo = home::work_tree(project);
        let Ok(all) = snapshot::stored(&repo, snapshot::REFS) else { return };
        let mut by_run: BTreeMap<&str, Vec<&Stored>> = BTreeMap::new();
        for stored in &all {
            let run = stored.name.strip_prefix(snapshot::REFS).and_then(|rest| rest.split('/').next());
            by_run.entry(run.unwrap_or_default()).or_default().push(stored);
        }
        for (run, refs) in by_run {
            let Ok(id) = run.parse::<RunId>() else { continue };
            let is_here = known.contains(&id) || state.join("runs").join(run).exists();
            if !is_here && refs.iter().all(|stored| retention.is_old(stored.at)) {
                let refs = refs.iter().map(|stored| stored.name.clone()).collect();
                self.strays.push(Stray { run: run.to_owned(), repo: repo.clone(), refs });
            }
        }
    }
}

enum Judged {
    Young,
    Stays(String),
    Goes(Box<Gone>),
}

fn judge(found: &FoundRun, retention: &Retention) -> Judged {
    // A run that started recently cannot have ended long ago, so its record need not be read.
    if began(&found.id).is_some_and(|at| !retention.is_old(at)) {
        return Judged::Young;
    }
    if found.is_live() {
        return Judged::Stays("it is live".to_owned());
    }
    let view = match found.view() {
        Ok(view) => view,
        Err(failure) => {
            return Judged::Stays(format!("cannot read its record: {}", failure.message()));
        }
    };
    if !retention.is_old(view.last.wall) {
        return Judged::Young;
    }
    let Some(end) = &view.ended else {
        return Judged::Stays("it did not end; `dogwatch resume` can continue it".to_owned());
    };
    let (outcome, verified) = (end.outcome, end.verified);
    match surroundings(found, &view, retention) {
        Ok((repo, refs, trees)) => {
            let bytes = retire::size(&found.dir);
            let started = view.started;
            let found = found.clone();
            Judged::Goes(Box::new(Gone { found, outcome, verified, bytes, repo, refs, trees, started }))
        }
        Err(why) => Judged::Stays(why),
    }
}

/// Returns the repository, the snapshots and the number of worktrees of a run, or the reason why it must be kept.
fn surroundings(
    found: &FoundRun,
    view: &View,
    retention: &Retention,
) -> Result<(PathBuf, Vec<String>, usize), String> {
    let trees = worktree::tidy_run(&found.state_dir(), &found.id, false);
    for tree in &trees {
        if let Tidied::Kept { path, why } = tree {
            return Err(format!("{why} ({})", path.display()));
        }
    }
    let repo = PathBuf::from(view.started.as_ref().map_or("", |started| started.work_dir.as_str()));
    // A run outside of a repository has no snapshots.
    if !home::work_tree(&repo).join(".git").exists() {
        return Ok((repo, Vec::new(), trees.len()));
    }
    let stored = snapshot::stored(&repo, &snapshot::run_refs(&found.id))?;
    let is_undo =
        |stored: &&Stored| stored.name.rsplit('/').next().is_some_and(|n| n.starts_with(snapshot::UNDO));
    if stored.iter().filter(is_undo).any(|stored| !retention.is_old(stored.at)) {
        return Err("it was undone recently, and its snapshots hold the state before the undo".to_owned());
    }
    Ok((repo, stored.into_iter().map(|stored| stored.name).collect(), trees.len()))
}

/// Returns when a run started, from its id.
fn began(id: &RunId) -> Option<Wall> {
    let stamp = id.as_str().get(..15)?;
    let at = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", stamp).ok()?;
    Some(Wall(at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_gives_the_start_time_and_the_retention_is_exact() {
        let id: RunId = "20261115-201533-k3f9".parse().expect("a run id");
        let at = began(&id).expect("a time");
        assert_eq!(at.to_string(), "2026-11-15T20:15:33.000Z");
        let old_at = |now| Retention { keep: 0, older_than: Dur::from_secs(60), now }.is_old(at);
        assert!(!old_at(at.plus(Dur::from_secs(60))));
        assert!(old_at(at.plus(Dur::from_millis(60_001))));
    }
}
