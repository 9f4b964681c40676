//! The driver: one thread, one order of things. It tells the core what happened and does what the core
//! decides. Nothing else writes the record, talks to keepers or shows anything.
//!
//! It sleeps in one `poll` over the inbox, the signals, two clocks and the keeper; while an agent is
//! silent nothing here runs.
//!
//! The rule of the record: what stands before an effect is on disk before the effect. If it cannot be
//! written, what runs is supervised on, and starts are withheld until it can.

mod jobs;
mod record;

use crate::digest::Digester;
use crate::inbox::{Inbox, Mail};
use crate::journal::Journal;
use crate::keeper::{Keeper, Report, is_lost};
use crate::lock::Lock;
use crate::prompt::Prompter;
use crate::sys::{Clock, SignalFd, Timer, block, ignores};
use crate::wake::{Coverage, PathWaker};
use crate::{clock, journal};
use dogwatch_config::placeholders::CommandOutput;
use dogwatch_core::Run;
use dogwatch_core::decision::{ContextEntry, Decision};
use dogwatch_core::dur::Dur;
use dogwatch_core::event::{Event, Recorded, Sight, WaitEndedBy};
use dogwatch_core::ids::{Iteration, NodeIx, RunId};
use dogwatch_core::input::{EndSignal, Input};
use dogwatch_core::job::JobKind;
use dogwatch_core::moment::Moment;
use dogwatch_core::timer::Wakeup;
use dogwatch_core::view::View;
use jobs::Live;
use record::Record;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

/// How long we wait for a pump to hand over what is in the pipes before silence is judged.
const FLUSH_BOUND: Duration = Duration::from_millis(500);
/// How long we look at the work tree before we rather ask the agent.
const DIGEST_BOUND: Duration = Duration::from_secs(2);
/// Where a run that goes to sleep leaves word, in the state directory.
pub const CONTEXT_FILE: &str = "decisions.jsonl";
/// The clocks drift apart by less than this when nobody slept.
const SUSPENDED: Dur = Dur::from_secs(1);
/// How often the live line is drawn.
const TICK: Dur = Dur::from_secs(1);

