use crate::error::Failure;
use crate::runs::Which;
use std::path::PathBuf;

/// Say something to the agent: it stands in the next prompt
#[derive(clap::Args)]
pub struct Args {
    /// A run id, or the end of one
    #[arg(value_name = "RUN")]
    run: String,
    /// What to say; if only one word is given it is this, to the last run of this project
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// Where the project keeps its record, if not in .dogwatch
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(serde::Serialize)]
struct Tell {
    text: String,
}

pub fn run(args: Args) -> Result<u8, Failure> {
    // `dogwatch tell "…"` in a project means its last run.
    let (run, text) = match args.text {
        Some(text) => (Some(args.run), text),
        None => (None, args.run),
    };
    let found = Which::new(run, args.state_dir).find_living()?;
    if text.trim().is_empty() {
        return Err(Failure::usage("there is nothing to say: TEXT is empty"));
    }
    found.post("tell", &Tell { text })?;
    super::print(format!("the next prompt of run {} will say so\n", found.id).as_bytes())
}
