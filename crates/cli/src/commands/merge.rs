use crate::error::{self, CliError};
use crate::runs::{FoundRun, Which};
use crate::screen::words;
use dogwatch_core::record::event::{NodeState, RunStarted};
use dogwatch_core::record::ids::{NodeIx, NodeName, RunId};
use dogwatch_core::record::view::{NodeView, View};
use dogwatch_core::run::job::Commit;
use dogwatch_core::settings::{CheckPolicy, NodePlan};
use dogwatch_core::text::printable;
use dogwatch_core::time::dur::Dur;
use dogwatch_host::git;
use dogwatch_host::git::merge::{LandingError, Staging, Step, Target};
use dogwatch_host::git::worktree::{self, Request};
use dogwatch_host::process::program::{ProgramResult, ProgramRunner};
use dogwatch_host::store::home;
use std::path::{Path, PathBuf};

/// Merge the work of finished nodes into a branch
///
/// Merges the branches of all nodes that are done and have a worktree, each after its dependencies. After
/// every merge, the setup and the checks of the node run on the result. All of this happens in a temporary worktree. If
/// every merge is clean and every check passes, the branch moves, and with it the work tree that has it checked out;
/// otherwise nothing changes.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Branch to merge into; a new one starts at the current commit [default: the current branch]
    #[arg(long, value_name = "BRANCH")]
    into: Option<String>,
    /// Merge only this node, with everything it depends on
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Print what was merged as JSON
    #[arg(long)]
    json: bool,
}

/// The document that `merge --json` prints.
#[derive(serde::Serialize)]
struct Document<'a> {
    run: &'a RunId,
    branch: &'a str,
    /// The commit of the branch before the merge.
    old: &'a str,
    /// The commit of the branch now.
    new: &'a str,
    nodes: Vec<MergedNode>,
    /// Why nothing was changed, if a merge conflicts or a check fails.
    failed: Option<&'a Stopped>,
}

/// What became of a node.
#[derive(serde::Serialize)]
struct MergedNode {
    node: NodeName,
    #[serde(flatten)]
    how: How,
    /// The number of checks that passed on the result.
    checks: u64,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
enum How {
    Merged {
        files: u64,
    },
    AlreadyMerged,
    /// It conflicts, and the agent of another node has resolved the conflict.
    ResolvedIn {
        by: NodeName,
    },
}

impl How {
    fn text(&self) -> String {
        match self {
            How::Merged { files } => format!("merged ({})", words::count(*files, "file")),
            How::AlreadyMerged => "already merged".to_owned(),
            How::ResolvedIn { by } => format!("conflicts with the others; resolved in {by}"),
        }
    }
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch merge                     merge the latest run into this branch
  dogwatch merge k3f9 --into review  merge into a branch; keep your work tree
  dogwatch merge k3f9 --node api     merge only the work of node api

Exit codes:
  0 merged, or nothing to merge
  1 a conflict or a failing check; nothing was changed
  2 cannot start, for example because the work tree has uncommitted changes";

/// How long one setup command may take.
const SETUP_TIMEOUT: Dur = Dur::from_mins(30);
/// The most lines of a failing command's output to show.
const MAX_LINES: usize = 20;

/// Runs `dogwatch merge` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find()?;
    let view = found.view()?;
    let started =
        view.started.clone().ok_or_else(|| CliError::usage(format!("run {} has not started", found.id)))?;
    let nodes = wanted(args, &found, &started, &view)?;
    let target = Target::find(Path::new(&started.work_dir), args.into.as_deref()).map_err(refused)?;
    let (branch, old) = (target.branch.clone(), target.tip.clone());
    let staging = Staging::open(target, &found.state_dir()).map_err(refused)?;
    let mut merge = Merge {
        found: &found,
        started: &started,
        view: &view,
        staging,
        runner: None,
        prints: !args.json,
        nodes: Vec::new(),
    };
    for (at, ix) in nodes.iter().enumerate() {
        if let Err(stopped) = merge.node(*ix, &nodes[at + 1..])? {
            if args.json {
                merge.print_json(&branch, (&old, &old), Some(&stopped))?;
            } else {
                stopped.print(&branch);
            }
            return Ok(1);
        }
    }
    // A new branch is created even if the current commit already has all the work.
    if !merge.staging.has_changes() && !merge.staging.target().is_new {
        if args.json {
            return merge.print_json(&branch, (&old, &old), None);
        }
        return super::print_text(&format!("nothing to merge: {branch} already has this work\n"));
    }
    let new = merge.staging.tip().to_owned();
    let Target { is_new, checked_out, .. } = merge.staging.target();
    let (is_new, checked_out) = (*is_new, checked_out.is_some());
    let rows = std::mem::take(&mut merge.nodes);
    merge.staging.land().map_err(refused)?;
    if args.json {
        let document =
            Document { run: &found.id, branch: &branch, old: &old, new: &new, nodes: rows, failed: None };
        return super::print_json(&document);
    }
    let back = match (is_new, checked_out) {
        (true, _) => format!("git branch -D {branch}"),
        (false, true) => format!("git reset --keep {}", short(&old)),
        (false, false) => format!("git branch -f {branch} {}", short(&old)),
    };
    let text = format!("{branch} is now at {} (back with `{back}`)\n", short(&new));
    super::print_text(&printable(&text))
}

fn short(commit: &str) -> &str {
    dogwatch_core::text::clip(commit, 10)
}

/// Returns the nodes to merge, each after its dependencies.
fn wanted(args: &Args, found: &FoundRun, started: &RunStarted, view: &View) -> Result<Vec<NodeIx>, CliError> {
    let order = started.settings.dependency_order();
    let fits = |node: &NodeView| args.node.as_deref().is_none_or(|name| node.name.as_str() == name);
    let ready = |node: &NodeView| node.state == NodeState::Done && node.work.worktree.is_some();
    let nodes: Vec<NodeIx> =
        order.into_iter().filter(|ix| fits(view.node(*ix)) && ready(view.node(*ix))).collect();
    if !nodes.is_empty() {
        return Ok(nodes);
    }
    let status = format!("`dogwatch status {}` shows its nodes", found.tail());
    Err(match (&args.node, view.nodes.iter().find(|node| fits(node))) {
        (Some(name), None) => found.has_no_node(name),
        (Some(name), Some(node)) if node.state != NodeState::Done => CliError::with_help(
            format!("node `{name}` of run {} is not done: {}", found.id, node.state.as_str()),
            status,
        ),
        (_, _) if !view.nodes.iter().any(|node| node.work.worktree.is_some()) => CliError::with_help(
            format!("run {} has no branches to merge: its nodes work in your work tree", found.id),
            "`worktree: true` gives each node its own worktree and branch",
        ),
        (_, _) => CliError::with_help(format!("no node of run {} is done", found.id), status),
    })
}

/// Turns a refusal into an error with advice.
fn refused(error: LandingError) -> CliError {
    let help = match &error {
        LandingError::NoWorkTree(_) => "the nodes of this run worked in a git repository that is gone",
        LandingError::Detached => "name a branch with --into",
        LandingError::BadName(_) => "choose another name for --into",
        LandingError::Dirty { .. } => "commit or stash them first, or merge into another branch with --into",
        LandingError::UnderWay { .. } => "finish or abort it first, or merge into another branch with --into",
        LandingError::Busy => "wait until it ends",
        LandingError::Moved(_) => "nothing was changed; run `dogwatch merge` again",
        LandingError::Failed(_) => "nothing was changed",
    };
    CliError::with_help(error.to_string(), help)
}

/// A merge in progress.
struct Merge<'a> {
    found: &'a FoundRun,
    started: &'a RunStarted,
    view: &'a View,
    staging: Staging,
    /// Runs setup commands and checks.
    runner: Option<ProgramRunner>,
    /// Print each step as text.
    prints: bool,
    /// The nodes merged so far.
    nodes: Vec<MergedNode>,
}

