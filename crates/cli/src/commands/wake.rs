use super::resume::go_on;
use crate::error::Failure;
use crate::runs::Which;
use dogwatch_core::event::Outcome;

/// Start the next iteration of a waiting run now
///
/// If a session is running, the run skips the next wait instead. A run that ended because it was idle continues in
/// this terminal.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// If the run continues in this terminal, print its events as JSON lines
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find()?;
    match found.post("wake", &()) {
        Ok(()) => return super::print(format!("woke run {}\n", found.id).as_bytes()),
        Err(failure) if found.is_live() => return Err(failure),
        Err(_) => {}
    }
    match found.view()?.ended {
        Some(end) if end.outcome == Outcome::Idle => go_on(&found, true, args.json),
        Some(end) => Err(Failure::with_hint(
            format!("run {} has ended ({})", found.id, end.outcome),
            "start a new run with `dogwatch run`",
        )),
        None => Err(Failure::with_hint(
            format!("the supervisor of run {} died", found.id),
            format!("continue the run with `dogwatch resume {}`", found.id),
        )),
    }
}
