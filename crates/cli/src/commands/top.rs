use crate::error::CliError;
use crate::top;

/// Watch all runs on this machine in a terminal UI
///
/// The overview has one line per run. The page of a run shows its activity on a time axis, its events, and the
/// evidence for each watchdog verdict. You can wake, pause and stop runs; press `?` for all keys.
#[derive(clap::Args)]
pub struct Args {}

/// Runs `dogwatch top` and returns the exit code.
pub fn run(_: &Args) -> Result<u8, CliError> {
    top::run()
}
