//! Decides which files wake, and which directories must be watched for them.

use std::path::{Path, PathBuf};

use super::globs::{Glob, GlobError, parse_all, parts_of};
use crate::fs::digest::ignored::Rules;
use crate::fs::digest::real;

#[derive(Debug)]
pub(super) struct Scope {
    pub(super) root: PathBuf,
    globs: Vec<Glob>,
    ours: Vec<PathBuf>,
}

impl Scope {
    pub(super) fn new(root: &Path, globs: &[String], state_dirs: &[PathBuf]) -> Result<Scope, GlobError> {
        let given = std::path::absolute(root).unwrap_or_else(|_| root.to_path_buf());
        let root = real(root);
        // An absolute glob into the work tree, under the path that the user gave.
        let inside = |glob: &String| match Path::new(glob).strip_prefix(&given) {
            Ok(rest) if glob.starts_with('/') => {
                let slash = if glob.ends_with('/') { "/" } else { "" };
                format!("./{}{slash}", rest.display())
            }
            Ok(_) | Err(_) => glob.clone(),
        };
        let globs: Vec<String> = globs.iter().map(inside).collect();
        let globs = parse_all(&root, &globs)?;
        // The worktree of a node is below the state directory, but all of it must be watched.
        let ours = state_dirs.iter().map(|dir| real(dir)).filter(|dir| !root.starts_with(dir)).collect();
        Ok(Scope { globs, ours, root })
    }

    /// Returns where watching begins: the work tree, and the fixed part of each glob outside it.
    pub(super) fn anchors(&self) -> Vec<PathBuf> {
        let mut anchors: Vec<PathBuf> = self.globs.iter().map(|glob| self.anchor(glob)).collect();
        anchors.sort();
        anchors.dedup();
        anchors
    }

    fn anchor(&self, glob: &Glob) -> PathBuf {
        if glob.fixed.starts_with(&self.root) {
            return self.root.clone();
        }
        match glob.fixed.parent() {
            Some(parent) if glob.literal => parent.to_path_buf(),
            Some(_) | None => glob.fixed.clone(),
        }
    }

    /// Determines again which globs name something ignored.
    pub(super) fn read_rules(&mut self) {
        let root = self.root.clone();
        let rules = Rules::at_root(&root);
        for glob in &mut self.globs {
            glob.means_ignored = names_ignored(&root, &rules, &glob.fixed);
        }
    }

    /// Returns the rules in `dir`, a child of a directory with the rules `above`; `None` if nothing in it can
    /// count.
    pub(super) fn enter(&self, dir: &Path, above: &Rules) -> Option<Rules> {
        if self.is_ours(dir) {
            return None;
        }
        let ignored = dir != self.root && above.ignored(dir, true);
        let parts = parts_of(dir);
        let wanted = |glob: &Glob| (!ignored || glob.means_ignored) && glob.may_hold(&parts);
        self.globs.iter().any(wanted).then(|| self.rules_in(dir, above, ignored))
    }

    fn rules_in(&self, dir: &Path, above: &Rules, ignored: bool) -> Rules {
        if dir == self.root {
            Rules::at_root(dir)
        } else if !dir.starts_with(&self.root) {
            // Ignore rules do not apply outside the work tree.
            Rules::default()
        } else if ignored {
            above.enter_ignored()
        } else {
            above.enter(dir)
        }
    }

    /// Returns whether a change of a file in a directory with these rules wakes.
    pub(super) fn counts(&self, file: &Path, rules: &Rules) -> bool {
        let parts = parts_of(file);
        let mut ignored = None;
        let mut wanted = |glob: &Glob| {
            glob.matches(&parts)
                && (glob.means_ignored || !*ignored.get_or_insert_with(|| rules.ignored(file, false)))
        };
        self.globs.iter().any(&mut wanted) && !self.is_ours(file)
    }

    /// Returns whether to follow a link. Only links that a glob names component by component are followed, so
    /// the walk has no loops.
    pub(super) fn follows(&self, path: &Path) -> bool {
        self.globs.iter().any(|glob| glob.fixed.starts_with(path))
    }

    fn is_ours(&self, path: &Path) -> bool {
        self.ours.iter().any(|ours| path.starts_with(ours))
    }
}

fn names_ignored(root: &Path, rules: &Rules, fixed: &Path) -> bool {
    let Ok(inside) = fixed.strip_prefix(root) else { return false };
    let (mut rules, mut path) = (rules.clone(), root.to_path_buf());
    for name in inside {
        path.push(name);
        // The path may not exist yet. A rule for directories only must then hold for it, too.
        if rules.ignored(&path, true) || (path == fixed && rules.ignored(&path, false)) {
            return true;
        }
        rules = rules.enter(&path);
    }
    false
}
