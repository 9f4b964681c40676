//! Generates a whole run from one seed: a plan, agents with any behavior, and an operator who sends any request, kills
//! dogwatch and resumes the run at any step. After a phase in which anything may fail, nothing fails any more and the
//! run must end.

use crate::Act;
use crate::World;
use crate::dice::Dice;
use crate::plan;
use dogwatch_core::record::event::{Outcome, WaitEndedBy};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::run::ResumeError;
use dogwatch_core::run::caller::Source;
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::run::job::JobKind;
use dogwatch_core::settings::{
    AgentPlan, AttemptPolicy, GraphPlan, IdlePolicy, NodePlan, Plan, ReaderName, StopAfter, Strategy,
    WakePolicy,
};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::sign::AgentResult;

/// When a refusing service becomes available again: an hour into the simulation.
const SOON: i64 = 1_794_777_333_000;
/// The number of steps in which anything may fail.
const WILD_STEPS: u64 = 1_500;
/// The number of steps within which a run must end after a request.
const CALM_STEPS: u64 = 5_000;

/// The result of a seed.
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
    /// The outcome of the run, if it ended.
    pub outcome: Option<Outcome>,
}

/// Plays a seed and checks all invariants. A failure names the seed.
pub fn play(seed: u64) -> Played {
    let mut dice = Dice::new(seed);
    let plan = some_plan(&mut dice);
    let mut agents = Dice::new(seed ^ 0xa9e2);
    let mut world = World::new(plan, move |job| some_act(&mut agents, job.kind));
    for _ in 0..WILD_STEPS {
        if dice.one_in(12) {
            world.now(some_request(&mut dice));
        }
        if dice.one_in(20) && !crash(&mut world, &mut dice) {
            break;
        }
        if !world.step_once() {
            break;
        }
    }
    settle(&mut world);
    world.check();
    Played {
        story: world.story(),
        events: world.events.len(),
        sessions: world.sessions.len(),
        crashes: world.crashes,
        outcome: world.run().view().ended.as_ref().map(|e| e.outcome),
    }
}

/// Lets the run end without further failures.
fn settle(world: &mut World) {
    for n in 0..CALM_STEPS {
        if n % 100 == 0 && world.exit_code.is_none() {
            world.now(Input::EndAsked(EndSignal::Terminate));
        }
        if !world.step_once() {
            break;
        }
    }
    let over = world.run().view().is_over() || world.events.is_empty();
    assert!(over, "the run did not end within {CALM_STEPS} steps: {:#?}", world.story());
}

/// Crashes and resumes the run. Returns false if the run has ended and cannot be resumed.
fn crash(world: &mut World, dice: &mut Dice) -> bool {
    let (lost, down) = (usize::try_from(dice.below(5)).expect("small"), dice.secs(4_000));
    match world.crash(lost, down, dice.one_in(2)) {
        Ok(true) => {
            world.check();
            true
        }
        // Nothing was recorded yet, so there is nothing to resume.
        Ok(false) => true,
        Err(ResumeError::Ended(_)) => false,
        Err(ResumeError::Asleep | ResumeError::NeverStarted) => true,
    }
}

fn some_plan(dice: &mut Dice) -> Plan {
    let mut plan = some_loop(dice);
    if dice.one_in(2) {
        return plan;
    }
    let template = plan.nodes[0].clone();
    let nodes = 2 + dice.below(7);
    plan.graph = Some(GraphPlan {
        max_parallel: 1 + u32::try_from(dice.below(3)).expect("small"),
        budget: std::mem::take(&mut plan.nodes[0].settings.budget),
    });
    plan.nodes = (0..nodes).map(|n| some_node(dice, &template, n)).collect();
    plan
}

/// Generates a node of a graph, which may depend on any node before it.
fn some_node(dice: &mut Dice, template: &NodePlan, n: u64) -> NodePlan {
    let mut node = template.clone();
    node.name = NodeName::new(&format!("n{n}"));
    node.depends_on = (0..n).filter(|_| dice.one_in(3)).map(|p| NodeName::new(&format!("n{p}"))).collect();
    node.touches = (0..dice.below(3)).map(|_| format!("src/{}/**", dice.below(4))).collect();
    node.parallel_safe = !dice.one_in(5);
    node.settings.worktree = dice.one_in(5);
    node.settings.budget.time = dice.one_in(6).then(|| Dur::from_secs(60 + dice.below(2_000)));
    node
}

