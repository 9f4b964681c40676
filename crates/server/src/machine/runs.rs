//! The runs of this machine, each with the fold of its record. Nothing is read that has not changed.

use super::fold::Fold;
use crate::refusal::Refusal;
use dogwatch_core::ids::RunId;
use dogwatch_core::moment::{Moment, Wall};
use dogwatch_core::status::{State, Status};
use dogwatch_core::view::View;
use dogwatch_host::clock;
use dogwatch_host::registry::{self, MAX_LISTED, Pointer, Registry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// How many runs a list has if nobody says; at most as many as the registry lists.
pub(crate) const RUNS_LISTED: usize = 200;

pub(crate) struct Runs {
    registry: Registry,
    folds: Mutex<BTreeMap<RunId, Arc<Mutex<Fold>>>>,
}

/// A run in the list of runs.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct RunEntry {
    pub run: RunId,
    /// The work tree.
    pub project: String,
    /// The loop file.
    pub path: String,
    /// Where its record lies.
    pub run_dir: String,
    /// Whether a dogwatch supervises it now, and its process, if so.
    pub alive: bool,
    pub pid: Option<u32>,
    /// When its dogwatch began; a run that was resumed has a later one than its id says.
    pub since: Wall,
    /// As in its status; null if its record cannot be read.
    pub state: Option<State>,
    /// Its status document; null if its record cannot be read.
    pub status: Option<Status>,
    /// Why its record cannot be read.
    pub error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunsQuery {
    /// Only runs of this work tree.
    pub project: Option<String>,
    /// At most so many.
    pub limit: Option<usize>,
}

pub(crate) const BAD_RUNS_QUERY: &str = "`project` is a work tree's path, `limit` a number from 1 to 1000";

impl RunsQuery {
    pub fn limit(&self) -> Result<usize, Refusal> {
        match self.limit.unwrap_or(RUNS_LISTED) {
            limit @ 1..=MAX_LISTED => Ok(limit),
            _ => Err(Refusal::BadQuery(BAD_RUNS_QUERY)),
        }
    }
}

impl Runs {
    pub fn new(registry: Registry) -> Runs {
        Runs { registry, folds: Mutex::default() }
    }

    pub fn find(&self, run: &RunId) -> Result<Pointer, Refusal> {
        self.registry.find(run).ok_or(Refusal::NoSuchRun)
    }

    /// Lets somebody see the run as it stands. The moment is there if somebody supervises it now.
    pub fn look<T>(
        &self,
        pointer: &Pointer,
        see: impl FnOnce(&View, Option<Moment>) -> T,
    ) -> Result<T, Refusal> {
        let fold = self.fold(&pointer.run);
        let mut fold = fold.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the record: what is written between the two looks must not be by somebody who is gone.
        let live = registry::is_live(&pointer.run_dir);
        let view = fold.catch_up(&pointer.run_dir).map_err(Refusal::NoRecord)?;
        Ok(see(view, live.then(clock::now)))
    }

    /// Newest first.
    pub fn list(&self, query: &RunsQuery, limit: usize) -> Vec<RunEntry> {
        let pointers = self.registry.list();
        self.forget_all_but(&pointers);
        let entries = pointers.iter().map(|pointer| self.entry(pointer));
        let wanted = entries.filter(|e| query.project.as_ref().is_none_or(|project| *project == e.project));
        wanted.take(limit).collect()
    }

    fn entry(&self, pointer: &Pointer) -> RunEntry {
        let looked = self.look(pointer, Status::of);
        let (status, error) = match looked {
            Ok(status) => (Some(status), None),
            Err(Refusal::NoRecord(why)) => (None, Some(why)),
            Err(_) => (None, None),
        };
        let alive = status.as_ref().map_or_else(|| registry::is_live(&pointer.run_dir), |s| s.live);
        let work_dir = status.as_ref().and_then(|s| s.work_dir.clone());
        RunEntry {
            run: pointer.run.clone(),
            project: work_dir.unwrap_or_else(|| text(&work_tree_of(&pointer.run_dir))),
            path: text(&pointer.path),
            run_dir: text(&pointer.run_dir),
            alive,
            pid: alive.then_some(pointer.pid),
            since: pointer.since,
            state: status.as_ref().map(|s| s.state),
            status,
            error,
        }
    }

    fn fold(&self, run: &RunId) -> Arc<Mutex<Fold>> {
        let mut folds = self.folds.lock().unwrap_or_else(PoisonError::into_inner);
        // Those who ask for single runs must not make it grow without end either.
        if folds.len() > MAX_LISTED {
            folds.clear();
        }
        Arc::clone(folds.entry(run.clone()).or_default())
    }

    fn forget_all_but(&self, pointers: &[Pointer]) {
        let mut folds = self.folds.lock().unwrap_or_else(PoisonError::into_inner);
        if folds.len() > pointers.len() {
            folds.retain(|run, _| pointers.iter().any(|p| p.run == *run));
        }
    }
}

/// `PROJECT/.dogwatch/runs/RUN`: where a record cannot be read, its place tells whose it is.
fn work_tree_of(run_dir: &Path) -> std::path::PathBuf {
    run_dir.ancestors().nth(3).unwrap_or(run_dir).to_owned()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
