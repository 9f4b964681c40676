//! Looks at what the checks of a plan depend on, before anything starts.

use crate::error::CliError;
use dogwatch_core::settings::Plan;
use dogwatch_host::fs::pins::{self, Request};
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

/// Returns a warning for every check that depends on nothing pinned.
pub fn warnings(plan: &Plan, work_dir: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    for node in plan.nodes.iter().filter(|node| node.settings.checks.pin.is_empty()) {
        for check in &node.settings.checks.commands {
            if pins::named_files(work_dir, check).is_empty()
                && let Some(advice) = suggest(check, work_dir)
            {
                warnings.push(format!(
                    "warning: node {}: check `{check}` depends on no pinned file; the agent can change what it runs\n\
                     help: add `pin: [{advice}]`",
                    node.name
                ));
            }
        }
    }
    warnings
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
