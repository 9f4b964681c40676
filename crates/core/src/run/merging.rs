//! The merge of a node's dependencies into the branch of its worktree: what is recorded, and what a conflict means.

use super::cx::Cx;
use crate::record::event::Event;
use crate::record::ids::NodeIx;
use crate::run::job::{Arranged, Conflict};
use crate::settings::{CheckPolicy, MergePolicy};
use crate::text::one_line;

/// The most of the list of conflicts that the reason of a failure shows, in bytes.
const MAX_FILES_SHOWN: usize = 300;

/// Records that the worktree is ready, and the conflicts in it.
pub(super) fn record(cx: &mut Cx, ix: NodeIx, arranged: Arranged) {
    let Arranged { path, branch, base, reused, conflicts, .. } = arranged;
    let merged = cx.plan.merge_sources(ix).into_iter().map(|source| cx.name(source)).collect();
    let (node, policy) = (cx.name(ix), cx.settings(ix).merge);
    cx.record(Event::WorktreeReady { node: node.clone(), path, branch, base, merged, reused });
    for Conflict { from, files, detail } in conflicts {
        cx.record(Event::MergeConflicted { node: node.clone(), from, files, detail, policy });
    }
}

/// Returns why the node must not start: its dependencies conflict, and its policy is `merge: fail`.
pub(super) fn refused(cx: &Cx, ix: NodeIx) -> Option<String> {
    let conflicts = &cx.view.node(ix).work.conflicts;
    if cx.settings(ix).merge != MergePolicy::Fail || conflicts.is_empty() {
        return None;
    }
    let one = |conflict: &Conflict| format!("{} in {}", conflict.from, conflict.files.join(", "));
    let all: Vec<String> = conflicts.iter().map(one).collect();
    Some(format!("its dependencies conflict: {}", one_line(&all.join("; "), MAX_FILES_SHOWN)))
}

/// Adds the check that no conflict marker is left to the checks of a node that starts with conflicts. A node without
/// checks gets the usual number of attempts.
pub(super) fn require_resolution(cx: &mut Cx, ix: NodeIx) {
    let Some(check) = marker_check(cx, ix) else { return };
    let settings = &mut cx.plan.nodes[ix.0].settings;
    if settings.checks.commands.contains(&check) {
        return;
    }
    if !settings.checks.any() {
        settings.max_iterations = settings.max_iterations.or(Some(CheckPolicy::DEFAULT_ATTEMPTS));
    }
    settings.checks.commands.push(check);
}

/// Returns the conflicts that the agent has to resolve: all of them, until no marker is left.
pub(super) fn unresolved(cx: &Cx, ix: NodeIx) -> Vec<Conflict> {
    let Some(check) = marker_check(cx, ix) else { return Vec::new() };
    let node = cx.view.node(ix);
    let resolved = node.attempts.last.iter().any(|result| result.cmd == check && result.rc == 0);
    if resolved { Vec::new() } else { node.work.conflicts.clone() }
}

/// Returns the shell command that fails and lists the places while conflict markers are left. The markers carry the
/// names of the branches, so no other text looks like them.
fn marker_check(cx: &Cx, ix: NodeIx) -> Option<String> {
    let work = &cx.view.node(ix).work;
    let (_, branch) = work.worktree.as_ref().filter(|_| !work.conflicts.is_empty())?;
    let (prefix, _) = branch.rsplit_once('/')?;
    Some(format!("git grep -nE '^(<<<<<<<|>>>>>>>) {prefix}/' -- :/; test $? -eq 1"))
}
