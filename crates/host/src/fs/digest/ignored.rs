//! Git's ignore rules: those in force in one directory, inherited from the root of the work tree.
//!
//! The walker of the `ignore` crate is not used, because the watcher asks about single paths as they change, and
//! both must agree. A rule file is read only if it is a regular file (a FIFO would block forever), and only its
//! first [`MAX_RULES_BYTES`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};

use super::look::read_plain;

pub(crate) const RULES_FILE: &str = ".gitignore";
/// The most that is read of a rule file. Real ones have a few kilobytes.
pub(crate) const MAX_RULES_BYTES: usize = 1024 * 1024;
const GIT: &str = ".git";

/// The rules in force in one directory. Cheap to clone, because the levels are shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    deepest: Option<Arc<Level>>,
    /// The directory itself is ignored, and so is everything in it.
    all: bool,
}

#[derive(Debug)]
struct Level {
    matcher: Gitignore,
    above: Option<Arc<Level>>,
}

impl Rules {
    /// Returns the rules at the root of a work tree: those of the user, of the repository, and of the directories
    /// between the top of the repository and the root. A root that its repository ignores is treated as a tree of
    /// its own.
    pub(crate) fn at_root(root: &Path) -> Rules {
        let Some(top) = root.ancestors().find(|dir| dir.join(GIT).symlink_metadata().is_ok()) else {
            return Rules::default().enter(root);
        };
        let general = [gitconfig_excludes_path(), Some(info_exclude(top))];
        let general =
            general.into_iter().flatten().fold(Rules::default(), |rules, file| rules.with(top, &file));
        let mut rules = general.clone().enter(top);
        for dir in between(top, root) {
            if rules.ignored(&dir, true) {
                return general.enter(root);
            }
            rules = rules.enter(&dir);
        }
        rules
    }

    /// Returns the rules inside `dir`, which must be a direct child of this directory.
    pub(crate) fn enter(&self, dir: &Path) -> Rules {
        self.clone().with(dir, &dir.join(RULES_FILE))
    }

    /// Like [`Rules::enter`], for an ignored directory: no rule in it can re-include a file.
    pub(crate) fn enter_ignored(&self) -> Rules {
        Rules { deepest: self.deepest.clone(), all: true }
    }

    pub(crate) fn ignored(&self, path: &Path, is_dir: bool) -> bool {
        if self.all || path.file_name() == Some(OsStr::new(GIT)) {
            return true;
        }
        let mut level = self.deepest.as_deref();
        while let Some(rules) = level {
            match rules.matcher.matched(path, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => level = rules.above.as_deref(),
            }
        }
        false
    }

    fn with(self, dir: &Path, file: &Path) -> Rules {
        let Some(text) = read_plain(file, MAX_RULES_BYTES) else { return self };
        let mut builder = GitignoreBuilder::new(dir);
        for line in String::from_utf8_lossy(&text).trim_start_matches('\u{feff}').lines() {
            // A rule that cannot be parsed is skipped, as in git.
            let _ = builder.add_line(None, line);
        }
        match builder.build() {
            Ok(matcher) if !matcher.is_empty() => {
                Rules { all: self.all, deepest: Some(Arc::new(Level { matcher, above: self.deepest })) }
            }
            Ok(_) | Err(_) => self,
        }
    }
}

/// Returns the directories below `top` down to `bottom`, outermost first.
fn between(top: &Path, bottom: &Path) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        bottom.ancestors().take_while(|dir| *dir != top).map(Path::to_path_buf).collect();
    dirs.reverse();
    dirs
}

/// Returns the path of `info/exclude`. `.git` is a directory, or in a linked work tree a file that names the
/// worktree's part of the repository.
fn info_exclude(top: &Path) -> PathBuf {
    let git = top.join(GIT);
    let linked = read_plain(&git, MAX_RULES_BYTES).and_then(|text| {
        let dir = top.join(String::from_utf8_lossy(&text).strip_prefix("gitdir:")?.trim());
        let common = read_plain(&dir.join("commondir"), MAX_RULES_BYTES)?;
        Some(dir.join(String::from_utf8_lossy(&common).trim()))
    });
    linked.unwrap_or(git).join("info/exclude")
}
