//! The shell of a run: carries out what the driver in `dogwatch_core::drive` decides, with processes, files, clocks
//! and signals. It alone writes the record, talks to keepers and calls the reporter.
//!
//! The driver's thread sleeps in one `poll` over the inbox, the signals, two clocks and the keepers. While the agents
//! are silent, nothing here runs.

mod agent_channel;
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
mod sandboxing;
mod shell;
mod slots;
mod zone;

use crate::absence::Stops;
use crate::driver::inbox::{Inbox, Mail};
use crate::fs::digest::Digester;
use crate::fs::outputs;
use crate::fs::wake::{Coverage, PathWaker};
use crate::git::snapshot::Pristine;
use crate::leash::{KeeperLeash, Leash};
use crate::net::notify::Notifier;
use crate::process::sample::Sampler;
use crate::prompt::Prompter;
use crate::prompt::recovery::Templates;
use crate::sandbox::Ground;
use crate::store::day::DayBook;
use crate::store::home::{self, StateDir};
use crate::store::journal::Journal;
use crate::store::lock::Lock;
use crate::sys::{Clock, SignalFd, Timer, block, ignores};
use agent_channel::SessionFiles;
use dogwatch_core::Run;
use dogwatch_core::drive;
use dogwatch_core::record::event::{Recorded, Usage, WaitEndedBy};
use dogwatch_core::record::ids::{NodeIx, NodeName, RunId};
use dogwatch_core::record::prices::PriceTable;
use dogwatch_core::record::view::View;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::moment::Moment;
use dogwatch_core::time::timer::Wakeup;
use prompting::Prompts;
use rustix::process::Signal;
use sandboxing::Policies;
use slots::Slots;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use zone::Zone;

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

    /// Returns the view to which the output of sessions is passed, if it is shown.
    fn output(&self) -> Option<Arc<dyn OutputView>> {
        None
    }

    /// Prints a warning that cannot go into the record, because the run or its record is over.
    fn warn(&mut self, text: &str) {
        let _ = writeln!(io::stderr(), "dogwatch: {text}");
    }
}

/// Shows the stdout of sessions while they print. The threads that drain the output call it, so it must not block.
pub trait OutputView: Send + Sync {
    /// Shows more output of a session.
    fn output(&self, session: &SessionName, bytes: &[u8]);
    /// Shows the rest of an incomplete last line, when the output of a session has ended.
    fn over(&self, session: &SessionName);
}

/// A session, as its output is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionName {
    /// The node.
    pub node: NodeName,
    /// The reader that understands the output.
    pub reader: ReaderName,
    /// The directory in which the session works.
    pub work_dir: String,
    /// The agent's own session that this one resumes, and the usage that it was already charged with.
    pub resumed: Option<(String, Usage)>,
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
    /// The work tree of the sessions.
    pub ground: Ground,
    /// The locks of the loop.
    pub lock: Lock,
    /// The nonce of the run's processes.
    pub nonce: String,
    /// The leash of the run, if it has one.
    pub leash: Option<Leash>,
    /// The commit that the work tree is a fresh checkout of, if it is one.
    pub pristine: Option<Pristine>,
    /// The prices for agents that report only tokens.
    pub prices: PriceTable,
}

/// Drives one run on this machine. See the module documentation.
pub struct Driver<'f> {
    run: Run,
    journal: Journal,
    shell: HostShell<'f>,
    leash: Option<Leash>,
}

/// The outside world of a run. Each part belongs to one module of the driver.
struct HostShell<'f> {
    reporter: &'f mut dyn Reporter,
    paths: Paths,
    inbox: Inbox,
    signals: SignalFd,
    clocks: Clocks,
    /// The running jobs and all keepers.
    slots: Slots,
    session_files: SessionFiles,
    policies: Policies,
    prompts: Prompts,
    watchers: Watchers,
    /// Delivers notifications. Started with the first one.
    notifier: Option<Notifier>,
    /// The usage of the whole project today, if any day limit is set.
    day_book: Option<DayBook>,
    sampler: Sampler,
    zone: Zone,
    /// The end of the leash, for keepers.
    leash: Option<KeeperLeash>,
    prices: PriceTable,
}

/// Paths and identifiers that stay the same for the whole run.
struct Paths {
    run_dir: PathBuf,
    state_dir: PathBuf,
    work_dir: PathBuf,
    loop_dir: PathBuf,
    loop_file: PathBuf,
    ground: Ground,
    lock: Lock,
    nonce: String,
    run_id: RunId,
    pristine: Option<Pristine>,
}

/// The timers of the driver's sleep.
struct Clocks {
    awake: Timer,
    boot: Timer,
    ticker: Timer,
    /// Ends a pause of the waker.
    calm: Timer,
    /// The deadlines that the timers are set to.
    armed: Wakeup,
    stops: Stops,
}

