//! The driver: one thread, one order of things. It tells the core what happened and does what the core
//! decides. Nothing else writes the record, talks to keepers or shows anything.
//!
//! It sleeps in one `poll` over the inbox, the signals, two clocks and the keepers; while the agents are
//! silent nothing here runs.
//!
//! The rule of the record: what stands before an effect is on disk before the effect. If it cannot be
//! written, what runs is supervised on, and starts are withheld until it can.

mod agent_channel;
mod closing;
mod commands;
pub mod inbox;
mod jobs;
mod keeping;
mod listen;
pub mod mcp_setup;
mod notifying;
mod prompting;
mod record;
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
use crate::sys::{Clock, SignalFd, Timer, block, give_back_code, ignores};
use dogwatch_core::Run;
use dogwatch_core::record::event::{Event, Recorded, WaitEndedBy};
use dogwatch_core::record::ids::{NodeIx, RunId};
use dogwatch_core::record::view::View;
use dogwatch_core::run::decision::{ContextEntry, Decision};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Moment};
use dogwatch_core::time::timer::Wakeup;
use prompting::{PendingPrompt, Wanted};
use record::{Record, Retried};
use rustix::process::Signal;
use slots::Slots;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::path::PathBuf;

/// Where a run that goes to sleep leaves word, in the state directory.
pub const CONTEXT_FILE: &str = "decisions.jsonl";

/// Waits shorter than this, and sessions that follow each other closer, are not worth giving back what is needed at
/// once again.
const REST: Dur = Dur::from_secs(1);

/// What is shown while a run goes on. It must not block: a stuck terminal must not stop supervision.
pub trait Reporter {
    /// Starts what the front needs. Called once, after the driver has taken the signals and before the run begins.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn show(&mut self, event: &Recorded, view: &View);
    /// Called once a second if `ticks` says so, and never otherwise.
    fn tick(&mut self, now: Moment, view: &View);
    fn ticks(&self) -> bool;

    /// Reports what nobody would see otherwise: the run is over, or its record is.
    fn warn(&mut self, text: &str) {
        let _ = writeln!(io::stderr(), "dogwatch: {text}");
    }
}

/// All that a run needs from the world.
pub struct Setup {
    pub run: Run,
    pub run_id: RunId,
    pub journal: Journal,
    /// The run's own directory, made.
    pub run_dir: PathBuf,
    /// The project's state directory, where the run's lies.
    pub state_dir: PathBuf,
    pub work_dir: PathBuf,
    /// The loop file and its text as the settings were read from it.
    pub loop_file: PathBuf,
    pub loop_text: String,
    pub lock: Lock,
    pub nonce: String,
}

pub struct Driver<'f> {
    run: Run,
    front: &'f mut dyn Reporter,
    record: Record,
    /// The jobs that run, and the keepers.
    slots: Slots,
    jobs_started: u64,
    prompter: Prompter,
    digester: Digester,
    /// Looks after `wake_on.paths`, if there are any.
    waker: Option<PathWaker>,
    /// When a path last ended a wait or was remembered, and when the next may: a storm is few wakes.
    woken: Awake,
    calm: Timer,
    /// What it cannot look after has been told.
    coverage_told: bool,
    /// What is made ready for the sessions of open iterations.
    drafts: BTreeMap<NodeIx, PendingPrompt>,
    setup: Paths,
    inbox: Inbox,
    signals: SignalFd,
    awake: Timer,
    boot: Timer,
    ticker: Timer,
    armed: Wakeup,
    todo: VecDeque<Input>,
    /// What the core wants done, once all that has happened is taken in.
    effects: Vec<Decision>,
    /// Jobs that wait for their turn to be started, and whether the record that each needs is on disk.
    waiting: VecDeque<(Job, bool)>,
    exit_code: Option<u8>,
    /// Finds time in which this process could not run.
    absence: Absence,
    /// Watches the work tree for the `workspace` channel.
    work_tree: Option<PathWaker>,
    /// Tells of news, once there is some.
    notifier: Option<Notifier>,
    /// What the whole project has used today, if somebody asks for a limit of it.
    day_book: Option<DayBook>,
    sampler: Sampler,
    /// What comes next takes its time: before it the code that has run is given back; and when it last was.
    drowsy: bool,
    rested: Awake,
}

