//! What a run changed, from its snapshots.

use super::Report;
use super::markdown::{cell, code, fenced_as};
use crate::runs::FoundRun;
use crate::screen::words;
use crate::snapshot_index::SnapshotIndex;
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_host::git::snapshot::{self, FileChange, Patch};
use serde::Serialize;

/// The most files to list.
const MAX_FILES: usize = 50;
/// The most of a diff to show, in bytes.
const MAX_DIFF: usize = 32 * 1024;
/// The most of the diff of one iteration in an HTML report, in bytes.
const MAX_ITERATION_DIFF: usize = 100 * 1024;
/// The most iterations whose diffs are read for an HTML report.
const MAX_ITERATIONS: usize = 200;

/// The changes of a run: of all nodes, or of each node with a worktree.
#[derive(Default, Serialize)]
pub struct Changes {
    pub parts: Vec<Part>,
}

/// The changes of one work tree.
#[derive(Serialize)]
pub struct Part {
    /// The node, if it has a worktree.
    pub node: Option<NodeName>,
    pub files: Vec<FileChange>,
    pub diff: Patch,
}

impl Changes {
    /// Reads the changes of a run. There are none without snapshots, or if they are gone.
    pub fn of(found: &FoundRun) -> Changes {
        let Ok(index) = SnapshotIndex::of(found) else { return Changes::default() };
        let part = |node: Option<NodeName>| {
            let (dir, from, to) = index.whole(node.as_ref().map(NodeName::as_str)).ok()?;
            let files = snapshot::changed_files(&dir, &from, &to).ok()?;
            let diff = snapshot::patch(&dir, &from, &to, MAX_DIFF).ok()?;
            Some(Part { node, files, diff })
        };
        let parts = match part(None) {
            Some(whole) => vec![whole],
            None => index.started().nodes.iter().cloned().map(Some).filter_map(part).collect(),
        };
        Changes { parts }
    }

    /// Returns the totals in words: `3 files changed (+20 −4)`. Without snapshots, returns `None`.
    pub fn in_words(&self) -> Option<String> {
        if self.parts.is_empty() {
            return None;
        }
        let files = || self.parts.iter().flat_map(|part| &part.files);
        if files().next().is_none() {
            return Some("no files changed".to_owned());
        }
        let added: u64 = files().filter_map(|file| file.added).sum();
        let removed: u64 = files().filter_map(|file| file.removed).sum();
        Some(format!("{} changed (+{added} −{removed})", words::count(files().count() as u64, "file")))
    }
}

/// Returns the changed files and the beginning of the diff.
pub fn section(report: &Report) -> String {
    report.changes.parts.iter().map(|part| one_part(report, part)).collect()
}

fn one_part(report: &Report, part: &Part) -> String {
    if part.files.is_empty() {
        return String::new();
    }
    let of = part.node.as_ref().map_or_else(String::new, |node| format!(" --node {node}"));
    let command = code(&format!("dogwatch diff {}{of}", report.tail()));
    let mut text =
        part.node.as_ref().map_or_else(String::new, |node| format!("\n### {}\n\n", code(node.as_str())));
    text.push_str("| file | added | removed |\n|---|---|---|\n");
    let figure = |n: Option<u64>| n.map_or_else(|| "binary".to_owned(), |n| n.to_string());
    for file in part.files.iter().take(MAX_FILES) {
        let (added, removed) = (figure(file.added), figure(file.removed));
        text.push_str(&format!("| {} | {added} | {removed} |\n", cell(&file.path)));
    }
    if part.files.len() > MAX_FILES {
        text.push_str(&format!("| … {} more | | |\n", part.files.len() - MAX_FILES));
    }
    let rest = if part.diff.cut {
        format!("The first part of the diff; {command} shows all of it:")
    } else {
        format!("{command} shows:")
    };
    text.push_str(&format!("\n{rest}\n\n{}", fenced_as("diff", &part.diff.text)));
    text
}

/// Returns what each of the last iterations changed, by `node/iteration`, for an HTML report.
pub fn by_iteration(found: &FoundRun) -> Vec<(String, String)> {
    let Ok(index) = SnapshotIndex::of(found) else { return Vec::new() };
    let taken: Vec<(NodeName, Iteration)> = index.iterations().collect();
    let last = taken.into_iter().rev().take(MAX_ITERATIONS);
    let mut diffs: Vec<(String, String)> = last
        .filter_map(|(node, n)| {
            let dir = index.dir(&node).ok()?;
            let from = index.name(&dir, &node, index.before(&node, n).ok()?).ok()?;
            let to = index.name(&dir, &node, n).ok()?;
            let patch = snapshot::patch(&dir, &from, &to, MAX_ITERATION_DIFF).ok()?;
            let rest = if patch.cut { "[dogwatch: the rest is not in this report]\n" } else { "" };
            Some((format!("{node}/{n}"), patch.text + rest))
        })
        .collect();
    diffs.reverse();
    diffs
}
