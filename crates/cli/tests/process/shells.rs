//! Completions in real shells: a test types a line, presses Tab, and reads the line that the shell makes of it.
//!
//! zsh drives the shells through its own pseudo-terminals. `scripts/test` installs zsh and fish.

use crate::kit::Project;
use rustix::fs::{CWD, Mode, mkfifoat};
use std::path::Path;
use std::process::Command;

/// Types each argument into the shell `$INNER`, presses Tab and then Ctrl-T, at which the shell reports its line.
const DRIVER: &str = r#"
zmodload zsh/zpty
# Opened for reading and writing, so that reads never see the end of the file.
exec 3<>"$REPORT"
zpty shell "$INNER"
IFS= read -r -t 30 -u 3 line || exit 1
for typed in "$@"; do
    zpty -w -n shell "$typed"$'\t\024'
    IFS= read -r -t 30 -u 3 line || exit 1
    print -r -- "$line"
    # The shell must be able to print.
    while zpty -r -t shell chunk; do :; done
done
zpty -d shell
"#;

/// Loads the completions as the guide says. The widget reports the line and empties it.
const ZSHRC: &str = r#"
fpath=(~/.zfunc $fpath)
autoload -Uz compinit && compinit -u -D
report() { print -r -- "$BUFFER" >"$REPORT"; BUFFER= }
zle -N report && bindkey '^T' report
zle-line-init() { print ready >"$REPORT" }
zle -N zle-line-init
"#;

const BASHRC: &str = r#"
source ~/dogwatch.bash
report() { printf '%s\n' "$READLINE_LINE" >"$REPORT"; READLINE_LINE=; }
bind -x '"\C-t": report'
PROMPT_COMMAND='echo ready >"$REPORT"; PROMPT_COMMAND='
"#;

/// Lines as a user types them, and as they are after Tab.
const LINES: [(&str, &str); 11] = [
    // The first Tab of a session loads the script, and has to answer, too.
    ("dogwatch statu", "dogwatch status "),
    ("dogwatch run --set prof", "dogwatch run --set profile="),
    ("dogwatch run --set profile=d", "dogwatch run --set profile=deep "),
    ("dogwatch run it", r"dogwatch run it\'s\ here "),
    (r"dogwatch run it\'s\ h", r"dogwatch run it\'s\ here "),
    (r#"dogwatch run "it's h"#, r#"dogwatch run "it's here" "#),
    ("dogwatch run su", "dogwatch run sub/"),
    ("dogwatch run ~/pl", "dogwatch run ~/place "),
    ("dogwatch run ~/my", r"dogwatch run ~/my\ loop "),
    ("dogwatch run 'it", r"dogwatch run 'it'\''s here' "),
    (r#"dogwatch run "a"#, r#"dogwatch run "a\$b" "#),
];

/// Returns a project with loops whose names are hard to complete, one of them in the home directory.
fn project() -> Project {
    let project = Project::new();
    for dir in [
        "it's here",
        "a$b",
        "sub/deep",
        "../home/place",
        "../home/my loop",
        "../home/.zfunc",
        "../home/.config/fish/completions",
    ] {
        std::fs::create_dir_all(project.path(dir)).expect("a directory");
    }
    for dir in ["it's here", "a$b", "sub/deep", "../home/place", "../home/my loop"] {
        project.file(&format!("{dir}/RALPH.md"), "");
    }
    for (shell, path) in [
        ("bash", "dogwatch.bash"),
        ("zsh", ".zfunc/_dogwatch"),
        ("fish", ".config/fish/completions/dogwatch.fish"),
    ] {
        let script = project.call(&["completions", shell]).assert_code(0).stdout.clone();
        std::fs::write(project.outside("home").join(path), script).expect("is written");
    }
    project
}

/// Returns the output of a shell in the project, with the home directory of [`project`].
fn output(project: &Project, mut shell: Command) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_dogwatch")).parent().expect("a directory");
    let home = project.outside("home");
    shell
        .current_dir(project.path("."))
        .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
        .env("HOME", &home)
        .env("XDG_STATE_HOME", project.outside("state"))
        .env("TERM", "xterm")
        .env("LC_ALL", "C.UTF-8");
    let out = shell.output().expect("the shell runs: scripts/test installs it");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// Types the first part of each of [`LINES`] into a shell, presses Tab, and expects the second part.
fn press_tab(inner: &str, file: &str, setup: &str) {
    let project = project();
    std::fs::write(project.outside("home").join(file), setup).expect("is written");
    mkfifoat(CWD, project.outside("report"), Mode::RUSR | Mode::WUSR).expect("a FIFO");
    let mut zsh = Command::new("zsh");
    zsh.env_clear().env("INNER", inner).env("REPORT", project.outside("report"));
    zsh.args(["-f", "-c", DRIVER, "driver"]).args(LINES.map(|(typed, _)| typed));
    let found = output(&project, zsh);
    for ((typed, wanted), found) in LINES.iter().zip(found.lines()) {
        assert_eq!(found, *wanted, "after {typed:?} and Tab");
    }
    assert_eq!(found.lines().count(), LINES.len(), "{found}");
}

#[test]
fn a_tab_in_zsh_completes_quotes_and_adds_no_space_after_a_key() {
    press_tab("zsh -d -i", ".zshrc", ZSHRC);
}

#[test]
fn a_tab_in_bash_completes_quotes_and_adds_no_space_after_a_key() {
    press_tab("bash --noprofile -i", ".bashrc", BASHRC);
}

#[test]
fn fish_completes_runs_loops_and_keys() {
    let project = project();
    for (line, wanted) in [
        ("dogwatch statu", "status\tShow the status of a run\n"),
        ("dogwatch run --set profile=d", "profile=deep\n"),
        ("dogwatch run it", "it's here\n"),
        (r"dogwatch run it\'s\ h", "it's here\n"),
        (r#"dogwatch run "it's h"#, "it's here\n"),
        ("dogwatch run su", "sub/\n"),
        ("dogwatch run ~/pl", "~/place\n"),
        ("dogwatch man statu", "status\tShow the status of a run\n"),
    ] {
        let mut fish = Command::new("fish");
        fish.env_clear().args(["-c", "complete -C $argv[1]", line]);
        assert_eq!(output(&project, fish), wanted, "{line}");
    }
}