/// The watchers of files.
struct Watchers {
    /// Watches `wake_on.paths`, if there are any.
    waker: Option<PathWaker>,
    /// Whether incomplete coverage of the wake paths was already reported.
    coverage_reported: bool,
    /// Watches the work tree for the `workspace` channel.
    work_tree: Option<PathWaker>,
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
        let watchers = Watchers {
            waker: start_waker(&setup, &inbox)?,
            coverage_reported: false,
            work_tree: watch_work_tree(&setup, &inbox),
        };
        let digester = Digester::new(&setup.work_dir, &ours(&setup));
        let loop_dir = setup.loop_file.parent().map_or_else(|| setup.work_dir.clone(), PathBuf::from);
        let names = setup.run.plan().nodes.iter().filter_map(|n| n.settings.recovery.template.as_deref());
        let templates = Templates::read(&loop_dir, names);
        let day_book = setup.run.plan().days().any(|day| day.is_set()).then(|| {
            DayBook::new(StateDir::at(setup.state_dir.clone()).runs(), setup.run_id.as_str().into())
        });
        let clocks = Clocks {
            awake: Timer::new(Clock::Awake)?,
            boot: Timer::new(Clock::Boot)?,
            ticker: Timer::new(Clock::Awake)?,
            calm: Timer::new(Clock::Awake)?,
            armed: Wakeup::default(),
            stops: Stops::start(),
        };
        let shell = HostShell {
            reporter,
            inbox,
            signals,
            clocks,
            slots: Slots::default(),
            session_files: SessionFiles::default(),
            policies: Policies::default(),
            prompts: Prompts::new(
                Prompter::new(setup.loop_file.clone(), &setup.loop_text, templates),
                digester,
            ),
            watchers,
            paths: Paths {
                run_dir: setup.run_dir,
                state_dir: setup.state_dir,
                work_dir: setup.work_dir,
                loop_dir,
                loop_file: setup.loop_file,
                ground: setup.ground,
                lock: setup.lock,
                nonce: setup.nonce,
                run_id: setup.run_id,
                pristine: setup.pristine,
            },
            notifier: None,
            day_book,
            sampler: Sampler::default(),
            zone: Zone::of(setup.run.plan()),
            leash: setup.leash.as_ref().map(Leash::for_keepers).transpose()?,
            prices: setup.prices,
        };
        Ok(Driver { run: setup.run, journal: setup.journal, shell, leash: setup.leash })
    }

    /// Returns a handle to the inbox.
    pub fn inbox(&self) -> Inbox {
        self.shell.inbox.clone()
    }

    /// Drives the run to its end and returns the exit code.
    pub fn drive(mut self, mut inputs: Vec<Input>) -> io::Result<u8> {
        inputs.extend(self.shell.zone.changed(crate::clock::now()));
        if let Some(leash) = self.leash {
            inputs.insert(0, Input::LeashRenewed { until: leash.until() });
            leash.follow(self.shell.inbox.clone())?;
        }
        self.shell.reporter.begin().map_err(|error| {
            let help = "raise the process limit (ulimit -u)";
            io::Error::new(error.kind(), format!("cannot start a thread: {error}; {help}"))
        })?;
        drive::Driver::new(self.run, self.journal.into_writer(), self.shell, inputs).drive()
    }
}

impl Watchers {
    /// Returns once why some wake paths are not watched, if they are not.
    fn uncovered(&mut self) -> Option<String> {
        let coverage =
            self.waker.as_ref().and_then(PathWaker::coverage).filter(|_| !self.coverage_reported)?;
        self.coverage_reported = true;
        (!matches!(coverage, Coverage::Watched { .. })).then(|| coverage.to_string())
    }

    fn rearm(&self) {
        if let Some(waker) = &self.waker {
            waker.rearm();
        }
    }
}

impl HostShell<'_> {
    /// Watches a session's own worktree, if it has one, instead of the shared work tree.
    fn watch_own_tree(&self, run: &Run, job: Job) -> Option<PathWaker> {
        let own = self.own_tree(run, job.node).filter(|_| job.kind == JobKind::Session)?;
        let inbox = self.inbox.clone();
        let post = move |digest| {
            inbox.post(Mail::WorkTreeChanged { node: Some(job.node), digest });
        };
        PathWaker::watch_tree(&own, &outputs::own_files(), post).ok()
    }

    fn rearm_tree(&mut self, owner: Option<NodeIx>) {
        let watcher = match owner {
            Some(node) => self.slots.node(node).and_then(|slot| slot.watcher.as_ref()),
            None => self.watchers.work_tree.as_ref(),
        };
        if let Some(watcher) = watcher {
            watcher.rearm();
        }
    }
}
/// Returns the paths that dogwatch itself writes in the work tree: its state, and output redirected to files.
fn ours(setup: &Setup) -> Vec<PathBuf> {
    [home::own_dirs(&setup.state_dir), outputs::own_files()].concat()
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
