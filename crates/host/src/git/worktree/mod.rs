//! A work tree of its own for a node: a git worktree on a branch `dogwatch/<run>/<node>`, below the state
//! directory. The node's work ends on that branch; merging it is left to people.
//!
//! The driver starts [`Request::command`] as a job, before the node's first iteration and again after a resume; it
//! is this same binary in another role, [`main`], which prints one line of JSON ([`Outcome`]) and exits. Whoever
//! bounds the job bounds all of it.
//!
//! - Worktrees of one repository are made one after the other, whichever dogwatch asks: git itself fails or hangs
//!   when several are added at once. A lock file in the repository's own directory holds this.
//! - A worktree that is there is used again, with whatever stands in it. One that was only half made is made
//!   anew: nobody can have worked in it.
//! - Hooks are off. Filters are not: what is checked out is what an agent works with.
//! - [`tidy`] removes a worktree only if nothing would be lost by it, and never a branch.

mod make;
mod tidy;

use crate::git::snapshot::names;
use dogwatch_core::record::ids::{NodeName, RunId};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub use make::make;
pub use tidy::{Tidied, tidy, tidy_run};

/// The first argument that makes the binary make a worktree.
pub const ARGUMENT: &str = "__worktree";

/// How long it may take before its job is to be killed: a checkout of all files, after those of other nodes.
pub const BOUND: Duration = Duration::from_secs(300);

/// How long others may be at their worktrees before we give up.
pub const LOCK_BOUND: Duration = Duration::from_secs(240);

/// The longest line that [`main`] prints, in bytes: a job's captured output must hold it.
pub const MAX_LINE: usize = 64 * 1024;

/// Where worktrees lie, below the state directory and beside `runs`: what clears away a run's record can
/// never take a worktree with it.
pub fn place(state_dir: &Path, run: &RunId, node: &NodeName) -> PathBuf {
    of_run(state_dir, run).join(names::part(node.as_str()))
}

fn of_run(state_dir: &Path, run: &RunId) -> PathBuf {
    state_dir.join("worktrees").join(run.as_str())
}

/// The branch of a node: a name that git takes whatever the node is called.
pub fn branch(run: &RunId, node: &NodeName) -> String {
    format!("dogwatch/{run}/{}", names::part(node.as_str()))
}

/// What to make, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Any directory of the user's work tree.
    pub repo: PathBuf,
    /// From [`place`]: absolute.
    pub path: PathBuf,
    /// From [`branch`].
    pub branch: String,
    /// What the branch begins at, if it is not there yet: a commit's id, or `HEAD`.
    pub base: String,
}

impl Request {
    pub fn new(repo: &Path, state_dir: &Path, run: &RunId, node: &NodeName, base: &str) -> Request {
        Request {
            repo: repo.to_owned(),
            path: place(state_dir, run, node),
            branch: branch(run, node),
            base: base.to_owned(),
        }
    }

    /// The command that makes it, to be run as a job. Its output is for [`Outcome::read`].
    pub fn command(&self) -> Vec<String> {
        let path = |path: &Path| names::escape(path.as_os_str().as_bytes());
        let words = ["/proc/self/exe", ARGUMENT].map(str::to_owned);
        let facts = [path(&self.repo), path(&self.path), self.branch.clone(), self.base.clone()];
        words.into_iter().chain(facts).collect()
    }

    /// Reads back what [`Request::command`] wrote, without its first two words.
    fn parse(args: impl Iterator<Item = OsString>) -> Option<Request> {
        let words: Vec<String> = args.map(|arg| arg.into_string().ok()).collect::<Option<_>>()?;
        let [repo, path, branch, base] = words.as_slice() else { return None };
        let (repo, path) = (names::unescape_path(repo)?, names::unescape_path(path)?);
        let whole = path.is_absolute() && branch.starts_with("dogwatch/") && !base.starts_with('-');
        whole.then(|| Request { repo, path, branch: branch.clone(), base: base.clone() })
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "worktree", rename_all = "snake_case")]
pub enum Outcome {
    Ready(Ready),
    /// The node cannot work; nothing of the user's was changed.
    Failed {
        why: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// For people; who must be exact about bytes has it in the request.
    pub path: String,
    pub branch: String,
    /// Where the worktree stands now.
    pub commit: String,
    /// It was there already.
    pub reused: bool,
}

impl Outcome {
    /// Reads what the job printed.
    pub fn read(stdout: &[u8]) -> Outcome {
        serde_json::from_slice(stdout).unwrap_or_else(|_| Outcome::Failed {
            why: "the making of the worktree ended without a word".to_owned(),
        })
    }
}

/// The role: makes the worktree that the arguments ask for and prints what came of it.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    // Otherwise it would be called `exe`, after the link that it was started by.
    let _ = rustix::thread::set_name(c"dogwatch-tree");
    let outcome = match Request::parse(args) {
        Some(request) => make(&request),
        None => Outcome::Failed { why: "a worktree was asked for in words that it does not know".to_owned() },
    };
    let ready = matches!(outcome, Outcome::Ready(_));
    let mut line = serde_json::to_vec(&outcome).expect("texts always become JSON");
    line.push(b'\n');
    match std::io::stdout().write_all(&line) {
        Ok(()) if ready => ExitCode::SUCCESS,
        Ok(()) | Err(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_read_as_it_was_written() {
        let run: RunId = "20261115-201533-k3f9".parse().expect("a run id");
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/a b/\xff%\n=c"));
        let request = Request::new(odd, odd, &run, &NodeName::new("api: v1"), "HEAD");
        assert_eq!(request.branch, "dogwatch/20261115-201533-k3f9/api%3A%20v1");
        let words = request.command().into_iter().skip(2).map(OsString::from);
        assert_eq!(Request::parse(words), Some(request));
    }

    #[test]
    fn words_that_ask_for_nothing_are_refused() {
        let good = ["/repo", "/path", "dogwatch/r/n", "HEAD"];
        assert!(Request::parse(good.iter().map(OsString::from)).is_some());
        for (at, bad) in [(1, "relative"), (2, "main"), (3, "--force")] {
            let mut words = good;
            words[at] = bad;
            assert_eq!(Request::parse(words.iter().map(OsString::from)), None, "{words:?}");
        }
        assert_eq!(Request::parse(good[..3].iter().map(OsString::from)), None);
        assert!(matches!(Outcome::read(b"fatal: no"), Outcome::Failed { .. }));
    }
}
