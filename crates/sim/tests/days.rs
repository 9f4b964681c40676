//! The day budget in virtual time.

use dogwatch_core::record::day::DayUse;
use dogwatch_core::record::event::{Event, Outcome, Usage};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::run::input::{Input, NodeInput};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::{DayBudget, Plan};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_sim::plan::plan;
use dogwatch_sim::{Act, Drive, World};

/// The start of the simulation, which is the middle of its day.
const NOW: i64 = 1_794_773_733_000;

fn day(tokens: u64, until_s: i64) -> Input {
    let (since, until) = (Wall(NOW - 3_600_000), Wall(NOW + until_s * 1000));
    Input::DayUsed(DayUse { since, until, tokens, ..DayUse::default() })
}

fn limited(tokens: u64) -> Plan {
    plan(|s| s.budget.day = DayBudget { tokens: Some(tokens), cost_usd: None })
}

fn uses(iteration: u64, tokens: u64) -> Input {
    let job = Job { node: NodeIx(0), iteration: Iteration(iteration), kind: JobKind::Session };
    Input::Job(job, NodeInput::Used(Usage { tokens: Some(tokens), ..Usage::default() }))
}

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

#[test]
fn no_session_starts_once_the_day_budget_is_used_up() {
    let mut world = World::new(limited(100), |_| Act::works(secs(60))).at(Dur::ZERO, day(100, 3600));
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::BudgetExceeded, 3));
    assert_eq!(end.reason, "budget.day.tokens: 100 of 100 used today by all runs");
    assert_eq!(world.sessions, [0; 0]);
}

#[test]
fn the_day_budget_applies_during_a_session() {
    let mut world = World::new(limited(100), |_| Act::hangs())
        .at(Dur::ZERO, day(60, 3600))
        .at(secs(10), uses(1, 39))
        .at(secs(20), uses(1, 40));
    let end = world.end();
    assert_eq!((end.outcome, world.elapsed()), (Outcome::BudgetExceeded, 20_000));
}

#[test]
fn usage_since_the_last_update_counts_once() {
    let act = || {
        let mut act = Act::works(secs(60));
        act.report.totals.tokens = Some(30);
        act
    };
    // Without another update of the day's total, the budget is used up after four sessions.
    let mut world = World::new(limited(100), move |_| act()).at(Dur::ZERO, day(0, 36_000));
    let end = world.end();
    assert_eq!((end.outcome, world.sessions.len()), (Outcome::BudgetExceeded, 4));
    // An update after the second session includes its usage and changes nothing.
    let mut world =
        World::new(limited(100), move |_| act()).at(Dur::ZERO, day(0, 36_000)).at(secs(121), day(60, 36_000));
    assert_eq!((world.end().outcome, world.sessions.len()), (Outcome::BudgetExceeded, 4));
    let updates = world.events.iter().filter(|r| matches!(r.event, Event::DayUsed(_))).count();
    assert_eq!(updates, 2);
}

#[test]
fn a_new_day_starts_with_a_full_budget() {
    let mut world = World::new(limited(100), |_| Act::hangs())
        .at(Dur::ZERO, day(60, 15))
        .at(secs(20), uses(1, 90))
        .at(secs(30), Input::StopAsked)
        .at(secs(31), Input::Interrupted);
    let end = world.end();
    assert_ne!(end.outcome, Outcome::BudgetExceeded, "{}", end.reason);
}

#[test]
fn the_usage_of_a_session_that_lost_its_supervisor_is_in_the_next_update() {
    let mut world = World::new(limited(1_000), |_| Act::hangs()).reads_day(0).at(secs(10), uses(1, 100));
    // The second session is lost before its first report.
    for until in [20, 120] {
        world.drive(Drive::Until(secs(until)));
        assert_eq!(world.crash(0, secs(60), false), Ok(true));
    }
    world.drive(Drive::Until(secs(200)));
    let updates = world.events.iter().filter_map(|recorded| match recorded.event {
        Event::DayUsed(day) => Some((day.tokens, day.unknown_tokens, day.unknown_cost)),
        _ => None,
    });
    assert_eq!(updates.collect::<Vec<_>>(), [(0, 0, 0), (100, 0, 1), (100, 1, 2)]);
    assert_eq!(world.sessions.len(), 3);
}
