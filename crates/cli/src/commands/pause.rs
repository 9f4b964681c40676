use crate::error::CliError;
use crate::runs::Which;

/// Pause a run after the current iteration
///
/// Without RUN, it pauses the latest live run of this project. The current session finishes
/// first. No new iteration starts until `dogwatch resume`. A run that is killed while paused is still paused when
/// you resume it.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// Runs `dogwatch pause` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find_to_steer()?;
    found.post("pause", &())?;
    super::print(format!(
        "run {0} will pause after the current iteration; continue it with `dogwatch resume {0}`\n",
        found.id
    ))
}
