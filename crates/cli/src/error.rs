//! What went wrong, for people: `Error:` says what happened, `Hint:` what to do. The kind of an error is
//! its exit code.

use dogwatch_config::diagnostic::{Diagnostic, Style};
use dogwatch_core::ids::RunId;
use dogwatch_core::text::printable;
use std::io::{IsTerminal, Write};

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// Bad usage or configuration; nothing was started.
    Usage { message: String, hint: Option<String> },
    /// Findings in files or flags; nothing was started.
    Findings(Vec<Diagnostic>),
    /// Another run holds this loop; its id, if it is known and alive.
    Held { message: String, run: Option<RunId> },
    /// Ours to answer for.
    Internal { message: String },
}

impl Failure {
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage { message: message.into(), hint: None }
    }

    pub fn with_hint(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    pub fn internal(message: impl Into<String>) -> Failure {
        Failure::Internal { message: message.into() }
    }

    /// What happened, on one line or a few; for where an error is one entry among others.
    pub fn message(&self) -> String {
        match self {
            Failure::Usage { message, .. }
            | Failure::Held { message, .. }
            | Failure::Internal { message } => message.clone(),
            Failure::Findings(findings) => {
                findings.iter().map(|f| f.render(Style::Plain)).collect::<Vec<_>>().join("\n")
            }
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage { .. } | Failure::Findings(_) => 2,
            Failure::Held { .. } => 4,
            Failure::Internal { .. } => 5,
        }
    }

    pub fn print(&self) {
        match self {
            Failure::Usage { message, hint } => {
                error_line(message);
                if let Some(hint) = hint {
                    say(&format!("Hint: {}", printable(hint)));
                }
            }
            Failure::Findings(findings) => print_findings(findings),
            Failure::Held { message, run } => {
                error_line(message);
                let stop = run
                    .as_ref()
                    .map_or(String::new(), |run| format!(", or stop it with `dogwatch stop {run}`"));
                say(&format!("Hint: one run at a time per work tree and loop file; wait for it{stop}"));
            }
            Failure::Internal { message } => error_line(message),
        }
    }
}

fn error_line(message: &str) {
    say(&format!("Error: {}", printable(message)));
}

/// A reader who went away must not turn an exit code into a panic.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Findings go to stderr, in colour if a person looks.
pub fn print_findings(findings: &[Diagnostic]) {
    let styled = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let style = if styled { Style::Styled } else { Style::Plain };
    for finding in findings {
        say(&format!("{}\n", finding.render(style).trim_end()));
    }
}
