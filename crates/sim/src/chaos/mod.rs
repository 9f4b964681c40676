//! Plays whole runs from seeds: a plan, agents with any behavior, faults of the machine, and an operator who sends any
//! request, kills dogwatch at any act and resumes the run.
//!
//! A run has two phases. In the first, anything may fail, and the checkers of `check` must hold. In the second, nothing
//! fails: a run that is not over must make progress within a budget, and then end when it is asked to.

mod actor;
mod fault;
mod plans;
mod scenario;
mod seen;
mod shrink;
mod voice;

pub use actor::{Actor, Quirk};
pub use fault::{Fault, Request};
pub use scenario::{HORIZON, Scenario};
pub use seen::Seen;
pub use shrink::shrink;

use crate::Act;
use crate::machine::Stop;
use crate::world::{Crash, World};
use dogwatch_core::drive::shell::Signaled;
use dogwatch_core::record::event::{InputDigest, Outcome, Pin};
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::time::dur::Dur;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The most turns of each phase. A run that needs more spins.
const MAX_TURNS: u64 = 300_000;
/// How long a run may take to make progress once the faults have ended.
const RECOVERS_IN: Dur = Dur::from_hours(12);
/// How long a run may take to end once it is asked to: two graces, the keeper's bound, a sweep, a bounded snapshot,
/// the last notifications, and room on the disk.
const ENDS_IN: Dur = Dur::from_secs(180);

/// The result of a scenario.
#[derive(Debug, Default)]
pub struct Played {
    /// The life cycle of the run as words, to debug a single seed.
    pub story: Vec<String>,
    /// The number of events.
    pub events: usize,
    /// The number of sessions.
    pub sessions: usize,
    /// The number of crashes.
    pub crashes: u64,
    /// The virtual time in which anything could fail, in seconds.
    pub lasted_s: u64,
    /// The outcome of the run, if it ended.
    pub outcome: Option<Outcome>,
    /// What occurred.
    pub seen: Seen,
}

/// Plays a scenario and checks everything. Panics if anything does not hold.
pub fn play(scenario: &Scenario) -> Played {
    let (calm, seen) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(Seen::default())));
    let mut world = world_of(scenario, &calm, &seen);
    let can_go_on = fail_in_any_way(&mut world, scenario);
    let lasted = world.elapsed();
    world.check();
    calm.set(true);
    if can_go_on {
        recover(&mut world);
        end(&mut world);
        world.check();
    }
    let mut seen = seen.take();
    seen.look_at(&world, scenario, lasted);
    Played {
        story: world.story(),
        events: world.events.len(),
        sessions: world.sessions.len(),
        crashes: world.crashes,
        lasted_s: lasted / 1_000,
        outcome: world.run().view().ended.as_ref().map(|e| e.outcome),
        seen,
    }
}

fn world_of(scenario: &Scenario, calm: &Rc<Cell<bool>>, seen: &Rc<RefCell<Seen>>) -> World {
    let (script, calm, seen) = (scenario.clone(), Rc::clone(calm), Rc::clone(seen));
    let mut tries = BTreeMap::new();
    let mut world = World::new(scenario.plan.clone(), move |job| {
        if calm.get() {
            return healthy(job);
        }
        let tries = tries.entry((job.node.0, job.iteration.0)).or_insert(0);
        *tries += 1;
        let (actor, mut act) = script.act(job, *tries);
        act.progress = actor.is_some_and(Actor::prints_only_progress);
        seen.borrow_mut().played(actor);
        act
    });
    let seed = scenario.seed;
    world.set_digest(move |ms| InputDigest { prompt: "p".to_owned(), tree: (ms / 5_000_000).to_string() });
    world.set_pins(move |iteration| match (seed ^ iteration.0) % 23 {
        0 => Err("more than 10000 files".to_owned()),
        1 => Ok(vec![pin("changed")]),
        _ => Ok(vec![pin("as it was")]),
    });
    world.set_worktrees(move |iteration| Some(((seed ^ iteration.0) % 7).to_string()));
    world.together = scenario.together;
    world.holder = scenario.leash;
    world = world.reads_day(scenario.others);
    scenario.faults.iter().for_each(|(at, fault)| fault.plan(*at, &mut world));
    scenario.requests.iter().for_each(|(at, request)| request.plan(*at, &mut world));
    world
}

fn pin(hash: &str) -> Pin {
    Pin { path: "tests/a".to_owned(), sha256: Some(hash.to_owned()) }
}

/// An agent that works, or a command that succeeds.
fn healthy(job: Job) -> Act {
    let lasts = if job.kind == JobKind::Session { 60 } else { 1 };
    Act::works(Dur::from_secs(lasts))
}

/// Plays the phase in which anything may fail. Returns false if the run is over for good.
fn fail_in_any_way(world: &mut World, scenario: &Scenario) -> bool {
    world.limit = Some(HORIZON.as_millis());
    let wake = scenario.seed.is_multiple_of(2);
    let mut crashes: VecDeque<Crash> = scenario.faults.iter().filter_map(|(_, f)| f.crash(wake)).collect();
    let mut resumes = scenario.resumes;
    for _ in 0..MAX_TURNS {
        if world.exit_code.is_some() {
            let stopped =
                Crash { lost_bytes: 0, down: Dur::from_mins(1), reboots: false, wake, noticed: true };
            if resumes == 0 || !resume(world, stopped) {
                return false;
            }
            resumes -= 1;
            continue;
        }
        match world.turn() {
            Ok(()) => {}
            Err(Stop::Limit) => return true,
            Err(Stop::Dead) => {
                let crash = crashes.pop_front().expect("a planned death");
                if !resume(world, crash) {
                    return false;
                }
            }
        }
    }
    panic!("{MAX_TURNS} turns within a day: {:?}", world.story().iter().rev().take(20).collect::<Vec<_>>());
}

/// Resumes a run that ended or was killed. Returns false if that is impossible.
fn resume(world: &mut World, crash: Crash) -> bool {
    if world.disk.borrow().is_damaged() {
        return false;
    }
    world.crash_by(crash) == Ok(true)
}

/// Lets a run make progress without further faults.
fn recover(world: &mut World) {
    let before = iterations(world);
    world.calm();
    world.now(Input::UnpauseAsked);
    world.now(Input::WakeAsked(dogwatch_core::record::event::WaitEndedBy::Operator));
    let until = world.elapsed() + RECOVERS_IN.as_millis();
    world.limit = Some(until);
    let moves = |world: &World| world.exit_code.is_some() || iterations(world) > before;
    for _ in 0..MAX_TURNS {
        if moves(world) {
            return;
        }
        assert_ne!(world.turn(), Err(Stop::Dead), "nothing kills dogwatch in this phase");
        if world.elapsed() >= until {
            break;
        }
    }
    panic!("no progress within {RECOVERS_IN} without faults: {:#?}", world.story());
}

fn iterations(world: &World) -> usize {
    world.events.iter().filter(|event| event.event.ending().is_some()).count()
}

/// Ends the run as an operator would.
fn end(world: &mut World) {
    let begun = world.elapsed();
    for n in 0..MAX_TURNS {
        if world.exit_code.is_some() {
            return;
        }
        if n == 0 || world.turn() == Err(Stop::Limit) {
            assert!(world.elapsed() <= begun + ENDS_IN.as_millis(), "it does not end: {:#?}", world.story());
            world.plan(Dur::ZERO, crate::machine::Happening::Signaled(Signaled::End(EndSignal::Terminate)));
            world.limit = Some(world.elapsed() + Dur::from_secs(60).as_millis());
        }
    }
    panic!("it does not end: {:#?}", world.story());
}
