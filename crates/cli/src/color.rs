//! Decides whether output is colored: `--color`, then `NO_COLOR` and `TERM`, then whether the stream is a terminal.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::OnceLock;

/// When to color output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// Color terminals, unless NO_COLOR is set
    #[default]
    Auto,
    /// Color files and pipes as well
    Always,
    /// Do not color anything
    Never,
}

/// The value of `--color`, set once before any command runs.
static CHOICE: OnceLock<When> = OnceLock::new();

/// Applies the `--color` flag to this process.
pub fn choose(when: When) {
    // Only `main` calls this, so the cell is empty.
    let _ = CHOICE.set(when);
}

/// Returns whether to color stdout.
pub fn on_stdout() -> bool {
    decide_now(std::io::stdout().is_terminal())
}

/// Returns whether to color stderr.
pub fn on_stderr() -> bool {
    decide_now(std::io::stderr().is_terminal())
}

fn decide_now(terminal: bool) -> bool {
    let when = CHOICE.get().copied().unwrap_or_default();
    let (no_color, term) = (std::env::var_os("NO_COLOR"), std::env::var_os("TERM"));
    decide(when, terminal, no_color.as_deref(), term.as_deref())
}

/// An empty `NO_COLOR` counts as unset, as <https://no-color.org> asks.
fn decide(when: When, terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => {
            terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_overrides_the_environment_which_overrides_the_terminal() {
        let set = |value: &'static str| Some(OsStr::new(value));
        for (when, terminal, no_color, term, colored) in [
            (When::Auto, true, None, set("xterm"), true),
            (When::Auto, true, None, None, true),
            (When::Auto, false, None, set("xterm"), false),
            (When::Auto, true, set("1"), set("xterm"), false),
            (When::Auto, true, set(""), set("xterm"), true),
            (When::Auto, true, None, set("dumb"), false),
            (When::Always, false, set("1"), set("dumb"), true),
            (When::Never, true, None, set("xterm"), false),
        ] {
            assert_eq!(
                decide(when, terminal, no_color, term),
                colored,
                "{when:?} {terminal} {no_color:?} {term:?}"
            );
        }
    }
}
