//! The simulated world. It owns the clock and jumps from one event to the next.

use crate::act::{Act, Keeper};
use crate::check;
use crate::plan;
use dogwatch_core::Run;
use dogwatch_core::learn::Arrivals;
use dogwatch_core::record::event::{EndStep, Event, InputDigest, Pin, Recorded, RunEnded, WaitEndedBy};
use dogwatch_core::record::ids::{Iteration, NodeIx, NodeName};
use dogwatch_core::record::notification::Delivery;
use dogwatch_core::record::view::View;
use dogwatch_core::record::windows::WindowsUsed;
use dogwatch_core::run::ResumeError;
use dogwatch_core::run::decision::{ContextEntry, Decision, PromptContext};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Arranged, Commit, Exit, Job, JobKind, Snapshot, Worktree};
use dogwatch_core::settings::Plan;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Boot, Moment, Wall};
use dogwatch_core::watch::Fact;
use std::collections::BTreeMap;

/// The most steps of a simulation. No valid test needs more, so a livelock fails instead of hanging.
const MAX_STEPS: usize = 5_000_000;
/// The start of the simulation: a night in late 2026, so that times in failures look realistic.
const EPOCH: i64 = 1_794_773_733_000;

/// A simulated run with scripted processes and virtual time.
pub struct World {
    run: Run,
    now: Moment,
    /// The planned inputs, ordered by time and then by the order of planning.
    agenda: BTreeMap<(u64, u64), Input>,
    planned: u64,
    script: Box<dyn FnMut(Job) -> Act>,
    /// The live process trees, at most one per node.
    live: BTreeMap<NodeIx, Live>,
    /// The recorded events.
    pub events: Vec<Recorded>,
    /// When each session started, in milliseconds since the beginning.
    pub sessions: Vec<u64>,
    /// The exit code, once the run has finished.
    pub exit_code: Option<u8>,
    keep_events: bool,
    sees: Box<dyn FnMut(u64) -> InputDigest>,
    /// Returns the content of the files that the checks depend on.
    pins: Box<dyn FnMut(Iteration) -> Result<Vec<Pin>, String>>,
    /// Returns the hash of the work tree after an iteration.
    trees: Box<dyn FnMut(Iteration) -> Option<String>>,
    /// The prompt context of each session.
    pub prompt_contexts: Vec<PromptContext>,
    /// The files that hold partial work.
    pub partials: Vec<String>,
    /// The context entries that were stored.
    pub context: Vec<ContextEntry>,
    /// Whether storing a context entry fails.
    pub context_fails: bool,
    /// The notifications, with their times in milliseconds since the beginning.
    pub notifications: Vec<(u64, Delivery)>,
    /// How long a notification takes; `None` means that it never completes.
    pub notification_takes: Option<Dur>,
    /// Whether notifications fail.
    pub notification_fails: bool,
    /// How many events were recorded before the last effect; later events may be lost in a crash.
    settled: usize,
    /// How many crashes the run has survived.
    pub crashes: u64,
}

struct Live {
    job: Job,
    act: Act,
    /// Whether it has obeyed a signal.
    exited: bool,
}

/// How far to drive.
#[derive(Clone, Copy, Debug)]
pub enum Drive {
    /// Until the run has ended.
    ToTheEnd,
    /// Until this time since the beginning.
    Until(Dur),
}

impl World {
    /// Creates a run of this plan. `script` defines the behavior of its sessions and commands.
    pub fn new(plan: Plan, script: impl FnMut(Job) -> Act + 'static) -> World {
        let now = Moment { awake: Awake(1_000), boot: Boot(5_000), wall: Wall(EPOCH) };
        let mut world = World {
            run: Run::new(plan::started(plan.clone()), plan),
            now,
            agenda: BTreeMap::new(),
            planned: 0,
            script: Box::new(script),
            live: BTreeMap::new(),
            events: Vec::new(),
            sessions: Vec::new(),
            exit_code: None,
            keep_events: true,
            sees: Box::new(|_| InputDigest { prompt: "p".to_owned(), tree: "t".to_owned() }),
            pins: Box::new(|_| Ok(Vec::new())),
            trees: Box::new(|_| None),
            prompt_contexts: Vec::new(),
            partials: Vec::new(),
            context: Vec::new(),
            context_fails: false,
            notifications: Vec::new(),
            notification_takes: Some(Dur::ZERO),
            notification_fails: false,
            settled: 0,
            crashes: 0,
        };
        world.plan_in(Dur::ZERO, Input::Began);
        world
    }

    /// Discards events, for runs with more events than fit in memory.
    pub fn forgetting(mut self) -> World {
        self.keep_events = false;
        self
    }

    /// Sets the input digest of the agent at a time, given in milliseconds since the beginning.
    pub fn seeing(mut self, sees: impl FnMut(u64) -> InputDigest + 'static) -> World {
        self.sees = Box::new(sees);
        self
    }

