//! The simulated machine on which dogwatch runs: clocks, a disk, processes with their keepers, and everything that other
//! threads would report. It implements the driver's `Shell`, so the driver of the simulation is the one of the program.
//!
//! The machine owns the time. When the driver sleeps, it jumps to the next thing that happens.

mod clock;
mod day;
mod disk;
mod leash;
mod mortal;
mod shell;
mod trees;

pub use clock::{Clocks, EPOCH};
pub use disk::{Disk, DiskFaults, DiskFile};
pub use leash::Holder;
pub use mortal::Mortal;
pub use shell::Stop;

use crate::act::{Act, Does};
use crate::check;
use day::Day;
use dogwatch_core::drive::shell::{ChannelError, Mail, Report, Signaled};
use dogwatch_core::record::event::{InputDigest, Pin, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeIx, NodeName};
use dogwatch_core::record::notification::Delivery;
use dogwatch_core::run::agent_channel::AgentResponse;
use dogwatch_core::run::decision::{ContextEntry, PromptContext};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;
use dogwatch_core::settings::Plan;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Boot};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use trees::Tree;

/// Defines what the machine answers to a question.
pub(crate) type Script<Q, A> = Box<dyn FnMut(Q) -> A>;

/// Something that happens at a planned time.
#[derive(Debug)]
pub(crate) enum Happening {
    /// Another thread or a client posts an input.
    Posted(Input),
    /// dogwatch receives a signal.
    Signaled(Signaled),
    /// The main process of a job exits by itself.
    Exits(u64),
    /// No process holds the pipes of a job any longer.
    PipesClose(u64),
    /// A keeper reports.
    Reports(NodeIx, Report),
    /// The agent of a job takes a step of its script.
    Does(u64, Does),
    /// The pump of a job reads its pipes.
    Pumps(u64),
    /// The processes of a job that survived KILL die.
    Dies(u64),
    /// The keeper of a job dies.
    KeeperDies(u64),
    /// An idle keeper dies.
    IdleKeeperDies,
    /// The pause of the waker is over.
    WakerCalm,
    /// The machine is suspended for this long.
    Suspends(Dur),
    /// dogwatch is stopped for this long, and then continued if this is true.
    Stops(Dur, bool),
    /// dogwatch gets no CPU time for this long.
    Starves(Dur),
    /// The wall clock is set forward or back, in milliseconds.
    ClockSet(i64),
    /// The disk gets these faults.
    DiskFails(DiskFaults),
    /// Another program replaces or changes the journal.
    JournalTouched { removed: bool },
    /// A client asks for a copy of the view.
    ViewAsked,
    /// dogwatch is killed at its n-th act from now.
    Killed(u64),
    /// The holder of the leash writes a time.
    LeashWritten,
    /// The holder of the leash gives up.
    LeashDropped,
}

/// The simulated machine.
#[derive(Default)]
pub struct Machine {
    pub(crate) clocks: Clocks,
    /// The planned happenings, ordered by time and then by the order of planning.
    agenda: BTreeMap<(u64, u64), Happening>,
    planned: u64,
    /// Nothing happens after this time.
    pub(crate) limit: Option<u64>,
    pub(crate) life: Mortal,
    /// The disk.
    pub disk: Rc<RefCell<Disk>>,
    inbox: VecDeque<Mail<(), ()>>,
    signals: Vec<Signaled>,
    lost_idle: Vec<String>,
    waker_calm: bool,
    last_stop: Option<Awake>,
    script: Option<Script<Job, Act>>,
    /// The process trees, at most one per node.
    trees: BTreeMap<NodeIx, Tree>,
    /// Whether all happenings of one moment are reported together, with deadlines that are due.
    pub together: bool,
    /// The names of the nodes.
    names: Vec<NodeName>,
    prompts: BTreeSet<(NodeIx, Iteration)>,
    sees: Option<Script<u64, InputDigest>>,
    /// Returns the content of the files that the checks depend on.
    pins: Option<Script<Iteration, Result<Vec<Pin>, String>>>,
    /// Returns the hash of the work tree after an iteration.
    worktrees: Option<Script<Iteration, Option<String>>>,
    forgets: bool,
    /// The recorded events.
    pub events: Vec<Recorded>,
    /// When each session started, in milliseconds since the beginning.
    pub sessions: Vec<u64>,
    /// The exit code, once the run has finished.
    pub exit_code: Option<u8>,
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
    /// How long dogwatch takes to start a job.
    pub start_takes: Dur,
    /// The process that holds the leash, if there is one.
    pub(crate) holder: Option<Holder>,
    /// The end of the leash.
    leash: Option<Boot>,
    pub(crate) day: Day,
    /// The answers to requests of agents.
    pub answers: Vec<Result<AgentResponse, ChannelError>>,
    /// The warnings that were printed.
    pub warnings: Vec<String>,
    /// The real actions of the agents, for the checkers.
    pub truth: check::Truth,
}

impl Machine {
    pub(crate) fn new(names: Vec<NodeName>, plan: &Plan, script: Script<Job, Act>) -> Machine {
        let (script, notification_takes) = (Some(script), Some(Dur::ZERO));
        Machine { script, names, notification_takes, day: Day::of(plan), ..Machine::default() }
    }

    /// Discards events, for runs with more events than fit in memory.
    pub(crate) fn forget(&mut self) {
        self.forgets = true;
        self.disk.borrow_mut().forgets = true;
    }

