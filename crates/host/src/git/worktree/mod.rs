//! Worktrees for nodes: a git worktree on a branch `dogwatch/<run>/<node>`, below the state directory. The node's
//! work ends up on that branch; the user merges it.
//!
//! The driver starts [`Request::command`] as a job, before the node's first iteration and again after a resume. It
//! is this same binary in another role, [`main`], which prints one line of JSON ([`Outcome`]) and exits. The time
//! limit of the job covers everything.
//!
//! - Worktrees of one repository are created one after the other, even by different dogwatch processes, because git
//!   fails or hangs when several are added at once. A lock file in the repository's own directory ensures this.
//! - An existing worktree is reused with everything in it. An incomplete one is created again, because no agent can
//!   have worked in it.
//! - Hooks are off. Filters are on, because an agent works with the checked-out files.
//! - [`tidy`] removes a worktree only if no work is lost, and it never removes a branch.

mod make;
mod tidy;

use crate::git::role;
use crate::git::snapshot::names;
use dogwatch_core::record::ids::{NodeName, RunId};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub use make::make;
pub use tidy::{Tidied, tidy, tidy_run};

/// The first argument that makes the binary create a worktree.
pub const ARGUMENT: &str = "__worktree";

/// How long creation may take before its job is killed. It includes a full checkout and waiting for other nodes.
pub const BOUND: Duration = Duration::from_secs(300);

/// How long to wait for other processes that create worktrees.
pub const LOCK_BOUND: Duration = Duration::from_secs(240);

/// The longest line that [`main`] prints, in bytes. The captured output of a job must have room for it.
pub const MAX_LINE: usize = 64 * 1024;

/// Returns the path of a node's worktree. Worktrees are next to `runs` in the state directory, so that removing a
/// run's record can never remove a worktree.
pub fn place(state_dir: &Path, run: &RunId, node: &NodeName) -> PathBuf {
    of_run(state_dir, run).join(names::part(node.as_str()))
}

fn of_run(state_dir: &Path, run: &RunId) -> PathBuf {
    state_dir.join("worktrees").join(run.as_str())
}

/// Returns the branch of a node, valid for git whatever the node is called.
pub fn branch(run: &RunId, node: &NodeName) -> String {
    format!("dogwatch/{run}/{}", names::part(node.as_str()))
}

/// What to create, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Any directory of the user's work tree.
    #[serde(with = "role::path")]
    pub repo: PathBuf,
    /// From [`place`]; absolute.
    #[serde(with = "role::path")]
    pub path: PathBuf,
    /// From [`branch`].
    pub branch: String,
    /// The start of a new branch: a commit id, or `HEAD`.
    pub base: String,
}

impl Request {
    /// Creates the request for a node.
    pub fn new(repo: &Path, state_dir: &Path, run: &RunId, node: &NodeName, base: &str) -> Request {
        Request {
            repo: repo.to_owned(),
            path: place(state_dir, run, node),
            branch: branch(run, node),
            base: base.to_owned(),
        }
    }

    /// Returns the command that creates the worktree, to be run as a job. Its output is for [`Outcome::read`].
    pub fn command(&self) -> Vec<String> {
        role::command(ARGUMENT, self)
    }

    /// Parses the arguments of [`Request::command`], without the first two.
    fn parse(args: impl Iterator<Item = OsString>) -> Option<Request> {
        let request: Request = role::parse(args)?;
        let Request { path, branch, base, .. } = &request;
        let whole = path.is_absolute() && branch.starts_with("dogwatch/") && !base.starts_with('-');
        whole.then_some(request)
    }
}

/// The result of creating a worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "worktree", rename_all = "snake_case")]
pub enum Outcome {
    /// The worktree exists.
    Ready(Ready),
    /// The node cannot work. Nothing of the user's was changed.
    Failed {
        /// The reason, for people.
        why: String,
    },
}

/// A worktree that is ready for use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// For display. The request has the exact bytes.
    pub path: String,
    /// The branch that is checked out there.
    pub branch: String,
    /// The commit that is checked out.
    pub commit: String,
    /// Whether the worktree existed before.
    pub reused: bool,
}

impl Outcome {
    /// Parses the output of the job.
    pub fn read(stdout: &[u8]) -> Outcome {
        serde_json::from_slice(stdout)
            .unwrap_or_else(|_| Outcome::Failed { why: "the worktree process printed no result".to_owned() })
    }
}

/// The worktree role: creates the worktree described by the arguments and prints the outcome.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    // Otherwise the process would be called `exe`, after the link that it was started by.
    let _ = rustix::thread::set_name(c"dogwatch-tree");
    let outcome = match Request::parse(args) {
        Some(request) => make(&request),
        None => Outcome::Failed { why: "invalid arguments for the worktree process".to_owned() },
    };
    let ready = matches!(outcome, Outcome::Ready(_));
    role::answer(&outcome, ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

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
    fn invalid_arguments_are_refused() {
        let parse = |path: &str, branch: &str, base: &str| {
            let [branch, base] = [branch, base].map(str::to_owned);
            let request = Request { repo: "/repo".into(), path: path.into(), branch, base };
            Request::parse(request.command().into_iter().skip(2).map(OsString::from))
        };
        assert!(parse("/path", "dogwatch/r/n", "HEAD").is_some());
        assert_eq!(parse("relative", "dogwatch/r/n", "HEAD"), None);
        assert_eq!(parse("/path", "main", "HEAD"), None);
        assert_eq!(parse("/path", "dogwatch/r/n", "--force"), None);
        assert_eq!(Request::parse([OsString::from("/repo")].into_iter()), None);
        assert!(matches!(Outcome::read(b"fatal: no"), Outcome::Failed { .. }));
    }
}
