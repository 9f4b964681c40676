//! The directories of dogwatch: `.dogwatch/` in the project, and the user's state directory.

use crate::store::safe_file;
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The name of the state directory in a project.
pub const STATE_DIR: &str = ".dogwatch";

/// A project's state directory.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Returns the state directory at this path, without creating it.
    pub fn at(path: PathBuf) -> StateDir {
        StateDir(path)
    }

    /// Returns the path of the state directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the directory that holds all runs.
    pub fn runs(&self) -> PathBuf {
        self.0.join("runs")
    }

    /// Returns the directory of a run.
    pub fn run(&self, run: &RunId) -> PathBuf {
        self.runs().join(run.as_str())
    }

    /// Creates the state directory, with a `.gitignore` that excludes it from git.
    pub fn make(&self) -> io::Result<()> {
        make_private(&self.runs())?;
        let ignore = self.0.join(".gitignore");
        let made = match safe_file::create_new(&ignore, safe_file::PLAIN) {
            Ok(mut file) => file.write_all(b"*\n"),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => safe_file::read(&ignore).map(drop),
            Err(error) => Err(error),
        };
        made.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", ignore.display())))
    }

    /// Creates the directory of a new run and returns it.
    pub fn make_run(&self, run: &RunId) -> io::Result<PathBuf> {
        self.make()?;
        let dir = self.run(run);
        std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(dir)
    }
}

/// Returns the directory of an iteration's prompt and raw output, below the directory of the run.
pub fn iteration_dir(run: &Path, node: &NodeName, iteration: Iteration) -> PathBuf {
    run.join(node.as_str()).join(format!("{:06}", iteration.0))
}

/// The directory of a node that its sessions may write, even in the sandbox. It is one for all of them, because a
/// directory and a mount for each session would delay its start.
pub fn agent_dir(run: &Path, node: &NodeName) -> PathBuf {
    run.join(node.as_str()).join("agent")
}

/// Returns the directory of the artifacts that the agent of an iteration saves.
pub fn artifacts_dir(run: &Path, node: &NodeName, iteration: Iteration) -> PathBuf {
    agent_dir(run, node).join("artifacts").join(format!("{:06}", iteration.0))
}

/// Creates a directory below the directory of a run. A link in place of it, or of the directory around it, is removed: it
/// is not ours, and what a session writes must not go elsewhere.
pub fn make_own_dir(dir: &Path) -> io::Result<()> {
    for place in [dir.parent(), Some(dir)].into_iter().flatten() {
        if std::fs::symlink_metadata(place).is_ok_and(|found| found.is_symlink()) {
            match std::fs::remove_file(place) {
                // The driver and the pump of a session both call this.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    make_private(dir)
}

/// The state directory of a user without a home directory. Nothing can be created below it.
const NOWHERE: &str = "/dev/null/dogwatch";

/// Returns the user's state directory (`$XDG_STATE_HOME/dogwatch`), which holds locks and data that outlives a
/// project. Without a home directory there is none: a shared directory such as `/tmp` could be prepared by others.
pub fn user_state_dir() -> PathBuf {
    state_dir_of(std::env::var_os("XDG_STATE_HOME").map(PathBuf::from), std::env::home_dir())
}

fn state_dir_of(xdg: Option<PathBuf>, home: Option<PathBuf>) -> PathBuf {
    let xdg = xdg.filter(|dir| dir.is_absolute());
    let home = home.filter(|dir| dir.is_absolute()).map(|dir| dir.join(".local/state"));
    xdg.or(home).map_or_else(|| PathBuf::from(NOWHERE), |base| base.join("dogwatch"))
}

/// Returns the directories that only dogwatch writes: the state of a project and the user's. Changes there do not
/// count as work, even if the work tree contains them (a run in the home directory).
pub fn own_dirs(state_dir: &Path) -> Vec<PathBuf> {
    vec![state_dir.to_owned(), user_state_dir()]
}

/// Returns the user's settings file (`$XDG_CONFIG_HOME/dogwatch/dogwatch.toml`).
pub fn user_config_file() -> Option<PathBuf> {
    let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let base = xdg.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))?;
    Some(base.join("dogwatch").join("dogwatch.toml"))
}

/// Creates a directory and its parents for this user only. Fails if another user put something in place of the
/// directory or its parent.
pub fn make_private(path: &Path) -> io::Result<()> {
    if path.starts_with(NOWHERE) {
        return Err(io::Error::other("cannot find the home directory; set HOME or XDG_STATE_HOME"));
    }
    let parent = path.parent().filter(|parent| parent.parent().is_some());
    // Check the parent before creating anything in it. A missing parent is created below.
    match parent.map_or(Ok(()), safe_file::check_dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        // If something else is in its place, `check_dir` reports it.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => safe_file::check_dir(path),
    }
}

/// Returns the work tree of a directory: the nearest ancestor with a `.git`, or the directory itself.
pub fn work_tree(dir: &Path) -> PathBuf {
    dir.ancestors().find(|p| p.join(".git").exists()).unwrap_or(dir).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 14
    #[test]
    fn the_state_directory_is_never_at_a_predictable_path_in_a_shared_directory() {
        let of = |xdg: &str, home: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
            state_dir_of(some(xdg), some(home)).display().to_string()
        };
        assert_eq!(of("/x", "/h"), "/x/dogwatch");
        assert_eq!(of("relative", "/h"), "/h/.local/state/dogwatch");
        for nowhere in [of("", ""), of("relative", "relative")] {
            assert_eq!(nowhere, NOWHERE);
            let refused = make_private(&Path::new(&nowhere).join("locks")).expect_err("refused");
            assert!(refused.to_string().contains("set HOME or XDG_STATE_HOME"), "{refused}");
        }
    }
}
