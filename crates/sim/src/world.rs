//! A run on a simulated machine. Nothing here sleeps: the machine jumps from one happening to the next.

use crate::act::Act;
use crate::check;
use crate::machine::{DiskFile, Happening, Machine, Stop};
use crate::plan;
use dogwatch_core::Run;
use dogwatch_core::drive::journal::Journal;
use dogwatch_core::drive::{Driver, Turn};
use dogwatch_core::learn::Arrivals;
use dogwatch_core::record::event::{Event, InputDigest, Pin, Recorded, RunEnded, RunResumed};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::view::View;
use dogwatch_core::record::windows::WindowsUsed;
use dogwatch_core::run::ResumeError;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;
use dogwatch_core::settings::Plan;
use dogwatch_core::time::dur::Dur;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// The most turns of a simulation. No valid test needs more, so a livelock fails instead of hanging.
const MAX_TURNS: usize = 5_000_000;

/// A simulated run with scripted processes and virtual time. It gives access to its machine.
pub struct World {
    stage: Stage,
    /// How many crashes the run has survived.
    pub crashes: u64,
}

enum Stage {
    /// The run has not begun. The inputs are handled right after its beginning.
    Planned(Box<(Run, Machine)>, Vec<Input>),
    Driven(Box<Driver<Machine>>),
    /// Only while one stage replaces another.
    Between,
}

/// How far to drive.
#[derive(Clone, Copy, Debug)]
pub enum Drive {
    /// Until the run has ended.
    ToTheEnd,
    /// Until this time since the beginning.
    Until(Dur),
}

/// How a run is interrupted and continued.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// How many bytes of the journal are lost at most. Synced bytes are never lost.
    pub lost_bytes: usize,
    /// How long it takes until the run is resumed.
    pub down: Dur,
    /// Whether the machine reboots, which restarts its clocks.
    pub reboots: bool,
    /// Whether a sleeping run is woken.
    pub wake: bool,
    /// Whether a keeper notes when dogwatch ended.
    pub noticed: bool,
}

impl World {
    /// Creates a run of this plan. `script` defines the behavior of its sessions and commands.
    pub fn new(plan: Plan, script: impl FnMut(Job) -> Act + 'static) -> World {
        World::scripted(plan, Box::new(script))
    }

    /// Creates a run. Not generic like its caller, so that it is compiled once and not for every test.
    fn scripted(plan: Plan, script: Box<dyn FnMut(Job) -> Act>) -> World {
        let names = plan.nodes.iter().map(|node| node.name.clone()).collect();
        let machine = Machine::new(names, &plan, script);
        let run = Run::new(plan::started(plan.clone()), plan);
        World { stage: Stage::Planned(Box::new((run, machine)), Vec::new()), crashes: 0 }
    }

    /// Discards events, for runs with more events than fit in memory.
    pub fn forgetting(mut self) -> World {
        self.forget();
        self
    }

    /// Sets the input digest of the agent at a time, given in milliseconds since the beginning.
    pub fn seeing(mut self, sees: impl FnMut(u64) -> InputDigest + 'static) -> World {
        self.set_digest(sees);
        self
    }

    /// Sets the content of the pinned files in an iteration.
    pub fn pinning(mut self, pins: impl FnMut(Iteration) -> Result<Vec<Pin>, String> + 'static) -> World {
        self.set_pins(pins);
        self
    }

    /// Sets what the nodes learned in earlier runs.
    pub fn knowing(mut self, learned: BTreeMap<NodeName, Arrivals>) -> World {
        if let Stage::Planned(planned, _) = &mut self.stage {
            planned.0.learn_from(learned);
        }
        self
    }

    /// Sets what other runs learned about the windows of accounts.
    pub fn knowing_windows(mut self, windows: Vec<WindowsUsed>) -> World {
        if let Stage::Planned(planned, _) = &mut self.stage {
            planned.0.know_windows(windows);
        }
        self
    }

