//! `dogwatch report --html FILE`: the page of a run as one file.

use crate::error::Failure;
use crate::runs::FoundRun;
use dogwatch_core::status::Status;
use dogwatch_core::view::View;
use dogwatch_host::clock;
use dogwatch_web::Subject;
use std::path::Path;

/// Writes the file whole or not at all: one that is there already is replaced only by a finished one.
pub fn write(found: &FoundRun, file: &Path) -> Result<u8, Failure> {
    let record = found.record()?;
    let status = Status::of(&View::fold(&record.events), found.is_live().then(clock::now));
    let state = found.state_dir();
    let project = state.parent().unwrap_or(&state).to_string_lossy();
    let page = dogwatch_web::report(&Subject { project: &project, status: &status, events: &record.events });
    place(file, page.as_bytes()).map_err(|e| {
        let what = format!("cannot write the report to {}: {e}", file.display());
        Failure::with_hint(what, "give a file in a directory that is there and can be written to")
    })?;
    super::super::print(format!("{} ({} KB)\n", file.display(), page.len().div_ceil(1000)).as_bytes())
}

fn place(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut unfinished = file.as_os_str().to_owned();
    unfinished.push(format!(".{}.part", std::process::id()));
    let done = std::fs::write(&unfinished, bytes).and_then(|()| std::fs::rename(&unfinished, file));
    if done.is_err() {
        // It may not have been made at all; what matters is said already.
        let _ = std::fs::remove_file(&unfinished);
    }
    done
}
