mod text;

use crate::error::CliError;
use crate::runs::{self, FoundRun, Which, note};
use dogwatch_core::record::status::{OrchestratorStatus, Status};
use dogwatch_host::clock;
pub use text::{headline, text};

/// Show the status of a run
///
/// The status comes from the run itself if it is live, and from its record otherwise. All ages are computed now.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Print the status as JSON (docs/reference/status.md)
    #[arg(long)]
    json: bool,
    /// Print the orchestrator's status document as JSON
    #[arg(long)]
    orchestrator: bool,
}

/// Runs `dogwatch status` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find()?;
    if args.orchestrator {
        return super::print_json(&orchestrator(&found)?);
    }
    let status = match answer(&found) {
        Some(status) => status,
        None => {
            let status = from_record(&found)?;
            if status.live {
                note(&match found.suspended() {
                    Some((problem, help)) => format!("{problem}; {help}"),
                    None => format!("run {} does not answer; this is from its record", found.id),
                });
            }
            status
        }
    };
    if args.json { super::print_json(&status) } else { super::print_text(&text(&status)) }
}

/// Returns the status of a run: from the run itself if it is live, otherwise from its record.
pub fn status(found: &FoundRun) -> Result<Status, CliError> {
    answer(found).map_or_else(|| from_record(found), Ok)
}

fn answer(found: &FoundRun) -> Option<Status> {
    let status = found.ask::<Status>("/v1/status")?;
    let problem = found.judged_record().map_or_else(|e| Some(e.message()), |(_, found)| found.problem());
    Some(status.with_record_problem(problem))
}

fn from_record(found: &FoundRun) -> Result<Status, CliError> {
    let live = found.is_live();
    let (record, integrity) = found.judged_record()?;
    let status = Status::of(&runs::fold(&record.events), live.then(clock::now));
    Ok(status.with_record_problem(integrity.problem()))
}

fn orchestrator(found: &FoundRun) -> Result<serde_json::Value, CliError> {
    if let Some(value) = found.ask("/v1/status/orchestrator") {
        return Ok(value);
    }
    let document = OrchestratorStatus::of(&found.view()?, found.is_live().then(clock::now));
    serde_json::to_value(document).map_err(|e| CliError::internal(e.to_string()))
}
