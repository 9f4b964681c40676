//! Removes the planned runs: worktrees first, then snapshots, then the record. If a step fails, the rest of that
//! run stays in place so that the next `gc` can retry.

use super::plan::{Gone, Plan};
use dogwatch_host::git::snapshot;
use dogwatch_host::git::worktree::{self, Tidied};
use dogwatch_host::store::home::StateDir;
use dogwatch_host::store::learned::Loop;
use dogwatch_host::store::registry::Registry;
use dogwatch_host::store::retire;
use dogwatch_host::store::sessions::{MAX_UPDATE, SessionIndex};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What `gc` removed, and what it failed to remove.
#[derive(Default, serde::Serialize)]
pub struct Done {
    pub runs: u64,
    pub bytes: u64,
    pub snapshots: u64,
    pub failed: Vec<String>,
}

/// Removes the planned runs and snapshots.
pub fn carry_out(plan: Plan) -> Done {
    let mut done = Done::default();
    let histories = keep_histories(&plan.gone);
    keep_sessions(&plan.gone);
    for gone in &plan.gone {
        let kept = histories.get(&key(gone)).cloned().unwrap_or(Ok(()));
        match kept.and_then(|()| remove(gone)) {
            Ok(snapshots) => {
                done.runs += 1;
                done.bytes = done.bytes.saturating_add(gone.bytes);
                done.snapshots += snapshots;
            }
            Err(why) => done.failed.push(format!("run {}: {why}", gone.found.id)),
        }
    }
    for stray in &plan.strays {
        match snapshot::forget(&stray.repo, &stray.refs) {
            Ok(n) => done.snapshots += n,
            Err(why) => done.failed.push(format!("the snapshots of run {}: {why}", stray.run)),
        }
    }
    for runs in &plan.runs_dirs {
        retire::clear(runs);
    }
    done
}

/// The state directory, the work tree and the loop file of a run.
type Key = (PathBuf, String, String);

fn key(gone: &Gone) -> Key {
    let started = gone.started.as_ref();
    let (work_dir, path) = started.map_or_else(Default::default, |s| (s.work_dir.clone(), s.path.clone()));
    (gone.found.state_dir(), work_dir, path)
}

/// Keeps what the loops have learned about the arrival of their work, before their records are removed. The records of a
/// loop whose history cannot be kept stay.
fn keep_histories(gone: &[Gone]) -> BTreeMap<Key, Result<(), String>> {
    let mut newest: BTreeMap<Key, &Gone> = BTreeMap::new();
    for gone in gone {
        let known = newest.entry(key(gone)).or_insert(gone);
        if gone.found.id > known.found.id {
            *known = gone;
        }
    }
    let keep = |(key, gone): (Key, &Gone)| {
        let (state, work_dir, loop_file) = (StateDir::at(key.0.clone()), &key.1, &key.2);
        let place = Loop { state_dir: &state, work_dir, loop_file };
        let kept = gone.started.as_ref().map_or(Ok(()), |s| place.keep(&s.settings, &gone.found.id));
        (key, kept.map_err(|error| format!("cannot keep the idle history: {error}")))
    };
    newest.into_iter().map(keep).collect()
}

/// Keeps what the sessions needed of the limits. If that fails, only learned limits suffer, so the records are removed anyway.
fn keep_sessions(gone: &[Gone]) {
    let mut index = SessionIndex::of_user();
    index.add_runs(gone.iter().map(|gone| gone.found.dir.as_path()), MAX_UPDATE);
    let _ = index.save();
}

fn remove(gone: &Gone) -> Result<u64, String> {
    let found = &gone.found;
    if found.is_live() {
        return Err("it is live".to_owned());
    }
    for tree in worktree::tidy_run(&found.state_dir(), &found.id, true) {
        if let Tidied::Kept { path, why } = tree {
            return Err(format!("{why} ({})", path.display()));
        }
    }
    let snapshots = snapshot::forget(&gone.repo, &gone.refs)?;
    // A copy of a project has runs with the ids of the original.
    let registry = Registry::of_user();
    let is_known = registry.knows(&found.id, &found.dir);
    retire::retire(&found.dir).map_err(|error| error.to_string())?;
    if is_known {
        registry.forget(&found.id);
    }
    if let Some(started) = gone.started.as_ref().filter(|_| is_known) {
        registry.forget_last(Path::new(&started.work_dir), Path::new(&started.path), &found.id);
    }
    Ok(snapshots)
}
