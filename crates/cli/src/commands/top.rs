use crate::error::CliError;
use crate::remote::HostArgs;
use crate::top;

/// Watch all runs in a terminal UI
///
/// The overview has one line per run. The page of a run shows its activity on a time axis, its events, and the
/// evidence for each watchdog verdict. You can wake, pause and stop runs; press `?` for all keys. --host adds the runs of
/// other machines that have dogwatch and that `ssh` reaches without a password, --fleet those of your fleet.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    hosts: HostArgs,
}

/// Runs `dogwatch top` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    top::run(&args.hosts)
}
