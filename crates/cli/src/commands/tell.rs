use crate::error::CliError;
use crate::runs::Which;

/// Send a message to the agent with the next prompt
///
/// Without RUN the message goes to the latest live run of this project.
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Message for the agent
    #[arg(value_name = "TEXT")]
    text: String,
}

/// Runs `dogwatch tell` and returns the exit code.
pub fn run(args: Args) -> Result<u8, CliError> {
    let Args { which, text } = args;
    let found = which.find_to_steer()?;
    if text.trim().is_empty() {
        return Err(CliError::with_help(
            "the message is empty",
            "write it in quotes: `dogwatch tell \"TEXT\"`",
        ));
    }
    found.post("tell", &serde_json::json!({"text": text}))?;
    super::print_text(&format!("the next prompt of run {} will include the message\n", found.id))
}
