use crate::completing::VARIABLE;
use crate::error::CliError;
use clap::ValueEnum;
use clap_complete::Shell;
use clap_complete::env::Shells;

/// Print a shell completion script
///
/// The script completes commands, options and their values, keys of --set, loops and runs.
///
/// For bash: `dogwatch completions bash > ~/.local/share/bash-completion/completions/dogwatch`. For zsh: write
/// `dogwatch completions zsh` to a file `_dogwatch` in a directory of `$fpath`. For fish:
/// `dogwatch completions fish > ~/.config/fish/completions/dogwatch.fish`.
#[derive(clap::Args)]
pub struct Args {
    /// Shell to generate the script for
    shell: Shell,
}

/// bash takes `a=b` for three words. This function joins them for the generated one, and removes the part before `=` from
/// what it offers, because bash keeps that part.
const BASH: &str = r#"
_dogwatch() {
    local i word joined= before= words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $i -gt 0 && $word == "=" ]]; then
            words[${#words[@]} - 1]+="="
            joined=1
        elif [[ $joined ]]; then
            words[${#words[@]} - 1]+=$word
            joined=
        else
            words+=("$word")
            before=
        fi
        [[ $joined ]] && before=${words[${#words[@]} - 1]}
    done
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1))
    _clap_complete_dogwatch "$1" "$before$2" "$3"
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
"#;

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
    if args.shell == Shell::Bash {
        let generated = String::from_utf8_lossy(&script).replace("-F _clap_complete_", "-F _");
        script = format!("{BASH}{generated}").into_bytes();
    }
    super::print(&script)
}
