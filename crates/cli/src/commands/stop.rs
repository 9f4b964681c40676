use crate::error::Failure;
use crate::runs::Which;

/// Stop a run after the current iteration
///
/// Without RUN, it stops the latest live run of this project. To stop a run immediately, press Ctrl-C twice in its
/// terminal or send TERM to its dogwatch process.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// Runs `dogwatch stop` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find_living()?;
    found.post("stop", &())?;
    super::print(format!("run {} will stop after the current iteration\n", found.id).as_bytes())
}
