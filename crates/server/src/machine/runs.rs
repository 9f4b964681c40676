//! The runs of this machine, each with the fold of its record. Unchanged files are not read again.

use super::fold::Fold;
use crate::error::ApiError;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::status::{State, Status};
use dogwatch_core::record::view::View;
use dogwatch_core::time::moment::{Moment, Wall};
use dogwatch_host::store::journal::KnownHead;
use dogwatch_host::store::lock;
use dogwatch_host::store::registry::{self, MAX_LISTED, Pointer, Registry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How many runs are listed by default; the maximum is the size of the registry's list.
pub(crate) const RUNS_LISTED: usize = 200;

/// Directory timestamps are coarse. A change younger than this may share its timestamp with a later change.
const SETTLED: Duration = Duration::from_secs(2);

/// When each registry was modified last.
type ChangeTimes = Vec<Option<SystemTime>>;

/// The runs in the registries, with a cached fold for each.
pub(crate) struct Runs {
    /// The registry of this machine, and those of other machines.
    registries: Vec<Registry>,
    /// The cached pointers, and when the registries were modified last before they were read.
    pointers: Mutex<(Option<ChangeTimes>, Arc<Vec<Pointer>>)>,
    folds: Mutex<BTreeMap<RunId, Arc<Mutex<Fold>>>>,
}

/// A run in the list of runs.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct RunEntry {
    /// The run id.
    pub run: RunId,
    /// The machine of the run; absent for a run of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The job of a fleet that the run belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The job of the graph, for a node of a graph that is spread over the workers of a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// The work tree.
    pub project: String,
    /// The loop file.
    pub path: String,
    /// The directory of its record.
    pub run_dir: String,
    /// Whether a dogwatch process supervises the run now.
    pub alive: bool,
    /// The id of the supervising process, if there is one.
    pub pid: Option<u32>,
    /// When the latest dogwatch process of this run started. For a resumed run this is later than the time in its id.
    pub since: Wall,
    /// The state from its status document; null if its record cannot be read.
    pub state: Option<State>,
    /// Its status document; null if its record cannot be read.
    pub status: Option<Status>,
    /// Why its record cannot be read.
    pub error: Option<String>,
}

/// The query parameters of the list of runs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunsQuery {
    /// Lists only the runs of this work tree.
    pub project: Option<String>,
    /// The maximum number of runs to list.
    pub limit: Option<usize>,
}

pub(crate) const BAD_RUNS_QUERY: &str =
    "`project` must be the path of a work tree and `limit` a number from 1 to 1000";

impl RunsQuery {
    /// Returns the effective limit, or a refusal if it is out of range.
    pub fn limit(&self) -> Result<usize, ApiError> {
        match self.limit.unwrap_or(RUNS_LISTED) {
            limit @ 1..=MAX_LISTED => Ok(limit),
            _ => Err(ApiError::BadQuery(BAD_RUNS_QUERY)),
        }
    }
}

impl Runs {
    /// Creates an empty cache over these registries. The first is that of this machine.
    pub fn new(registries: Vec<Registry>) -> Runs {
        Runs { registries, pointers: Mutex::default(), folds: Mutex::default() }
    }

    /// Finds a run by its id.
    pub fn find(&self, run: &RunId) -> Result<Pointer, ApiError> {
        let (own, others) = self.registries.split_first().ok_or(ApiError::NoSuchRun)?;
        let copies = others.iter().filter_map(|registry| registry.find(run));
        let found = registry::merge(own.find(run).into_iter().collect(), copies);
        found.into_iter().next().ok_or(ApiError::NoSuchRun)
    }

    /// Returns the status of a run, with what is wrong with its record.
    pub fn status(&self, pointer: &Pointer) -> Result<Status, ApiError> {
        let looked = self.look(pointer, |view, now| (Status::of(view, now), now.is_some()));
        let (status, live) = looked?;
        let fold = self.fold(&pointer.run);
        let mut fold = fold.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = fold.integrity(live, &|| self.head(pointer)).problem();
        Ok(status.with_record_problem(problem))
    }

    fn head(&self, pointer: &Pointer) -> Result<Option<KnownHead>, String> {
        match self.registries.first() {
            Some(ours) if pointer.origin.is_none() => ours.known_head(&pointer.run, &pointer.run_dir),
            // The head is on the other machine.
            Some(_) | None => Ok(None),
        }
    }

    /// Passes the current view of a run to `see`, with the current moment if the run is supervised now.
    pub fn look<T>(
        &self,
        pointer: &Pointer,
        see: impl FnOnce(&View, Option<Moment>) -> T,
    ) -> Result<T, ApiError> {
        let fold = self.fold(&pointer.run);
        let mut fold = fold.lock().unwrap_or_else(PoisonError::into_inner);
        let head = || self.head(pointer);
        let ended = fold.catch_up(&pointer.run_dir, &head).map_err(ApiError::NoRecord)?.is_over();
        let live = !ended && registry::is_live(&pointer.run_dir);
        if !live && !ended {
            // The supervisor may have recorded the end between reading the journal and checking for it. Read once more.
            fold.catch_up(&pointer.run_dir, &head).map_err(ApiError::NoRecord)?;
            // The lock of a run of another machine is there.
            if pointer.origin.is_none() {
                lock::note_loss(&mut fold.view);
            }
        }
        Ok(see(&fold.view, live.then(|| pointer.now())))
    }

