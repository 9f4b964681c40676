//! Builds the command of each kind of job: arguments, environment, working directory and output sink.

use super::agent_channel::McpSession;
use super::{HostShell, Paths, SessionName};
use crate::git::{self, snapshot, worktree};
use crate::process::keeper::EnvChange as EnvVarChange;
use crate::process::orphans;
use crate::process::sinks::{COMMAND_CAP, Capture, JobSink, RAW_CAP, SessionSink, Tails};
use crate::store::home;
use dogwatch_agents::{EnvChange, launch, model, resuming};
use dogwatch_config::placeholders::expand_run;
use dogwatch_config::words::words;
use dogwatch_core::Run;
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::{CommandPlan, NodePlan};
use std::path::PathBuf;

/// How many snapshots of a node are kept, in addition to the first and the last.
const KEPT_SNAPSHOTS: u64 = 200;
/// How much output of a gate or a probe is captured. Only the exit code matters.
const QUESTION_CAP: usize = 4 * 1024;

/// A command to start under a keeper.
pub(super) struct Command {
    pub argv: Vec<String>,
    pub env: Vec<EnvVarChange>,
    pub cwd: PathBuf,
    pub prompt: Option<Vec<u8>>,
    pub sink: JobSink,
    pub mcp: Option<McpSession>,
}

