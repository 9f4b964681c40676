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
/// `dogwatch completions zsh` to a file `_dogwatch` in a directory of `$fpath`, before `compinit` runs. For fish:
/// `dogwatch completions fish > ~/.config/fish/completions/dogwatch.fish`.
#[derive(clap::Args)]
pub struct Args {
    /// Shell to generate the script for
    shell: Shell,
}

/// bash takes `a=b` for three words. This function joins them for the generated one, and removes the part before `=` from
/// what it offers, because bash keeps that part. Outside quotes, bash passes the word with its backslashes and expects them
/// in the answer.
const BASH: &str = r#"
_dogwatch() {
    local i word joined= before= words=() quoted= home typed=$2
    if [[ ${COMP_WORDS[COMP_CWORD]} == [\"\']* ]]; then quoted=${COMP_WORDS[COMP_CWORD]:0:1}; else typed=${2//\\/}; fi
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
    _clap_complete_dogwatch "$1" "$before$typed" "$3"
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    for i in "${!COMPREPLY[@]}"; do
        word=${COMPREPLY[i]} home=
        case $quoted in
            \') word=${word//\'/\'\\\'\'} ;;
            \") word=${word//\\/\\\\} word=${word//\$/\\\$} word=${word//\`/\\\`} word=${word//\"/\\\"} ;;
            *)
                # A quoted tilde would not be expanded.
                [[ $word == "~/"* ]] && home="~/"
                word=${word#"$home"}
                [[ $word == *[^[:alnum:]_./=:@%+,~-]* ]] && printf -v word %q "$word"
                ;;
        esac
        COMPREPLY[i]=$home$word
    done
}
"#;

/// The function autoloads itself from the file `_dogwatch` and must answer that first call, too. It removes quotes from
/// the words, lists loops and runs before directories and options, and adds no space after `KEY=`.
const ZSH: &str = r#"#compdef dogwatch
_dogwatch() {
    local line found=1
    local -a lines values keys dirs options
    lines=("${(@f)$(
        DOGWATCH_COMPLETE=zsh _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) \
            dogwatch -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null
    )}")
    # zsh would quote the tilde.
    compset -P '\~/' && lines=("${(@)lines#\~/}")
    for line in $lines; do
        case $line in
            -*) options+=("$line") ;;
            */) dirs+=("${line%/}") ;;
            *= | *=:*) keys+=("$line") ;;
            *) values+=("$line") ;;
        esac
    done
    (( $#values )) && _describe -t values value values -V values && found=0
    (( $#keys )) && _describe -t keys key keys -V keys -S '' && found=0
    (( $#dirs )) && _describe -t directories directory dirs -V directories -S / -r / && found=0
    (( $#options )) && _describe -O option options -V options && found=0
    return found
}
if [[ $funcstack[1] == _dogwatch ]]; then
    _dogwatch "$@"
else
    compdef _dogwatch dogwatch
fi
"#;

/// fish passes the current word with its backslashes. A word with an open quote cannot be unescaped.
const FISH: &str = r#"function __dogwatch_complete
    set --local before (commandline --current-process --tokenize --cut-at-cursor)
    set --local current (commandline --current-token --cut-at-cursor)
    set --local plain (string unescape -- $current)
    and set current $plain
    DOGWATCH_COMPLETE=fish dogwatch -- $before "$current"
end
complete --keep-order --exclusive --command dogwatch --arguments '(__dogwatch_complete)'
"#;

/// Runs `dogwatch completions` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let own = [(Shell::Zsh, ZSH), (Shell::Fish, FISH)].into_iter().find(|(shell, _)| *shell == args.shell);
    if let Some((_, script)) = own {
        return super::print(script);
    }
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