    /// Sets the hash of the work tree after an iteration; 0 is the tree before the first.
    pub fn with_trees(mut self, mut trees: impl FnMut(u64) -> String + 'static) -> World {
        self.set_worktrees(move |iteration| Some(trees(iteration.0)));
        self
    }

    /// Plans an input at `after` since the beginning.
    pub fn at(mut self, after: Dur, input: Input) -> World {
        match after {
            Dur::ZERO => self.now(input),
            after => self.plan(after, Happening::Posted(input)),
        }
        self
    }

    /// Makes dogwatch read the usage of the day. Other runs of the project use this many tokens in an hour.
    pub fn reads_day(mut self, others: u64) -> World {
        self.day.others = Some(others);
        self
    }

    /// Stops dogwatch at `after` since the beginning, and continues it `lasts` later.
    pub fn stopped(mut self, after: Dur, lasts: Dur) -> World {
        self.plan(after, Happening::Stops(lasts, true));
        self
    }

    /// Reports all happenings of one moment together with the deadlines that are due then.
    pub fn together(mut self) -> World {
        self.together = true;
        self
    }

    /// Returns the run.
    pub fn run(&self) -> &Run {
        match &self.stage {
            Stage::Planned(planned, _) => &planned.0,
            Stage::Driven(driver) => driver.run(),
            Stage::Between => unreachable!("only within `begin` and `crash_by`"),
        }
    }

    /// Returns the driver of a run, which begins now if it has not begun.
    fn driver(&mut self) -> &mut Driver<Machine> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Between) {
            Stage::Planned(planned, inputs) => {
                let (run, machine) = *planned;
                Stage::Driven(Box::new(begin(run, machine, inputs)))
            }
            other @ (Stage::Driven(_) | Stage::Between) => other,
        };
        match &mut self.stage {
            Stage::Driven(driver) => driver,
            Stage::Planned(..) | Stage::Between => unreachable!("the run has begun"),
        }
    }

    /// Takes one turn of the driver.
    pub fn turn(&mut self) -> Result<(), Stop> {
        let driver = self.driver();
        let turn = driver.turn()?;
        check::queues(driver);
        check::leash::ends_the_run(driver.shell());
        if !self.life.is_alive() {
            return Err(Stop::Dead);
        }
        if let Turn::Over { exit_code } = turn {
            self.exit_code = Some(exit_code);
            check::intent::end_is_recorded(exit_code, &self.events, &self.disk.borrow());
        }
        Ok(())
    }

    /// Drives the run and checks the invariants of every run.
    pub fn drive(&mut self, how_far: Drive) -> &mut World {
        self.limit = match how_far {
            Drive::ToTheEnd => None,
            Drive::Until(limit) => Some(limit.as_millis()),
        };
        for _ in 0..MAX_TURNS {
            if self.exit_code.is_some() || self.turn().is_err() {
                self.limit = None;
                self.check();
                return self;
            }
        }
        panic!("still not there after {MAX_TURNS} turns: a livelock");
    }

    /// Drives the run to its end and returns it. Panics if the run does not end.
    pub fn end(&mut self) -> RunEnded {
        self.drive(Drive::ToTheEnd);
        self.run().view().ended.clone().expect("driven to the end, so it ended")
    }

    /// Takes one turn; false when there is nothing left to do.
    pub fn step_once(&mut self) -> bool {
        self.exit_code.is_none() && self.turn().is_ok()
    }

    /// Checks the invariants of every run.
    pub fn check(&self) {
        if self.keeps_events() {
            check::all(&self.events, self.run().view(), &self.truth);
        }
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

    /// Simulates `kill -9` and a later resume. The last `lost` lines that are not synced are gone. Returns false if the
    /// record did not even have its first line.
    pub fn crash(&mut self, lost: usize, down: Dur, wake: bool) -> Result<bool, ResumeError> {
        let lost_bytes = {
            let disk = self.disk.borrow();
            disk.lines(disk.len()).iter().rev().take(lost).map(|line| line.len()).sum()
        };
        self.crash_by(Crash { lost_bytes, down, reboots: false, wake, noticed: false })
    }

    /// Ends dogwatch without a warning and resumes the run later. Its keepers have ended all processes by then. Returns
    /// false if the record did not even have its first line.
    pub fn crash_by(&mut self, crash: Crash) -> Result<bool, ResumeError> {
        let (events, len) = self.surviving(crash.lost_bytes);
        let lost_at = crash.noticed.then(|| self.clocks.now().wall);
        let resumed = RunResumed { lost_at, ..plan::resumed() };
        let run = match Run::resume(View::fold(&events), None, resumed, crash.wake) {
            Err(ResumeError::NeverStarted) => return Ok(false),
            other => other?,
        };
        self.driver();
        let Stage::Driven(driver) = std::mem::replace(&mut self.stage, Stage::Between) else {
            unreachable!("the run has begun");
        };
        let mut machine = driver.into_shell();
        machine.dies();
        machine.disk.borrow_mut().cut(len);
        machine.events = events;
        machine.clocks.advance(crash.down);
        if crash.reboots {
            machine.clocks.reboot();
        }
        check::resumed(&machine.events, run.view());
        self.crashes += 1;
        self.stage = Stage::Driven(Box::new(begin(run, machine, Vec::new())));
        Ok(true)
    }

    /// Returns the events that the next dogwatch finds, and the length of the journal before half a line is cut.
    fn surviving(&self, lost_bytes: usize) -> (Vec<Recorded>, usize) {
        let disk = self.disk.borrow();
        let len = disk.len().saturating_sub(lost_bytes).max(disk.synced()).min(disk.len());
        let lines = disk.lines(len);
        let mut events: Vec<Recorded> = self.events.iter().take(lines.len()).cloned().collect();
        // The last lines may have been written and not shown.
        events.extend(lines.iter().skip(events.len()).map(|line| DiskFile::read(line)));
        for (event, line) in events.iter().zip(&lines).rev().take(READ_BACK) {
            assert_eq!(&DiskFile::read(line), event, "a line of the journal differs from its event");
        }
        (events, len)
    }

    /// Sets the wall clock back; the other clocks are not affected.
    pub fn set_clock_back(&mut self, by: Dur) {
        self.clocks.set_wall(-by.as_millis().cast_signed());
    }

    /// Plans an input for the current moment. Before the run begins, it is handled before anything starts.
    pub fn now(&mut self, input: Input) {
        match &mut self.stage {
            Stage::Planned(_, inputs) => inputs.push(input),
            Stage::Driven(_) | Stage::Between => self.plan(Dur::ZERO, Happening::Posted(input)),
        }
    }
}

