//! Looks at what the checks of a plan depend on, before anything starts.

use crate::error::{CliError, print_line};
use crate::secrets;
use dogwatch_core::settings::{Plan, Tampered};
use dogwatch_core::text::{printable, redact};
use dogwatch_host::fs::pins::{self, Request};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns an error if a `pin` matches no file. Nodes that depend on others are skipped: an earlier node may write the
/// files.
pub fn refuse_empty(plan: &Plan, work_dir: &Path) -> Result<(), CliError> {
    for node in plan.nodes.iter().filter(|node| node.depends_on.is_empty()) {
        let policy = &node.settings.checks;
        if policy.pin.is_empty() {
            continue;
        }
        let request = Request {
            work_dir: work_dir.to_owned(),
            globs: policy.pin.clone(),
            checks: Vec::new(),
            known: Vec::new(),
            state_dirs: Vec::new(),
            tree: false,
        };
        let none = pins::matching_nothing(&request)
            .map_err(|why| CliError::usage(format!("node {}: {why}", node.name)))?;
        if let Some(glob) = none.first() {
            return Err(CliError::with_help(
                format!("node {}: pin `{glob}` matches no file in {}", node.name, work_dir.display()),
                "correct the glob, which is relative to the work directory, or remove it",
            ));
        }
    }
    Ok(())
}

/// The most checks that are examined before a run, and the most warnings about them.
const MAX_EXAMINED: usize = 1_000;
const MAX_WARNINGS: usize = 20;

/// Prints a warning for every check that depends on nothing pinned, and for every check that reads a pinned file which the
/// agent may have to change.
pub fn warn(plan: &Plan, work_dir: &Path) {
    let mut warnings = warnings(plan, work_dir);
    warnings.extend(reading(plan, work_dir));
    for warning in warnings.iter().take(MAX_WARNINGS) {
        print_line(&printable(warning));
    }
    if let Some(more) = warnings.len().checked_sub(MAX_WARNINGS).filter(|more| *more > 0) {
        print_line(&format!("warning: … and {more} more warnings about checks"));
    }
}

/// Returns a warning for every check that depends on nothing pinned, with advice if there is some. Without advice, nodes that
/// depend on others are skipped: an earlier node may write the files.
fn warnings(plan: &Plan, work_dir: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut examined = BTreeMap::new();
    for node in plan.nodes.iter().filter(|node| node.settings.checks.pin.is_empty()) {
        for check in &node.settings.checks.commands {
            if examined.len() >= MAX_EXAMINED {
                return warnings;
            }
            let names_none = *examined
                .entry(check)
                .or_insert_with(|| !only_looks(check) && pins::named_files(work_dir, check).is_empty());
            let help = match suggest(check, work_dir).filter(|_| names_none) {
                Some(globs) => format!("add `pin: [{globs}]`"),
                None if names_none && node.depends_on.is_empty() => {
                    "list the files that it depends on in `pin`, or put it into a script".to_owned()
                }
                None => continue,
            };
            let check = redact::text(check);
            let check = secrets::of(plan).hide(&check);
            warnings.push(format!(
                "warning: node {}: check `{check}` depends on no pinned file; the agent can change what it runs\n\
                 help: {help}",
                node.name
            ));
        }
    }
    warnings
}

/// Returns a warning for every check that only looks at files and names some that exist: a list of tasks is the agent's work,
/// and yet such a check never passes again once the agent has changed it.
fn reading(plan: &Plan, work_dir: &Path) -> Vec<String> {
    let fails = plan.nodes.iter().filter(|node| node.settings.checks.tampered == Tampered::Fail);
    let checks = fails.flat_map(|node| node.settings.checks.commands.iter().map(move |check| (node, check)));
    checks
        .take(MAX_EXAMINED)
        .filter(|(_, check)| only_looks(check))
        .filter_map(|(node, check)| {
            let files: Vec<String> =
                pins::named_files(work_dir, check).iter().map(|file| file.display().to_string()).collect();
            let shown = secrets::of(plan).hide(&redact::text(check)).into_owned();
            (!files.is_empty()).then(|| {
                format!(
                    "warning: node {}: check `{shown}` pins what it reads, and fails if the agent changes that: {}\n\
                     help: if the agent has to change it, set `checks: {{tampered: warn}}`",
                    node.name,
                    files.join(", ")
                )
            })
        })
        .collect()
}

/// Programs that look at files and run nothing that they find.
const LOOKERS: [&str; 16] = [
    "!", "[", "[[", "cat", "cmp", "diff", "echo", "false", "grep", "head", "jq", "ls", "tail", "test",
    "true", "wc",
];

/// Returns whether a check runs only such programs, so that an agent can change what it sees, but not what it does.
fn only_looks(check: &str) -> bool {
    let commands = check.split([';', '|', '&', '\n']).map(str::trim).filter(|command| !command.is_empty());
    let mut commands = commands.peekable();
    commands.peek().is_some()
        && !check.contains(['`', '$', '('])
        && commands.all(|command| {
            command.split_whitespace().find(|word| *word != "!").is_none_or(|word| LOOKERS.contains(&word))
        })
}

/// Returns globs for the files that a check usually depends on, as far as they exist here. A check that runs no build
/// tool and has no tests nearby gets no advice.
fn suggest(check: &str, work_dir: &Path) -> Option<String> {
    let word = |name: &str| check.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == name);
    let tools: [(&str, &[&str]); 9] = [
        ("make", &["Makefile", "GNUmakefile", "makefile"]),
        ("just", &["justfile", "Justfile"]),
        ("npm", &["package.json"]),
        ("pnpm", &["package.json"]),
        ("yarn", &["package.json"]),
        ("cargo", &["Cargo.toml"]),
        ("go", &["go.mod"]),
        ("pytest", &["pyproject.toml", "conftest.py"]),
        ("tox", &["tox.ini"]),
    ];
    let mut globs: Vec<String> = Vec::new();
    let called = tools.iter().filter(|(tool, _)| word(tool));
    let files = called.flat_map(|(_, files)| *files).filter(|file| work_dir.join(file).is_file());
    globs.extend(files.map(|file| (*file).to_owned()));
    let is_called = tools.iter().any(|(tool, _)| word(tool));
    let dirs = ["tests", "test", "spec"].into_iter().filter(|dir| is_called && work_dir.join(dir).is_dir());
    globs.extend(dirs.map(|dir| format!("{dir}/**")));
    (!globs.is_empty()).then(|| globs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_only_looks_is_told_from_one_that_runs_code() {
        for looks in ["test -f done", "! grep -q TODO notes && [ -s out ]", "cat a | wc -l", "true"] {
            assert!(only_looks(looks), "{looks}");
        }
        for runs in [
            "make test",
            "cat x | sh",
            "test -f a && ./b",
            "test -n \"$(./x)\"",
            "",
            "grep -q x `y`",
            "env test",
        ] {
            assert!(!only_looks(runs), "{runs}");
        }
    }
}
