//! `dogwatch doctor`: whether this machine and this directory are fit for a night without anybody.
//!
//! Each look answers with findings and changes nothing that outlives it.

mod agents;
mod place;
mod system;

use crate::error::Failure;
use dogwatch_core::text::printable;
use serde::Serialize;
use std::path::Path;

/// Tell whether all is well here, and what to do if not
///
/// Looks at what holds the agents' processes, which agents are there, what watching and snapshots need, and
/// whether the record can be written. Starts no agent, only asks for versions.
#[derive(clap::Args)]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// Something will be missing or slow.
    Warning,
    /// A run here fails, or cannot keep what it promises.
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

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: String,
    pub level: Level,
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    pub fn ok(name: &str, found: impl Into<String>) -> Finding {
        Finding { name: name.to_owned(), level: Level::Ok, found: found.into(), advice: None }
    }

    pub fn warning(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, advice: Some(advice.into()), ..Finding::ok(name, found) }
    }

    pub fn problem(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { level: Level::Problem, advice: Some(advice.into()), ..Finding::ok(name, found) }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    level: Level,
    findings: &'a [Finding],
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let here = std::env::current_dir()
        .map_err(|e| Failure::usage(format!("the current directory is not there: {e}")))?;
    let findings = look(&here);
    let level = findings.iter().map(|f| f.level).max().unwrap_or(Level::Ok);
    if args.json {
        super::print_json(&Report { level, findings: &findings })?;
    } else {
        super::print(tell(&findings).as_bytes())?;
    }
    Ok(u8::from(level == Level::Problem))
}

fn look(here: &Path) -> Vec<Finding> {
    let mut findings = vec![system::containment()];
    findings.extend(agents::all(here));
    findings.extend(system::git(here));
    findings.push(place::watching(here));
    findings.extend(place::record(here));
    findings.extend(place::settings(here));
    findings.push(system::clock());
    findings
}

fn tell(findings: &[Finding]) -> String {
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
    fn each_finding_is_a_line_and_its_advice_stands_below() {
        let findings =
            [Finding::ok("git", "2.47"), Finding::warning("watching", "too few", "raise \u{1b}[2Jit")];
        let expected = "ok       git       2.47\nwarning  watching  too few\n                   raise ";
        assert!(tell(&findings).starts_with(expected), "{}", tell(&findings));
        assert!(!tell(&findings).contains('\u{1b}'));
    }
}
