//! The driver: a single thread that feeds inputs to the core and carries out its decisions. It alone writes the
//! record, talks to keepers and calls the reporter.
//!
//! It sleeps in one `poll` over the inbox, the signals, two clocks and the keepers. While the agents are silent,
//! nothing here runs.
//!
//! Write-ahead rule: an event that precedes an effect is on disk before the effect happens. If the record cannot be
//! written, running jobs stay supervised and new starts are withheld until it can.

mod agent_channel;
mod closing;
mod commands;
/// The queue through which other threads reach the driver.
pub mod inbox;
mod jobs;
mod keeping;
mod listen;
/// The MCP setup of sessions.
pub mod mcp_setup;
mod notifying;
mod prompting;
mod record;
mod sandboxing;
mod slots;

use crate::absence::Absence;
use crate::clock;
use crate::driver::inbox::{Inbox, Mail};
use crate::fs::digest::Digester;
use crate::fs::outputs;
use crate::fs::wake::{Coverage, PathWaker};
use crate::net::notify::Notifier;
use crate::process::keeper::Order;
use crate::process::sample::Sampler;
use crate::prompt::Prompter;
use crate::prompt::recovery::Templates;
use crate::store::day::DayBook;
use crate::store::home::StateDir;
use crate::store::journal::Journal;
use crate::store::lock::Lock;
use crate::store::safe_file;
use crate::sys::{Clock, SignalFd, Timer, block, ignores};
use dogwatch_core::Run;
use dogwatch_core::record::event::{Event, Recorded, WaitEndedBy};
use dogwatch_core::record::ids::{NodeIx, RunId};
use dogwatch_core::record::view::View;
use dogwatch_core::run::decision::{ContextEntry, Decision};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::time::moment::{Awake, Moment};
use dogwatch_core::time::timer::Wakeup;
use prompting::{PendingPrompt, Wanted};
use record::{Record, Retried};
use rustix::process::Signal;
use slots::Slots;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::path::PathBuf;

/// The file in the state directory to which a run appends its reason for going to sleep.
pub const CONTEXT_FILE: &str = "decisions.jsonl";

/// Shows a run to the user. Implementations must not block: a stuck terminal must not stop supervision.
pub trait Reporter {
    /// Starts threads the reporter needs. Called once, after the driver has taken over the signals and before the
    /// run begins.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Shows an event after it was recorded.
    fn show(&mut self, event: &Recorded, view: &View);
    /// Updates the live line. Called once a second if `ticks` returns true, and never otherwise.
    fn tick(&mut self, now: Moment, view: &View);
    /// Returns whether the reporter needs a tick each second, for a countdown.
    fn ticks(&self) -> bool;

    /// Prints a warning that cannot go into the record, because the run or its record is over.
    fn warn(&mut self, text: &str) {
        let _ = writeln!(io::stderr(), "dogwatch: {text}");
    }
}

/// Everything a run needs from its environment.
pub struct Setup {
    /// The run.
    pub run: Run,
    /// The run's id.
    pub run_id: RunId,
    /// The journal.
    pub journal: Journal,
    /// The run's own directory. It must exist.
    pub run_dir: PathBuf,
    /// The project's state directory, which contains the run's.
    pub state_dir: PathBuf,
    /// The directory in which sessions run.
    pub work_dir: PathBuf,
    /// The loop file, and its text at the time the settings were read.
    pub loop_file: PathBuf,
    /// The text of the loop file at the start.
    pub loop_text: String,
    /// The locks of the loop.
    pub lock: Lock,
    /// The nonce of the run's processes.
    pub nonce: String,
}

/// Drives one run. See the module documentation.
pub struct Driver<'f> {
    run: Run,
    reporter: &'f mut dyn Reporter,
    record: Record,
    /// The running jobs and all keepers.
    slots: Slots,
    jobs_started: u64,
    prompter: Prompter,
    digester: Digester,
    /// Watches `wake_on.paths`, if there are any.
    waker: Option<PathWaker>,
    /// When a changed path last caused a wake. `calm` delays the next one during a storm.
    woken: Awake,
    calm: Timer,
    /// Whether incomplete coverage of the wake paths was already reported.
    coverage_reported: bool,
    /// The pending prompts of open iterations.
    pending_prompts: BTreeMap<NodeIx, PendingPrompt>,
    setup: Paths,
    inbox: Inbox,
    signals: SignalFd,
    awake: Timer,
    boot: Timer,
    ticker: Timer,
    armed: Wakeup,
    todo: VecDeque<Input>,
    /// Decisions of the core, carried out after all pending inputs.
    effects: Vec<Decision>,
    /// Jobs waiting to be started, and whether the events that precede each are on disk.
    waiting: VecDeque<(Job, bool)>,
    exit_code: Option<u8>,
    /// Detects time in which this process could not run.
    absence: Absence,
    /// Watches the work tree for the `workspace` channel.
    work_tree: Option<PathWaker>,
    /// Delivers notifications. Started with the first one.
    notifier: Option<Notifier>,
    /// What the whole project has used today, if any day limit is set.
    day_book: Option<DayBook>,
    sampler: Sampler,
}

