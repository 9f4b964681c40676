//! Removes the planned runs: worktrees first, then snapshots, then the record. If a step fails, the rest of that
//! run stays in place so that the next `gc` can retry.

use super::plan::{Gone, Plan};
use dogwatch_host::git::snapshot;
use dogwatch_host::git::worktree::{self, Tidied};
use dogwatch_host::store::retire;

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
    for gone in &plan.gone {
        match remove(gone) {
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
    retire::retire(&found.dir).map_err(|error| error.to_string())?;
    Ok(snapshots)
}
