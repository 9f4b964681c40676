//! Separates the work of a run from later changes and from those of other runs, so that an undo keeps the latter.

use super::modes::Modes;
use super::restore::{Step, differing};
use crate::git::{Git, GitError};
use std::collections::{BTreeMap, BTreeSet};

const LATER: &str = "changed after the last snapshot of the run";
const LATER_MODE: &str = "its permissions were changed after the last snapshot of the run";

/// What counts as the work of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnWork {
    /// The snapshots of the run in this work tree, newest first. A file whose content is in none of them was changed
    /// after the run.
    pub snapshots: Vec<String>,
    /// The changes that another run may have made in the meantime.
    pub others: Vec<OthersWork>,
}

/// The changes between two snapshots, during which another run worked in the same tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OthersWork {
    /// The snapshot before the changes.
    pub from: String,
    /// The snapshot after the changes.
    pub to: String,
    /// The reason for keeping these files, for people.
    pub why: String,
}

impl OwnWork {
    /// Returns the files among the steps that an undo has to keep, each with the reason.
    pub(super) fn kept(
        &self,
        git: &Git,
        present: &str,
        steps: &[Step],
    ) -> Result<BTreeMap<Vec<u8>, String>, GitError> {
        // A file that is missing can be written: nothing is lost.
        let there = || steps.iter().filter(|step| step.from.is_some()).map(|step| &step.path);
        let mut later: BTreeSet<&Vec<u8>> = there().collect();
        for snapshot in &self.snapshots {
            if later.is_empty() {
                break;
            }
            let other: BTreeSet<Vec<u8>> = paths(git, snapshot, present)?.collect();
            later.retain(|path| other.contains(*path));
        }
        let mut kept: BTreeMap<Vec<u8>, String> =
            later.into_iter().map(|path| (path.clone(), LATER.to_owned())).collect();
        for others in &self.others {
            let changed: BTreeSet<Vec<u8>> = paths(git, &others.from, &others.to)?.collect();
            for path in there().filter(|path| changed.contains(*path)) {
                kept.entry(path.clone()).or_insert_with(|| others.why.clone());
            }
        }
        Ok(kept)
    }

    /// Returns the files whose content is as wanted and whose permissions were changed after the run.
    pub(super) fn kept_modes(
        &self,
        git: &Git,
        present: &Modes,
        wanted: &Modes,
    ) -> Result<BTreeMap<Vec<u8>, String>, GitError> {
        let differs = |(path, mode): (&[u8], u32)| {
            let now = present.get(path).filter(|now| *now != mode)?;
            Some((path.to_vec(), now))
        };
        let mut later: BTreeMap<Vec<u8>, u32> = wanted.iter().filter_map(differs).collect();
        for snapshot in &self.snapshots {
            if later.is_empty() {
                break;
            }
            let then = Modes::read(&git.run(&["cat-file", "commit", snapshot])?);
            later.retain(|path, now| then.get(path) != Some(*now));
        }
        Ok(later.into_keys().map(|path| (path, LATER_MODE.to_owned())).collect())
    }
}

fn paths(git: &Git, from: &str, to: &str) -> Result<impl Iterator<Item = Vec<u8>>, GitError> {
    Ok(differing(git, from, to)?.into_iter().map(|step| step.path))
}
