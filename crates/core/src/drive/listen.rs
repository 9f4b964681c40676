//! Sleeps until something happens, then turns it into inputs for the core in a fixed order.

use super::Driver;
use super::shell::{ChannelError, Mail, Shell, Signaled};
use crate::record::event::WaitEndedBy;
use crate::record::ids::NodeIx;
use crate::run::agent_channel::{AgentRequest, AgentResponse, Handled};
use crate::run::input::{Input, NodeInput};
use crate::run::job::{Job, JobKind};
use crate::time::absence::Gap;
use crate::time::dur::Dur;
use crate::watch::feed::Input as Happened;

/// Wakes closer together than this are a storm. During a storm the waker pauses for `CALM`.
const STORM: Dur = Dur::from_millis(5);
const CALM: Dur = Dur::from_secs(1);

impl<S: Shell> Driver<S> {
    /// Sleeps until something happens and queues the inputs that follow. Only looks if there is something to do:
    /// inputs to take, or jobs to start.
    pub(super) fn listen(&mut self) -> Result<(), S::Error> {
        let mut until = self.run.next_wakeup();
        until.awake = until.awake.into_iter().chain(self.jobs.next_burial()).min();
        self.absence.sleeps(self.shell.now(), until.awake);
        let woken = self.shell.sleep(until, self.queue.is_busy())?;
        // Read the clock first: a stop that the next line does not see began after this moment.
        let now = self.shell.now();
        let interrupted = self.absence.woke(now, self.shell.last_stop());
        // Take mail before signals: a client that posts a message and then sends a signal expects that order.
        if woken.mail {
            self.take_mail();
        }
        let continued = (woken.signals || interrupted) && self.take_signals()?;
        self.note_absence(continued);
        for node in self.jobs.next_keepers(woken.keepers) {
            self.take_reports(node);
        }
        for error in woken.lost_idle {
            let detail = format!("an idle keeper was lost ({error})");
            self.queue.todo.push_back(Input::TroubleMet { kind: "keeper_lost", detail });
        }
        if woken.due {
            self.kill_survivors();
            self.take_time();
        }
        if woken.waker {
            self.shell.rearm_waker();
        }
        if woken.tick {
            self.shell.tick(self.run.view());
        }
        Ok(())
    }

    /// Reports time in which dogwatch could not run, before anything is judged.
    fn note_absence(&mut self, continued: bool) {
        let (now, stop) = (self.shell.now().awake, self.shell.last_stop());
        for Gap { lasted, unwatched } in self.absence.gaps(continued, now, stop) {
            self.queue.todo.push_front(Input::Suspended { lasted, unwatched });
        }
    }

    /// Takes the pending signals. Returns whether SIGCONT was among them.
    fn take_signals(&mut self) -> Result<bool, S::Error> {
        let mut continued = false;
        for signal in self.shell.take_signals()? {
            let input = match signal {
                Signaled::Interrupt => Input::Interrupted,
                Signaled::End(signal) => Input::EndAsked(signal),
                Signaled::Wake => Input::WakeAsked(WaitEndedBy::Signal),
                Signaled::Continue => {
                    continued = true;
                    continue;
                }
            };
            self.queue.todo.push_back(input);
        }
        Ok(continued)
    }

    /// Records a change for every session that works in this tree. Which file changed, and which process changed
    /// it, does not matter.
    fn work_tree_changed(&mut self, owner: Option<NodeIx>, digest: Option<u64>) {
        self.shell.rearm_tree(owner);
        let now = self.shell.now().awake;
        for live in self.jobs.all() {
            let job = live.job;
            let works_there = match owner {
                Some(owner) => owner == job.node && live.watches_own_tree,
                None => !live.watches_own_tree,
            };
            if works_there && live.started && job.kind == JobKind::Session {
                live.feed.take(now, Happened::Workspace { path: None, digest });
                self.queue.todo.extend(live.take_items());
            }
        }
    }

