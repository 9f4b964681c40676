//! Worktrees for nodes: a git worktree on a branch `dogwatch/<run>/<node>`, below the state directory. The branch starts
//! from the merge of the branches of the node's dependencies. The node's work ends up on it; `dogwatch merge` merges it.
//!
//! The driver starts [`Request::command`] as a job, before the node's first iteration and again after a resume, and
//! [`Request::commit_command`] when the node is done. The keeper runs both in a fork of itself, [`main`], which prints
//! one line of JSON ([`Worktree`] or [`Commit`]) and exits. The time limit of the job covers everything.
//!
//! - Worktrees of one repository are created one after the other, even by different dogwatch processes, because git
//!   fails or hangs when several are added at once. A lock file in the repository's own directory ensures this.
//! - An existing worktree is reused with everything in it, if the record knows it. Any other one, and its branch, is
//!   created again, because no agent can have worked in it.
//! - A branch that conflicts is merged all the same: its files have conflict markers, and the outcome names them. The
//!   core decides what follows.
//! - Hooks are off. Filters are on, because an agent works with the checked-out files.
//! - [`tidy`] removes a worktree only if no work is lost, and it never removes a branch.

mod commit;
pub(crate) mod make;
mod tidy;

use crate::git::role;
use crate::git::snapshot::names;
use dogwatch_core::record::ids::{NodeName, RunId};
use dogwatch_core::run::job::{Commit, Worktree};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use commit::commit;
pub use make::make;
pub use tidy::{Tidied, tidy, tidy_run};

/// The name of this part of dogwatch, for the keeper.
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
    /// The branches that are merged into a new branch, in this order.
    #[serde(default)]
    pub from: Vec<Source>,
    /// Whether the worktree was ready before. Otherwise what is left of it is removed first.
    #[serde(default)]
    pub recorded: bool,
}

/// The branch of a dependency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The node.
    pub node: NodeName,
    /// Its branch, from [`branch`].
    pub branch: String,
}

/// What [`main`] does.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
enum Task {
    Make { request: Request },
    Commit { request: Request, message: String },
}

impl Request {
    /// Creates the request for a node.
    pub fn new(repo: &Path, state_dir: &Path, run: &RunId, node: &NodeName, base: &str) -> Request {
        Request {
            repo: repo.to_owned(),
            path: place(state_dir, run, node),
            branch: branch(run, node),
            base: base.to_owned(),
            from: Vec::new(),
            recorded: false,
        }
    }

    /// Returns the command that creates the worktree, to be run as a job. Its output is for [`role::read`].
    pub fn command(&self) -> Vec<String> {
        role::command(ARGUMENT, &Task::Make { request: self.clone() })
    }

    /// Returns the command that commits what is in the worktree, to be run as a job. Its output is for
    /// [`role::read`].
    pub fn commit_command(&self, message: &str) -> Vec<String> {
        role::command(ARGUMENT, &Task::Commit { request: self.clone(), message: message.to_owned() })
    }

    fn is_whole(&self) -> bool {
        let Request { path, branch, base, from, .. } = self;
        let ours = |branch: &str| branch.starts_with("dogwatch/");
        path.is_absolute() && ours(branch) && !base.starts_with('-') && from.iter().all(|f| ours(&f.branch))
    }
}

/// Parses the arguments of a command, without the first two.
fn parse(args: impl Iterator<Item = OsString>) -> Option<Task> {
    let task: Task = role::parse(args)?;
    let (Task::Make { request } | Task::Commit { request, .. }) = &task;
    request.is_whole().then_some(task)
}

/// Returns the message of the commit with a node's work.
pub fn message(run: &RunId, node: &NodeName) -> String {
    format!("{node}\n\nWork of node {node} in dogwatch run {run} that its agent had not committed.")
}

/// The worktree role: does what the arguments describe and prints the outcome.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    // Otherwise the process would be called like the keeper.
    let _ = rustix::thread::set_name(c"dogwatch-tree");
    match parse(args) {
        Some(Task::Make { request }) => {
            let outcome = make(&request);
            role::answer(&outcome, matches!(outcome, Worktree::Ready(_)))
        }
        Some(Task::Commit { request, message }) => {
            let outcome = commit(&request, &message);
            role::answer(&outcome, matches!(outcome, Commit::Made(_)))
        }
        None => {
            let why = "invalid arguments for the worktree process".to_owned();
            role::answer(&Worktree::Failed { why }, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn request_is_read_as_it_was_written() {
        let run: RunId = "20261115-201533-k3f9".parse().expect("a run id");
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/a b/\xff%\n=c"));
        let (node, from) = (NodeName::new("api: v1"), NodeName::new("db"));
        let mut request = Request::new(odd, odd, &run, &node, "HEAD");
        assert_eq!(request.branch, "dogwatch/20261115-201533-k3f9/api%3A%20v1");
        request.from.push(Source { branch: branch(&run, &from), node: from });
        let words = |command: Vec<String>| command.into_iter().skip(2).map(OsString::from);
        assert_eq!(parse(words(request.command())), Some(Task::Make { request: request.clone() }));
        let message = "a\n\nb".to_owned();
        assert_eq!(parse(words(request.commit_command(&message))), Some(Task::Commit { request, message }));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        let parsed = |path: &str, branch: &str, base: &str, from: &str| {
            let [branch, base, from] = [branch, base, from].map(str::to_owned);
            let from = vec![Source { node: NodeName::new("n"), branch: from }];
            let (repo, path) = ("/repo".into(), path.into());
            let request = Request { repo, path, branch, base, from, recorded: false };
            parse(request.command().into_iter().skip(2).map(OsString::from))
        };
        let good = "dogwatch/r/n";
        assert!(parsed("/path", good, "HEAD", good).is_some());
        assert_eq!(parsed("relative", good, "HEAD", good), None);
        assert_eq!(parsed("/path", "main", "HEAD", good), None);
        assert_eq!(parsed("/path", good, "--force", good), None);
        assert_eq!(parsed("/path", good, "HEAD", "--force"), None);
        assert_eq!(parse([OsString::from("/repo")].into_iter()), None);
    }
}
