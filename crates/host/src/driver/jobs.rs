//! Starts jobs under a keeper and collects their output when they end.

use super::HostShell;
use super::commands::{Command, plan_of};
use super::slots::Slot;
use crate::driver::inbox::Mail;
use crate::fs::wake::PathWaker;
use crate::git::{role, snapshot};
use crate::process::keeper::{self, Order, Remnant, StartOrder, is_lost};
use crate::process::orphans;
use crate::process::pump::{self, Pump};
use crate::process::sinks::{Capture, JobSink};
use crate::sandbox;
use crate::store::home;
use crate::store::safe_file;
use dogwatch_config::placeholders::CommandOutput;
use dogwatch_core::Run;
use dogwatch_core::drive::shell::{Collected, KeeperKilled, Over, Report, Sent, Unsent};
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Commit, Exit, Job, JobKind, JobReport, Leftovers, Snapshot, Worktree};
use dogwatch_core::text::figures::count;
use dogwatch_core::text::redact;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// The file in an iteration's directory that holds the prompt.
const PROMPT: &str = "prompt.md";

impl HostShell<'_> {
    /// Writes a session's prompt to disk, unless an earlier session of the node had the same one. The prompt is part of
    /// the record, so this happens before the session starts.
    pub(super) fn write_prompt(&mut self, run: &Run, job: Job) -> io::Result<()> {
        if job.kind != JobKind::Session || self.prompts.stored_in(job).is_some() {
            return Ok(());
        }
        let dir = self.iteration_dir(run, job);
        home::make_own_dir(&dir)?;
        safe_file::write(&dir.join(PROMPT), safe_file::PRIVATE, self.prompts.prompt_of(job).as_bytes())?;
        self.prompts.set_stored(job, true);
        Ok(())
    }

    /// Gives a prompt that is stored with an earlier iteration a second name in the directory of this one. The agent does
    /// not wait for that: creating a directory takes long right after a sync.
    fn link_prompt(&mut self, run: &Run, job: Job) {
        let earlier = self.prompts.stored_in(job).filter(|earlier| *earlier != job.iteration);
        let Some(earlier) = earlier.filter(|_| job.kind == JobKind::Session) else { return };
        let (dir, name) = (self.iteration_dir(run, job), &plan_of(run, job).name);
        let there = home::iteration_dir(&self.paths.run_dir, name, earlier).join(PROMPT);
        let linked = home::make_own_dir(&dir).and_then(|()| std::fs::hard_link(there, dir.join(PROMPT)));
        if linked.is_err() {
            // The file is gone, or it has as many names as the file system allows. If this prompt cannot be stored now,
            // the next session waits until its own is.
            self.prompts.set_stored(job, false);
            let _ = self.write_prompt(run, job);
        }
    }

    /// Starts a job. The inputs for the core are added to `inputs`, not to the result.
    pub(super) fn try_start(
        &mut self,
        run: &Run,
        job: Job,
        number: u64,
        inputs: &mut Vec<Input>,
    ) -> Result<Sent, Unsent> {
        let unsent = |error, again| Unsent { error, again, inputs: Vec::new() };
        let command = self.command_for(run, job, inputs).map_err(|error| unsent(error, false))?;
        let sent = self.spawn(run, job, number, command);
        let sent = sent.map_err(|error| unsent(error.to_string(), is_transient(&error)))?;
        self.link_prompt(run, job);
        Ok(sent)
    }

    fn spawn(&mut self, run: &Run, job: Job, number: u64, command: Command) -> io::Result<Sent> {
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
        let watcher = self.watch_own_tree(run, job);
        let sent = Sent {
            argv: redact::argv(sandbox::inner(&command.argv)),
            has_channel: command.mcp.is_some(),
            watches_own_tree: watcher.is_some(),
            inputs: Vec::new(),
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
        let mut keeper = self.slots.take_keeper(&self.paths.lock.fds(), self.leash.as_ref())?;
        match keeper.send(Order::Start(order)) {
            Ok(()) => {
                self.slots.fill(Slot { job, keeper: Some(keeper), pump, mcp: command.mcp, watcher });
                Ok(sent)
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

    /// Surveys the work tree of a session that has started.
    pub(super) fn survey_tree(&mut self, job: Job) {
        if job.kind == JobKind::Session {
            let own = self.slots.node(job.node).and_then(|slot| slot.watcher.as_ref());
            own.into_iter().chain(&self.watchers.work_tree).for_each(PathWaker::let_go);
        }
    }

    /// Returns the next report of the node's keeper about a job.
    pub(super) fn next_report(&mut self, node: NodeIx) -> Result<Option<Report>, String> {
        let Some(keeper) = self.slots.keeper(node) else { return Ok(None) };
        loop {
            return match keeper.receive() {
                Ok(Some(report)) => match report_of(report) {
                    Some(report) => Ok(Some(report)),
                    None => continue,
                },
                Ok(None) => Ok(None),
                Err(error) if is_lost(&error) => Err(error.to_string()),
                Err(error) => Err(format!("its socket failed: {error}")),
            };
        }
    }

    /// Frees the node's slot and returns it. The keeper becomes idle.
    pub(super) fn leave(&mut self, node: NodeIx) -> Option<Slot> {
        let mut slot = self.slots.remove(node)?;
        if let Some(keeper) = slot.keeper.take() {
            self.slots.rest(keeper);
        }
        Some(slot)
    }

    /// Collects the output of a job with no processes left.
    pub(super) fn collect_output(&mut self, run: &Run, over: &Over) -> Collected {
        let mut inputs = Vec::new();
        let Some(slot) = self.leave(over.job.node) else {
            return Collected { report: JobReport::default(), inputs };
        };
        slot.pump.stop();
        let report = match slot.pump.join() {
            JobSink::Command(capture) => self.command_output(run, over, &capture),
            JobSink::Check(tails) => JobReport {
                stdout_bytes: tails.stdout.seen,
                stderr_bytes: tails.stderr.seen,
                leftovers: over.leftovers.clone(),
                tail: tails.tail(),
                ..JobReport::default()
            },
            JobSink::Session(sink) => {
                inputs.extend(self.remove_created(over.job.node));
                let prompt = self.prompts.prompt_of(over.job);
                let (report, error) = sink.finish(prompt, over.exit, over.leftovers.clone());
                let result = report.totals.result.as_ref().map_or("", |result| result.text.as_str());
                if let Some(error) = error.or(self.keep_result(run, over.job, result).err()) {
                    let detail =
                        format!("raw output was lost: {error} ({})", count(report.cut_bytes, "byte"));
                    inputs.push(Input::TroubleMet { kind: "raw_output_lost", detail });
                }
                report
            }
        };
        Collected { report, inputs }
    }

    fn command_output(&mut self, run: &Run, over: &Over, capture: &Capture) -> JobReport {
        let JobKind::Command(index) = over.job.kind else {
            let snapshot =
                (over.job.kind == JobKind::Snapshot && !over.signaled).then(|| snapshot_result(capture));
            let worktree = (over.job.kind == JobKind::Worktree && !over.signaled)
                .then(|| role::read(capture.text().as_bytes(), "worktree", |why| Worktree::Failed { why }));
            let commit = (over.job.kind == JobKind::Commit && !over.signaled)
                .then(|| role::read(capture.text().as_bytes(), "commit", |why| Commit::Failed { why }));
            return JobReport { snapshot, worktree, commit, ..JobReport::default() };
        };
        let plan = &run.plan().nodes[over.job.node.0].settings.commands[index];
        let mut text = capture.text();
        if over.signaled {
            text.push_str(&format!("\n[dogwatch: timed out after {}]", plan.timeout));
        }
        let name = plan.name.clone();
        let exit_code = over.exit.and_then(Exit::code);
        self.prompts.set_output(over.job, CommandOutput { name, text, exit_code });
        JobReport {
            stdout_bytes: capture.seen(),
            cut_bytes: capture.cut(),
            leftovers: over.leftovers.clone(),
            ..JobReport::default()
        }
    }

    /// Kills the keeper of a job and the processes that it leaves.
    pub(super) fn kill_keeper_and_tree(&mut self, job: Job, number: u64) -> KeeperKilled {
        let mut keeper = self.slots.node(job.node).and_then(|slot| slot.keeper.take());
        keeper::kill_with_tree(keeper.as_mut(), Some(&self.paths.nonce), Some(number))
    }
}

/// Returns a keeper's report in the driver's words. A greeting is not a report about a job.
fn report_of(report: keeper::Report) -> Option<Report> {
    Some(match report {
        keeper::Report::Ready { .. } => return None,
        keeper::Report::Started { job, pid } => Report::Started { number: job, pid },
        keeper::Report::Refused { job, errno, message } => {
            let again = is_transient(&io::Error::from_raw_os_error(errno));
            Report::Refused { number: job, error: message, again }
        }
        keeper::Report::Exited { job, how, alone, .. } => Report::Exited { number: job, exit: how, alone },
        keeper::Report::Empty { job, killed, names } => {
            Report::Empty { number: job, killed: Leftovers { count: killed, names } }
        }
        keeper::Report::Unkillable { job, left, detail } => {
            Report::Unkillable { number: job, detail: unkillable(left, &detail) }
        }
    })
}

/// Returns whether a failed start may work later: a resource of the machine or the user is exhausted for now, or
/// the keeper was lost and another one can take its place.
fn is_transient(error: &io::Error) -> bool {
    let short = [Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE];
    let errno = Errno::from_io_error(error);
    is_lost(error) || error.kind() == io::ErrorKind::TimedOut || errno.is_some_and(|e| short.contains(&e))
}

/// Parses the result line of a snapshot job.
fn snapshot_result(capture: &Capture) -> Snapshot {
    let failed = |why| snapshot::Outcome::Failed { why };
    match role::read(capture.text().as_bytes(), "snapshot", failed) {
        snapshot::Outcome::Taken(t) => {
            Snapshot::Taken { name: t.ref_name, files: t.changed, skipped: t.skipped, tree: Some(t.tree) }
        }
        snapshot::Outcome::NoWorkTree { why } => Snapshot::NoWorkTree { why },
        snapshot::Outcome::Failed { why } => Snapshot::Failed { why },
    }
}

fn unkillable(left: u64, detail: &[Remnant]) -> String {
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