/// Paths and identifiers that stay the same for the whole run.
struct Paths {
    run_dir: PathBuf,
    state_dir: PathBuf,
    work_dir: PathBuf,
    loop_dir: PathBuf,
    loop_file: PathBuf,
    lock: Lock,
    nonce: String,
    run_id: RunId,
}

impl<'f> Driver<'f> {
    /// Creates the driver. Call it before any other thread exists, because it takes over the process's signals.
    pub fn new(setup: Setup, reporter: &'f mut dyn Reporter) -> io::Result<Driver<'f>> {
        // Signals that are ignored stay ignored: HUP under nohup, INT in a background job of a shell script.
        let mut taken = vec![Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::CONT];
        taken.retain(|signal| !ignores(*signal));
        block(&taken)?;
        let signals = SignalFd::new(&taken)?;
        let inbox = Inbox::new()?;
        let waker = start_waker(&setup, &inbox)?;
        let work_tree = watch_work_tree(&setup, &inbox);
        let digester = Digester::new(&setup.work_dir, &ours(&setup));
        let loop_dir = setup.loop_file.parent().map_or_else(|| setup.work_dir.clone(), PathBuf::from);
        let names = setup.run.plan().nodes.iter().filter_map(|n| n.settings.recovery.template.as_deref());
        let templates = Templates::read(&loop_dir, names);
        let day_book = setup.run.plan().days().any(|day| day.is_set()).then(|| {
            DayBook::new(StateDir::at(setup.state_dir.clone()).runs(), setup.run_id.as_str().into())
        });
        Ok(Driver {
            day_book,
            sampler: Sampler::default(),
            record: Record::new(setup.journal),
            slots: Slots::default(),
            jobs_started: 0,
            waker,
            woken: Awake(0),
            calm: Timer::new(Clock::Awake)?,
            coverage_reported: false,
            digester,
            prompter: Prompter::new(setup.loop_file.clone(), &setup.loop_text, templates),
            pending_prompts: BTreeMap::new(),
            setup: Paths {
                run_dir: setup.run_dir,
                state_dir: setup.state_dir,
                work_dir: setup.work_dir,
                loop_dir,
                loop_file: setup.loop_file,
                lock: setup.lock,
                nonce: setup.nonce,
                run_id: setup.run_id,
            },
            run: setup.run,
            reporter,
            inbox,
            signals,
            awake: Timer::new(Clock::Awake)?,
            boot: Timer::new(Clock::Boot)?,
            ticker: Timer::new(Clock::Awake)?,
            armed: Wakeup::default(),
            todo: VecDeque::new(),
            effects: Vec::new(),
            waiting: VecDeque::new(),
            exit_code: None,
            absence: Absence::new(),
            work_tree,
            notifier: None,
        })
    }

    /// Returns a handle to the inbox.
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// Drives the run to its end and returns the exit code.
    pub fn drive(mut self, notification: Vec<Input>) -> io::Result<u8> {
        self.reporter.begin().map_err(|error| {
            let help = "raise the process limit (ulimit -u)";
            io::Error::new(error.kind(), format!("cannot start a thread: {error}; {help}"))
        })?;
        self.todo.push_back(Input::Began);
        self.todo.extend(notification);
        loop {
            while let Some(input) = self.todo.pop_front() {
                self.step(input);
            }
            self.carry_out_all();
            if !self.todo.is_empty() {
                continue;
            }
            if let Some(code) = self.exit_code.filter(|_| self.waiting.is_empty()) {
                return Ok(self.close(code));
            }
            self.settle();
            if self.todo.is_empty() {
                self.listen()?;
            }
        }
    }

    fn step(&mut self, input: Input) {
        for decision in self.run.step(clock::now(), input) {
            match decision {
                Decision::Record(recorded) => self.record.add(*recorded, &mut self.todo),
                effect @ (Decision::Start(_)
                | Decision::AssemblePrompt { .. }
                | Decision::HashPins { .. }
                | Decision::KeepLog { .. }
                | Decision::KeepPartial { .. }
                | Decision::Sample(_)
                | Decision::Interrupt(_)
                | Decision::Terminate(_)
                | Decision::Kill(_)
                | Decision::Sweep { .. }
                | Decision::Nudge(_)
                | Decision::DropKeeper(_)
                | Decision::KeepContext(_)
                | Decision::ReleaseKeepers
                | Decision::Notify(_)
                | Decision::RetryRecord
                | Decision::Finish { .. }) => self.effects.push(effect),
            }
        }
    }

    /// Carries out all pending decisions, with a single sync for all events that precede them.
    ///
    /// Jobs start one at a time, and the driver polls between two starts. So running sessions are judged in time
    /// even while hundreds of others start.
    fn carry_out_all(&mut self) {
        let effects = std::mem::take(&mut self.effects);
        // Assemble prompts last: they take longest, and stopping a job must not wait for them.
        let (prompts, others): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|e| matches!(e, Decision::AssemblePrompt { .. }));
        // These decisions only read or clean up, so no event has to be on disk before them.
        let leaves_trace = |e: &Decision| {
            !matches!(
                e,
                Decision::HashPins { .. }
                    | Decision::Sample(_)
                    | Decision::Nudge(_)
                    | Decision::Sweep { .. }
                    | Decision::RetryRecord
            )
        };
        let durable = !others.iter().any(leaves_trace) || self.settle();
        for effect in others.into_iter().chain(prompts) {
            match effect {
                Decision::Start(job) => self.waiting.push_back((job, durable)),
                effect @ (Decision::Record(_)
                | Decision::AssemblePrompt { .. }
                | Decision::HashPins { .. }
                | Decision::KeepLog { .. }
                | Decision::KeepPartial { .. }
                | Decision::Sample(_)
                | Decision::Interrupt(_)
                | Decision::Terminate(_)
                | Decision::Kill(_)
                | Decision::Sweep { .. }
                | Decision::Nudge(_)
                | Decision::DropKeeper(_)
                | Decision::KeepContext(_)
                | Decision::ReleaseKeepers
                | Decision::Notify(_)
                | Decision::RetryRecord
                | Decision::Finish { .. }) => self.carry_out(effect),
            }
        }
        if let Some((job, durable)) = self.waiting.pop_front() {
            self.start_next(job, durable);
        }
        self.drop_pending_prompts();
    }

