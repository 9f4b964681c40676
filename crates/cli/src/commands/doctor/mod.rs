//! `dogwatch doctor`: checks whether this machine and this directory can run agents unattended.
//!
//! Each check returns findings and leaves nothing behind.

mod agents;
#[cfg(feature = "fleet")]
mod fleet;
mod place;
mod system;

use crate::error::CliError;
use crate::loading::current_dir;
use dogwatch_core::text::{printable, without_error_numbers};
use serde::Serialize;
use std::path::Path;

/// Check this machine for problems and suggest fixes
///
/// Checks process containment, installed agents, git, file watching, the state and lock directories, disk space,
/// settings files, the clock and the server of your fleet. It does not start an agent session; it only asks each agent for its version.
#[derive(clap::Args)]
pub struct Args {
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// A feature is missing or slow.
    Warning,
    /// A run would fail, or would break a promise.
    Problem,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: String,
    pub level: Level,
    pub found: String,
    /// How to fix the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// Returns a finding without a problem.
    pub fn ok(name: &str, found: impl Into<String>) -> Finding {
        let found = without_error_numbers(&found.into());
        Finding { name: name.to_owned(), level: Level::Ok, found, advice: None }
    }

    /// Returns a warning with advice.
    pub fn warning(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, advice: Some(advice.into()), ..Finding::ok(name, found) }
    }

    /// Returns a problem with advice.
    pub fn problem(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { level: Level::Problem, advice: Some(advice.into()), ..Finding::ok(name, found) }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    level: Level,
    findings: &'a [Finding],
}

/// Runs `dogwatch doctor` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let here = current_dir()?;
    let findings = check_all(&here);
    let level = findings.iter().map(|f| f.level).max().unwrap_or(Level::Ok);
    if args.json {
        super::print_json(&Report { level, findings: &findings })?;
    } else {
        super::print_text(&table(&findings))?;
    }
    Ok(u8::from(level == Level::Problem))
}

fn check_all(here: &Path) -> Vec<Finding> {
    let mut findings = vec![system::containment()];
    findings.extend(agents::all(here));
    findings.extend(system::git(here));
    findings.push(place::watching(here));
    findings.extend(place::record(here));
    findings.extend(place::settings(here));
    findings.push(system::sandbox());
    findings.push(system::clock());
    #[cfg(feature = "fleet")]
    findings.extend(fleet::all());
    findings
}

/// Formats the findings as a table, each with its advice on the next line.
fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|f| f.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let Finding { name, level, found, advice } = finding;
        text.push_str(&format!("{:<7}  {name:<width$}  {found}\n", level.as_str()));
        if let Some(advice) = advice {
            text.push_str(&format!("{:<7}  {:<width$}  {advice}\n", "", ""));
        }
    }
    printable(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_followed_by_its_advice() {
        let findings =
            [Finding::ok("git", "2.47"), Finding::warning("watching", "too few", "raise \u{1b}[2Jit")];
        let expected = "ok       git       2.47\nwarning  watching  too few\n                   raise ";
        assert!(table(&findings).starts_with(expected), "{}", table(&findings));
        assert!(!table(&findings).contains('\u{1b}'));
    }

    #[test]
    fn a_finding_has_no_numbers_of_system_errors() {
        let error = std::io::Error::from_raw_os_error(13);
        let finding = Finding::problem("record", format!("cannot write to x: {error}"), "");
        assert_eq!(finding.found, "cannot write to x: permission denied");
    }
}