/// Why a merge stopped. Nothing was changed.
#[derive(serde::Serialize)]
struct Stopped {
    what: String,
    /// The details, a line each.
    details: Vec<String>,
    help: String,
}

impl Stopped {
    fn print(&self, branch: &str) {
        error::warn(&self.what);
        for line in &self.details {
            error::print_line(&format!("    {}", printable(line)));
        }
        error::print_line(&format!("help: {branch} was not changed; {}", printable(&self.help)));
    }
}

impl Merge<'_> {
    /// Merges a node and runs its setup and its checks on the result. A node that conflicts is left to one of those that
    /// follow, if that has its work: its agent has resolved the conflict.
    fn node(&mut self, ix: NodeIx, rest: &[NodeIx]) -> Result<Result<(), Stopped>, CliError> {
        let node = self.view.node(ix);
        let branch = self.branch(node)?;
        let message = format!("Merge node {} of dogwatch run {}", node.name, self.found.id);
        let by_hand = format!("merge it by hand with `git merge {branch}`");
        match self.staging.merge(&branch, &message).map_err(refused)? {
            Step::Contained => {
                self.note(&node.name, How::AlreadyMerged)?;
                return Ok(Ok(()));
            }
            Step::Conflict { files, detail } => {
                if let Some(later) = self.resolved_by(&branch, rest)?.map(|later| later.name.clone()) {
                    self.note(&node.name, How::ResolvedIn { by: later })?;
                    return Ok(Ok(()));
                }
                let what = format!("{} conflicts in {}", node.name, files.join(", "));
                let details = detail.lines().map(str::to_owned).collect();
                return Ok(Err(Stopped { what, details, help: by_hand }));
            }
            Step::Merged { files } => self.note(&node.name, How::Merged { files })?,
        }
        self.verify(&self.started.settings.nodes[ix.0], &by_hand)
    }

    /// Keeps what became of a node, and prints it.
    fn note(&mut self, node: &NodeName, how: How) -> Result<(), CliError> {
        self.say(&format!("{node}: {}", how.text()))?;
        self.nodes.push(MergedNode { node: node.clone(), how, checks: 0 });
        Ok(())
    }

    fn say(&self, line: &str) -> Result<(), CliError> {
        if self.prints {
            super::print_text(&format!("{}\n", printable(line)))?;
        }
        Ok(())
    }

    /// Prints the document of a merge that changed nothing.
    fn print_json(
        mut self,
        branch: &str,
        (old, new): (&str, &str),
        failed: Option<&Stopped>,
    ) -> Result<u8, CliError> {
        let nodes = std::mem::take(&mut self.nodes);
        super::print_json(&Document { run: &self.found.id, branch, old, new, nodes, failed })
    }

    /// Returns the node among these that has the work of a branch.
    fn resolved_by(&self, branch: &str, rest: &[NodeIx]) -> Result<Option<&NodeView>, CliError> {
        for ix in rest {
            let later = self.view.node(*ix);
            if self.staging.has(&self.branch(later)?, branch).map_err(refused)? {
                return Ok(Some(later));
            }
        }
        Ok(None)
    }

    /// Returns the branch of a node, with all its work. The work of a node that was stopped is committed now.
    fn branch(&self, node: &NodeView) -> Result<String, CliError> {
        let request = Request::new(
            Path::new(&self.started.work_dir),
            &self.found.state_dir(),
            &self.found.id,
            &node.name,
            "HEAD",
        );
        if node.work.commit.is_none() && request.path.is_dir() {
            let message = worktree::message(&self.found.id, &node.name);
            if let Commit::Failed { why } = worktree::commit(&request, &message) {
                return Err(CliError::usage(format!("cannot commit the work of {}: {why}", node.name)));
            }
        }
        Ok(request.branch)
    }

    fn verify(&mut self, plan: &NodePlan, by_hand: &str) -> Result<Result<(), Stopped>, CliError> {
        let CheckPolicy { commands, timeout, recheck, .. } = &plan.settings.checks;
        if commands.is_empty() {
            return Ok(Ok(()));
        }
        let dir = self.inside();
        let setup = plan.settings.setup.iter().map(|line| ("setup", line, SETUP_TIMEOUT, 0));
        let checks = commands.iter().map(|line| ("check", line, *timeout, *recheck));
        for (kind, line, bound, again) in setup.chain(checks) {
            let mut failed = None;
            for _ in 0..=again {
                failed = self.run(plan, line, &dir, bound)?;
                if failed.is_none() {
                    break;
                }
            }
            if let Some((how, details)) = failed {
                let what = format!("a {kind} of {} fails after the merge: {line} ({how})", plan.name);
                return Ok(Err(Stopped { what, details, help: by_hand.to_owned() }));
            }
        }
        let passed = format!("{}: {} passed", plan.name, words::count(commands.len() as u64, "check"));
        self.say(&passed)?;
        if let Some(row) = self.nodes.last_mut() {
            row.checks = commands.len() as u64;
        }
        Ok(Ok(()))
    }

    /// Returns the directory in the temporary worktree that corresponds to the one the run was started in.
    fn inside(&self) -> PathBuf {
        let work_dir = Path::new(&self.started.work_dir);
        let inside = work_dir.strip_prefix(home::work_tree(work_dir)).map(|dir| self.staging.dir().join(dir));
        inside.ok().filter(|dir| dir.is_dir()).unwrap_or_else(|| self.staging.dir().to_owned())
    }

    /// Runs a shell line. Returns how it failed and the end of its output, if it did.
    fn run(
        &mut self,
        plan: &NodePlan,
        line: &str,
        dir: &Path,
        bound: Dur,
    ) -> Result<Option<(String, Vec<String>)>, CliError> {
        let cannot = |e: std::io::Error| CliError::internal(format!("cannot run `{line}`: {e}"));
        let runner = match &mut self.runner {
            Some(runner) => runner,
            none => none.insert(ProgramRunner::start().map_err(cannot)?),
        };
        let marks = [("DOGWATCH_RUN", self.found.id.as_str()), ("DOGWATCH_NODE", plan.name.as_str())];
        let marks = marks.map(|(name, value)| (name.into(), Some(value.into())));
        let env = marks.into_iter().chain(git::for_other_tree()).collect();
        let (result, tail) = runner.run_line(line, env, dir, bound.into()).map_err(cannot)?;
        let how = match result {
            ProgramResult::Ended { how, .. } => match (how.code(), how.signal()) {
                (Some(0), _) => return Ok(None),
                (Some(code), _) => format!("exit code {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or_default()),
            },
            ProgramResult::Refused(why) => why,
            ProgramResult::TimedOut => format!("timed out after {bound}"),
        };
        let lines: Vec<&str> = tail.text.lines().collect();
        let last = lines.iter().skip(lines.len().saturating_sub(MAX_LINES));
        Ok(Some((how, last.map(|line| (*line).to_owned()).collect())))
    }
}
