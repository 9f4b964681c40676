use crate::error::Failure;
use crate::runs::Which;

/// Stop a run after its present iteration
///
/// To end it at once, send it TERM: `kill PID` (`dogwatch status` shows the pid).
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find_living()?;
    found.post("stop", &())?;
    super::print(format!("run {} stops after what it is at\n", found.id).as_bytes())
}