    /// Sets the content of the pinned files in an iteration.
    pub fn pinning(mut self, pins: impl FnMut(Iteration) -> Result<Vec<Pin>, String> + 'static) -> World {
        self.pins = Box::new(pins);
        self
    }

    /// Sets what the nodes learned in earlier runs.
    pub fn knowing(mut self, learned: BTreeMap<NodeName, Arrivals>) -> World {
        self.run.learn_from(learned);
        self
    }

    /// Sets what other runs learned about the windows of accounts.
    pub fn knowing_windows(mut self, windows: Vec<WindowsUsed>) -> World {
        self.run.know_windows(windows);
        self
    }

    /// Sets the hash of the work tree after an iteration; 0 is the tree before the first.
    pub fn with_trees(mut self, trees: impl FnMut(u64) -> String + 'static) -> World {
        let mut trees = trees;
        self.trees = Box::new(move |iteration| Some(trees(iteration.0)));
        self
    }

    /// Plans an input at `after` since the beginning.
    pub fn at(mut self, after: Dur, input: Input) -> World {
        self.plan_in(after, input);
        self
    }

    /// Returns the run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the milliseconds since the beginning.
    pub fn elapsed(&self) -> u64 {
        self.now.awake.0 - 1_000
    }

    /// Drives the run and checks the invariants of every run.
    pub fn drive(&mut self, how_far: Drive) -> &mut World {
        for _ in 0..MAX_STEPS {
            if self.exit_code.is_some() || !self.advance(how_far) {
                if self.keep_events {
                    check::all(&self.events, self.run.view());
                }
                return self;
            }
        }
        panic!("still not there after {MAX_STEPS} steps: a livelock");
    }

    /// Drives the run to its end and returns it. Panics if the run does not end.
    pub fn end(&mut self) -> RunEnded {
        self.drive(Drive::ToTheEnd);
        self.run.view().ended.clone().expect("driven to the end, so it ended")
    }

    /// Returns the events of the run's life cycle as words: `iteration_started`, `wait_started idle 30`…
    pub fn story(&self) -> Vec<String> {
        self.events.iter().filter_map(|r| check::word(&r.event)).collect()
    }

