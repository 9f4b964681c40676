//! Starts jobs, signals them, and reports their ends to the core.

use super::Driver;
use super::live::Live;
use super::shell::{Collected, Over, Report, Shell, Unsent};
use crate::record::ids::NodeIx;
use crate::run::input::{Input, NodeInput};
use crate::run::job::{Exit, Job, JobKind, Leftovers};
use crate::run::life::TreeOrder;
use crate::text::figures::count;
use crate::time::dur::Dur;
use crate::watch::Fact;

/// The recorded process id of a session whose keeper was lost before it reported the id.
const UNKNOWN_PID: u32 = 0;
/// The pause between two attempts to kill processes that survived their keeper.
const KILL_INTERVAL: Dur = Dur::from_secs(5);

impl<S: Shell> Driver<S> {
    pub(super) fn start(&mut self, job: Job) {
        if let Err(error) = self.shell.keep_prompt(&self.run, job) {
            self.record.fail(&error, &mut self.queue.todo);
            return self.record.withhold(job);
        }
        let number = self.jobs.next_number();
        match self.shell.start(&self.run, job, number) {
            Ok(mut sent) => {
                self.queue.todo.extend(sent.inputs.drain(..));
                self.jobs.add(Live::new(job, number, sent));
                self.queue.todo.push_back(Input::Job(job, NodeInput::Sent));
            }
            Err(Unsent { error, again, inputs }) => {
                self.queue.todo.extend(inputs);
                self.not_started(job, error, again);
            }
        }
    }

    pub(super) fn signal(&mut self, job: Job, order: TreeOrder) {
        if let Some(live) = self.jobs.of(job) {
            live.signaled |= live.exit.is_none();
            self.order(job, order);
        }
    }

    /// Samples the children and CPU time of the session's process tree.
    pub(super) fn sample(&mut self, job: Job) {
        let Some(live) = self.jobs.of(job) else { return };
        let main = live.main.filter(|_| live.has_keeper);
        let taken = main.map(|main| self.shell.sample(&self.run, job, main)).unwrap_or_default();
        let fact = Fact::Sampled { children: taken.children, cpu_ms: taken.cpu_ms };
        self.queue.todo.push_back(Input::Job(job, NodeInput::Noted(fact)));
    }

    pub(super) fn sweep(&mut self, job: Job) {
        match self.jobs.of(job) {
            Some(live) if live.alone => self.job_ended(job.node, Leftovers::default()),
            Some(_) => self.order(job, TreeOrder::Sweep),
            None => {}
        }
    }

    /// Continues the keeper in case it was stopped, and reports to the core whether it was.
    pub(super) fn nudge(&mut self, job: Job) {
        if self.jobs.of(job).is_some_and(|live| live.has_keeper) {
            let stopped = self.shell.nudge(job);
            self.queue.todo.push_back(Input::Job(job, NodeInput::KeeperSeen { stopped }));
        }
    }

    /// Gives up on a keeper that did not report in time, unless a report has arrived in the meantime.
    pub(super) fn drop_keeper(&mut self, job: Job) {
        let before = self.queue.todo.len();
        self.take_reports(job.node);
        if self.queue.todo.len() == before && self.jobs.of(job).is_some_and(|live| live.has_keeper) {
            self.keeper_lost(job.node, "it did not report in time");
        }
    }

    fn order(&mut self, job: Job, order: TreeOrder) {
        if self.jobs.of(job).is_some_and(|live| live.has_keeper)
            && let Err(error) = self.shell.order(job, order)
        {
            self.keeper_lost(job.node, &error);
        }
    }

    pub(super) fn take_reports(&mut self, node: NodeIx) {
        while self.jobs.node(node).is_some_and(|live| live.has_keeper) {
            match self.shell.receive(node) {
                Ok(Some(report)) => self.take_report(node, report),
                Ok(None) => return,
                Err(error) => return self.keeper_lost(node, &error),
            }
        }
    }

    fn take_report(&mut self, node: NodeIx, report: Report) {
        let todo = &mut self.queue.todo;
        let Some(live) = self.jobs.node(node).filter(|live| report.number() == live.number) else {
            // A report about a job that is over.
            return;
        };
        match report {
            Report::Started { pid, .. } => {
                let argv = std::mem::take(&mut live.argv);
                todo.push_back(Input::Job(live.job, NodeInput::Started { pid, argv }));
                (live.started, live.main) = (true, Some(pid));
                self.shell.started(live.job);
                todo.extend(live.take_early());
            }
            Report::Refused { error, again, .. } => self.refused(node, error, again),
            Report::Exited { exit, alone, .. } => {
                (live.alone, live.exit) = (alone, Some(exit));
                todo.push_back(Input::Job(live.job, NodeInput::Exited(exit)));
            }
            Report::Empty { killed, .. } => self.job_ended(node, killed),
            Report::Unkillable { detail, .. } => {
                todo.push_back(Input::TreeUnkillable { job: live.job, detail });
            }
        }
    }

