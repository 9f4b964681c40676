//! Jobs: how they are started under a keeper, and how they are brought to their end.

use super::Driver;
use super::commands::Command;
use super::slots::{Live, Slot};
use crate::inbox::Mail;
use crate::keeper::{HowEnded, Order, Remnant, StartOrder};
use crate::pump::{self, Pump};
use crate::sample::Sample;
use crate::sinks::{Capture, JobSink};
use crate::{home, orphans, safe_file, snapshot, worktree};
use dogwatch_config::placeholders::CommandOutput;
use dogwatch_core::coalesce::Coalescer;
use dogwatch_core::dur::Dur;
use dogwatch_core::ids::NodeIx;
use dogwatch_core::input::Input;
use dogwatch_core::job::{Exit, Job, JobKind, JobReport, Snapshot, Worktree};
use dogwatch_core::redact;
use dogwatch_core::watch::{Channel, Fact};
use std::io;
use std::os::fd::OwnedFd;

impl Driver<'_> {
    pub(super) fn start(&mut self, job: Job) {
        if let Err(error) = self.keep_prompt(job) {
            self.record.fail(&error, &mut self.todo);
            return self.record.withhold(job);
        }
        if let Err(error) = self.try_start(job) {
            self.refused_job(job, error);
        }
    }

    fn try_start(&mut self, job: Job) -> Result<(), String> {
        let command = self.command_for(job)?;
        self.spawn(job, command).map_err(|e| e.to_string())
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
                home::make_private(&dir)?;
                safe_file::write(&dir.join("prompt.md"), safe_file::PLAIN, self.prompt_of(job).as_bytes())
            }
        }
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
        let live = Live {
            job,
            number,
            early: Vec::new(),
            main: None,
            workspace: Coalescer::new(Channel::Workspace),
            door: command.door,
            started: false,
            argv: redact::argv(&command.argv),
            alone: false,
            exit: None,
            told: false,
            pump,
            watcher: self.watch_own_tree(job),
        };
        let mut env = command.env;
        env.push((orphans::JOB_VAR.into(), Some(number.to_string().into_bytes())));
        let order = StartOrder {
            job: number,
            argv: command.argv.into_iter().map(String::into_bytes).collect(),
            env,
            cwd: command.cwd,
            stdio: [child_stdin.unwrap_or(stdin), stdout, stderr],
        };
        let mut keeper = self.slots.take_keeper(&self.setup.lock.fds())?;
        match keeper.send(Order::Start(order)) {
            Ok(()) => {
                self.slots.fill(Slot { keeper: Some(keeper), live });
                Ok(())
            }
            Err(error) => {
                // Too long an order was not sent; after anything else the keeper is of no more use.
                if error.kind() == io::ErrorKind::InvalidInput {
                    self.slots.rest(keeper);
                }
                Err(error)
            }
        }
    }

    pub(super) fn signal(&mut self, job: Job, order: Order) {
        if let Some(slot) = self.slots.of(job) {
            slot.live.told |= slot.live.exit.is_none();
            self.order(job, order);
        }
    }

    /// Looks whether what the agent started is at work.
    pub(super) fn sample(&mut self, job: Job) {
        let structured = self.run.session(job.node).reader.is_structured();
        let Some(slot) = self.slots.of(job) else { return };
        let taken = match (&slot.keeper, slot.live.main) {
            (Some(keeper), Some(main)) => self.sampler.sample(keeper.pid(), main, structured),
            (None, _) | (_, None) => Sample::default(),
        };
        let fact = Fact::Sampled { children: taken.children, cpu_ms: taken.cpu_ms };
        self.todo.push_back(Input::Noted { job, fact });
    }

    pub(super) fn sweep(&mut self, job: Job, grace: Dur) {
        match self.slots.of(job) {
            Some(slot) if slot.live.alone => self.job_ended(job.node, 0),
            Some(_) => self.order(job, Order::Sweep { grace: grace.into() }),
            None => {}
        }
    }

    fn order(&mut self, job: Job, order: Order) {
        let keeper = self.slots.of(job).and_then(|slot| slot.keeper.as_mut());
        if let Some(Err(error)) = keeper.map(|keeper| keeper.send(order)) {
            self.keeper_lost(job.node, &error.to_string());
        }
    }

    /// The keeper could not start it.
    pub(super) fn refused(&mut self, node: NodeIx, error: String) {
        if let Some(live) = self.leave(node) {
            self.refused_job(live.job, error);
            self.todo.extend(live.early);
        }
    }

    /// The node's job is over; its keeper rests.
    fn leave(&mut self, node: NodeIx) -> Option<Live> {
        let Slot { keeper, live } = self.slots.remove(node)?;
        if let Some(keeper) = keeper {
            self.slots.rest(keeper);
        }
        Some(live)
    }

    /// A command that could not be started says so in its place in the prompt.
    fn refused_job(&mut self, job: Job, error: String) {
        if let JobKind::Command(index) = job.kind {
            let name = self.plan(job).settings.commands[index].name.clone();
            let text = format!("[dogwatch: the command `{name}` could not be started: {error}]");
            self.draft(job).outputs.push(CommandOutput { name: name.clone(), text, exit_code: None });
            self.todo.push_back(Input::JobRefused { job, error: format!("command `{name}`: {error}") });
        } else {
            self.todo.push_back(Input::JobRefused { job, error });
        }
    }

    /// Nothing is left of the job: take its output and tell the core.
    pub(super) fn job_ended(&mut self, node: NodeIx, stragglers: u64) {
        let Some(live) = self.leave(node) else { return };
        let Live { job, exit, told, pump, early, door, .. } = live;
        self.todo.extend(early);
        pump.stop();
        let mut report = match pump.join() {
            JobSink::Command(capture) => self.command_output(&Over { job, exit, told }, &capture, stragglers),
            JobSink::Check(tails) => JobReport {
                stdout_bytes: tails.stdout.seen,
                stderr_bytes: tails.stderr.seen,
                stragglers,
                tail: tails.tail(),
                ..JobReport::default()
            },
            JobSink::Session(sink) => {
                let (report, error) = sink.finish(self.prompt_of(job), exit, stragglers);
                let result = report.tally.result.as_ref().map_or("", |result| result.text.as_str());
                if let Some(error) = error.or(self.keep_result(job, result).err()) {
                    let detail = format!("raw output was lost: {error} ({} bytes)", report.cut_bytes);
                    self.todo.push_back(Input::TroubleMet { kind: "raw_output_lost", detail });
                }
                report
            }
        };
        if let Some(mut door) = door {
            self.todo.extend(door.flush(job));
            // What the agent writes at its end it says later than what it called.
            report.marker = report.marker.or(door.close());
        }
        self.take_mail();
        self.todo.push_back(Input::JobEnded { job, report: Box::new(report) });
    }

    fn command_output(&mut self, over: &Over, capture: &Capture, stragglers: u64) -> JobReport {
        let JobKind::Command(index) = over.job.kind else {
            let snapshot = (over.job.kind == JobKind::Snapshot && !over.told).then(|| kept(capture));
            let worktree = (over.job.kind == JobKind::Worktree && !over.told).then(|| made(capture));
            return JobReport { snapshot, worktree, ..JobReport::default() };
        };
        let plan = &self.plan(over.job).settings.commands[index];
        let mut text = capture.text();
        if over.told {
            text.push_str(&format!("\n[dogwatch: ended after its timeout of {}]", plan.timeout));
        }
        let name = plan.name.clone();
        let exit_code = over.exit.and_then(Exit::code);
        self.draft(over.job).outputs.push(CommandOutput { name, text, exit_code });
        JobReport {
            stdout_bytes: capture.seen(),
            cut_bytes: capture.cut(),
            stragglers,
            ..JobReport::default()
        }
    }

    /// A keeper was killed. What it kept is found by its mark and ended, and the next job gets another one.
    pub(super) fn keeper_lost(&mut self, node: NodeIx, detail: &str) {
        let Some(slot) = self.slots.node(node) else { return };
        slot.keeper = None;
        let (job, exit) = (slot.live.job, slot.live.exit);
        let (ended, all) = orphans::end_job(&self.setup.nonce, slot.live.number);
        let detail = format!("the keeper was lost ({detail}); {ended} processes of the session were ended");
        self.todo.push_back(Input::TroubleMet { kind: "keeper_lost", detail });
        if !all {
            let detail = "processes of the session are left that cannot be ended".to_owned();
            self.todo.push_back(Input::TreeStands { job, detail });
            return;
        }
        if exit.is_none() {
            self.todo.push_back(Input::JobExited { job, exit: Exit::Signal(9) });
        }
        self.job_ended(node, ended as u64);
    }
}

/// A job that is over, without its output.
struct Over {
    job: Job,
    exit: Option<Exit>,
    told: bool,
}

/// What the worktree's one line says.
fn made(capture: &Capture) -> Worktree {
    match worktree::Outcome::read(capture.text().as_bytes()) {
        worktree::Outcome::Ready(ready) => Worktree::Ready { path: ready.path, branch: ready.branch },
        worktree::Outcome::Failed { why } => Worktree::Failed { why },
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
