//! The sentences about a node's own worktree and its branch.

use super::MAX_LIST;
use crate::record::event::SetupFinished;
use crate::record::ids::NodeName;
use crate::settings::MergePolicy;
use crate::text::figures::{count, span};
use crate::text::{clip, one_line};

/// The most of a setup command to show, in bytes.
const MAX_COMMAND: usize = 80;
/// The number of hexadecimal digits of a commit to show.
const SHORT_COMMIT: usize = 10;

pub(super) fn ready(path: &str, branch: &str, merged: &[NodeName]) -> String {
    let text = format!("working in {path} on branch {branch}");
    if merged.is_empty() {
        return text;
    }
    let names: Vec<&str> = merged.iter().map(NodeName::as_str).collect();
    format!("{text}, with the work of {}", one_line(&names.join(", "), MAX_LIST))
}

pub(super) fn conflict(from: &NodeName, files: &[String], policy: MergePolicy) -> String {
    let next = match policy {
        MergePolicy::Agent => "the agent resolves it",
        MergePolicy::Fail => "merge: fail",
    };
    format!("merging {from} conflicts in {} ({next})", one_line(&files.join(", "), MAX_LIST))
}

pub(super) fn setup(s: &SetupFinished) -> String {
    let how = match (s.timed_out, s.rc) {
        (true, _) => " timed out".to_owned(),
        (false, 0) => String::new(),
        (false, rc) => format!(" failed (exit code {rc})"),
    };
    format!("setup: {}{how} ({})", one_line(&s.cmd, MAX_COMMAND), span(s.duration_s))
}

pub(super) fn committed(branch: &str, commit: &str, files: u64, skipped: u64) -> String {
    let commit = clip(commit, SHORT_COMMIT);
    let skipped = match skipped {
        0 => String::new(),
        n => format!("; left out {} (private or too large)", count(n, "file")),
    };
    match files {
        0 => format!("work is on branch {branch} ({commit}){skipped}"),
        n => format!("committed {} to branch {branch} ({commit}){skipped}", count(n, "file")),
    }
}
