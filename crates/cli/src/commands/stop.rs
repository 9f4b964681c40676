use crate::error::CliError;
use crate::runs::Which;

/// Stop a run after the current iteration
///
/// Without RUN, it stops the latest live run of this project. The run exits with 1 if its checks do not pass, unless you
/// pass --accept. Agents cannot stop their own run. To stop a run immediately, press Ctrl-C twice in its
/// terminal or send TERM to its dogwatch process.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// End with exit code 0 even if the checks do not pass
    #[arg(long)]
    accept: bool,
}

/// Runs `dogwatch stop` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find_to_steer()?;
    let waiting = found.is_waiting();
    found.post("stop", &serde_json::json!({"accept": args.accept}))?;
    super::print_text(&match waiting {
        true => format!("run {} stops now; no iteration is running\n", found.id),
        false => format!("run {} will stop after the current iteration\n", found.id),
    })
}
