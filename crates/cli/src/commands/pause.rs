use crate::error::CliError;
use crate::runs::Which;

/// Pause a run after the current iteration
///
/// Without RUN, it pauses the latest live run of this project. The current session finishes
/// first. No new iteration starts until `dogwatch resume`, or until you press Ctrl-C in the terminal of the run. A run that is killed while paused is still paused when
/// you resume it.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// Runs `dogwatch pause` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find_to_steer()?;
    let waiting = found.is_waiting();
    found.post("pause", &())?;
    let how = if waiting { "is paused" } else { "will pause after the current iteration" };
    super::print_text(&format!("run {0} {how}; continue it with `dogwatch resume {0}`\n", found.id))
}