    /// Returns the lengths of the waits.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    pub fn waits(&self) -> Vec<u64> {
        let wait = |r: &Recorded| match &r.event {
            Event::WaitStarted { delay_s: Some(delay), .. } => Some(delay.as_millis()),
            _ => None,
        };
        self.events.iter().filter_map(wait).collect()
    }

    /// Simulates `kill -9` and a later resume. The last `lost` events without an effect are gone, and the keeper has
    /// ended all processes. Returns false if the record did not even have its first line.
    pub fn crash(&mut self, lost: usize, down: Dur, wake: bool) -> Result<bool, ResumeError> {
        let keep = self.events.len().saturating_sub(lost).max(self.settled);
        let view = View::fold(&self.events[..keep]);
        let run = match Run::resume(view, None, plan::resumed(), wake) {
            Err(ResumeError::NeverStarted) => return Ok(false),
            other => other?,
        };
        self.events.truncate(keep);
        self.run = run;
        self.live.clear();
        self.exit_code = None;
        self.crashes += 1;
        self.agenda.retain(|_, input| is_from_outside(input));
        self.now = self.now.plus(down);
        // `Began` must be the first input of a run, whatever else is due by now.
        self.agenda.insert((0, 0), Input::Began);
        Ok(true)
    }

    /// Takes one step; false when there is nothing left to do.
    pub fn step_once(&mut self) -> bool {
        self.exit_code.is_none() && self.advance(Drive::ToTheEnd)
    }

    /// Checks the invariants of every run.
    pub fn check(&self) {
        check::all(&self.events, self.run.view());
    }

    /// Sets the wall clock back; the other clocks are not affected.
    pub fn set_clock_back(&mut self, by: Dur) {
        self.now.wall = Wall(self.now.wall.0.saturating_sub_unsigned(by.as_millis()));
    }

    /// Plans an input for the current moment.
    pub fn now(&mut self, input: Input) {
        self.plan_in(Dur::ZERO, input);
    }

    fn plan_in(&mut self, after: Dur, input: Input) {
        self.planned += 1;
        self.agenda.insert((self.now.awake.plus(after).0, self.planned), input);
    }

    /// Jumps to the next input or timer. Returns false if there is none, or if the drive is over.
    fn advance(&mut self, how_far: Drive) -> bool {
        let wakeup = self.run.next_wakeup();
        let clocks = [wakeup.awake.map(|a| a.0), wakeup.boot.map(|b| b.0 - self.boot_lead())];
        let due = clocks.into_iter().flatten().min();
        let planned = self.agenda.keys().next().copied();
        let input = match (planned, due) {
            (Some(key), due) if due.is_none_or(|d| key.0 <= d) => {
                if !self.jump(key.0, how_far) {
                    return false;
                }
                self.agenda.remove(&key).expect("the key exists")
            }
            (_, Some(due)) => {
                if !self.jump(due, how_far) {
                    return false;
                }
                Input::TimePassed
            }
            (_, None) => return false,
        };
        self.step(input);
        true
    }

    fn boot_lead(&self) -> u64 {
        self.now.boot.0 - self.now.awake.0
    }

    fn jump(&mut self, awake: u64, how_far: Drive) -> bool {
        if let Drive::Until(limit) = how_far
            && awake > 1_000 + limit.as_millis()
        {
            return false;
        }
        // Inputs that were due while dogwatch was down are delivered now.
        self.now = self.now.plus(Awake(awake).since(self.now.awake));
        true
    }

    fn step(&mut self, input: Input) {
        for decision in self.run.step(self.now, input) {
            if leaves_trace(&decision) {
                self.settled = self.events.len();
            }
            match decision {
                Decision::Record(recorded) if self.keep_events => self.events.push(*recorded),
                Decision::Record(_) => {}
                Decision::Start(job) => self.start(job),
                Decision::AssemblePrompt { node, iteration, input_digest, prompt_context, .. } => {
                    if self.keep_events {
                        self.prompt_contexts.push(*prompt_context);
                    }
                    let input_digest = input_digest.then(|| (self.sees)(self.now.awake.0 - 1_000));
                    let sha256 = "00".to_owned();
                    self.plan_in(
                        Dur::ZERO,
                        Input::PromptAssembled { node, iteration, bytes: 2, sha256, input_digest },
                    );
                }
                Decision::HashPins { node, iteration, tree } => {
                    let pins = (self.pins)(iteration);
                    let tree = if tree { (self.trees)(iteration) } else { None };
                    self.plan_in(Dur::ZERO, Input::PinsHashed { node, iteration, pins, tree });
                }
                Decision::KeepLog { .. } => {}
                Decision::KeepPartial { file, .. } => self.partials.push(file),
                Decision::KeepContext(entry) => {
                    self.context.push(*entry);
                    let error = self.context_fails.then(|| "disk full".to_owned());
                    self.plan_in(Dur::ZERO, Input::ContextKept { error });
                }
                Decision::Interrupt(job) => self.signal(job, EndStep::Interrupt),
                Decision::Terminate(job) => self.signal(job, EndStep::Terminate),
                Decision::Kill(job) => self.signal(job, EndStep::Kill),
                Decision::Sweep { job, .. } => self.swept(job),
                Decision::Nudge(job) => {
                    let stopped = self.live.get(&job.node).is_some_and(|l| l.act.keeper == Keeper::Stopped);
                    self.plan_in(Dur::ZERO, Input::KeeperSeen { job, stopped });
                }
                Decision::DropKeeper(job) => {
                    if self.live.get(&job.node).is_some_and(|l| l.job == job && !l.exited) {
                        self.plan_in(Dur::ZERO, Input::JobExited { job, exit: Exit::Signal(9) });
                    }
                    self.ended(job, Dur::ZERO);
                }
                Decision::Sample(job) => {
                    let busy = self.live.get(&job.node).filter(|live| live.act.is_busy);
                    let cpu_ms = busy.map_or(0, |_| self.now.awake.0);
                    let fact = Fact::Sampled { children: u32::from(busy.is_some()), cpu_ms };
                    self.plan_in(Dur::ZERO, Input::Noted { job, fact });
                }
                Decision::Notify(delivery) => {
                    let error = self.notification_fails.then(|| "no answer".to_owned());
                    let (key, how) = (delivery.notification.key.clone(), delivery.how);
                    self.notifications.push((self.elapsed(), *delivery));
                    if let Some(takes) = self.notification_takes {
                        self.plan_in(takes, Input::Notified { key, how, error });
                    }
                }
                Decision::RetryRecord => {}
                Decision::ReleaseKeepers => {
                    assert!(self.live.is_empty(), "a sleeping run has no process tree");
                }
                Decision::Finish { exit_code } => {
                    assert!(
                        self.live.is_empty(),
                        "the run ended while a process tree was alive: {:?}",
                        self.live.values().map(|l| (l.job, l.exited)).collect::<Vec<_>>()
                    );
                    self.exit_code = Some(exit_code);
                }
            }
        }
    }

    fn start(&mut self, job: Job) {
        assert!(!self.live.contains_key(&job.node), "{job:?} was started while another tree was alive");
        let act = (self.script)(job);
        if let Some(error) = &act.refused {
            let error = error.clone();
            return self.plan_in(Dur::ZERO, Input::JobRefused { job, error });
        }
        if let Some(error) = &act.unstarted {
            let error = error.clone();
            return self.plan_in(Dur::ZERO, Input::JobUnstarted { job, error });
        }
        self.plan_in(Dur::ZERO, Input::JobSent { job });
        if job.kind == JobKind::Session {
            self.sessions.push(self.elapsed());
        }
        self.plan_in(Dur::ZERO, Input::JobStarted { job, pid: 77, argv: vec!["agent".to_owned()] });
        if let (true, Some(lasts)) = (act.touches, act.lasts) {
            self.plan_in(Dur::from_millis(lasts.as_millis() / 2), Input::WakeAsked(WaitEndedBy::Path));
        }
        if let Some(lasts) = act.lasts {
            self.plan_in(lasts, Input::JobExited { job, exit: act.exit });
            if let Some(held) = act.holds_pipes {
                self.plan_in(lasts.saturating_add(held), Input::PipesClosed { job });
            }
        }
        self.live.insert(job.node, Live { job, act, exited: false });
    }

    /// Sends a signal to the tree, which exits unless it ignores this step.
    fn signal(&mut self, job: Job, step: EndStep) {
        let Some(live) = self.live.get_mut(&job.node).filter(|l| l.job == job) else { return };
        if live.act.keeper != Keeper::Reports {
            return;
        }
        if live.exited || live.act.ignores.contains(&step) {
            return;
        }
        live.exited = true;
        self.agenda.retain(
            |_, i| !matches!(i, Input::JobExited { job: j, .. } | Input::PipesClosed { job: j } if *j == job),
        );
        let exit = match step {
            EndStep::Interrupt => Exit::Code(0),
            EndStep::Terminate => Exit::Code(143),
            EndStep::Kill => Exit::Signal(9),
        };
        self.plan_in(Dur::ZERO, Input::JobExited { job, exit });
        if step == EndStep::Kill {
            self.ended(job, Dur::ZERO);
        }
    }

    fn swept(&mut self, job: Job) {
        let reports = |live: &&Live| live.job == job && live.act.keeper == Keeper::Reports;
        if let Some(live) = self.live.get(&job.node).filter(reports) {
            let takes = live.act.sweep;
            self.ended(job, takes);
        }
    }

    fn ended(&mut self, job: Job, after: Dur) {
        if let Some(live) = self.live.remove(&job.node) {
            let mut report = live.act.report;
            if job.kind == JobKind::Snapshot && live.act.exit == Exit::Code(0) && !live.exited {
                let (name, tree) = (format!("refs/{}", job.iteration), (self.trees)(job.iteration));
                report.snapshot = Some(Snapshot::Taken { name, files: 1, skipped: 0, tree });
            }
            if job.kind == JobKind::Worktree && live.act.exit == Exit::Code(0) && !live.exited {
                let (path, branch) = (format!("/trees/{}", job.node.0), format!("dogwatch/{}", job.node.0));
                let arranged = Arranged { path, branch, ..Arranged::default() };
                // A script may have a result of its own.
                report.worktree.get_or_insert(Worktree::Ready(arranged));
            }
            if job.kind == JobKind::Commit && live.act.exit == Exit::Code(0) && !live.exited {
                let (branch, commit) = (format!("dogwatch/{}", job.node.0), format!("c{}", job.node.0));
                report.commit = Some(Commit::Made { branch, commit, files: 1, skipped: 0 });
            }
            self.plan_in(after, Input::JobEnded { job, report: Box::new(report) });
        }
    }
}

/// Returns whether a decision has an effect, which must be recorded before it happens.
fn leaves_trace(decision: &Decision) -> bool {
    match decision {
        Decision::Record(_)
        | Decision::Sample(_)
        | Decision::AssemblePrompt { .. }
        | Decision::HashPins { .. }
        | Decision::Sweep { .. }
        | Decision::Nudge(_)
        | Decision::RetryRecord
        | Decision::ReleaseKeepers => false,
        Decision::Start(_)
        | Decision::Interrupt(_)
        | Decision::Terminate(_)
        | Decision::Kill(_)
        | Decision::DropKeeper(_)
        | Decision::KeepContext(_)
        | Decision::KeepLog { .. }
        | Decision::KeepPartial { .. }
        | Decision::Notify(_)
        | Decision::Finish { .. } => true,
    }
}

/// Returns whether an input comes from a person. Such inputs arrive even while dogwatch is down.
fn is_from_outside(input: &Input) -> bool {
    matches!(
        input,
        Input::Interrupted
            | Input::EndAsked(_)
            | Input::StopAsked
            | Input::StopAccepted
            | Input::WakeAsked(_)
            | Input::PauseAsked
            | Input::UnpauseAsked
            | Input::MessageReceived { .. }
    )
}