    fn start_next(&mut self, job: Job, durable: bool) {
        if let Some(detail) = self.record.lost(&mut self.todo) {
            let error = format!("the record is lost: {detail}");
            self.todo.push_back(Input::JobRefused { job, error });
        } else if (durable && !self.record.is_broken()) || self.settle() {
            self.start(job);
        } else {
            self.record.withhold(job);
        }
    }

    /// Writes and syncs the recorded events, then shows them. Returns false if they could not be written.
    fn settle(&mut self) -> bool {
        let durable = self.record.settle(&mut self.todo);
        for event in self.record.take_unshown() {
            if matches!(event.event, Event::WaitStarted { .. }) {
                self.report_coverage();
            }
            self.reporter.show(&event, self.run.view());
        }
        durable
    }

    /// Reports once if some wake paths cannot be watched.
    fn report_coverage(&mut self) {
        let coverage = self.waker.as_ref().and_then(PathWaker::coverage);
        if let (false, Some(coverage)) = (self.coverage_reported, coverage) {
            self.coverage_reported = true;
            if !matches!(coverage, Coverage::Watched { .. }) {
                self.todo.push_back(Input::Noticed { kind: "wake_paths", message: coverage.to_string() });
            }
        }
    }

    /// Refreshes the day budget before a session starts.
    fn read_day_book(&mut self) {
        if self.day_book.is_none() {
            return;
        }
        // The book reads this run's own usage from its journal, so write that first.
        self.settle();
        let read = self.day_book.as_mut().map(|book| book.read(clock::now().wall));
        self.todo.extend(read.map(|read| match read {
            Ok(day) => Input::DayUsed(day),
            Err(error) => {
                let detail = format!("cannot read today's usage of the project: {error}");
                Input::TroubleMet { kind: "day_budget", detail }
            }
        }));
    }

