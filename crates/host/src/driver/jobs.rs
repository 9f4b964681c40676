//! Starts jobs under a keeper, signals them, and collects their output when they end.

use super::Driver;
use super::commands::Command;
use super::slots::{Live, Slot};
use crate::driver::inbox::Mail;
use crate::git::snapshot;
use crate::git::worktree;
use crate::process::keeper::{self, HowEnded, Order, Remnant, StartOrder, is_lost};
use crate::process::orphans;
use crate::process::pump::{self, Pump};
use crate::process::sample::Sample;
use crate::process::sinks::{Capture, JobSink};
use crate::sandbox;
use crate::store::home;
use crate::store::safe_file;
use dogwatch_config::placeholders::CommandOutput;
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Exit, Job, JobKind, JobReport, Snapshot, Worktree};
use dogwatch_core::run::keeper_deadline::KeeperState;
use dogwatch_core::text::figures::count;
use dogwatch_core::text::redact;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::coalesce::Coalescer;
use dogwatch_core::watch::{Channel, Fact};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

impl Driver<'_> {
    pub(super) fn start(&mut self, job: Job) {
        if let Err(error) = self.keep_prompt(job) {
            self.record.fail(&error, &mut self.todo);
            return self.record.withhold(job);
        }
        match self.command_for(job) {
            Ok(command) => match self.spawn(job, command) {
                Ok(()) => self.todo.push_back(Input::JobSent { job }),
                Err(error) => self.not_started(job, error.to_string(), is_transient(&error)),
            },
            Err(error) => self.not_started(job, error, false),
        }
    }

    /// Writes a session's prompt to disk. The prompt is part of the record, so this happens before the session
    /// starts.
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
                safe_file::write(&dir.join("prompt.md"), safe_file::PRIVATE, self.prompt_of(job).as_bytes())
            }
        }
    }

    fn spawn(&mut self, job: Job, command: Command) -> io::Result<()> {
        let mut pipes = pump::pipes()?;
        let mut child_stdin = None;
        if command.prompt.is_none() {
            // Commands get no input. An inherited stdin would belong to the user's terminal or script.
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
            mcp: command.mcp,
            started: false,
            argv: redact::argv(sandbox::inner(&command.argv)),
            alone: false,
            exit: None,
            signaled: false,
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
                // An order that is too long was not sent, so the keeper is still usable. After any other error it
                // is not.
                if error.kind() == io::ErrorKind::InvalidInput {
                    self.slots.rest(keeper);
                }
                Err(error)
            }
        }
    }

    pub(super) fn signal(&mut self, job: Job, order: Order) {
        if let Some(slot) = self.slots.of(job) {
            slot.live.signaled |= slot.live.exit.is_none();
            self.order(job, order);
        }
    }

    /// Samples the children and CPU time of the session's process tree.
    pub(super) fn sample(&mut self, job: Job) {
        let structured = self.run.session(job.node).reader.is_structured();
        let Some(slot) = self.slots.of(job) else { return };
        let taken = match (&slot.keeper, slot.live.main) {
            (Some(keeper), Some(main)) => {
                // A stopped keeper cannot report that the agent has exited. The session would then look silent.
                keeper.nudge();
                self.sampler.sample(keeper.pid(), main, structured)
            }
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

    /// Continues the keeper in case it was stopped, and reports to the core whether it was.
    pub(super) fn nudge(&mut self, job: Job) {
        if let Some(keeper) = self.slots.of(job).and_then(|slot| slot.keeper.as_ref()) {
            let stopped = keeper.nudge() == KeeperState::Stopped;
            self.todo.push_back(Input::KeeperSeen { job, stopped });
        }
    }

    /// Gives up on a keeper that did not report in time, unless a report has arrived in the meantime.
    pub(super) fn drop_keeper(&mut self, job: Job) {
        let before = self.todo.len();
        self.take_reports(job.node);
        if self.todo.len() == before && self.slots.of(job).is_some_and(|slot| slot.keeper.is_some()) {
            self.keeper_lost(job.node, "it did not report in time");
        }
    }

    fn order(&mut self, job: Job, order: Order) {
        let keeper = self.slots.of(job).and_then(|slot| slot.keeper.as_mut());
        if let Some(Err(error)) = keeper.map(|keeper| keeper.send(order)) {
            self.keeper_lost(job.node, &error.to_string());
        }
    }

    /// Handles a start that the keeper refused.
    pub(super) fn refused(&mut self, node: NodeIx, errno: i32, error: String) {
        if let Some(live) = self.leave(node) {
            self.not_started(live.job, error, is_transient(&io::Error::from_raw_os_error(errno)));
            self.todo.extend(live.early);
        }
    }

    /// Frees the node's slot and returns its job. The keeper becomes idle.
    fn leave(&mut self, node: NodeIx) -> Option<Live> {
        let Slot { keeper, live } = self.slots.remove(node)?;
        if let Some(keeper) = keeper {
            self.slots.rest(keeper);
        }
        Some(live)
    }

    /// Reports a job that did not start; `again` means that the same start may work later. For a prep command the
    /// error takes the place of its output in the prompt, until a retry replaces it.
    fn not_started(&mut self, job: Job, error: String, again: bool) {
        let error = if let JobKind::Command(index) = job.kind {
            let name = self.plan(job).settings.commands[index].name.clone();
            let text = format!("[dogwatch: command `{name}` could not be started: {error}]");
            let said = format!("command `{name}`: {error}");
            self.set_output(job, CommandOutput { name, text, exit_code: None });
            said
        } else {
            error
        };
        self.todo.push_back(if again {
            Input::JobUnstarted { job, error }
        } else {
            Input::JobRefused { job, error }
        });
    }

    fn set_output(&mut self, job: Job, output: CommandOutput) {
        let outputs = &mut self.pending_prompt(job).outputs;
        outputs.retain(|known| known.name != output.name);
        outputs.push(output);
    }

    /// Ends a job with no processes left: collects its output and reports to the core.
    pub(super) fn job_ended(&mut self, node: NodeIx, leftovers: u64) {
        let Some(live) = self.leave(node) else { return };
        let Live { job, exit, signaled, pump, early, mcp, .. } = live;
        self.todo.extend(early);
        pump.stop();
        let mut report = match pump.join() {
            JobSink::Command(capture) => {
                self.command_output(&Over { job, exit, signaled }, &capture, leftovers)
            }
            JobSink::Check(tails) => JobReport {
                stdout_bytes: tails.stdout.seen,
                stderr_bytes: tails.stderr.seen,
                leftovers,
                tail: tails.tail(),
                ..JobReport::default()
            },
            JobSink::Session(sink) => {
                let (report, error) = sink.finish(self.prompt_of(job), exit, leftovers);
                let result = report.totals.result.as_ref().map_or("", |result| result.text.as_str());
                if let Some(error) = error.or(self.keep_result(job, result).err()) {
                    let detail =
                        format!("raw output was lost: {error} ({})", count(report.cut_bytes, "byte"));
                    self.todo.push_back(Input::TroubleMet { kind: "raw_output_lost", detail });
                }
                report
            }
        };
        if let Some(mut mcp) = mcp {
            self.todo.extend(mcp.flush(job));
            // A marker in the agent's final output is newer than one sent through the agent channel.
            report.marker = report.marker.or(mcp.close());
        }
        self.take_mail();
        self.todo.push_back(Input::JobEnded { job, report: Box::new(report) });
    }

    fn command_output(&mut self, over: &Over, capture: &Capture, leftovers: u64) -> JobReport {
        let JobKind::Command(index) = over.job.kind else {
            let snapshot =
                (over.job.kind == JobKind::Snapshot && !over.signaled).then(|| snapshot_result(capture));
            let worktree =
                (over.job.kind == JobKind::Worktree && !over.signaled).then(|| worktree_result(capture));
            return JobReport { snapshot, worktree, ..JobReport::default() };
        };
        let plan = &self.plan(over.job).settings.commands[index];
        let mut text = capture.text();
        if over.signaled {
            text.push_str(&format!("\n[dogwatch: timed out after {}]", plan.timeout));
        }
        let name = plan.name.clone();
        let exit_code = over.exit.and_then(Exit::code);
        self.set_output(over.job, CommandOutput { name, text, exit_code });
        JobReport {
            stdout_bytes: capture.seen(),
            cut_bytes: capture.cut(),
            leftovers,
            ..JobReport::default()
        }
    }

    /// Handles a keeper that was killed or must be. Its children then become children of this process and are
    /// killed here; a search by nonce finds any that escaped. The next job gets another keeper.
    pub(super) fn keeper_lost(&mut self, node: NodeIx, detail: &str) {
        let Some(slot) = self.slots.node(node) else { return };
        let buried = slot.keeper.take().map_or(Ok(()), |mut keeper| keeper.bury());
        let (job, exit, started) = (slot.live.job, slot.live.exit, slot.live.started);
        let nonce = &self.setup.nonce;
        let adopted = keeper::end_adopted(|pid| orphans::has_nonce(pid, nonce));
        let (marked, none_marked) = orphans::end_job(nonce, slot.live.number);
        let ended = adopted.killed + marked;
        let killed = count(ended as u64, "process");
        let detail = format!("the keeper was lost ({detail}); killed {killed} of the session");
        self.todo.push_back(Input::TroubleMet { kind: "keeper_lost", detail });
        if buried.is_err() || !adopted.all || !none_marked {
            let detail = "some processes of the session cannot be killed".to_owned();
            self.todo.push_back(Input::TreeUnkillable { job, detail });
        } else if !started && ended == 0 {
            let early = self.leave(node).map_or_else(Vec::new, |live| live.early);
            self.not_started(job, "the keeper was lost before the job started".to_owned(), true);
            self.todo.extend(early.into_iter().filter(|input| matches!(input, Input::WakeAsked(_))));
        } else {
            if !started {
                // The keeper was lost after the program had started and before it reported so. The session counts:
                // its work is snapshotted, and it is not called again as if nothing had happened.
                let argv = std::mem::take(&mut slot.live.argv);
                slot.live.started = true;
                let early: Vec<Input> = slot.live.early.drain(..).collect();
                self.todo.push_back(Input::JobStarted { job, pid: UNKNOWN_PID, argv });
                self.todo.extend(early);
            }
            if exit.is_none() {
                self.todo.push_back(Input::JobExited { job, exit: Exit::Signal(9) });
            }
            self.job_ended(node, ended as u64);
        }
    }
}

/// The recorded process id of a session whose keeper was lost before it reported the id.
const UNKNOWN_PID: u32 = 0;

/// Returns whether a failed start may work later: a resource of the machine or the user is exhausted for now, or
/// the keeper was lost and another one can take its place.
fn is_transient(error: &io::Error) -> bool {
    let short = [Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE];
    let errno = Errno::from_io_error(error);
    is_lost(error) || error.kind() == io::ErrorKind::TimedOut || errno.is_some_and(|e| short.contains(&e))
}

/// An ended job, without its output.
struct Over {
    job: Job,
    exit: Option<Exit>,
    signaled: bool,
}

/// Parses the result line of a worktree job.
fn worktree_result(capture: &Capture) -> Worktree {
    match worktree::Outcome::read(capture.text().as_bytes()) {
        worktree::Outcome::Ready(ready) => Worktree::Ready { path: ready.path, branch: ready.branch },
        worktree::Outcome::Failed { why } => Worktree::Failed { why },
    }
}

/// Parses the result line of a snapshot job.
fn snapshot_result(capture: &Capture) -> Snapshot {
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

pub(super) fn unkillable(left: u64, detail: &[Remnant]) -> String {
    let named: Vec<String> = detail.iter().map(|r| format!("{} {} ({})", r.pid, r.comm, r.state)).collect();
    format!("SIGKILL did not end {}: {}", count(left, "process"), named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::keeper::KeeperLostError;

    #[test]
    fn only_a_start_that_lacks_a_resource_is_retried() {
        let errno = |errno: Errno| is_transient(&io::Error::from(errno));
        assert!([Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE].into_iter().all(errno));
        assert!(![Errno::NOENT, Errno::ACCESS, Errno::TOOBIG, Errno::BUSY].into_iter().any(errno));
        assert!(is_transient(&io::Error::other(KeeperLostError { pid: 1 })));
        assert!(!is_transient(&io::Error::other("the order is too long")));
    }
}
