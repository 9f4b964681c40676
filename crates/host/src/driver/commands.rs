//! What is started for each kind of job: its words, its environment, where it runs and who takes its output.

use super::Driver;
use crate::sinks::{COMMAND_CAP, Capture, JobSink, RAW_CAP, SessionSink, Tails};
use crate::{home, orphans, snapshot};
use dogwatch_agents::{EnvChange, launch};
use dogwatch_config::placeholders::expand_run;
use dogwatch_config::words::words;
use dogwatch_core::job::{Job, JobKind};
use dogwatch_core::settings::{CommandPlan, NodePlan};
use std::path::PathBuf;

/// So many of a node's snapshots stay, besides the first and the last.
const KEPT_SNAPSHOTS: u64 = 200;
/// Nobody reads what a gate or a probe prints; this much is held.
const QUESTION_CAP: usize = 4 * 1024;

/// What to start.
pub(super) struct Command {
    pub argv: Vec<String>,
    pub env: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub cwd: PathBuf,
    pub prompt: Option<Vec<u8>>,
    pub sink: JobSink,
}

impl Driver<'_> {
    pub(super) fn command_for(&self, job: Job) -> Result<Command, String> {
        Ok(match job.kind {
            JobKind::Command(index) => self.command(job, index)?,
            JobKind::Gate => self.question(job, self.plan(job).settings.work_when.as_deref()),
            JobKind::Session => self.session(job)?,
            JobKind::Snapshot => self.snapshot(job),
            JobKind::Check(index) => self.check(job, index)?,
            JobKind::Worktree => return Err("worktrees are not made yet".to_owned()),
            JobKind::Probe => self.question(job, self.plan(job).settings.wake_on.probe.as_deref()),
        })
    }

    /// A command by words, or by a shell if asked. `./` means the loop file's directory.
    fn command(&self, job: Job, index: usize) -> Result<Command, String> {
        let node = self.plan(job);
        let plan = &node.settings.commands[index];
        let run = expand_run(&plan.run, &node.settings.args);
        let argv = command_words(plan, &run)?;
        let here = run.trim_start().starts_with("./");
        let cwd = if here { &self.setup.loop_dir } else { &self.setup.work_dir };
        let sink = JobSink::Command(Capture::new(COMMAND_CAP));
        Ok(Command { argv, env: self.marks(job), cwd: cwd.clone(), prompt: None, sink })
    }

    /// The work tree as a commit that nobody sees; this binary in another role does it.
    fn snapshot(&self, job: Job) -> Command {
        let node = self.plan(job);
        let request = snapshot::Request {
            work_dir: self.setup.work_dir.clone(),
            ref_name: snapshot::ref_name(&self.setup.run_id, &node.name, job.iteration),
            // Each node its own: two may be taken at once.
            scratch: self.setup.run_dir.join(node.name.as_str()).join("snapshot"),
            state_dirs: vec![self.setup.state_dir.clone()],
            limits: snapshot::Limits::default(),
            keep: Some(KEPT_SNAPSHOTS),
        };
        let sink = JobSink::Command(Capture::new(2 * snapshot::MAX_LINE));
        Command {
            argv: request.command(),
            env: self.marks(job),
            cwd: self.setup.work_dir.clone(),
            prompt: None,
            sink,
        }
    }

    /// A check is a line for a shell, exactly as it was written; only the end of its output is held.
    fn check(&self, job: Job, index: usize) -> Result<Command, String> {
        let checks = &self.plan(job).settings.checks.commands;
        let check = checks.get(index).ok_or_else(|| format!("there is no check {index}"))?;
        let argv = vec!["sh".to_owned(), "-c".to_owned(), check.clone()];
        let (cwd, sink) = (self.setup.work_dir.clone(), JobSink::Check(Tails::default()));
        Ok(Command { argv, env: self.marks(job), cwd, prompt: None, sink })
    }

    /// `work_when` and `wake_on.probe` are answered by an exit code; a shell runs them, as people write them.
    fn question(&self, job: Job, run: Option<&str>) -> Command {
        let run = expand_run(run.unwrap_or("true"), &self.plan(job).settings.args);
        let argv = vec!["sh".to_owned(), "-c".to_owned(), run];
        let sink = JobSink::Command(Capture::new(QUESTION_CAP));
        Command { argv, env: self.marks(job), cwd: self.setup.work_dir.clone(), prompt: None, sink }
    }

    pub(super) fn iteration_dir(&self, job: Job) -> PathBuf {
        home::iteration_dir(&self.setup.run_dir, &self.plan(job).name, job.iteration)
    }

    fn session(&self, job: Job) -> Result<Command, String> {
        let node = self.plan(job);
        let reader = node.settings.reader;
        let as_root = rustix::process::geteuid().is_root();
        let launch = launch(&node.settings.agent, Some(reader), as_root);
        let dir = self.iteration_dir(job);
        let mut env = self.marks(job);
        env.extend(launch.env.iter().filter_map(|(name, change)| env_change(name, *change)));
        let sink = SessionSink::new(job, reader, &dir, RAW_CAP, self.inbox.clone());
        Ok(Command {
            argv: launch.argv,
            env,
            cwd: self.setup.work_dir.clone(),
            prompt: Some(self.prompt_of(job).to_owned().into_bytes()),
            sink: JobSink::Session(Box::new(sink)),
        })
    }

    /// What every process of this run carries.
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