/// How many of the last lines are read again after a crash and compared with the events that were shown.
const READ_BACK: usize = 200;

/// Creates the driver of a run on this machine.
fn begin(run: Run, mut machine: Machine, mut inputs: Vec<Input>) -> Driver<Machine> {
    inputs.extend(machine.open_leash());
    let file = DiskFile::open(&machine.disk, machine.life.clone());
    let last = machine.events.last().map_or(0, |event| event.seq);
    let len = machine.disk.borrow().len() as u64;
    Driver::new(run, Journal::new(file, len, last.to_string()), machine, inputs)
}

/// Prints the story of a seed that is played alone and fails.
impl Drop for World {
    fn drop(&mut self) {
        let failed_seed = std::thread::panicking() && std::env::var_os("DOGWATCH_SEED").is_some();
        if failed_seed && !matches!(self.stage, Stage::Between) {
            eprintln!("{:#?}", self.story());
        }
    }
}

impl Deref for World {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        match &self.stage {
            Stage::Planned(planned, _) => &planned.1,
            Stage::Driven(driver) => driver.shell(),
            Stage::Between => unreachable!("only within `begin` and `crash_by`"),
        }
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Machine {
        match &mut self.stage {
            Stage::Planned(planned, _) => &mut planned.1,
            Stage::Driven(driver) => driver.shell_mut(),
            Stage::Between => unreachable!("only within `begin` and `crash_by`"),
        }
    }
}
