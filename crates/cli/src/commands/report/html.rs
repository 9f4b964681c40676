//! `dogwatch report --html FILE`: writes the dashboard page of a run to one file.

use super::{Report, opening};
use crate::error::CliError;
use crate::runs::{self, FoundRun};
use dogwatch_core::record::status::Status;
use dogwatch_host::clock;
use dogwatch_host::store::safe_file;
use dogwatch_web::Subject;
use std::path::Path;

/// Writes the report atomically: an existing file is replaced only by a complete one.
pub fn write(found: &FoundRun, file: &Path) -> Result<u8, CliError> {
    let summary = opening::plain_rows(&Report::of(found)?);
    let (record, integrity) = found.judged_record()?;
    let status = Status::of(&runs::fold(&record.events), found.is_live().then(clock::now))
        .with_record_problem(integrity.problem());
    let state = found.state_dir();
    let project = state.parent().unwrap_or(&state).to_string_lossy();
    let diffs = super::changes::by_iteration(found);
    let subject = Subject {
        project: &project,
        status: &status,
        summary: &summary,
        events: &record.events,
        diffs: &diffs,
    };
    let page = dogwatch_web::report(&subject);
    // The page shows commands, messages and errors of the run, so only its owner may read it.
    safe_file::replace(file, safe_file::PRIVATE, page.as_bytes()).map_err(|e| {
        let what = format!("cannot write the report to {}: {e}", file.display());
        CliError::with_help(what, "choose a file in an existing, writable directory")
    })?;
    super::super::print(format!("{} ({} kB)\n", file.display(), page.len().div_ceil(1000)))
}