    /// Lists the runs, newest first.
    pub fn list(&self, query: &RunsQuery, limit: usize) -> Vec<RunEntry> {
        let pointers = self.pointers();
        self.forget_all_but(&pointers);
        let entries = pointers.iter().filter_map(|pointer| self.entry(pointer));
        let wanted = entries.filter(|e| query.project.as_ref().is_none_or(|project| *project == e.project));
        wanted.take(limit).collect()
    }

    /// Returns the pointers. Reads the registries again only if one of them changed.
    fn pointers(&self) -> Arc<Vec<Pointer>> {
        let changed: ChangeTimes = self.registries.iter().map(Registry::changed_at).collect();
        let mut known = self.pointers.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0.as_ref() != Some(&changed) {
            let (own, others) = self.registries.split_first().map_or((None, &[][..]), |(a, b)| (Some(a), b));
            let own = own.map(Registry::list).unwrap_or_default();
            // A run that is known here and elsewhere is listed once.
            let mut all = registry::merge(own, others.iter().flat_map(Registry::list));
            all.truncate(MAX_LISTED);
            known.1 = Arc::new(all);
            let settled = |at: &Option<SystemTime>| {
                at.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > SETTLED)
            };
            known.0 = changed.iter().all(settled).then_some(changed);
        }
        Arc::clone(&known.1)
    }

    /// Returns the list entry of a run; `None` if its directory is gone.
    fn entry(&self, pointer: &Pointer) -> Option<RunEntry> {
        let looked = self.status(pointer);
        let (status, error) = match looked {
            Ok(status) => (Some(status), None),
            Err(_) if !pointer.run_dir.exists() => return None,
            Err(ApiError::NoRecord(why)) => (None, Some(why)),
            Err(_) => (None, None),
        };
        let alive = status.as_ref().map_or_else(|| registry::is_live(&pointer.run_dir), |s| s.live);
        let work_dir = status.as_ref().and_then(|s| s.work_dir.clone());
        Some(RunEntry {
            run: pointer.run.clone(),
            host: pointer.origin.as_ref().map(|origin| origin.host.clone()),
            job: pointer.origin.as_ref().and_then(|origin| origin.job.clone()),
            graph: pointer.origin.as_ref().and_then(|origin| origin.graph.clone()),
            project: work_dir.unwrap_or_else(|| text(&work_tree_of(&pointer.run_dir))),
            path: text(&pointer.path),
            run_dir: text(&pointer.run_dir),
            alive,
            pid: (alive && pointer.origin.is_none()).then_some(pointer.pid),
            since: pointer.since,
            state: status.as_ref().map(|s| s.state),
            status,
            error,
        })
    }

    fn fold(&self, run: &RunId) -> Arc<Mutex<Fold>> {
        let mut folds = self.folds.lock().unwrap_or_else(PoisonError::into_inner);
        // Requests for single runs also add entries, so bound the cache here.
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

/// Returns `PROJECT` for `PROJECT/.dogwatch/runs/RUN`. Used when the record, which names the project, is unreadable.
fn work_tree_of(run_dir: &Path) -> std::path::PathBuf {
    run_dir.ancestors().nth(3).unwrap_or(run_dir).to_owned()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Uses a registry whose last change is old enough to be cached.
    #[test]
    fn the_registry_is_read_again_only_after_a_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().join("runs");
        let registry = || Registry::at(at.clone());
        let add = |n: u8| {
            let since = Wall(1_794_773_733_000 + i64::from(n) * 1_000);
            let run = RunId::new(since, [n; 4]);
            let (run_dir, path) = (dir.path().to_owned(), dir.path().join("RALPH.md"));
            registry()
                .add(&Pointer { run, run_dir, path, pid: 1, since, head: false, origin: None })
                .expect("writes");
        };
        let age = |seconds: u64| {
            let then = SystemTime::now() - Duration::from_secs(seconds);
            std::fs::File::open(&at).and_then(|d| d.set_modified(then)).expect("is ours");
        };
        let runs = Runs::new(vec![registry()]);
        assert_eq!(runs.pointers().len(), 0);
        add(1);
        assert_eq!(runs.pointers().len(), 1);
        // After a recent change nothing is cached, because another change may carry the same timestamp.
        add(2);
        assert_eq!(runs.pointers().len(), 2);
        age(60);
        let first = runs.pointers();
        assert!(Arc::ptr_eq(&first, &runs.pointers()), "the unchanged registry was read twice");
        add(3);
        assert_eq!(runs.pointers().len(), 3);
    }
}
