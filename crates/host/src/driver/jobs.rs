//! Jobs: how commands and sessions are started under the keeper, and how they are brought to their end.

use super::Driver;
use crate::inbox::Mail;
use crate::keeper::{HowEnded, Keeper, Order, Remnant, StartOrder};
use crate::pump::{self, Pump};
use crate::sample::{Sample, sample};
use crate::sinks::{COMMAND_CAP, Capture, JobSink, RAW_CAP, SessionSink};
use crate::{home, orphans, snapshot};
use dogwatch_agents::{EnvChange, launch};
use dogwatch_config::placeholders::{CommandOutput, expand_run};
use dogwatch_config::words::words;
use dogwatch_core::coalesce::Coalescer;
use dogwatch_core::dur::Dur;
use dogwatch_core::input::Input;
use dogwatch_core::job::{Exit, Job, JobKind, JobReport, Snapshot};
use dogwatch_core::redact;
use dogwatch_core::settings::{CommandPlan, NodePlan};
use dogwatch_core::watch::{Channel, Fact};
use std::io;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

/// So many of a node's snapshots stay, besides the first and the last.
const KEPT_SNAPSHOTS: u64 = 200;
/// Nobody reads what a gate or a probe prints; this much is held.
const QUESTION_CAP: usize = 4 * 1024;

/// The job that runs.
pub(super) struct Live {
    pub job: Job,
    /// The keeper's number for it.
    pub number: u64,
    /// What it printed before the keeper could say that it has started: told after that.
    pub early: Vec<Input>,
    pub started: bool,
    /// Its main process, once it runs.
    pub main: Option<u32>,
    /// Changes in the work tree while it runs.
    pub workspace: Coalescer,
    /// Its command line, fit to be shown.
    pub argv: Vec<String>,
    /// Nothing but the main process was left when that exited.
    pub alone: bool,
    pub exit: Option<Exit>,
    /// It was told to end before it did by itself.
    told: bool,
    pump: Option<Pump<JobSink>>,
}

impl Live {
    pub fn flush(&self, bound: Duration) {
        if let Some(pump) = &self.pump {
            pump.flush(bound);
        }
    }
}

/// What to start.
struct Command {
    argv: Vec<String>,
    env: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    cwd: PathBuf,
    prompt: Option<Vec<u8>>,
    sink: JobSink,
}

