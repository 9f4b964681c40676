use crate::error::CliError;
use crate::runs::Which;
use std::path::PathBuf;

/// Send a message to the agent with the next prompt
///
/// Without RUN the message goes to the latest live run of this project.
#[derive(clap::Args)]
#[command(override_usage = "dogwatch tell [OPTIONS] [RUN] TEXT")]
pub struct Args {
    /// Run id, or the end of one [default: the live run of this project, or else the latest]
    #[arg(value_name = "RUN", add = crate::completing::runs())]
    run: String,
    /// Message for the agent
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(serde::Serialize)]
struct MessageBody {
    text: String,
}

/// Runs `dogwatch tell` and returns the exit code.
pub fn run(args: Args) -> Result<u8, CliError> {
    // `dogwatch tell "…"` sends the message to the latest run of the project.
    let (run, text) = match args.text {
        Some(text) => (Some(args.run), text),
        None => (None, args.run),
    };
    let found = Which::new(run, args.state_dir).find()?;
    if text.trim().is_empty() {
        return Err(CliError::with_help(
            "the message is empty",
            "write it in quotes: `dogwatch tell \"TEXT\"`",
        ));
    }
    found.post("tell", &MessageBody { text })?;
    super::print(format!("the next prompt of run {} will include the message\n", found.id).as_bytes())
}
