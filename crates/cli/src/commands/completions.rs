use crate::completing::VARIABLE;
use crate::error::CliError;
use clap::ValueEnum;
use clap_complete::Shell;
use clap_complete::env::Shells;

/// Print a shell completion script
///
/// The script completes commands, options, keys of --set, loops and runs.
///
/// For bash: `dogwatch completions bash > ~/.local/share/bash-completion/completions/dogwatch`. For zsh: write
/// `dogwatch completions zsh` to a file `_dogwatch` in a directory of `$fpath`. For fish:
/// `dogwatch completions fish > ~/.config/fish/completions/dogwatch.fish`.
#[derive(clap::Args)]
pub struct Args {
    /// Shell to generate the script for
    shell: Shell,
}

/// Runs `dogwatch completions` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let name = args.shell.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let shells = Shells::builtins();
    let shell =
        shells.completer(&name).ok_or_else(|| CliError::usage(format!("no completions for {name}")))?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "dogwatch", "dogwatch", "dogwatch", &mut script)
        .map_err(|e| CliError::internal(format!("cannot generate the script: {e}")))?;
    super::print(&script)
}