    /// Rearms the waker after a change: at once for a single change, after `CALM` for a storm.
    fn listen_again(&mut self) {
        let now = self.shell.now().awake;
        let storm = now.since(std::mem::replace(&mut self.woken, now)) < STORM;
        if !storm || !self.shell.pause_waker(now.plus(CALM)) {
            self.shell.rearm_waker();
        }
    }

    pub(super) fn take_mail(&mut self) {
        for mail in self.shell.take_mail() {
            match mail {
                Mail::FromSession { job, input } => match self.jobs.of(job) {
                    // An agent may print before the keeper reports that it has started.
                    Some(live) if !live.started => live.hold_back(input),
                    Some(_) | None => {
                        if matches!(input, Input::Job(_, NodeInput::Noted(_))) {
                            self.flush_evidence(job.node);
                        }
                        self.queue.todo.push_back(input);
                    }
                },
                Mail::WorkTreeChanged { node, digest } => self.work_tree_changed(node, digest),
                Mail::PipesClosed { job } => {
                    self.queue.todo.push_back(Input::Job(job, NodeInput::PipesClosed))
                }
                Mail::Input(input) => self.asked(input),
                Mail::AgentRequested { token, request, reply } => {
                    let answer = self.answer(&token, &request);
                    self.shell.reply(reply, answer);
                }
                Mail::ViewAsked(reply) => self.shell.send_view(reply, self.run.view()),
            }
        }
    }

    fn asked(&mut self, input: Input) {
        // Every change counts, also during a session. The core decides what it means.
        if matches!(input, Input::WakeAsked(WaitEndedBy::Path)) {
            self.listen_again();
        }
        // A change after a session was sent to the keeper may come too late for the agent to see it. So it must not
        // be recorded as a change before the session.
        let is_wake = matches!(input, Input::WakeAsked(_));
        match self.jobs.all().find(|live| is_wake && live.is_starting_session()) {
            Some(live) => live.hold_back(input),
            None => self.queue.todo.push_back(input),
        }
    }

    /// Answers a request that a session's agent made.
    fn answer(&mut self, token: &str, request: &AgentRequest) -> Result<AgentResponse, ChannelError> {
        let plan = self.run.plan();
        let sent =
            |job: Job| job.iteration == request.iteration && plan.nodes[job.node.0].name == request.node;
        let live = self.jobs.all().find(|live| sent(live.job)).ok_or(ChannelError::SessionOver)?;
        let channel = live.channel.as_mut().ok_or(ChannelError::SessionOver)?;
        if !self.shell.is_token(live.job, token) {
            return Err(ChannelError::WrongToken);
        }
        let node = self.run.view().node(live.job.node);
        let now = self.shell.now().awake;
        let Handled { mut inputs, answer } = channel.handle(now, node, &request.body, &mut live.feed);
        inputs.extend(live.take_items());
        // A request may arrive before the keeper reports that the agent has started.
        if live.started {
            self.queue.todo.extend(inputs);
        } else {
            inputs.into_iter().for_each(|input| live.hold_back(input));
        }
        Ok(answer)
    }

    /// Handles a deadline that may have passed. Reports and output from before the deadline are taken in first: a
    /// session that has exited is not stopped, and silence may only be judged with empty pipes. Only the nodes that
    /// are due are asked: among many sessions, one is nearly always due.
    fn take_time(&mut self) {
        let now = self.shell.now();
        let judged = self.run.to_judge(now);
        for node in &judged {
            self.take_reports(*node);
        }
        self.shell.flush(&judged);
        self.take_mail();
        for node in judged {
            self.flush_evidence(node);
        }
        self.queue.todo.push_back(Input::OutputDrained { upto: now.awake });
    }

    /// Hands over what the coalescers of a node hold back, so that it is judged with all evidence.
    fn flush_evidence(&mut self, node: NodeIx) {
        let now = self.shell.now().awake;
        let pending = self.jobs.node(node).map(|live| live.flush(now));
        self.queue.todo.extend(pending.into_iter().flatten());
    }
}