/// What stays the same for the whole run.
struct Paths {
    run_dir: PathBuf,
    state_dir: PathBuf,
    work_dir: PathBuf,
    loop_dir: PathBuf,
    lock: Lock,
    nonce: String,
    run_id: RunId,
}

impl<'f> Driver<'f> {
    /// Must be called before any other thread exists: it takes the process's signals.
    pub fn new(setup: Setup, front: &'f mut dyn Reporter) -> io::Result<Driver<'f>> {
        // What is ignored stays so: HUP under nohup, INT of a shell script's background job.
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
            coverage_told: false,
            digester,
            prompter: Prompter::new(setup.loop_file, &setup.loop_text, templates),
            drafts: BTreeMap::new(),
            setup: Paths {
                run_dir: setup.run_dir,
                state_dir: setup.state_dir,
                work_dir: setup.work_dir,
                loop_dir,
                lock: setup.lock,
                nonce: setup.nonce,
                run_id: setup.run_id,
            },
            run: setup.run,
            front,
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
            drowsy: false,
            rested: Awake(0),
        })
    }

    /// Where others leave word for the run.
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// Before a long sleep: what ran to get here need not stay in memory.
    fn rest(&mut self) {
        if std::mem::take(&mut self.drowsy) {
            give_back_code();
            self.rested = clock::awake();
        }
    }

    /// Drives the run to its end; answers the exit code.
    pub fn drive(mut self, news: Vec<Input>) -> io::Result<u8> {
        self.front.begin().map_err(|error| {
            let help = "raise the limit of processes (ulimit -u)";
            io::Error::new(error.kind(), format!("cannot start a thread: {error}; {help}"))
        })?;
        self.todo.push_back(Input::Began);
        self.todo.extend(news);
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
                if self.waiting.is_empty() {
                    self.rest();
                }
                self.listen()?;
            }
        }
    }

    fn step(&mut self, input: Input) {
        for decision in self.run.step(clock::now(), input) {
            match decision {
                Decision::Record(recorded) => self.record.add(*recorded, &mut self.todo),
                effect => self.effects.push(effect),
            }
        }
    }

    /// All that was decided at once needs the disk once: what many nodes begin and end together costs one sync.
    ///
    /// Jobs are started one by one, and between two of them everybody is listened to: while hundreds of sessions are
    /// started those that run are judged in time.
    fn carry_out_all(&mut self) {
        let effects = std::mem::take(&mut self.effects);
        // Prompts are read last: they take longest, and nobody who is to be ended waits for them.
        let (prompts, others): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|e| matches!(e, Decision::AssemblePrompt { .. }));
        // Reading, and ending what is dead, leave no trace that the record must precede.
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
                effect => self.carry_out(effect),
            }
        }
        if let Some((job, durable)) = self.waiting.pop_front() {
            self.start_its_turn(job, durable);
        }
        self.forget_drafts();
    }

    fn start_its_turn(&mut self, job: Job, durable: bool) {
        if let Some(detail) = self.record.lost(&mut self.todo) {
            let error = format!("the record is lost: {detail}");
            self.todo.push_back(Input::JobRefused { job, error });
        } else if (durable && !self.record.is_broken()) || self.settle() {
            self.start(job);
        } else {
            self.record.withhold(job);
        }
    }

    /// Writes and syncs what was recorded, then shows it. False if it could not be written.
    fn settle(&mut self) -> bool {
        let durable = self.record.settle(&mut self.todo);
        for event in self.record.take_unshown() {
            match &event.event {
                Event::WaitStarted { delay_s, .. } => {
                    self.tell_coverage();
                    self.drowsy |= delay_s.is_none_or(|delay| delay >= REST);
                }
                Event::SessionStarted { .. } => {
                    self.drowsy |= clock::awake().since(self.rested) >= REST;
                }
                _ => {}
            }
            self.front.show(&event, self.run.view());
        }
        durable
    }

    /// If not every wake path can be watched, that is told once, before somebody relies on it.
    fn tell_coverage(&mut self) {
        let coverage = self.waker.as_ref().and_then(PathWaker::coverage);
        if let (false, Some(coverage)) = (self.coverage_told, coverage) {
            self.coverage_told = true;
            if !matches!(coverage, Coverage::Watched { .. }) {
                self.todo.push_back(Input::Noticed { kind: "wake_paths", message: coverage.to_string() });
            }
        }
    }

    /// Before money is spent: how much of it is left today.
    fn read_day_book(&mut self) {
        if self.day_book.is_none() {
            return;
        }
        // What this run has used stands in its own journal, too.
        self.settle();
        let read = self.day_book.as_mut().map(|book| book.read(clock::now().wall));
        self.todo.extend(read.map(|read| match read {
            Ok(day) => Input::DayUsed(day),
            Err(error) => {
                let detail = format!("what the project has used today cannot be read: {error}");
                Input::TroubleMet { kind: "day_budget", detail }
            }
        }));
    }

    fn carry_out(&mut self, effect: Decision) {
        match effect {
            Decision::Record(_) | Decision::Start(_) => {}
            Decision::AssemblePrompt { node, iteration, told, sight, brief } => {
                self.read_day_book();
                self.assemble(node, iteration, &Wanted { told, sight, brief });
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

    /// Who is to be ended before its turn to start has come is not started.
    fn end(&mut self, job: Job, order: Order) {
        let before = self.waiting.len();
        self.waiting.retain(|(waits, _)| *waits != job);
        if self.waiting.len() < before {
            let error = "not started: it was to end before its turn came".to_owned();
            self.todo.push_back(Input::JobRefused { job, error });
        } else if self.record.unwithhold(job) {
            let error = "not started: the record cannot be written".to_owned();
            self.todo.push_back(Input::JobRefused { job, error });
        } else {
            self.signal(job, order);
        }
    }

    /// Appends why the run went to sleep to `decisions.jsonl` beside the runs.
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
    /// A session with a worktree of its own is seen at work there and nowhere else.
    fn watch_own_tree(&self, job: Job) -> Option<PathWaker> {
        let own = self.own_tree(job.node).filter(|_| job.kind == JobKind::Session)?;
        let inbox = self.inbox.clone();
        let tell = move |digest| {
            inbox.post(Mail::WorkTreeChanged { node: Some(job.node), digest });
        };
        PathWaker::watch_tree(&own, &outputs::own_files(), tell).ok()
    }
}

/// What dogwatch itself writes in the work tree: its state, and its output if that goes into files there.
fn ours(setup: &Setup) -> Vec<PathBuf> {
    [vec![setup.state_dir.clone()], outputs::own_files()].concat()
}

/// Evidence of work is welcome, not needed: without a watcher the other channels decide.
fn watch_work_tree(setup: &Setup, inbox: &Inbox) -> Option<PathWaker> {
    let inbox = inbox.clone();
    PathWaker::watch_tree(&setup.work_dir, &ours(setup), move |digest| {
        inbox.post(Mail::WorkTreeChanged { node: None, digest });
    })
    .ok()
}

fn start_waker(setup: &Setup, inbox: &Inbox) -> io::Result<Option<PathWaker>> {
    // A wake goes to the whole run, so what any node is woken by is looked after for all.
    let paths = setup.run.plan().nodes.iter().flat_map(|node| &node.settings.wake_on.paths);
    let globs: BTreeSet<&String> = paths.collect();
    if globs.is_empty() {
        return Ok(None);
    }
    let globs: Vec<String> = globs.into_iter().cloned().collect();
    let inbox = inbox.clone();
    let ours = ours(setup);
    PathWaker::start(&setup.work_dir, &globs, &ours, move |_| {
        inbox.post(Mail::Asked(Input::WakeAsked(WaitEndedBy::Path)));
    })
    .map(Some)
}