impl Driver<'_> {
    pub(super) fn start(&mut self, job: Job) {
        if let Err(error) = self.keep_prompt(job) {
            self.record.fail(&error, &mut self.todo);
            return self.record.withhold(job);
        }
        if let Err(error) = self.try_start(job) {
            self.live = None;
            self.refused_job(job, error);
        }
    }

    fn try_start(&mut self, job: Job) -> Result<(), String> {
        let command = match job.kind {
            JobKind::Command(index) => self.command(job, index)?,
            JobKind::Gate => self.question(job, self.plan(job).settings.work_when.as_deref()),
            JobKind::Session => self.session(job)?,
            JobKind::Snapshot => self.snapshot(job),
            JobKind::Check(index) => {
                self.question(job, self.plan(job).settings.checks.commands.get(index).map(String::as_str))
            }
            JobKind::Worktree => return Err("worktrees are not made yet".to_owned()),
            JobKind::Probe => self.question(job, self.plan(job).settings.wake_on.probe.as_deref()),
        };
        self.spawn(job, command).map_err(|e| e.to_string())
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
        let request = snapshot::Request {
            work_dir: self.setup.work_dir.clone(),
            ref_name: snapshot::ref_name(&self.setup.run_id, &self.plan(job).name, job.iteration),
            scratch: self.setup.run_dir.join("snapshot"),
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

    /// `work_when` and `wake_on.probe` are answered by an exit code; a shell runs them, as people write them.
    fn question(&self, job: Job, run: Option<&str>) -> Command {
        let run = expand_run(run.unwrap_or("true"), &self.plan(job).settings.args);
        let argv = vec!["sh".to_owned(), "-c".to_owned(), run];
        let sink = JobSink::Command(Capture::new(QUESTION_CAP));
        Command { argv, env: self.marks(job), cwd: self.setup.work_dir.clone(), prompt: None, sink }
    }

    /// A session's prompt is part of the record: it is on disk before the session starts.
    pub(super) fn keep_prompt(&self, job: Job) -> io::Result<()> {
        match job.kind {
            JobKind::Command(_)
            | JobKind::Gate
            | JobKind::Probe
            | JobKind::Snapshot
            | JobKind::Check(_)
            | JobKind::Worktree => Ok(()),
            JobKind::Session => {
                let dir = self.iteration_dir(job);
                std::fs::create_dir_all(&dir)?;
                std::fs::write(dir.join("prompt.md"), &self.prompt)
            }
        }
    }

    fn iteration_dir(&self, job: Job) -> PathBuf {
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
            prompt: Some(self.prompt.clone().into_bytes()),
            sink: JobSink::Session(Box::new(sink)),
        })
    }

    fn spawn(&mut self, job: Job, command: Command) -> io::Result<()> {
        let mut pipes = pump::pipes()?;
        let mut child_stdin = None;
        if command.prompt.is_none() {
            // Commands read nothing; an inherited stdin would be somebody else's.
            pipes.parent.stdin = None;
            child_stdin = Some(OwnedFd::from(std::fs::File::open("/dev/null")?));
        }
        let [stdin, stdout, stderr] = pipes.child;
        let inbox = self.inbox.clone();
        let done = move || {
            inbox.post(Mail::PipesClosed { job });
        };
        let pump = Pump::start(pipes.parent, command.prompt.unwrap_or_default(), command.sink, done)?;
        self.jobs_started += 1;
        let number = self.jobs_started;
        let argv = redact::argv(&command.argv);
        self.live = Some(Live {
            job,
            number,
            early: Vec::new(),
            main: None,
            workspace: Coalescer::new(Channel::Workspace),
            started: false,
            argv,
            alone: false,
            exit: None,
            told: false,
            pump: Some(pump),
        });
        let order = StartOrder {
            job: number,
            argv: command.argv.into_iter().map(String::into_bytes).collect(),
            env: command.env,
            cwd: command.cwd,
            stdio: [child_stdin.unwrap_or(stdin), stdout, stderr],
        };
        self.keeper()?.send(Order::Start(order))
    }

    fn keeper(&mut self) -> io::Result<&mut Keeper> {
        match &mut self.keeper {
            Some(keeper) => Ok(keeper),
            none => Ok(none.insert(Keeper::start(Some(self.setup.lock.as_fd()))?)),
        }
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

    fn plan(&self, job: Job) -> &NodePlan {
        &self.run.plan().nodes[job.node.0]
    }

    pub(super) fn signal(&mut self, job: Job, order: Order) {
        if let Some(live) = self.live.as_mut().filter(|l| l.job == job) {
            live.told |= live.exit.is_none();
            self.order(job, order);
        }
    }

    /// Looks whether what the agent started is at work.
    pub(super) fn sample(&mut self, job: Job) {
        let Some(live) = self.live.as_ref().filter(|l| l.job == job) else { return };
        let structured = self.plan(job).settings.reader.is_structured();
        let taken = match (&self.keeper, live.main) {
            (Some(keeper), Some(main)) => sample(keeper.pid(), main, structured),
            (None, _) | (_, None) => Sample::default(),
        };
        let fact = Fact::Sampled { children: taken.children, cpu_ms: taken.cpu_ms };
        self.todo.push_back(Input::Noted { job, fact });
    }

    pub(super) fn sweep(&mut self, job: Job, grace: Dur) {
        match &self.live {
            Some(live) if live.job == job && live.alone => self.job_ended(0),
            Some(live) if live.job == job => self.order(job, Order::Sweep { grace: grace.into() }),
            Some(_) | None => {}
        }
    }

    fn order(&mut self, job: Job, order: Order) {
        if self.live.as_ref().is_none_or(|l| l.job != job) {
            return;
        }
        if let Some(keeper) = &mut self.keeper
            && let Err(error) = keeper.send(order)
        {
            self.keeper_lost(error.to_string());
        }
    }

    /// The keeper could not start it.
    pub(super) fn refused(&mut self, error: String) {
        if let Some(live) = self.live.take() {
            self.refused_job(live.job, error);
        }
    }

    /// A command that could not be started says so in its place in the prompt.
    fn refused_job(&mut self, job: Job, error: String) {
        if let JobKind::Command(index) = job.kind {
            let name = self.plan(job).settings.commands[index].name.clone();
            let text = format!("[dogwatch: the command `{name}` could not be started: {error}]");
            self.outputs.push(CommandOutput { name: name.clone(), text, exit_code: None });
            self.todo.push_back(Input::JobRefused { job, error: format!("command `{name}`: {error}") });
        } else {
            self.todo.push_back(Input::JobRefused { job, error });
        }
    }

    /// Nothing is left of the job: take its output and tell the core.
    pub(super) fn job_ended(&mut self, stragglers: u64) {
        let Some(mut live) = self.live.take() else { return };
        let Some(pump) = live.pump.take() else { return };
        pump.stop();
        let report = match pump.join() {
            JobSink::Command(capture) => self.command_output(&live, &capture, stragglers),
            JobSink::Session(sink) => {
                let (report, error) = sink.finish(&self.prompt, live.exit, stragglers);
                if let Some(error) = error {
                    let detail = format!("raw output was lost: {error} ({} bytes)", report.cut_bytes);
                    self.todo.push_back(Input::TroubleMet { kind: "raw_output_lost", detail });
                }
                report
            }
        };
        self.take_mail();
        self.todo.push_back(Input::JobEnded { job: live.job, report: Box::new(report) });
    }

    fn command_output(&mut self, live: &Live, capture: &Capture, stragglers: u64) -> JobReport {
        let JobKind::Command(index) = live.job.kind else {
            let snapshot = (live.job.kind == JobKind::Snapshot && !live.told).then(|| kept(capture));
            return JobReport { snapshot, ..JobReport::default() };
        };
        let plan = &self.run.plan().nodes[live.job.node.0].settings.commands[index];
        let mut text = capture.text();
        if live.told {
            text.push_str(&format!("\n[dogwatch: ended after its timeout of {}]", plan.timeout));
        }
        let exit_code = live.exit.and_then(Exit::code);
        self.outputs.push(CommandOutput { name: plan.name.clone(), text, exit_code });
        JobReport {
            stdout_bytes: capture.seen(),
            cut_bytes: capture.cut(),
            stragglers,
            ..JobReport::default()
        }
    }

    /// The keeper was killed. What it kept is found by its mark and ended, and the next job gets a new one.
    pub(super) fn keeper_lost(&mut self, detail: String) {
        self.keeper = None;
        let (ended, all) = orphans::end_all(&self.setup.nonce);
        let detail = format!("the keeper was lost ({detail}); {ended} processes of the session were ended");
        self.todo.push_back(Input::TroubleMet { kind: "keeper_lost", detail });
        if let Some(live) = &self.live {
            let job = live.job;
            if !all {
                let detail = "processes of the session are left that cannot be ended".to_owned();
                self.todo.push_back(Input::TreeStands { job, detail });
                return;
            }
            if live.exit.is_none() {
                self.todo.push_back(Input::JobExited { job, exit: Exit::Signal(9) });
            }
            self.job_ended(ended as u64);
        }
    }
}

/// What the snapshot's one line says.
fn kept(capture: &Capture) -> Snapshot {
    match snapshot::Outcome::read(capture.text().as_bytes()) {
        snapshot::Outcome::Taken(t) => {
            Snapshot::Taken { name: t.ref_name, files: t.files, skipped: t.skipped }
        }
        snapshot::Outcome::NoWorkTree { why } => Snapshot::NoWorkTree { why },
        snapshot::Outcome::Failed { why } => Snapshot::Failed { why },
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

pub(super) fn exit_of(how: HowEnded) -> Exit {
    match how {
        HowEnded::Code(code) => Exit::Code(code),
        HowEnded::Signal(signal) => Exit::Signal(signal),
    }
}

pub(super) fn standing(left: u64, detail: &[Remnant]) -> String {
    let named: Vec<String> = detail.iter().map(|r| format!("{} {} ({})", r.pid, r.comm, r.state)).collect();
    format!("{left} processes do not go, even by SIGKILL: {}", named.join(", "))
}
