mod tell;

use crate::error::Failure;
use crate::runs::{FoundRun, Which};
use dogwatch_core::status::{OrchestratorStatus, Status};
use dogwatch_host::clock;
pub use tell::{headline, tell};

/// Tell how a run stands
///
/// A run that lives is asked; of one that does not, its record tells. What is shown is evidence with its
/// age, computed now.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// As JSON (docs/status.md)
    #[arg(long)]
    json: bool,
    /// As the orchestrator's status document, in JSON
    #[arg(long)]
    orchestrator: bool,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find()?;
    if args.orchestrator {
        return super::print_json(&orchestrator(&found)?);
    }
    let status = status(&found)?;
    if args.json { super::print_json(&status) } else { super::print(tell(&status).as_bytes()) }
}

/// A run's status, from itself if it lives, else from its record.
pub fn status(found: &FoundRun) -> Result<Status, Failure> {
    if let Some(status) = found.ask("/v1/status") {
        return Ok(status);
    }
    let live = found.is_live();
    let view = found.view()?;
    Ok(Status::of(&view, live.then(clock::now)))
}

fn orchestrator(found: &FoundRun) -> Result<serde_json::Value, Failure> {
    if let Some(value) = found.ask("/v1/status/orchestrator") {
        return Ok(value);
    }
    let document = OrchestratorStatus::of(&found.view()?, found.is_live().then(clock::now));
    serde_json::to_value(document).map_err(|e| Failure::internal(e.to_string()))
}
