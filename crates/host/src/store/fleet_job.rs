//! The mark of a checkout that belongs to a job of a fleet. Its runs are continued by workers only: another worker may have taken
//! the job, and then a second agent would work on it.

use crate::store::journal::Durability;
use crate::store::safe_file;
use dogwatch_core::text::one_line;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The file next to a checkout that names its job.
pub const MARK: &str = "dogwatch-job";
/// The variable with which a worker starts the runs of a job. It holds the name of the job.
pub const VARIABLE: &str = "DOGWATCH_FLEET_JOB";
/// The longest name of a job, in bytes.
const MAX_NAME: usize = 256;

/// Marks a checkout.
pub fn mark(tree: &Path, job: &str) -> io::Result<()> {
    safe_file::write(&mark_of(tree), safe_file::PRIVATE, job.as_bytes())
}

/// Returns the path of the mark of a checkout.
pub fn mark_of(tree: &Path) -> PathBuf {
    tree.with_file_name(MARK)
}

/// Returns the job that a work tree is the checkout of.
pub fn of_tree(tree: &Path) -> Option<String> {
    let mut text = String::new();
    safe_file::read(&mark_of(tree)).ok()?.take(MAX_NAME as u64).read_to_string(&mut text).ok()?;
    let job = one_line(&text, MAX_NAME);
    (!job.is_empty()).then_some(job)
}

/// Returns the job whose checkout holds the record of a run.
pub fn of_run(run_dir: &Path) -> Option<String> {
    // TREE/.dogwatch/runs/RUN
    of_tree(run_dir.ancestors().nth(3)?)
}

/// Returns whether the record of a run has to survive a power failure. That of a job does not: the worker that takes the job next
/// starts with a new checkout, and continues the run from the copy of its record on the server.
pub fn durability(run_dir: &Path) -> Durability {
    match of_run(run_dir) {
        Some(job) if is_held_here(&job) => Durability::Unsynced,
        Some(_) | None => Durability::Synced,
    }
}

/// Returns whether this process was started by the worker that holds the job.
pub fn is_held_here(job: &str) -> bool {
    std::env::var(VARIABLE).is_ok_and(|held| held == job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_of_a_marked_checkout_belong_to_its_job() {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = dir.path().join("acme.one/tree");
        let run = tree.join(".dogwatch/runs/r1");
        std::fs::create_dir_all(&run).expect("a directory");
        assert_eq!((of_tree(&tree), of_run(&run)), (None, None));
        mark(&tree, "acme.one").expect("marked");
        assert_eq!(of_tree(&tree).as_deref(), Some("acme.one"));
        assert_eq!(of_run(&run).as_deref(), Some("acme.one"));
        assert!(!is_held_here("acme.one"));
        assert_eq!(durability(&run), Durability::Synced, "no worker started this process");
    }
}
