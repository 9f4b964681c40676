//! Where things lie: the project's `.dogwatch/`, and the user's own state directory.

use crate::store::safe_file;
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The state directory's name in a project.
pub const STATE_DIR: &str = ".dogwatch";

/// A project's state directory.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    pub fn at(path: PathBuf) -> StateDir {
        StateDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn runs(&self) -> PathBuf {
        self.0.join("runs")
    }

    pub fn run(&self, run: &RunId) -> PathBuf {
        self.runs().join(run.as_str())
    }

    /// Makes the state directory, which keeps itself out of git.
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

    /// Makes the directory of a new run.
    pub fn make_run(&self, run: &RunId) -> io::Result<PathBuf> {
        self.make()?;
        let dir = self.run(run);
        std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(dir)
    }
}

/// Where an iteration's prompt and raw output lie, below the run's directory.
pub fn iteration_dir(run: &Path, node: &NodeName, iteration: Iteration) -> PathBuf {
    run.join(node.as_str()).join(format!("{:06}", iteration.0))
}

/// The user's own state directory (`$XDG_STATE_HOME/dogwatch`): locks and what outlives a project.
pub fn user_state_dir() -> PathBuf {
    let xdg = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    match xdg.or_else(|| Some(home()?.join(".local/state"))) {
        Some(base) => base.join("dogwatch"),
        None => std::env::temp_dir().join(format!("dogwatch-{}", rustix::process::getuid().as_raw())),
    }
}

/// The user's own settings (`$XDG_CONFIG_HOME/dogwatch/dogwatch.toml`).
pub fn user_config_file() -> Option<PathBuf> {
    let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let base = xdg.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))?;
    Some(base.join("dogwatch").join("dogwatch.toml"))
}

/// Makes a directory, and its parents, for this user alone. Refuses one that another user put in its place, or in
/// place of its parent.
pub fn make_private(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| parent.parent().is_some());
    // Before anything is made in it; one that is missing is ours to make.
    match parent.map_or(Ok(()), safe_file::check_dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        // `check_dir` names what is in its place.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => safe_file::check_dir(path),
    }
}

/// The work tree a directory belongs to: the nearest parent with a `.git`, else the directory itself.
pub fn work_tree(dir: &Path) -> PathBuf {
    dir.ancestors().find(|p| p.join(".git").exists()).unwrap_or(dir).to_owned()
}
