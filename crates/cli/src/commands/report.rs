use crate::error::CliError;
use crate::runs::{FoundRun, Which};
use changes::Changes;
use dogwatch_core::record::summary::RunSummary;
use dogwatch_core::record::view::{Used, View};
use dogwatch_host::store::lock;
use std::path::PathBuf;

mod changes;
mod html;
mod json;
mod markdown;
mod opening;
mod paragraphs;
mod tables;

/// Write a report of a run as Markdown or HTML
///
/// The report starts with a summary: what was asked, what was done, what it cost and what needs attention. It then
/// lists the changes as a diff, the timeline, the watchdog verdicts with their evidence, checks with their output,
/// planned and real waits, cost, problems, unfinished work, and the snapshots with the commands that show or undo each
/// iteration. A live run is reported up to now.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Write the run's dashboard page and events to a self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the status and the timeline as JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
}

/// Runs `dogwatch report` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find()?;
    if let Some(file) = &args.html {
        return html::write(&found, file);
    }
    let report = Report::of(&found)?;
    if args.json {
        return super::print_json(&json::Document::of(&report));
    }
    super::print(markdown::page(&report))
}

/// Returns the report of a run as Markdown.
pub fn page(found: &FoundRun) -> Result<String, CliError> {
    Ok(markdown::page(&Report::of(found)?))
}

/// A run's summary and where its record is.
pub struct Report {
    pub found: FoundRun,
    pub summary: RunSummary,
    pub live: bool,
    /// The first line of the record whose hash does not match the line before it.
    pub broken_chain: Option<u64>,
    /// Why the record is not as dogwatch wrote it.
    pub record_problem: Option<String>,
    pub changes: Changes,
}

impl Report {
    /// Reads the record of a run and summarizes it.
    pub fn of(found: &FoundRun) -> Result<Report, CliError> {
        let live = found.is_live();
        let (record, integrity) = found.judged_record()?;
        let mut summary = RunSummary::fold(&record.events);
        lock::note_loss(&mut summary.view);
        let (broken_chain, record_problem) = (record.chain.broken(), integrity.problem());
        let changes = Changes::of(found);
        Ok(Report { found: found.clone(), summary, live, broken_chain, record_problem, changes })
    }

    /// Returns the view of the run.
    pub fn view(&self) -> &View {
        &self.summary.view
    }

    /// Returns whether the run has neither ended nor a supervisor.
    pub fn is_lost(&self) -> bool {
        !self.live && !self.view().is_over()
    }

    /// Returns the number of iterations that a lost supervisor left open.
    pub fn unfinished(&self) -> u64 {
        if self.is_lost() { self.view().open_iterations() } else { 0 }
    }

    /// Returns the usage of all sessions.
    pub fn spent(&self) -> Used {
        if self.is_lost() { self.view().spent_when_lost() } else { self.view().spent() }
    }

    /// Returns the last part of the run id, which is enough to select the run.
    pub fn tail(&self) -> &str {
        self.found.tail()
    }
}
