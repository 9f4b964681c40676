//! Errors of commands: an `error:` line says what failed, a `help:` line says what to do about it. The kind of an
//! error determines the exit code.

use crate::color;
use crate::screen::wrap_for;
use clap::error::{ContextKind, ContextValue};
use dogwatch_config::diagnostic::{Diagnostic, Style};
use dogwatch_config::nearest;
use dogwatch_core::text::{printable, without_error_numbers};
use dogwatch_host::store::secrets;
use std::io::Write;

/// Why a command failed.
#[derive(Debug)]
pub enum CliError {
    /// Bad usage or configuration; nothing was started.
    Usage { message: String, help: Option<String> },
    /// Diagnostics about files or flags; nothing was started.
    Diagnostics(Vec<Diagnostic>),
    /// Another run holds this loop; the command that stops it, if it is known and alive.
    Held { message: String, stop: Option<String> },
    /// An internal error, or a failure of the operating system.
    Internal { message: String },
}

impl From<Vec<Diagnostic>> for CliError {
    fn from(diagnostics: Vec<Diagnostic>) -> CliError {
        CliError::Diagnostics(diagnostics)
    }
}

impl CliError {
    /// Returns a usage error.
    pub fn usage(message: impl Into<String>) -> CliError {
        CliError::Usage { message: message.into(), help: None }
    }

    /// Returns a usage error with a help line.
    pub fn with_help(message: impl Into<String>, help: impl Into<String>) -> CliError {
        CliError::Usage { message: message.into(), help: Some(help.into()) }
    }

    /// Returns an internal error.
    pub fn internal(message: impl Into<String>) -> CliError {
        CliError::Internal { message: message.into() }
    }

    /// Returns what failed, without the help line. Diagnostics may take several lines.
    pub fn message(&self) -> String {
        match self {
            CliError::Usage { message, .. }
            | CliError::Held { message, .. }
            | CliError::Internal { message } => message.clone(),
            CliError::Diagnostics(diagnostics) => {
                diagnostics.iter().map(|d| d.render(Style::Plain)).collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Returns the exit code for this kind of error.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage { .. } | CliError::Diagnostics(_) => 2,
            CliError::Held { .. } => 4,
            CliError::Internal { .. } => 5,
        }
    }

    /// Prints the error and its help line to stderr.
    pub fn print(&self) {
        match self {
            CliError::Usage { message, help } => {
                error_line(message);
                if let Some(help) = help {
                    print_line(&format!("help: {}", printable(help)));
                }
            }
            CliError::Diagnostics(diagnostics) => print_diagnostics(diagnostics),
            CliError::Held { message, stop } => {
                error_line(message);
                let stop =
                    stop.as_ref().map_or(String::new(), |command| format!(", or stop it with `{command}`"));
                print_line(&format!("help: wait for that run to end{stop}"));
            }
            CliError::Internal { message } => error_line(message),
        }
    }
}

/// Prints an error that does not end the command.
pub fn warn(message: &str) {
    error_line(message);
}

/// Commands that users try, and the names that dogwatch has for them.
const SYNONYMS: [(&str, &str); 3] = [("status", "ls"), ("list", "ls"), ("list", "ps")];

/// Replaces the parser's suggestion for an unknown command, which ignores swapped letters, synonyms and flags.
/// `first` is the first word of the command line.
pub fn suggest_command(error: &mut clap::Error, root: &clap::Command, first: &str) {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let parent = root.find_subcommand(first).unwrap_or(root);
    if parent.get_arguments().any(|flag| flag.get_long() == Some(unknown.as_str())) {
        let flag = ContextValue::String(format!("--{unknown}"));
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::SuggestedArg, flag);
        return;
    }
    let names = || parent.get_subcommands().filter(|known| !known.is_hide_set()).map(clap::Command::get_name);
    let synonym = SYNONYMS.iter().find(|(word, name)| word == unknown && names().any(|known| known == *name));
    if let Some(found) = synonym.map(|(_, name)| *name).or_else(|| nearest(unknown, names())) {
        let found = ContextValue::Strings(vec![found.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, found);
    }
}

/// Messages of the standard library about numbers that it cannot parse, and plain words for them.
const PARSER_WORDS: [(&str, &str); 4] = [
    ("invalid digit found in string", "expected a whole number"),
    ("cannot parse integer from empty string", "expected a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
];

/// Prints a mistake in the command line. The parser calls its hints tips; everywhere else they are help.
pub fn print_usage_error(error: &clap::Error) {
    let styled = error.render();
    let text = if color::on_stderr() { styled.ansi().to_string() } else { styled.to_string() };
    let mut text = text.replace("tip:", "help:");
    for (from, to) in PARSER_WORDS {
        text = text.replace(from, to);
    }
    let stderr = std::io::stderr();
    // There is nothing left to do if stderr is closed.
    let _ = (&stderr).write_all(wrap_for(&stderr, &text).as_bytes());
}

fn error_line(message: &str) {
    print_line(&format!("error: {}", printable(message)));
}

/// Prints a line to stderr, without secrets, and wrapped if that is a terminal. A closed stderr must not turn an exit code
/// into a panic.
pub fn print_line(text: &str) {
    let stderr = std::io::stderr();
    let _ = writeln!(&stderr, "{}", wrap_for(&stderr, &without_error_numbers(&secrets::hide(text))));
}

/// Prints diagnostics to stderr, in color if stderr is a terminal.
pub fn print_diagnostics(diagnostics: &[Diagnostic]) {
    let style = if color::on_stderr() { Style::Styled } else { Style::Plain };
    for diagnostic in diagnostics {
        print_line(&format!("{}\n", diagnostic.render(style).trim_end()));
    }
}
