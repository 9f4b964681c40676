//! `dogwatch exec`: runs one command under a keeper, watches it, and passes on its bytes and its exit code
//! unchanged.
//!
//! Theory of operation. The command inherits our stdin. Its stdout and stderr are pipes that `copy` drains into
//! ours, and a listener turns the output into facts. The main thread sleeps in one `poll` over the keeper, the
//! signals, the copiers' bell and one timer. It asks the `Monitor` for a verdict whenever something is new or due, as a run does. While the
//! command is silent nothing runs, except for two samples of its CPU use. The command needs no run, lock or state
//! directory; `record` writes events to a file on request.
//!
//! The binary calls [`run`] from its only thread. The core decides verdicts; the keeper ends process trees.

#[cfg(test)]
mod agreement;
mod copy;
mod outcome;
mod record;
mod start;

use dogwatch_core::text::figures::count;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dogwatch_agents::SubagentLog;
use dogwatch_core::record::event::{EndStep, EndedBy, Event, HumanEndedBy};
use dogwatch_core::run::job::Leftovers;
use dogwatch_core::run::keeper_deadline::KeeperCheck;
use dogwatch_core::run::life::{Life, TreeOrder};
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::text::redact;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::feed::FeedItem;
use dogwatch_core::watch::health::Health;
use dogwatch_core::watch::{Assessment, Fact, Monitor, Session, Verdict};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::absence::{Absence, Gap};
use crate::clock;
use crate::fs::subagent_log::Following;
use crate::fs::wake::PathWaker;
use crate::process::keeper::{self, Keeper, Order, Report};
use crate::process::sample::sample;
use crate::sys::{SignalFd, Timer};
use copy::CopyState;
use outcome::INTERNAL;
use record::{Record, iteration, node};

/// How long to wait for the pipes to be drained before silence is judged.
const DRAIN_BOUND: Duration = Duration::from_millis(500);
/// If the reader of our output blocks the command for longer than this, the message of a stop says so.
const HELD_UP: Dur = Dur::from_secs(1);

