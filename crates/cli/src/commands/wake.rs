use super::resume::go_on;
use crate::error::Failure;
use crate::runs::Which;
use dogwatch_core::event::Outcome;

/// End a run's wait now
///
/// A run that lives starts its next iteration at once, or remembers the wake until its session is over.
/// One that went to sleep because it had nothing to do continues in this terminal.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// If the run continues here: print its events as JSON lines
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find()?;
    match found.post("wake", &()) {
        Ok(()) => return super::print(format!("run {} was woken\n", found.id).as_bytes()),
        Err(failure) if found.is_live() => return Err(failure),
        Err(_) => {}
    }
    match found.view()?.ended {
        Some(end) if end.outcome == Outcome::Idle => go_on(&found, true, args.json),
        Some(end) => Err(Failure::with_hint(
            format!("run {} has ended ({})", found.id, end.outcome),
            "`dogwatch run` starts a new one",
        )),
        None => Err(Failure::with_hint(
            format!("the dogwatch of run {} died", found.id),
            format!("`dogwatch resume {}` goes on with it", found.id),
        )),
    }
}
