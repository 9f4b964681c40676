//! What an earlier claim of a job left: the journal of its run.

use super::journal::{self, Line, Remains};
use dogwatch_core::record::ids::RunId;
use dogwatch_host::store::home::StateDir;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the run that an earlier claim left, and how it ended.
pub(super) fn read(remains: &Remains) -> (Option<RunId>, Option<(String, i32)>) {
    let (mut run, mut ended) = (None, None);
    for line in remains.journal.split(|byte| *byte == b'\n') {
        match journal::read_line(line) {
            Line::Started(id) => run = Some(id),
            Line::Ended { outcome, exit_code } => ended = Some((outcome, exit_code)),
            Line::Saved { .. }
            | Line::Worktree { .. }
            | Line::Committed { .. }
            | Line::Moved
            | Line::Limited(_)
            | Line::Other => {}
        }
        // A run that was continued has not ended.
        if line.windows(RESUMED.len()).any(|part| part == RESUMED) {
            ended = None;
        }
    }
    (run, ended)
}

/// How the kind of a `run_resumed` event is written.
const RESUMED: &[u8] = b"\"event\":\"run_resumed\"";

/// Writes the journal of an earlier claim into the checkout. Returns the directory of the run.
pub(super) fn restore(tree: &Path, run: &RunId, journal: &[u8]) -> io::Result<PathBuf> {
    let state = StateDir::at(tree.join(".dogwatch"));
    let dir = state.make_run(run)?;
    std::fs::write(dir.join("events.jsonl"), journal)?;
    Ok(dir)
}