/// The command to run, and how to watch it.
#[derive(Debug)]
pub struct Plan {
    /// The program, looked up in PATH if it has no slash, and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// The limits of the watchdog.
    pub policy: WatchPolicy,
    /// The reader for the output; `Plain` for any program.
    pub reader: ReaderName,
    /// Changes below this directory are evidence of work.
    pub workspace: Option<PathBuf>,
    /// The file that events are appended to.
    pub json: Option<PathBuf>,
}

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The exit code.
    pub code: u8,
    /// Messages for stderr, one line each.
    pub said: Vec<String>,
    /// Whether the command's stderr ended without a newline.
    pub midline: bool,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The file for the events cannot be written.
    #[error("cannot write to {path}: {error}")]
    Json {
        /// The path.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The directory cannot be watched.
    #[error("cannot watch {path}: {error}")]
    Workspace {
        /// The path.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The operating system refused.
    #[error(transparent)]
    Host(#[from] io::Error),
}

/// Runs the command to its end. Call it before any other thread exists, because it takes over the process's
/// signals.
pub fn run(plan: Plan) -> Result<Outcome, ExecError> {
    let mut exec = start::start(plan)?;
    exec.drive()?;
    Ok(exec.outcome())
}

/// The phases of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its process tree may have processes; `Life` knows more.
    Tree,
    /// No process is left, but output is still being delivered, however slowly it is read. Checked at the given time.
    Delivering(Awake),
    Over,
}

struct Exec {
    policy: WatchPolicy,
    reader: ReaderName,
    argv: Vec<Vec<u8>>,
    record: Record,
    keeper: Keeper,
    /// The nonce that its processes carry, unless an outer dogwatch has set one.
    nonce: Option<String>,
    copy_state: CopyState,
    /// Whether both streams go through one pipe.
    merged: bool,
    workspace: Option<PathWaker>,
    /// The subagent log of a known agent's CLI, until it is followed.
    trail: Option<SubagentLog>,
    following: Option<Following>,
    signals: SignalFd,
    timer: Timer,
    armed: Option<Awake>,
    phase: Phase,
    life: Life,
    /// Whether no other process was left when the main process exited.
    alone: bool,
    /// The pid of the main process, and the watch over it, once it runs.
    main: Option<u32>,
    started: Awake,
    monitor: Option<Monitor>,
    health: Health,
    /// Why the watchdog has stopped it.
    stop: Option<String>,
    /// The last signal that was passed on.
    passed: Option<i32>,
    leftovers: Leftovers,
    /// Detects time in which this process could not run.
    absence: Absence,
    /// The exit code of a command that was never started or was lost.
    failed: Option<u8>,
    said: Vec<String>,
}

impl Exec {
    fn drive(&mut self) -> io::Result<()> {
        while self.phase != Phase::Over {
            self.sleep()?;
        }
        self.record_end();
        Ok(())
    }

    fn add(&mut self, event: Event) {
        self.record.add(clock::now(), event);
    }

    /// Sleeps until something happens, and handles it.
    fn sleep(&mut self) -> io::Result<()> {
        self.arm()?;
        let mut fds = [
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.copy_state.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.keeper.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.timer.as_fd(), PollFlags::IN),
        ];
        self.absence.sleeps(self.armed);
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let [signals, bell, keeper, time] = fds.map(|fd| !fd.revents().is_empty());
        let interrupted = self.absence.woke();
        let continued = (signals || interrupted) && self.take_signals()?;
        self.note_absence(continued);
        if bell {
            self.copy_state.quiet();
            self.listen();
        }
        if keeper {
            self.take_reports();
        }
        if time {
            self.timer.drain()?;
            self.armed = None;
            self.take_time();
        }
        Ok(())
    }

    fn arm(&mut self) -> io::Result<()> {
        let watch = self.monitor.as_ref().filter(|_| self.is_watched()).and_then(Monitor::due);
        let (step, keeper) = match self.phase {
            Phase::Tree => (self.life.due(), self.life.keeper_due()),
            Phase::Delivering(at) => (Some(at), None),
            Phase::Over => (None, None),
        };
        let next = [watch, step, keeper].into_iter().flatten().min();
        if next != self.armed {
            match next {
                Some(at) => self.timer.set_at(Duration::from_millis(at.0))?,
                None => self.timer.clear()?,
            }
            self.armed = next;
        }
        Ok(())
    }

    /// Accounts for time in which dogwatch could not run. The watchdog's clock stops while the host sleeps, so that
    /// time is only recorded. Time in which this process alone could not run is subtracted.
    fn note_absence(&mut self, continued: bool) {
        for Gap { lasted, unwatched } in self.absence.gaps(continued) {
            self.add(Event::Suspended { for_s: lasted, unwatched });
            if unwatched {
                self.take_fact(Fact::Suspended { for_ms: lasted.as_millis() });
            }
        }
    }

    /// Takes the pending signals. Returns whether SIGCONT was among them.
    fn take_signals(&mut self) -> io::Result<bool> {
        let mut continued = false;
        while let Some(number) = self.signals.take()? {
            if number == Signal::CONT.as_raw() {
                continued = true;
            } else if let Some(signal) = Signal::from_named_raw(number) {
                self.pass(signal);
            }
        }
        Ok(continued)
    }

    /// Passes a signal on to the command, or handles it if the command has exited.
    fn pass(&mut self, signal: Signal) {
        if signal != Signal::USR1 && signal != Signal::USR2 {
            self.passed = Some(signal.as_raw());
            if let Phase::Delivering(_) = self.phase {
                // The command has exited, so the signal ends this process. Do not wait any longer for a reader.
                self.failed = Some(by_signal(signal.as_raw()));
                self.phase = Phase::Over;
            }
            let order = self.life.sweep(clock::awake());
            self.carry_out(order);
        }
        let order = match signal {
            Signal::INT => Order::Interrupt,
            Signal::TERM => Order::Terminate,
            other => Order::Pass(other),
        };
        self.order(order);
        // A signal gets no report. But a keeper that is stopped over and over would never pass it on.
        self.life.ordered(clock::awake());
    }

    fn order(&mut self, order: Order) {
        if let Err(error) = self.keeper.send(order) {
            self.lost(&error);
        }
    }

    fn carry_out(&mut self, order: Option<TreeOrder>) {
        if let Some(TreeOrder::Step(step)) = order {
            let (node, iteration, ended_by) = (node(), iteration(), EndedBy::Watchdog);
            self.add(Event::SessionSignalled { node, iteration, step, ended_by });
        }
        match order {
            Some(TreeOrder::Sweep) if self.alone => self.emptied(),
            Some(order) => self.order(order.into()),
            None => {}
        }
    }

    /// Handles the proof that no process is left.
    fn emptied(&mut self) {
        self.life.reported();
        if self.life.exit().is_some() {
            let closed = self.copy_state.closed();
            self.phase = if closed { Phase::Over } else { self.delivering() };
        }
    }

    fn delivering(&self) -> Phase {
        Phase::Delivering(clock::awake().plus(self.policy.leak))
    }

    /// Returns whether the watchdog has something to judge.
    fn is_watched(&self) -> bool {
        self.phase == Phase::Tree && self.life.is_alive()
    }

    /// Takes facts from the copiers. They wait until the keeper has reported the start of the command.
    fn listen(&mut self) {
        self.follow_subagents();
        if self.main.is_some() {
            self.take_facts();
        }
        if let Some(workspace) = self.workspace.as_ref().filter(|_| self.copy_state.stirred()) {
            workspace.rearm();
        }
        if self.copy_state.closed() {
            if self.life.exit().is_none() {
                // Usually the command has exited and only the report is missing. A stopped keeper is continued.
                self.keeper.nudge();
            }
            match self.phase {
                Phase::Tree => {
                    let order = self.life.pipes_closed(clock::awake());
                    self.carry_out(order);
                }
                Phase::Delivering(_) | Phase::Over => self.phase = Phase::Over,
            }
        }
    }

    /// Starts to follow the subagent log, once the stream has shown the session's id.
    fn follow_subagents(&mut self) {
        let known = || self.copy_state.with(|listener| listener.session_id().map(str::to_owned));
        if let Some(session) = self.trail.as_ref().and_then(|_| known())
            && let Some(trail) = self.trail.take()
        {
            let copy_state = self.copy_state.clone();
            self.following =
                Following::start(trail, &session, move |found| copy_state.subagents_did(found.activity));
        }
    }

    fn take_facts(&mut self) {
        for item in self.copy_state.take_items() {
            match item {
                FeedItem::Fact(fact) => self.take_fact(fact),
                FeedItem::Issue(issue) if self.health.knows(issue) => {}
                FeedItem::Issue(issue) => {
                    self.health.found(clock::awake(), issue);
                    self.add(issue.event(node(), iteration()));
                }
            }
        }
    }

    fn take_fact(&mut self, fact: Fact) {
        let Some(monitor) = &mut self.monitor else { return };
        let asked = monitor.watch().is_asking();
        if asked && matches!(fact, Fact::NeedsHuman { .. }) {
            return;
        }
        let now = clock::awake();
        monitor.take(now, &fact);
        self.health.noted(&fact);
        // Progress only moves a deadline, so there is nothing to judge.
        let assessed = if matches!(fact, Fact::Observed(_)) { None } else { monitor.judge(now) };
        let answered = asked && !monitor.watch().is_asking();
        let until = self.policy.human.duration().map(|limit| clock::now().wall.plus(limit));
        self.add(fact.into_event(node(), iteration(), until));
        if answered {
            self.add(continued());
        }
        self.follow(assessed);
    }

    /// Records a verdict with its evidence, before the first signal is sent.
    fn follow(&mut self, assessed: Option<Assessment>) {
        let Some(assessed) = assessed.filter(|_| self.is_watched()) else { return };
        let verdict = assessed.verdict.clone();
        // `exec` has no next session that could recover.
        if let Some(event) = assessed.event(node(), iteration(), false) {
            self.add(event);
        }
        if let Verdict::HardStop { message, .. } = verdict {
            self.stop = Some(self.with_reader(message));
            // A known agent is interrupted, so that it can finish its turn. Any other program is terminated.
            let first = if self.reader.is_structured() { EndStep::Interrupt } else { EndStep::Terminate };
            let order = self.life.end(clock::awake(), first, self.policy.grace);
            self.carry_out(order);
        }
    }

    /// Adds to the message that the output is not being read, since that may explain the silence.
    fn with_reader(&self, message: String) -> String {
        match self.copy_state.held_up(clock::awake()) {
            held if held >= HELD_UP => {
                format!("{message}; its output has not been read for {:.1}s", held.as_secs_f64())
            }
            _ => message,
        }
    }

    /// Handles a deadline that may have passed: of the watchdog, or of a step of the command's end.
    fn take_time(&mut self) {
        let now = clock::awake();
        if self.is_watched() {
            self.following.iter().for_each(Following::look);
            let until = Instant::now() + DRAIN_BOUND;
            if let Some(workspace) = &self.workspace {
                // An earlier change may still wait to be handled, and would hide the later ones.
                workspace.rearm();
                workspace.await_flush(workspace.ask_flush(), DRAIN_BOUND);
            }
            self.copy_state.drain(until.saturating_duration_since(Instant::now()));
            self.listen();
            self.look();
        }
        match self.phase {
            Phase::Tree => {
                let order = self.life.time_passed(now, self.policy.grace);
                self.carry_out(order);
                if self.life.keeper_due().is_some_and(|due| now >= due) {
                    self.look_at_keeper(now);
                }
            }
            Phase::Delivering(at) if now >= at => {
                let pending = self.copy_state.pending() && self.stop.is_none();
                self.phase = if pending { self.delivering() } else { Phase::Over };
            }
            Phase::Delivering(_) | Phase::Over => {}
        }
    }

    fn look(&mut self) {
        let now = clock::awake();
        if self.monitor.as_mut().is_some_and(|monitor| monitor.wants_sample(now)) {
            let fact = self.sample();
            self.take_fact(fact);
        } else {
            let assessed = self.monitor.as_mut().and_then(|monitor| monitor.judge(now));
            self.follow(assessed);
        }
    }

    /// Samples the command's activity. For a plain command all its processes count as its own work, and none as
    /// children that it waits for. For a known agent only the processes that it started count, as children.
    fn sample(&self) -> Fact {
        // A stopped keeper cannot report that the command has exited. The command would then look silent.
        self.keeper.nudge();
        let keeper = self.keeper.pid();
        if self.reader.is_structured() {
            let taken = sample(keeper, self.main.unwrap_or(keeper), true);
            Fact::Sampled { children: taken.children, cpu_ms: taken.cpu_ms }
        } else {
            Fact::Sampled { children: 0, cpu_ms: sample(keeper, keeper, false).cpu_ms }
        }
    }

    /// Takes all reports that have arrived. Returns whether there was one, or the keeper is gone.
    fn take_reports(&mut self) -> bool {
        let mut any = false;
        while self.phase != Phase::Over {
            match self.keeper.receive() {
                Ok(Some(report)) => self.take_report(report),
                Ok(None) => return any,
                Err(error) => self.lost(&error),
            }
            any = true;
        }
        any
    }

    fn take_report(&mut self, report: Report) {
        match report {
            Report::Ready { .. } => {}
            Report::Started { pid, .. } => {
                self.began(pid);
                if self.passed.is_some() {
                    // An early signal may still be on its way to the keeper.
                    self.life.ordered(clock::awake());
                }
            }
            Report::Refused { errno, message, .. } => {
                let missing = errno == Errno::NOENT.raw_os_error();
                self.fail(if missing { 127 } else { 126 }, message);
            }
            Report::Exited { how, alone, .. } => {
                self.alone = alone;
                let (now, hurry) = (clock::awake(), alone || self.passed.is_some());
                let order = self.life.exited(now, how, self.policy.leak, hurry);
                self.carry_out(order);
            }
            Report::Empty { killed, names, .. } => {
                self.leftovers = Leftovers { count: killed, names };
                self.emptied();
            }
            Report::Unkillable { left, .. } => {
                self.said.push(format!("SIGKILL did not end {}", count(left, "process")));
                self.phase = Phase::Over;
            }
        }
    }

    fn began(&mut self, pid: u32) {
        // The record dates the start at the moment from which the limits count.
        let now = clock::now();
        self.started = now.awake;
        self.main = Some(pid);
        self.life.started();
        self.workspace.iter().for_each(PathWaker::let_go);
        let session = Session::new(self.started, self.reader.is_structured());
        self.monitor = Some(Monitor::new(self.policy.clone(), session));
        let words: Vec<_> = self.argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let argv = redact::argv(&words);
        let (node, iteration) = (node(), iteration());
        self.record.add(now, Event::SessionStarted { node, iteration, pid, argv, agent: 0, resumes: None });
        self.listen();
    }

    fn fail(&mut self, code: u8, message: String) {
        self.failed = Some(code);
        self.said.push(message);
        self.phase = Phase::Over;
    }

    /// Handles a keeper that was killed, or must be because it does not report. Inside a session of another dogwatch
    /// the nonce belongs to that session, which then finds the processes that escaped.
    fn lost(&mut self, error: &io::Error) {
        if self.phase == Phase::Over {
            return;
        }
        let buried = keeper::kill_with_tree(Some(&mut self.keeper), self.nonce.as_deref(), None);
        if !buried.all {
            self.said.push("some processes of the command cannot be killed".to_owned());
        }
        let detail = format!("{error}; killed {} of the command", count(buried.killed, "process"));
        self.add(Event::Trouble { kind: "keeper_lost".to_owned(), detail: detail.clone() });
        let ending = self.stop.is_some() || self.passed.is_some() || self.life.exit().is_some();
        match self.passed.filter(|_| self.main.is_none()) {
            // Ctrl-C arrived just before the keeper left our process group.
            Some(signal) => {
                self.failed = Some(by_signal(signal));
                self.phase = Phase::Over;
            }
            // The command was ending anyway and no process is left: use the exit code of that end.
            None if ending => {
                self.said.push(detail);
                self.phase = Phase::Over;
            }
            None => self.fail(INTERNAL, detail),
        }
    }

    /// Checks whether a keeper that owes something can run, and gives up on one that cannot.
    fn look_at_keeper(&mut self, now: Awake) {
        match self.life.keeper_checked(now, self.keeper.nudge()) {
            KeeperCheck::Wait | KeeperCheck::Settled => {}
            KeeperCheck::GiveUp => {
                if !self.take_reports() {
                    let silent = format!("the keeper (pid {}) does not report", self.keeper.pid());
                    self.lost(&io::Error::other(silent));
                }
            }
        }
    }
}

fn continued() -> Event {
    Event::NeedsHumanEnded { node: node(), iteration: iteration(), by: HumanEndedBy::Progress }
}

fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