    fn carry_out(&mut self, effect: Decision) {
        match effect {
            Decision::Record(_) | Decision::Start(_) => {}
            Decision::AssemblePrompt { node, iteration, pending_messages, input_digest, prompt_context } => {
                self.read_day_book();
                self.assemble(
                    node,
                    iteration,
                    &Wanted { messages: pending_messages, input_digest, prompt_context },
                );
            }
            Decision::HashPins { node, iteration } => self.hash_pins(node, iteration),
            Decision::KeepLog { node, iteration } => self.keep_log(node, iteration),
            Decision::KeepPartial { node, iteration, file } => self.keep_partial(node, iteration, &file),
            Decision::KeepContext(entry) => {
                let error = self.keep_context(&entry).err().map(|e| e.to_string());
                self.todo.push_back(Input::ContextKept { error });
            }
            Decision::Interrupt(job) => self.end(job, Order::Interrupt),
            Decision::Terminate(job) => self.end(job, Order::Terminate),
            Decision::Kill(job) => self.end(job, Order::Kill),
            Decision::Nudge(job) => self.nudge(job),
            Decision::DropKeeper(job) => self.drop_keeper(job),
            Decision::Sample(job) => self.sample(job),
            Decision::Sweep { job, grace } => self.sweep(job, grace),
            Decision::Notify(delivery) => self.notify(*delivery),
            Decision::RetryRecord => self.retry_record(),
            Decision::ReleaseKeepers => self.slots.release_idle(),
            Decision::Finish { exit_code } => self.exit_code = Some(exit_code),
        }
    }

    /// Stops a job. A job that has not been started yet is refused instead.
    fn end(&mut self, job: Job, order: Order) {
        let before = self.waiting.len();
        self.waiting.retain(|(waits, _)| *waits != job);
        if self.waiting.len() < before {
            let error = "not started: stopped while waiting to start".to_owned();
            self.todo.push_back(Input::JobRefused { job, error });
        } else if self.record.unwithhold(job) {
            let error = "not started: the record cannot be written".to_owned();
            self.todo.push_back(Input::JobRefused { job, error });
        } else {
            self.signal(job, order);
        }
    }

    /// Appends the reason for going to sleep to `decisions.jsonl` in the state directory.
    fn keep_context(&self, entry: &ContextEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let path = self.setup.state_dir.join(CONTEXT_FILE);
        let kept = safe_file::append(&path, safe_file::PLAIN).and_then(|mut file| {
            file.write_all(&line)?;
            file.sync_data()
        });
        kept.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    fn retry_record(&mut self) {
        let room = self.record.withheld().iter().all(|job| self.keep_prompt(*job).is_ok());
        if !room {
            return;
        }
        match self.record.retry(&mut self.todo) {
            Retried::NotYet => {}
            Retried::Written => {
                self.todo.push_back(Input::RecordRecovered);
                for job in self.record.take_withheld() {
                    self.start(job);
                }
            }
            Retried::Lost => {
                for job in self.record.take_withheld() {
                    let error = "not started: the record is lost".to_owned();
                    self.todo.push_back(Input::JobRefused { job, error });
                }
            }
        }
    }
}

impl Driver<'_> {
    /// Watches a session's own worktree, if it has one, instead of the shared work tree.
    fn watch_own_tree(&self, job: Job) -> Option<PathWaker> {
        let own = self.own_tree(job.node).filter(|_| job.kind == JobKind::Session)?;
        let inbox = self.inbox.clone();
        let post = move |digest| {
            inbox.post(Mail::WorkTreeChanged { node: Some(job.node), digest });
        };
        PathWaker::watch_tree(&own, &outputs::own_files(), post).ok()
    }
}

/// Returns the paths that dogwatch itself writes in the work tree: its state, and output redirected to files.
fn ours(setup: &Setup) -> Vec<PathBuf> {
    [vec![setup.state_dir.clone()], outputs::own_files()].concat()
}

/// Watches the work tree. A watcher is optional: without one, the other channels decide.
fn watch_work_tree(setup: &Setup, inbox: &Inbox) -> Option<PathWaker> {
    let inbox = inbox.clone();
    PathWaker::watch_tree(&setup.work_dir, &ours(setup), move |digest| {
        inbox.post(Mail::WorkTreeChanged { node: None, digest });
    })
    .ok()
}

fn start_waker(setup: &Setup, inbox: &Inbox) -> io::Result<Option<PathWaker>> {
    // A wake applies to the whole run, so the paths of all nodes are watched together.
    let paths = setup.run.plan().nodes.iter().flat_map(|node| &node.settings.wake_on.paths);
    let globs: BTreeSet<&String> = paths.collect();
    if globs.is_empty() {
        return Ok(None);
    }
    let globs: Vec<String> = globs.into_iter().cloned().collect();
    let inbox = inbox.clone();
    let ours = ours(setup);
    PathWaker::start(&setup.work_dir, &globs, &ours, move |_| {
        inbox.post(Mail::Input(Input::WakeAsked(WaitEndedBy::Path)));
    })
    .map(Some)
}