impl HostShell<'_> {
    pub(super) fn command_for(
        &self,
        run: &Run,
        job: Job,
        inputs: &mut Vec<Input>,
    ) -> Result<Command, String> {
        Ok(match job.kind {
            JobKind::Command(index) => self.command(run, job, index)?,
            JobKind::Gate => self.question(run, job, plan_of(run, job).settings.work_when.as_deref()),
            JobKind::Session => self.session(run, job, inputs)?,
            JobKind::Snapshot => self.snapshot(run, job),
            JobKind::Check(index) => self.check(run, job, index)?,
            JobKind::Worktree => self.worktree(run, job),
            JobKind::Setup(index) => self.setup(run, job, index)?,
            JobKind::Commit => self.commit(run, job),
            JobKind::Probe => self.question(run, job, plan_of(run, job).settings.wake_on.probe.as_deref()),
        })
    }

    /// Builds a prep command from its words, or from a shell line if configured. A command that starts with `./`
    /// runs in the loop file's directory.
    fn command(&self, run: &Run, job: Job, index: usize) -> Result<Command, String> {
        let node = plan_of(run, job);
        let plan = &node.settings.commands[index];
        let line = expand_run(&plan.run, &node.settings.args);
        let argv = command_words(plan, &line)?;
        let here = line.trim_start().starts_with("./");
        let command = self.captured(run, job, argv, COMMAND_CAP);
        Ok(if here { Command { cwd: self.paths.loop_dir.clone(), ..command } } else { command })
    }

    /// Builds a command whose output is captured up to a cap.
    fn captured(&self, run: &Run, job: Job, argv: Vec<String>, cap: usize) -> Command {
        let (cwd, sink) = (self.work_dir(run, job.node), JobSink::Command(Capture::new(cap)));
        Command { argv, env: self.environment(run, job), cwd, prompt: None, sink, mcp: None }
    }

    /// Builds the job that stores the work tree as a commit outside all branches. This binary runs it in another
    /// role.
    fn snapshot(&self, run: &Run, job: Job) -> Command {
        let node = plan_of(run, job);
        let request = snapshot::Request {
            work_dir: self.work_dir(run, job.node),
            ref_name: snapshot::ref_name(&self.paths.run_id, &node.name, job.iteration),
            // Each node has its own scratch directory, because two snapshots may be taken at once.
            scratch: self.paths.run_dir.join(node.name.as_str()).join("snapshot"),
            state_dirs: self.state_dirs(run, job.node),
            limits: snapshot::Limits::default(),
            keep: Some(KEPT_SNAPSHOTS),
            pristine: self.paths.pristine.clone().filter(|_| is_first(run, job)),
        };
        self.captured(run, job, request.command(), 2 * snapshot::MAX_LINE)
    }

    /// Builds a check. A check is a shell line, run as written; only the end of its output is kept.
    fn check(&self, run: &Run, job: Job, index: usize) -> Result<Command, String> {
        let checks = &plan_of(run, job).settings.checks.commands;
        let check = checks.get(index).ok_or_else(|| format!("check {index} does not exist"))?;
        Ok(self.shell_line(run, job, check))
    }

    /// Builds a setup command, which runs like a check.
    fn setup(&self, run: &Run, job: Job, index: usize) -> Result<Command, String> {
        let setup = &plan_of(run, job).settings.setup;
        let line = setup.get(index).ok_or_else(|| format!("setup command {index} does not exist"))?;
        Ok(self.shell_line(run, job, line))
    }

    fn shell_line(&self, run: &Run, job: Job, line: &str) -> Command {
        let argv = vec!["sh".to_owned(), "-c".to_owned(), line.to_owned()];
        let (cwd, sink) = (self.work_dir(run, job.node), JobSink::Check(Tails::default()));
        Command { argv, env: self.environment(run, job), cwd, prompt: None, sink, mcp: None }
    }

    /// Builds a gate or a probe. `work_when` and `wake_on.probe` are shell lines whose exit code is the answer.
    fn question(&self, run: &Run, job: Job, line: Option<&str>) -> Command {
        let line = expand_run(line.unwrap_or("true"), &plan_of(run, job).settings.args);
        self.captured(run, job, vec!["sh".to_owned(), "-c".to_owned(), line], QUESTION_CAP)
    }

    pub(super) fn iteration_dir(&self, run: &Run, job: Job) -> PathBuf {
        home::iteration_dir(&self.paths.run_dir, &plan_of(run, job).name, job.iteration)
    }

    fn session(&self, run: &Run, job: Job, inputs: &mut Vec<Input>) -> Result<Command, String> {
        if let Some(fault) = self.prompts.fault_of(job) {
            return Err(format!("no prompt: {fault}"));
        }
        let plan = run.session(job.node);
        let as_root = rustix::process::geteuid().is_root();
        let mut launch = launch(plan.agent, Some(plan.reader), as_root);
        let (reader, charged) = (plan.reader, plan.charged);
        let dir = self.iteration_dir(run, job);
        let mut env = self.environment(run, job);
        let mcp = self.session_setup(run, job, plan.agent, &launch, inputs).map(|mut step| {
            env.extend(step.env.drain(..).map(|(name, value)| (name.into(), Some(value.into()))));
            if let Some(injection) = step.injection.take() {
                launch.argv.splice(injection.at..injection.at, injection.words);
            }
            McpSession::new(step)
        });
        env.extend(launch.env.iter().filter_map(|(name, change)| env_change(name, *change)));
        let resumed = plan.resumes.and_then(|session| resuming(&launch.argv, session));
        let trail = crate::fs::subagent_log::of(reader, &self.work_dir(run, job.node));
        let mut sink = SessionSink::new(job, reader, &dir, RAW_CAP, self.inbox.clone())
            .following(trail)
            .priced(&self.prices, model(plan.agent));
        if let Some(view) = self.reporter.output() {
            let node = plan_of(run, job).name.clone();
            let work_dir = self.work_dir(run, job.node).display().to_string();
            let resumed = plan.resumes.map(|session| (session.to_owned(), charged));
            sink.show(view, SessionName { node, reader, work_dir, resumed });
        }
        if resumed.is_some() {
            sink.resume_from(charged);
        }
        let argv = self.sandboxed(run, job, resumed.unwrap_or(launch.argv), mcp.as_ref(), &mut env)?;
        Ok(Command {
            argv,
            env,
            cwd: self.work_dir(run, job.node),
            prompt: Some(self.prompts.prompt_of(job).to_owned().into_bytes()),
            sink: JobSink::Session(Box::new(sink)),
            mcp,
        })
    }

    /// Builds the job that creates or reuses the node's git worktree. This binary runs it in another role.
    fn worktree(&self, run: &Run, job: Job) -> Command {
        let mut request = self.worktree_request(run, job);
        let name = |source: NodeIx| run.plan().nodes[source.0].name.clone();
        let source = |node| worktree::Source { branch: worktree::branch(&self.paths.run_id, &node), node };
        request.from = run.plan().merge_sources(job.node).into_iter().map(name).map(source).collect();
        request.recorded = run.view().node(job.node).work.worktree.is_some();
        self.worktree_role(run, job, request.command())
    }

    /// Builds the job that commits what is left in the node's worktree. This binary runs it in another role.
    fn commit(&self, run: &Run, job: Job) -> Command {
        let message = worktree::message(&self.paths.run_id, &plan_of(run, job).name);
        let request = self.worktree_request(run, job);
        self.worktree_role(run, job, request.commit_command(&message))
    }

    fn worktree_request(&self, run: &Run, job: Job) -> worktree::Request {
        let Paths { work_dir, state_dir, run_id, .. } = &self.paths;
        let base = run.view().base.as_deref().unwrap_or("HEAD");
        worktree::Request::new(work_dir, state_dir, run_id, &plan_of(run, job).name, base)
    }

    fn worktree_role(&self, run: &Run, job: Job, argv: Vec<String>) -> Command {
        let command = self.captured(run, job, argv, 2 * worktree::MAX_LINE);
        Command { cwd: self.paths.work_dir.clone(), ..command }
    }

    /// Returns the node's working directory. In a worktree this is the same subdirectory as the one the user
    /// started in.
    pub(super) fn work_dir(&self, run: &Run, node: NodeIx) -> PathBuf {
        let Some(own) = self.own_tree(run, node) else { return self.paths.work_dir.clone() };
        let inside =
            self.paths.work_dir.strip_prefix(&self.paths.ground.work_tree).map(|inside| own.join(inside));
        inside.ok().filter(|dir| dir.is_dir()).unwrap_or(own)
    }

    /// Returns the path of the node's own worktree, if it has one.
    pub(super) fn own_tree(&self, run: &Run, node: NodeIx) -> Option<PathBuf> {
        let view = run.view().nodes.get(node.0).filter(|view| view.work.worktree.is_some())?;
        Some(worktree::place(&self.paths.state_dir, &self.paths.run_id, &view.name))
    }

    /// Returns dogwatch's own directories in the tree the node works in. A worktree contains none, although it is
    /// stored below one of them.
    pub(super) fn state_dirs(&self, run: &Run, node: NodeIx) -> Vec<PathBuf> {
        if self.own_tree(run, node).is_some() { Vec::new() } else { home::own_dirs(&self.paths.state_dir) }
    }

    /// Returns the environment that every process of this run gets: variables that mark it, and in a worktree none that
    /// lead git elsewhere.
    fn environment(&self, run: &Run, job: Job) -> Vec<EnvVarChange> {
        let node = plan_of(run, job);
        let iteration = job.iteration.to_string();
        let marks = [
            (orphans::NONCE_VAR, self.paths.nonce.as_str()),
            ("DOGWATCH_RUN", self.paths.run_id.as_str()),
            ("DOGWATCH_NODE", node.name.as_str()),
            ("DOGWATCH_ITERATION", iteration.as_str()),
        ];
        let mut env: Vec<EnvVarChange> = marks.map(|(name, value)| (name.into(), Some(value.into()))).into();
        if self.own_tree(run, job.node).is_some() {
            env.extend(git::for_other_tree());
        }
        env
    }
}

/// Returns whether a snapshot is the first job of the run, so that nothing has changed the work tree yet.
fn is_first(run: &Run, job: Job) -> bool {
    let nodes = &run.plan().nodes;
    job.iteration.0 == 0 && nodes.len() == 1 && nodes.iter().all(|node| !node.settings.worktree)
}

pub(super) fn plan_of(run: &Run, job: Job) -> &NodePlan {
    &run.plan().nodes[job.node.0]
}

fn command_words(plan: &CommandPlan, run: &str) -> Result<Vec<String>, String> {
    if plan.shell {
        Ok(vec!["sh".into(), "-c".into(), run.into()])
    } else {
        words(run).map_err(|e| e.to_string())
    }
}

fn env_change(name: &str, change: EnvChange) -> Option<EnvVarChange> {
    match change {
        EnvChange::SetIfUnset(_) if std::env::var_os(name).is_some() => None,
        EnvChange::SetIfUnset(value) => Some((name.into(), Some(value.into()))),
        EnvChange::Remove => Some((name.into(), None)),
    }
}