    /// Handles a start that the keeper refused.
    fn refused(&mut self, node: NodeIx, error: String, again: bool) {
        if let Some(mut live) = self.jobs.remove(node) {
            self.shell.abandon(live.job);
            self.not_started(live.job, error, again);
            self.queue.todo.extend(live.take_early());
        }
    }

    /// Reports a job that did not start; `again` means that the same start may work later. For a prep command the
    /// error takes the place of its output in the prompt, until a retry replaces it.
    fn not_started(&mut self, job: Job, error: String, again: bool) {
        let error = if let JobKind::Command(index) = job.kind {
            self.shell.no_output(&self.run, job, &error);
            let name = &self.run.plan().nodes[job.node.0].settings.commands[index].name;
            format!("command `{name}`: {error}")
        } else {
            error
        };
        self.queue.todo.push_back(if again {
            Input::Job(job, NodeInput::Unstarted { error })
        } else {
            Input::Job(job, NodeInput::Refused { error })
        });
    }

    /// Ends a job with no processes left: collects its output and reports to the core.
    fn job_ended(&mut self, node: NodeIx, leftovers: Leftovers) {
        let Some(mut live) = self.jobs.remove(node) else { return };
        let job = live.job;
        self.queue.todo.extend(live.take_early());
        let over = Over { job, exit: live.exit, signaled: live.signaled, leftovers };
        let Collected { mut report, inputs } = self.shell.collect(&self.run, &over);
        self.queue.todo.extend(inputs);
        self.queue.todo.extend(live.flush(self.shell.now().awake));
        if let Some(channel) = live.channel {
            // A marker in the agent's final output is newer than one sent through the agent channel.
            report.marker = report.marker.or(channel.marker().cloned());
        }
        self.take_mail();
        self.queue.todo.push_back(Input::Job(job, NodeInput::Ended(Box::new(report))));
    }

    /// Handles a keeper that was killed or must be. The shell kills its processes. The next job gets another keeper.
    fn keeper_lost(&mut self, node: NodeIx, detail: &str) {
        let Some(live) = self.jobs.node(node) else { return };
        live.has_keeper = false;
        let job = live.job;
        let buried = self.shell.kill_keeper(job, live.number);
        let killed = count(buried.killed, "process");
        let detail = format!("the keeper was lost ({detail}); killed {killed} of the session");
        self.queue.todo.push_back(Input::TroubleMet { kind: "keeper_lost", detail });
        if buried.all {
            self.buried(node, buried.killed);
        } else {
            live.kill_again_at = Some(self.shell.now().awake.plus(KILL_INTERVAL));
            let detail = "some processes of the session cannot be killed".to_owned();
            self.queue.todo.push_back(Input::TreeUnkillable { job, detail });
        }
    }

    /// Kills the processes again that survived their keeper: nothing else ends them.
    pub(super) fn kill_survivors(&mut self) {
        let now = self.shell.now().awake;
        for (job, number) in self.jobs.take_unburied(now) {
            let buried = self.shell.kill_keeper(job, number);
            if buried.all {
                self.buried(job.node, buried.killed);
            } else if let Some(live) = self.jobs.of(job) {
                live.kill_again_at = Some(now.plus(KILL_INTERVAL));
            }
        }
    }

    /// Ends a job that lost its keeper and has no processes left.
    fn buried(&mut self, node: NodeIx, killed: u64) {
        let Some(live) = self.jobs.node(node) else { return };
        let (job, exit, started) = (live.job, live.exit, live.started);
        let todo = &mut self.queue.todo;
        if !started && killed == 0 {
            let early = live.take_early();
            self.jobs.remove(node);
            self.shell.abandon(job);
            self.not_started(job, "the keeper was lost before the job started".to_owned(), true);
            let wakes = early.into_iter().filter(|input| matches!(input, Input::WakeAsked(_)));
            self.queue.todo.extend(wakes);
            return;
        }
        if !started {
            // The keeper was lost after the program had started and before it reported so. The session counts: its
            // work is snapshotted, and it is not called again as if nothing had happened.
            live.started = true;
            let argv = std::mem::take(&mut live.argv);
            todo.push_back(Input::Job(job, NodeInput::Started { pid: UNKNOWN_PID, argv }));
            todo.extend(live.take_early());
        }
        if exit.is_none() {
            todo.push_back(Input::Job(job, NodeInput::Exited(Exit::Signal(9))));
        }
        self.job_ended(node, Leftovers { count: killed, names: Vec::new() });
    }
}
