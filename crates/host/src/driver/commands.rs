//! Builds the command of each kind of job: arguments, environment, working directory and output sink.

use super::agent_channel::McpSession;
use super::{Driver, Paths};
use crate::git::snapshot;
use crate::git::worktree;
use crate::process::orphans;
use crate::process::sinks::{COMMAND_CAP, Capture, JobSink, RAW_CAP, SessionSink, Tails};
use crate::store::home;
use dogwatch_agents::{EnvChange, launch, resuming};
use dogwatch_config::placeholders::expand_run;
use dogwatch_config::words::words;
use dogwatch_core::record::ids::NodeIx;
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
    pub env: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub cwd: PathBuf,
    pub prompt: Option<Vec<u8>>,
    pub sink: JobSink,
    pub mcp: Option<McpSession>,
}

impl Driver<'_> {
    pub(super) fn command_for(&mut self, job: Job) -> Result<Command, String> {
        Ok(match job.kind {
            JobKind::Command(index) => self.command(job, index)?,
            JobKind::Gate => self.question(job, self.plan(job).settings.work_when.as_deref()),
            JobKind::Session => self.session(job)?,
            JobKind::Snapshot => self.snapshot(job),
            JobKind::Check(index) => self.check(job, index)?,
            JobKind::Worktree => self.worktree(job),
            JobKind::Probe => self.question(job, self.plan(job).settings.wake_on.probe.as_deref()),
        })
    }

    /// Builds a prep command from its words, or from a shell line if configured. A command that starts with `./`
    /// runs in the loop file's directory.
    fn command(&self, job: Job, index: usize) -> Result<Command, String> {
        let node = self.plan(job);
        let plan = &node.settings.commands[index];
        let run = expand_run(&plan.run, &node.settings.args);
        let argv = command_words(plan, &run)?;
        let here = run.trim_start().starts_with("./");
        let cwd = if here { self.setup.loop_dir.clone() } else { self.work_dir(job.node) };
        let sink = JobSink::Command(Capture::new(COMMAND_CAP));
        Ok(Command { argv, env: self.marks(job), cwd, prompt: None, sink, mcp: None })
    }

    /// Builds the job that stores the work tree as a commit outside all branches. This binary runs it in another
    /// role.
    fn snapshot(&self, job: Job) -> Command {
        let node = self.plan(job);
        let request = snapshot::Request {
            work_dir: self.work_dir(job.node),
            ref_name: snapshot::ref_name(&self.setup.run_id, &node.name, job.iteration),
            // Each node has its own scratch directory, because two snapshots may be taken at once.
            scratch: self.setup.run_dir.join(node.name.as_str()).join("snapshot"),
            state_dirs: self.state_dirs(job.node),
            limits: snapshot::Limits::default(),
            keep: Some(KEPT_SNAPSHOTS),
        };
        let sink = JobSink::Command(Capture::new(2 * snapshot::MAX_LINE));
        Command {
            argv: request.command(),
            env: self.marks(job),
            cwd: self.work_dir(job.node),
            prompt: None,
            sink,
            mcp: None,
        }
    }

    /// Builds a check. A check is a shell line, run as written; only the end of its output is kept.
    fn check(&self, job: Job, index: usize) -> Result<Command, String> {
        let checks = &self.plan(job).settings.checks.commands;
        let check = checks.get(index).ok_or_else(|| format!("check {index} does not exist"))?;
        let argv = vec!["sh".to_owned(), "-c".to_owned(), check.clone()];
        let (cwd, sink) = (self.work_dir(job.node), JobSink::Check(Tails::default()));
        Ok(Command { argv, env: self.marks(job), cwd, prompt: None, sink, mcp: None })
    }

    /// Builds a gate or a probe. `work_when` and `wake_on.probe` are shell lines whose exit code is the answer.
    fn question(&self, job: Job, run: Option<&str>) -> Command {
        let run = expand_run(run.unwrap_or("true"), &self.plan(job).settings.args);
        let argv = vec!["sh".to_owned(), "-c".to_owned(), run];
        let sink = JobSink::Command(Capture::new(QUESTION_CAP));
        Command { argv, env: self.marks(job), cwd: self.work_dir(job.node), prompt: None, sink, mcp: None }
    }

    pub(super) fn iteration_dir(&self, job: Job) -> PathBuf {
        home::iteration_dir(&self.setup.run_dir, &self.plan(job).name, job.iteration)
    }

    fn session(&mut self, job: Job) -> Result<Command, String> {
        if let Some(fault) = self.pending_prompts.get(&job.node).and_then(|pending| pending.fault.as_ref()) {
            return Err(format!("no prompt: {fault}"));
        }
        let plan = self.run.session(job.node);
        let as_root = rustix::process::geteuid().is_root();
        let mut launch = launch(plan.agent, Some(plan.reader), as_root);
        let (reader, resumes, agent) = (plan.reader, plan.resumes.map(str::to_owned), plan.agent.to_vec());
        let charged = plan.charged;
        let dir = self.iteration_dir(job);
        let mut env = self.marks(job);
        let mcp = self.session_setup(job, &agent, &launch, &dir).map(|mut step| {
            env.extend(step.env.drain(..).map(|(name, value)| (name.into(), Some(value.into()))));
            if let Some(injection) = step.injection.take() {
                launch.argv.splice(injection.at..injection.at, injection.words);
            }
            McpSession::new(job, step)
        });
        env.extend(launch.env.iter().filter_map(|(name, change)| env_change(name, *change)));
        let resumed = resumes.and_then(|session| resuming(&launch.argv, &session));
        let trail = crate::fs::subagent_log::of(reader, &self.work_dir(job.node));
        let mut sink = SessionSink::new(job, reader, &dir, RAW_CAP, self.inbox.clone()).following(trail);
        if resumed.is_some() {
            sink.going_on(charged);
        }
        let argv = self.sandboxed(job, resumed.unwrap_or(launch.argv), &mut env)?;
        Ok(Command {
            argv,
            env,
            cwd: self.work_dir(job.node),
            prompt: Some(self.prompt_of(job).to_owned().into_bytes()),
            sink: JobSink::Session(Box::new(sink)),
            mcp,
        })
    }

    /// Builds the job that creates or reuses the node's git worktree. This binary runs it in another role.
    fn worktree(&self, job: Job) -> Command {
        let Paths { work_dir, state_dir, run_id, .. } = &self.setup;
        let request = worktree::Request::new(work_dir, state_dir, run_id, &self.plan(job).name, "HEAD");
        let sink = JobSink::Command(Capture::new(2 * worktree::MAX_LINE));
        let (argv, env, cwd) = (request.command(), self.marks(job), work_dir.clone());
        Command { argv, env, cwd, prompt: None, sink, mcp: None }
    }

    /// Returns the node's working directory. In a worktree this is the same subdirectory as the one the user
    /// started in.
    pub(super) fn work_dir(&self, node: NodeIx) -> PathBuf {
        let Some(own) = self.own_tree(node) else { return self.setup.work_dir.clone() };
        let top = home::work_tree(&self.setup.work_dir);
        let inside = self.setup.work_dir.strip_prefix(&top).map(|inside| own.join(inside));
        inside.ok().filter(|dir| dir.is_dir()).unwrap_or(own)
    }

    /// Returns the path of the node's own worktree, if it has one.
    pub(super) fn own_tree(&self, node: NodeIx) -> Option<PathBuf> {
        let view = self.run.view().nodes.get(node.0).filter(|view| view.work.worktree.is_some())?;
        Some(worktree::place(&self.setup.state_dir, &self.setup.run_id, &view.name))
    }

    /// Returns dogwatch's own directories in the tree the node works in. A worktree contains none, although it is
    /// stored below one of them.
    pub(super) fn state_dirs(&self, node: NodeIx) -> Vec<PathBuf> {
        if self.own_tree(node).is_some() { Vec::new() } else { vec![self.setup.state_dir.clone()] }
    }

    /// Returns the environment variables that mark every process of this run.
    fn marks(&self, job: Job) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let node = self.plan(job);
        let iteration = job.iteration.to_string();
        [
            (orphans::NONCE_VAR, self.setup.nonce.as_str()),
            ("DOGWATCH_RUN", self.setup.run_id.as_str()),
            ("DOGWATCH_NODE", node.name.as_str()),
            ("DOGWATCH_ITERATION", iteration.as_str()),
        ]
        .map(|(name, value)| (name.into(), Some(value.into())))
        .into()
    }

    pub(super) fn plan(&self, job: Job) -> &NodePlan {
        &self.run.plan().nodes[job.node.0]
    }
}

fn command_words(plan: &CommandPlan, run: &str) -> Result<Vec<String>, String> {
    if plan.shell {
        Ok(vec!["sh".into(), "-c".into(), run.into()])
    } else {
        words(run).map_err(|e| e.to_string())
    }
}

fn env_change(name: &str, change: EnvChange) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    match change {
        EnvChange::SetIfUnset(_) if std::env::var_os(name).is_some() => None,
        EnvChange::SetIfUnset(value) => Some((name.into(), Some(value.into()))),
        EnvChange::Remove => Some((name.into(), None)),
    }
}
