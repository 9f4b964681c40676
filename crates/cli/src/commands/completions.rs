use crate::error::CliError;
use clap_complete::Shell;

/// Print a shell completion script
///
/// For bash: `dogwatch completions bash > ~/.local/share/bash-completion/completions/dogwatch`.
#[derive(clap::Args)]
pub struct Args {
    /// Shell to generate the script for
    shell: Shell,
}

/// Runs `dogwatch completions` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command_line(), "dogwatch", &mut script);
    super::print(&script)
}
