//! Finds out where sessions work, before the first of them can change the answer.

use crate::store::{home, safe_file};
use std::path::{Component, Path, PathBuf};

/// The work tree of sessions and its git directory. It is found once and then kept, because later the files that name it
/// may be the work of a session.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The work tree.
    pub work_tree: PathBuf,
    /// The git directory, if there is one.
    pub git: Option<GitDir>,
    /// `.git`, if it is a file or a link that leads to the git directory.
    pub git_link: Option<PathBuf>,
    /// The loop or graph file as the user named it, which may be a link.
    pub loop_file: PathBuf,
}

/// Where a work tree has its repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitDir {
    /// The directory of this work tree.
    pub own: PathBuf,
    /// The directory that it shares with the other work trees of the repository. Without others it is the same.
    pub common: PathBuf,
    /// How it belongs to the work tree.
    pub place: GitPlace,
    /// Whether [`GitDir::redirection`] exists.
    pub is_redirected: bool,
}

/// How a git directory belongs to a work tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitPlace {
    /// It is inside.
    Inside,
    /// It is elsewhere and leads back to the work tree.
    Outside,
    /// It is elsewhere and does not lead back, so it may belong to another work tree.
    Unknown,
}

impl Ground {
    /// Finds the work tree around a directory. Links in the path of the loop file are kept.
    pub fn around(work_dir: &Path, loop_file: &Path) -> Ground {
        let mut named = PathBuf::new();
        // Protected paths are compared by their names, so a name must not lead through other directories.
        for part in work_dir.join(loop_file).components() {
            if part == Component::ParentDir {
                named.pop();
            } else {
                named.push(part);
            }
        }
        Ground::at(home::work_tree(work_dir), named)
    }

    /// Examines the work tree at this path.
    pub fn at(work_tree: PathBuf, loop_file: PathBuf) -> Ground {
        let git_link = Some(work_tree.join(".git")).filter(|dot| dot.is_symlink() || dot.is_file());
        Ground { git: GitDir::of(&work_tree), work_tree, git_link, loop_file }
    }
}

/// The longest file in place of a git directory, and the longest file in it that leads back, in bytes.
const MAX_LINK: u64 = 64 * 1024;

impl GitDir {
    /// Finds the git directory of a work tree. A session can write a `.git` that names any directory, but it cannot make
    /// that directory lead back.
    fn of(work_tree: &Path) -> Option<GitDir> {
        let dot = work_tree.join(".git");
        let own =
            if dot.is_dir() { dot } else { work_tree.join(text(&dot)?.strip_prefix("gitdir:")?.trim()) };
        let own = own.canonicalize().ok()?;
        let leads_back = |dir: &Path| dir.canonicalize().is_ok_and(|dir| dir == work_tree);
        // A linked worktree has its directory in `worktrees` of the repository.
        let repository = own.parent().filter(|dir| dir.ends_with("worktrees")).and_then(Path::parent);
        let link = text(&own.join("gitdir")).map(|link| own.join(link.trim()));
        let linked = repository.filter(|_| link.as_deref().and_then(Path::parent).is_some_and(leads_back));
        // A submodule has its work tree in its settings.
        let config = text(&own.join("config")).unwrap_or_default();
        let setting = |line: &'_ str| {
            let value = line.trim().strip_prefix("worktree")?.trim_start().strip_prefix('=')?;
            Some(own.join(value.trim()))
        };
        let place = if own.starts_with(work_tree) {
            GitPlace::Inside
        } else if linked.is_some() || config.lines().filter_map(setting).any(|dir| leads_back(&dir)) {
            GitPlace::Outside
        } else {
            GitPlace::Unknown
        };
        let common = linked.unwrap_or(&own).to_owned();
        let mut git = GitDir { own, common, place, is_redirected: false };
        git.is_redirected = git.redirection().exists();
        Some(git)
    }

    /// Returns the file that makes git read settings and hooks elsewhere. Git creates it only in the directories of linked
    /// worktrees, so elsewhere it was planted.
    pub fn redirection(&self) -> PathBuf {
        self.common.join("commondir")
    }

    /// Returns the files that sessions must not change. Some of them may not exist.
    pub fn protected(&self) -> Vec<PathBuf> {
        let of = |dir: &Path| ["commondir", "config", "config.worktree", "hooks"].map(|name| dir.join(name));
        [of(&self.own), of(&self.common)].concat()
    }
}

fn text(file: &Path) -> Option<String> {
    String::from_utf8(safe_file::read_named_whole(file, MAX_LINK).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn git(dir: &Path, args: &[&str]) {
        let mut command = Command::new("git");
        command.current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.args(["-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always"]);
        assert!(command.args(args).output().expect("git is there").status.success(), "{args:?}");
    }

    #[test]
    fn a_git_directory_elsewhere_belongs_to_the_work_tree_that_it_leads_back_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().canonicalize().expect("a directory").join(name);
        for name in ["main", "lib", "planted", "apart"] {
            std::fs::create_dir(at(name)).expect("a directory");
        }
        for name in ["main", "lib"] {
            git(&at(name), &["init", "-q"]);
            git(&at(name), &["commit", "-q", "--allow-empty", "-m", "x"]);
        }
        git(&at("main"), &["worktree", "add", "-q", "../linked"]);
        git(&at("main"), &["submodule", "add", "-q", "../lib", "sub"]);
        git(&at("apart"), &["init", "-q", "--separate-git-dir", "../apart.git"]);
        let found = |name: &str| {
            let git = Ground::at(at(name), at("RALPH.md")).git.expect("a git directory");
            (git.place, git.common)
        };
        assert_eq!(found("main"), (GitPlace::Inside, at("main/.git")));
        assert_eq!(found("linked"), (GitPlace::Outside, at("main/.git")));
        assert_eq!(found("main/sub"), (GitPlace::Outside, at("main/.git/modules/sub")));
        assert_eq!(found("apart"), (GitPlace::Unknown, at("apart.git")));
        for target in ["", "main/.git", "main/.git/worktrees/linked", "main/.git/modules/sub"] {
            std::fs::write(at("planted/.git"), format!("gitdir: {}", at(target).display())).expect("writes");
            assert_eq!(found("planted").0, GitPlace::Unknown, "{target}");
        }
        let around = Ground::around(&at("main/sub"), Path::new("../loop/./RALPH.md"));
        assert_eq!(around.loop_file, at("main/loop/RALPH.md"));
        assert!(Ground::at(at("planted"), at("RALPH.md")).git_link.is_some());
        assert!(Ground::at(at("main"), at("RALPH.md")).git_link.is_none());
    }
}