/// What is shown while a run goes on. It must not block: a stuck terminal must not stop supervision.
pub trait Front {
    fn show(&mut self, event: &Recorded, view: &View);
    /// Called once a second if `ticks` says so, and never otherwise.
    fn tick(&mut self, now: Moment, view: &View);
    fn ticks(&self) -> bool;
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
    front: &'f mut dyn Front,
    record: Record,
    keeper: Option<Keeper>,
    live: Option<Live>,
    jobs_started: u64,
    prompter: Prompter,
    digester: Digester,
    /// Looks after `wake_on.paths`, if there are any.
    waker: Option<PathWaker>,
    /// What it cannot look after has been told.
    coverage_told: bool,
    /// The outputs of this iteration's commands, and its prompt.
    outputs: Vec<CommandOutput>,
    prompt: String,
    setup: Paths,
    inbox: Inbox,
    signals: SignalFd,
    awake: Timer,
    boot: Timer,
    ticker: Timer,
    armed: Wakeup,
    todo: VecDeque<Input>,
    exit_code: Option<u8>,
    /// When we last went to sleep: what passed since then passed unseen if we were stopped.
    looked: Moment,
    /// Watches the work tree for the `workspace` channel.
    work_tree: Option<PathWaker>,
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
    pub fn new(setup: Setup, front: &'f mut dyn Front) -> io::Result<Driver<'f>> {
        // What is ignored stays so: HUP under nohup, INT of a shell script's background job.
        let mut taken = vec![Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::CONT];
        taken.retain(|signal| !ignores(*signal));
        block(&taken)?;
        let signals = SignalFd::new(&taken)?;
        let inbox = Inbox::new()?;
        let waker = start_waker(&setup, &inbox)?;
        let work_tree = watch_work_tree(&setup, &inbox);
        let loop_dir = setup.loop_file.parent().map_or_else(|| setup.work_dir.clone(), PathBuf::from);
        Ok(Driver {
            record: Record::new(setup.journal),
            keeper: None,
            live: None,
            jobs_started: 0,
            waker,
            coverage_told: false,
            digester: Digester::new(&setup.work_dir, std::slice::from_ref(&setup.state_dir)),
            prompter: Prompter::new(setup.loop_file, &setup.loop_text),
            outputs: Vec::new(),
            prompt: String::new(),
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
            exit_code: None,
            looked: clock::now(),
            work_tree,
        })
    }

    /// Where others leave word for the run.
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// Drives the run to its end; answers the exit code.
    pub fn drive(mut self, news: Vec<Input>) -> io::Result<u8> {
        self.todo.push_back(Input::Began);
        self.todo.extend(news);
        loop {
            while let Some(input) = self.todo.pop_front() {
                self.step(input);
            }
            if let Some(code) = self.exit_code {
                return self.close(code);
            }
            self.settle();
            if self.todo.is_empty() {
                self.sleep()?;
            }
        }
    }

    fn step(&mut self, input: Input) {
        for decision in self.run.step(clock::now(), input) {
            match decision {
                Decision::Record(recorded) => self.record.add(*recorded, &mut self.todo),
                effect => {
                    // Reading, and ending what is dead, leave no trace that the record must precede.
                    let leaves_trace = !matches!(
                        effect,
                        Decision::AssemblePrompt { .. }
                            | Decision::Sample(_)
                            | Decision::Sweep { .. }
                            | Decision::RetryRecord
                    );
                    let durable = !leaves_trace || self.settle();
                    self.carry_out(effect, durable);
                }
            }
        }
    }

    /// Writes and syncs what was recorded, then shows it. False if it could not be written.
    fn settle(&mut self) -> bool {
        let durable = self.record.settle(&mut self.todo);
        for event in self.record.take_unshown() {
            if matches!(event.event, Event::WaitStarted { .. }) {
                self.tell_coverage();
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

    fn carry_out(&mut self, effect: Decision, durable: bool) {
        match effect {
            Decision::Record(_) => {}
            Decision::Start(job) if !self.record.is_in_place() => {
                let detail = format!("{} is gone", self.record.path().display());
                self.todo
                    .push_back(Input::JobRefused { job, error: format!("the record is lost: {detail}") });
                self.todo.push_front(Input::RecordLost { detail });
            }
            Decision::Start(job) if !durable => self.record.withhold(job),
            Decision::Start(job) => self.start(job),
            Decision::AssemblePrompt { node, iteration, told, sight } => {
                self.assemble(node, iteration, &told, sight);
            }
            Decision::KeepContext(entry) => {
                let error = self.keep_context(&entry).err().map(|e| e.to_string());
                self.todo.push_back(Input::ContextKept { error });
            }
            Decision::Interrupt(job) | Decision::Terminate(job) | Decision::Kill(job)
                if self.record.unwithhold(job) =>
            {
                self.todo.push_back(Input::JobRefused {
                    job,
                    error: "not started: the record cannot be written".into(),
                });
            }
            Decision::Interrupt(job) => self.signal(job, crate::keeper::Order::Interrupt),
            Decision::Terminate(job) => self.signal(job, crate::keeper::Order::Terminate),
            Decision::Kill(job) => self.signal(job, crate::keeper::Order::Kill),
            Decision::Sample(job) => self.sample(job),
            Decision::Sweep { job, grace } => self.sweep(job, grace),
            Decision::RetryRecord => self.retry_record(),
            Decision::Finish { exit_code } => self.exit_code = Some(exit_code),
        }
    }

    fn assemble(&mut self, node: NodeIx, iteration: Iteration, told: &[String], sight: bool) {
        let plan = &self.run.plan().nodes[node.0];
        let assembled = self.prompter.assemble(plan, iteration, &self.outputs, told);
        self.outputs.clear();
        self.prompt = assembled.text;
        self.todo.extend(assembled.news);
        let sight = if sight { self.sight(&assembled.key) } else { None };
        let sha256 = sha256(&self.prompt);
        let bytes = self.prompt.len() as u64;
        self.todo.push_back(Input::PromptAssembled { node, iteration, bytes, sha256, sight });
    }

    /// What the agent is about to see. If the work tree cannot be told in time, nothing is skipped.
    fn sight(&mut self, key: &str) -> Option<Sight> {
        let tree = match self.digester.digest(DIGEST_BOUND) {
            Ok(tree) => tree,
            Err(error) => {
                let detail = format!("{error}; the agent is asked");
                self.todo.push_back(Input::TroubleMet { kind: "work_tree_digest", detail });
                return None;
            }
        };
        Some(Sight { prompt: sha256(key), tree })
    }

    /// Appends why the run went to sleep to `decisions.jsonl` beside the runs.
    fn keep_context(&self, entry: &ContextEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let path = self.setup.state_dir.join(CONTEXT_FILE);
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(&line)?;
        file.sync_data()
    }

    fn retry_record(&mut self) {
        let room = self.record.withheld().iter().all(|job| self.keep_prompt(*job).is_ok());
        if room && self.record.retry() {
            self.todo.push_back(Input::RecordRecovered);
            for job in self.record.take_withheld() {
                self.start(job);
            }
        }
    }

    /// Sleeps until something happens, and notes what it was.
    fn sleep(&mut self) -> io::Result<()> {
        self.arm()?;
        let ready = {
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.inbox.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.awake.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.boot.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.ticker.as_fd(), PollFlags::IN),
            ];
            fds.extend(self.keeper.as_ref().map(|k| PollFd::from_borrowed_fd(k.as_fd(), PollFlags::IN)));
            self.looked = clock::now();
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let mut ready = [false; 6];
            for (slot, fd) in ready.iter_mut().zip(&fds) {
                *slot = !fd.revents().is_empty();
            }
            ready
        };
        self.note_suspend();
        let [mail, signals, awake, boot, tick, keeper] = ready;
        if signals {
            self.take_signals()?;
        }
        if mail {
            self.take_mail();
        }
        if keeper {
            self.take_reports();
        }
        if awake || boot {
            self.take_time()?;
        }
        if tick {
            self.ticker.drain()?;
            self.front.tick(clock::now(), self.run.view());
        }
        Ok(())
    }

    /// The boot clock runs on while the host sleeps and the awake clock does not.
    fn note_suspend(&mut self) {
        let now = clock::now();
        let (boot, awake) = (now.boot.since(self.looked.boot), now.awake.since(self.looked.awake));
        let lasted = boot.saturating_sub(awake);
        if lasted >= SUSPENDED {
            self.todo.push_back(Input::Suspended { lasted, unwatched: false });
        }
    }

    fn arm(&mut self) -> io::Result<()> {
        let next = self.run.next_wakeup();
        if next != self.armed {
            let at = |ms: u64| Duration::from_millis(ms);
            match next.awake {
                Some(t) => self.awake.set_at(at(t.0))?,
                None => self.awake.clear()?,
            }
            match next.boot {
                Some(t) => self.boot.set_at(at(t.0))?,
                None => self.boot.clear()?,
            }
            self.armed = next;
        }
        if self.front.ticks() {
            let next = clock::awake().plus(TICK).0 / TICK.as_millis() * TICK.as_millis();
            self.ticker.set_at(Duration::from_millis(next))?;
        }
        Ok(())
    }

    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(number) = self.signals.take()? {
            let input = match number {
                n if n == Signal::INT.as_raw() => Input::Interrupted,
                n if n == Signal::TERM.as_raw() => Input::EndAsked(EndSignal::Terminate),
                n if n == Signal::HUP.as_raw() => Input::EndAsked(EndSignal::HangUp),
                n if n == Signal::CONT.as_raw() => {
                    // Stopped, we saw nothing; since when is not known, but not before we last looked.
                    let lasted = clock::awake().since(self.looked.awake);
                    self.todo.push_front(Input::Suspended { lasted, unwatched: true });
                    continue;
                }
                _ => Input::WakeAsked(WaitEndedBy::Signal),
            };
            self.todo.push_back(input);
        }
        Ok(())
    }

    /// A change counts for the session that runs; what it was is not asked.
    fn work_tree_changed(&mut self) {
        if let Some(watcher) = &self.work_tree {
            watcher.rearm();
        }
        let Some(live) = self.live.as_mut().filter(|l| l.started && l.job.kind == JobKind::Session) else {
            return;
        };
        let job = live.job;
        if let Some(seen) = live.workspace.saw(clock::awake(), 1, 0) {
            self.todo.push_back(Input::Observed { job, seen });
        }
    }

    fn take_mail(&mut self) {
        for mail in self.inbox.take() {
            self.todo.push_back(match mail {
                Mail::FromSession { job, input } => {
                    // An agent may be quicker than the keeper's word that it has started.
                    match self.live.as_mut().filter(|live| live.job == job && !live.started) {
                        Some(live) => {
                            live.early.push(input);
                            continue;
                        }
                        None => input,
                    }
                }
                Mail::WorkTreeChanged => {
                    self.work_tree_changed();
                    continue;
                }
                Mail::PipesClosed { job } => Input::PipesClosed { job },
                Mail::Asked(input) => {
                    // Every change counts, those during a session too: what it means is the core's.
                    if let (Input::WakeAsked(WaitEndedBy::Path), Some(waker)) = (&input, &self.waker) {
                        waker.rearm();
                    }
                    input
                }
                Mail::ViewAsked(reply) => {
                    // Whoever asked may have given up; that is theirs.
                    let _ = reply.try_send(self.run.view().clone());
                    continue;
                }
            });
        }
    }

    /// A deadline may have come. What the agent printed before it is taken in first: silence is judged
    /// only with empty pipes.
    fn take_time(&mut self) -> io::Result<()> {
        self.awake.drain()?;
        self.boot.drain()?;
        self.armed = Wakeup::default();
        if let Some(live) = &self.live {
            live.flush(FLUSH_BOUND);
            self.take_mail();
        }
        if let Some(live) = &mut self.live
            && let Some(seen) = live.workspace.flush(clock::awake())
        {
            self.todo.push_back(Input::Observed { job: live.job, seen });
        }
        self.todo.push_back(Input::TimePassed);
        Ok(())
    }

    fn take_reports(&mut self) {
        while let Some(keeper) = &mut self.keeper {
            match keeper.receive() {
                Ok(Some(report)) => self.take_report(report),
                Ok(None) => return,
                Err(error) if is_lost(&error) => return self.keeper_lost(error.to_string()),
                Err(error) => return self.keeper_lost(format!("its socket failed: {error}")),
            }
        }
    }

    fn take_report(&mut self, report: Report) {
        let Some(live) = &mut self.live else { return };
        let of_live = |job: u64| job == live.number;
        match report {
            Report::Started { job, pid } if of_live(job) => {
                self.todo.push_back(Input::JobStarted {
                    job: live.job,
                    pid,
                    argv: std::mem::take(&mut live.argv),
                });
                live.started = true;
                live.main = Some(pid);
                self.todo.extend(live.early.drain(..));
            }
            Report::Refused { job, message, .. } if of_live(job) => self.refused(message),
            Report::Exited { job, how, alone, .. } if of_live(job) => {
                let exit = jobs::exit_of(how);
                live.alone = alone;
                live.exit = Some(exit);
                self.todo.push_back(Input::JobExited { job: live.job, exit });
            }
            Report::Empty { job, killed } if of_live(job) => self.job_ended(killed),
            Report::Stands { job, left, detail } if of_live(job) => {
                self.todo
                    .push_back(Input::TreeStands { job: live.job, detail: jobs::standing(left, &detail) });
            }
            // Of a job that is over, or the greeting.
            Report::Ready { .. }
            | Report::Started { .. }
            | Report::Refused { .. }
            | Report::Exited { .. }
            | Report::Empty { .. }
            | Report::Stands { .. } => {}
        }
    }

    /// The run is over: the keeper goes first, then the lock is free.
    fn close(mut self, code: u8) -> io::Result<u8> {
        self.settle();
        // There may be room by now, and the last words matter most.
        self.record.retry();
        let clean = self.live.is_none();
        if let Some(keeper) = self.keeper.take() {
            keeper.shut_down()?;
        }
        if clean {
            self.setup.lock.clear()?;
        }
        Ok(code)
    }
}

/// Evidence of work is welcome, not needed: without a watcher the other channels decide.
fn watch_work_tree(setup: &Setup, inbox: &Inbox) -> Option<PathWaker> {
    let inbox = inbox.clone();
    let ours = [setup.state_dir.clone()];
    let everything = ["**".to_owned()];
    PathWaker::start(&setup.work_dir, &everything, &ours, move |_| {
        inbox.post(Mail::WorkTreeChanged);
    })
    .ok()
}

fn start_waker(setup: &Setup, inbox: &Inbox) -> io::Result<Option<PathWaker>> {
    let globs = &setup.run.plan().nodes[0].settings.wake_on.paths;
    if globs.is_empty() {
        return Ok(None);
    }
    let inbox = inbox.clone();
    let ours = [setup.state_dir.clone()];
    PathWaker::start(&setup.work_dir, globs, &ours, move |_| {
        inbox.post(Mail::Asked(Input::WakeAsked(WaitEndedBy::Path)));
    })
    .map(Some)
}

fn sha256(text: &str) -> String {
    journal::hex(&Sha256::digest(text.as_bytes()))
}
