use crate::error::{Failure, print_findings};
use crate::loading::{LoopFile, SettingFlags, runs_here};
use dogwatch_config::explain;
use std::path::PathBuf;

/// Validate a loop file and say what it would do
///
/// Reads the same files as `run` and starts nothing. Exit code 0 if the loop would start, 2 if not.
#[derive(clap::Args)]
pub struct Args {
    /// A directory with RALPH.md, or such a file
    path: PathBuf,
    /// Show every setting with its value and where it comes from
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    settings: SettingFlags,
    /// Values for the loop's declared arguments
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let file = LoopFile::find(&args.path)?;
    let loaded = file.load(&args.settings.flags(), &args.args)?;
    print_findings(&loaded.warnings);
    if args.explain {
        super::print(explain::table(&loaded.explain).as_bytes())?;
    }
    runs_here(&loaded)?;
    let node = &loaded.plan.nodes[0];
    let summary = format!(
        "{}: ok ({} reads `{}`, {} commands, prompt of {} bytes)\n",
        file.shown(),
        node.settings.reader,
        dogwatch_core::redact::argv(&node.settings.agent).join(" "),
        node.settings.commands.len(),
        loaded.body.len(),
    );
    super::print(dogwatch_core::text::printable(&summary).as_bytes())
}