    pub(crate) fn keeps_events(&self) -> bool {
        !self.forgets
    }

    pub(crate) fn set_digest(&mut self, sees: impl FnMut(u64) -> InputDigest + 'static) {
        self.sees = Some(Box::new(sees));
    }

    pub(crate) fn set_pins(&mut self, pins: impl FnMut(Iteration) -> Result<Vec<Pin>, String> + 'static) {
        self.pins = Some(Box::new(pins));
    }

    pub(crate) fn set_worktrees(&mut self, trees: impl FnMut(Iteration) -> Option<String> + 'static) {
        self.worktrees = Some(Box::new(trees));
    }

    fn worktree(&mut self, iteration: Iteration) -> Option<String> {
        self.worktrees.as_mut().and_then(|worktree| worktree(iteration))
    }

    /// Returns the milliseconds since the beginning, without suspends.
    pub fn elapsed(&self) -> u64 {
        self.clocks.elapsed()
    }

    /// Plans something at `after` from now.
    pub(crate) fn plan(&mut self, after: Dur, what: Happening) {
        self.planned += 1;
        self.agenda.insert((self.elapsed() + after.as_millis(), self.planned), what);
    }

    /// Returns whether anything waits for the driver.
    fn is_ready(&self) -> bool {
        let reports = self.trees.values().any(Tree::has_report);
        reports
            || !self.inbox.is_empty()
            || !self.signals.is_empty()
            || !self.lost_idle.is_empty()
            || self.waker_calm
    }

    /// The process is gone, and its keepers have ended all processes. Requests of people still arrive.
    pub(crate) fn dies(&mut self) {
        self.trees.clear();
        self.inbox.clear();
        self.signals.clear();
        self.lost_idle.clear();
        self.prompts.clear();
        (self.waker_calm, self.last_stop, self.exit_code) = (false, None, None);
        self.agenda.retain(|_, what| what.is_from_outside());
        self.life = Mortal::default();
        self.truth.forget();
    }

    /// Ends all faults. Planned external events no longer occur.
    pub(crate) fn calm(&mut self) {
        self.agenda.retain(|_, what| !what.is_from_outside());
        self.disk.borrow_mut().faults = DiskFaults::default();
        self.life.cancel_death();
        self.hold_leash();
        (self.context_fails, self.notification_fails) = (false, false);
        self.notification_takes = Some(Dur::ZERO);
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Posted(input) => self.posted(input),
            Happening::Signaled(signal) => self.signals.push(signal),
            Happening::Exits(number) => self.exits_by_itself(number),
            Happening::PipesClose(number) => self.pipes_close(number),
            Happening::Reports(node, report) => self.keeper_reports(node, report),
            Happening::Does(number, does) => self.agent_does(number, does),
            Happening::Pumps(number) => self.pumps(number),
            Happening::Dies(number) => self.empties(number, Dur::ZERO),
            Happening::KeeperDies(number) => self.keeper_dies(number),
            Happening::IdleKeeperDies => self.lost_idle.push("it was killed".to_owned()),
            Happening::WakerCalm => self.waker_calm = true,
            Happening::Suspends(lasts) => {
                self.truth.punctual = false;
                self.clocks.suspend(lasts);
            }
            Happening::Stops(lasts, continued) => {
                self.truth.punctual = false;
                self.last_stop = Some(self.clocks.now().awake);
                self.clocks.advance(lasts);
                if continued {
                    self.signals.push(Signaled::Continue);
                }
            }
            Happening::Starves(lasts) => {
                self.truth.punctual = false;
                self.clocks.advance(lasts);
            }
            Happening::ClockSet(by) => self.clocks.set_wall(by),
            Happening::DiskFails(faults) => self.disk.borrow_mut().faults = faults,
            Happening::JournalTouched { removed: true } => {
                self.disk.borrow_mut().moved = Some("events.jsonl was removed".to_owned());
            }
            Happening::JournalTouched { removed: false } => self.disk.borrow_mut().damage(),
            Happening::ViewAsked => self.inbox.push_back(Mail::ViewAsked(())),
            Happening::Killed(acts) => self.life.dies_in(acts),
            Happening::LeashWritten => self.leash_written(),
            Happening::LeashDropped => self.leash_dropped(),
        }
    }

    fn posted(&mut self, input: Input) {
        self.inbox.push_back(match check::job_of(&input) {
            Some(job) => Mail::FromSession { job, input },
            None => Mail::Input(input),
        });
    }
}

impl Happening {
    /// Returns whether this does not depend on the life of one dogwatch process.
    fn is_from_outside(&self) -> bool {
        if let Happening::Posted(input) = self {
            return matches!(
                input,
                Input::Interrupted
                    | Input::EndAsked(_)
                    | Input::StopAsked
                    | Input::StopAccepted
                    | Input::WakeAsked(_)
                    | Input::PauseAsked
                    | Input::UnpauseAsked
                    | Input::MessageReceived { .. }
                    | Input::VerdictLabeled { .. }
            );
        }
        matches!(
            self,
            Happening::Signaled(_)
                | Happening::IdleKeeperDies
                | Happening::Suspends(_)
                | Happening::Stops(..)
                | Happening::Starves(_)
                | Happening::ClockSet(_)
                | Happening::DiskFails(_)
                | Happening::JournalTouched { .. }
                | Happening::ViewAsked
                | Happening::Killed(_)
        )
    }
}