fn some_loop(dice: &mut Dice) -> Plan {
    let mut plan = plan::plan(|s| {
        s.delay = if dice.one_in(2) { Dur::ZERO } else { dice.secs(600) };
        s.max_iterations = dice.one_in(3).then(|| 1 + dice.below(30));
        s.watchdog.session =
            if dice.one_in(5) { Limit::Off } else { Limit::At(Dur::from_secs(30 + dice.below(600))) };
        s.budget.time = dice.one_in(4).then(|| Dur::from_secs(60 + dice.below(20_000)));
        s.budget.iterations = dice.one_in(5).then(|| 1 + dice.below(20));
        s.errors.max = 1 + u32::try_from(dice.below(6)).expect("small");
        s.commands =
            (0..dice.below(3)).map(|n| plan::command(&format!("c{n}"), Dur::from_secs(10))).collect();
        s.work_when = dice.one_in(4).then(|| "gate".to_owned());
        s.idle = dice.one_in(2).then(|| some_idle(dice));
        let probe = dice.one_in(3).then(|| "probe".to_owned());
        s.checks.commands = (0..dice.below(3)).map(|n| format!("check {n}")).collect();
        s.checks.recheck = u32::from(dice.one_in(4));
        s.recovery.budget = u32::try_from(dice.below(4)).expect("small");
        s.recovery.resume = dice.one_in(2);
        s.recovery.agents = (0..dice.below(3))
            .map(|n| AgentPlan { agent: vec![format!("other {n}")], reader: ReaderName::Plain })
            .collect();
        s.wake_on = WakePolicy { paths: Vec::new(), probe, every: Dur::from_secs(20) };
    });
    plan.stop_on_error = dice.one_in(8);
    plan.snapshots = dice.one_in(3);
    let ceiling = |dice: &mut Dice| {
        let limited = dice.one_in(6);
        if limited { Limit::At(Dur::from_secs(20 + dice.below(3_000))) } else { Limit::Off }
    };
    plan.nodes[0].settings.watchdog.node = ceiling(dice);
    plan.nodes[0].settings.watchdog.run = ceiling(dice);
    if dice.one_in(2) {
        let settings = &mut plan.nodes[0].settings;
        settings.checks.attempts = AttemptPolicy::Progress;
        settings.checks.max_stalled = dice.one_in(2).then(|| 1 + dice.below(6));
    }
    plan
}

fn some_idle(dice: &mut Dice) -> IdlePolicy {
    IdlePolicy {
        strategy: *dice.of(&Strategy::ALL),
        max: dice.one_in(3).then(|| Dur::from_secs(60 + dice.below(7_000))),
        stop_after: dice
            .of(&[
                StopAfter::Never,
                StopAfter::Count(4),
                StopAfter::PerReason(vec![("no_pending_tasks".to_owned(), 3)]),
            ])
            .clone(),
        skip_unchanged: dice.one_in(2),
        ..IdlePolicy::default()
    }
}

fn some_act(dice: &mut Dice, kind: JobKind) -> Act {
    let lasts = dice.secs(120);
    let act = match (kind, dice.below(8)) {
        (_, 0) => Act::hangs(),
        (_, 1) => Act::absent(),
        (JobKind::Session, 2 | 3) => Act::idles(if dice.one_in(2) { "no_pending_tasks" } else { "blocked" }),
        (JobKind::Session, 4) if dice.one_in(4) => Act::limited(Some(Wall(SOON))),
        (JobKind::Session, 4) if dice.one_in(4) => Act::limited(None),
        (JobKind::Session, 4) if dice.one_in(8) => Act::unknown_to_the_service(),
        (JobKind::Session, 4) => Act::fails(),
        (JobKind::Session, 5) => Act::works(lasts).answering(AgentResult::new("it went wrong", true)),
        (
            JobKind::Gate
            | JobKind::Probe
            | JobKind::Command(_)
            | JobKind::Snapshot
            | JobKind::Check(_)
            | JobKind::Worktree
            | JobKind::Setup(_)
            | JobKind::Commit,
            n,
        ) => Act::exits(i32::try_from(n % 3).expect("small"), lasts),
        (JobKind::Session, _) => Act::works(lasts),
    };
    let act = if dice.one_in(4) { act.stubborn() } else { act };
    let act = if dice.one_in(6) { act.touching() } else { act };
    match dice.below(6) {
        0 => act.holding_pipes(None),
        1 => act.holding_pipes(Some(Dur::from_millis(700))),
        _ => act,
    }
}

fn some_request(dice: &mut Dice) -> Input {
    // Requests that end a run are rare, because most failures take a while to build up.
    match dice.below(40) {
        0 => Input::Interrupted,
        1 if dice.one_in(3) => Input::StopAsked,
        2 if dice.one_in(3) => {
            Input::EndAsked(if dice.one_in(2) { EndSignal::Terminate } else { EndSignal::HangUp })
        }
        3..=6 => Input::PauseAsked,
        7..=16 => Input::UnpauseAsked,
        17..=19 => Input::MessageReceived { text: "be brief".to_owned(), from: Source::Operator },
        20..=22 => Input::TimePassed,
        23 => Input::TroubleMet { kind: "test", detail: "something".to_owned() },
        _ => Input::WakeAsked(*dice.of(&[WaitEndedBy::Api, WaitEndedBy::Path, WaitEndedBy::Signal])),
    }
}
