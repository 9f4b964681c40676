//! Learned idling in virtual time: a whole run against the rule itself, resume, probes and wakes.

use dogwatch_core::learn::{Arrivals, Gap, Schedule};
use dogwatch_core::record::event::{Event, InputDigest, Recorded};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::record::status::Status;
use dogwatch_core::record::view::View;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::JobKind;
use dogwatch_core::settings::{IdlePolicy, Plan, StopAfter, Strategy, WakePolicy};
use dogwatch_core::time::dur::Dur;
use dogwatch_sim::plan::plan;
use dogwatch_sim::{Act, Drive, World};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The wall clock at the start of a simulation: Sunday, 2026-11-15 20:15:33 UTC.
const EPOCH: i64 = 1_794_773_733_000;
const SESSION: u64 = 600_000;
const OFFSET_S: i32 = 3_600;
const DAY: u64 = 86_400_000;

fn policy() -> IdlePolicy {
    // The input digest always changes, so no look is skipped.
    let (strategy, stop_after) = (Strategy::Learned, StopAfter::Never);
    IdlePolicy { strategy, stop_after, skip_unchanged: true, ..IdlePolicy::default() }
}

fn learning(change: impl FnOnce(&mut dogwatch_core::settings::Settings)) -> Plan {
    plan(|settings| {
        settings.idle = Some(policy());
        change(settings);
    })
}

/// Returns whether work arrives in this five-minute interval since the beginning: on weekdays during office hours, every
/// 35 minutes.
fn arrives(slot: u64) -> bool {
    let local = EPOCH as u64 + slot * 300_000 + OFFSET_S as u64 * 1000;
    let (day, hour) = ((local / DAY + 3) % 7, local / 3_600_000 % 24);
    day < 5 && (9..17).contains(&hour) && slot.is_multiple_of(7)
}

/// Work that arrives over time and is taken by looks.
#[derive(Clone, Default)]
struct Work(Rc<Cell<u64>>);

impl Work {
    /// Takes all work up to a time, and returns whether there was any.
    fn take(&self, ms: u64) -> bool {
        let (from, to) = (self.0.get(), ms / 300_000 + 1);
        self.0.set(to.max(from));
        (from..to).any(arrives)
    }
}

/// An agent that finishes its idle answers at once and works for ten minutes on what it finds.
fn office(plan: Plan) -> World {
    let (clock, work) = (Rc::new(Cell::new(0)), Work::default());
    let seen = Rc::clone(&clock);
    let world = World::new(plan, move |job| match job.kind {
        JobKind::Session if work.take(clock.get()) => Act::works(Dur::from_millis(SESSION)),
        JobKind::Session => Act { lasts: Some(Dur::ZERO), ..Act::idles("no_pending_tasks") },
        _ => Act { lasts: Some(Dur::ZERO), ..Act::fails() },
    });
    let world = world.seeing(move |ms| {
        seen.set(ms);
        InputDigest { prompt: ms.to_string(), tree: "t".to_owned() }
    });
    world.at(Dur::ZERO, Input::ZoneSeen { utc_offset_s: OFFSET_S })
}

/// Computes the times of all looks from the rule alone.
fn looks_by_the_rule(until: u64) -> Vec<u64> {
    let (schedule, work) = (Schedule::of(&policy(), false), Work::default());
    let offset_ms = i64::from(OFFSET_S) * 1000;
    let mut state = Arrivals::default();
    let (mut now, mut n, mut since, mut last, mut looks) = (0, 0u64, 0, 0, Vec::new());
    while now <= until {
        looks.push(now);
        let found = work.take(now);
        let gap = Gap { end: EPOCH + now as i64, length: now - last, age: last - since, offset_ms, found };
        if n > 0 {
            state.fold(gap);
        }
        if found {
            if n > 0 {
                state.settle(&schedule, n, now - last, now - since);
            }
            (n, now) = (0, now + SESSION);
            continue;
        }
        if n == 0 {
            since = now;
        }
        (n, last) = (n + 1, now);
        now += state.decide(&schedule, EPOCH + now as i64, offset_ms, now - since, n).wait.as_millis();
    }
    looks
}

#[test]
fn a_year_of_idling_looks_exactly_at_the_times_of_the_rule() {
    let days = if std::env::var_os("DOGWATCH_FULL").is_some() { 365 } else { 40 };
    let mut world = office(learning(|_| {})).forgetting();
    world.drive(Drive::Until(Dur::from_millis(days * DAY)));
    let expected = looks_by_the_rule(days * DAY);
    assert_eq!(world.sessions.len(), expected.len());
    assert_eq!(world.sessions, expected);
    // Plain waits would look 288 times on each of the quiet days.
    assert!(expected.len() < 200 * days as usize, "{} looks", expected.len());
}

#[test]
fn the_record_folds_to_the_same_state_and_explains_its_waits() {
    let mut world = office(learning(|_| {}));
    world.drive(Drive::Until(Dur::from_millis(20 * DAY)));
    let view = View::fold(&world.events);
    let learned = view.nodes[0].learned.as_ref().expect("the node learns");
    assert_eq!(Some(learned), world.run().view().nodes[0].learned.as_ref());
    assert!(learned.arrivals.count() > 50);
    let because = world.events.iter().rev().find_map(|r| match &r.event {
        Event::WaitStarted { because, utc_offset_s, .. } => Some((because.clone(), *utc_offset_s)),
        _ => None,
    });
    let (because, offset) = because.expect("a wait");
    assert_eq!(offset, Some(OFFSET_S));
    assert_eq!(because.as_deref(), Some("work usually arrives 09:00-17:00 on weekdays"));
    let status = Status::of(&view, Some(view.last));
    let forecast = status.nodes[0].forecast.as_ref().expect("a forecast");
    assert!(forecast.explanation.starts_with("work usually arrives 09:00-17:00 on weekdays; next look "));
    assert!(forecast.expected_at.is_some_and(|at| at > view.last.wall));
    assert!(forecast.looks.len() > 5 && forecast.saved.looks < forecast.saved.plain_looks);
    assert!(Status::of(&view, None).nodes[0].forecast.as_ref().is_some_and(|f| f.looks.is_empty()));
}

#[test]
fn a_resumed_run_knows_what_it_learned_before() {
    let mut world = office(learning(|_| {}));
    world.drive(Drive::Until(Dur::from_millis(20 * DAY)));
    let before = world.run().view().nodes[0].learned.clone().expect("learned");
    assert!(world.crash(0, Dur::from_hours(30), false).expect("resumes"));
    world.drive(Drive::Until(Dur::from_millis(22 * DAY)));
    let after = world.run().view().nodes[0].learned.clone().expect("learned");
    assert!(after.arrivals.count() >= before.arrivals.count());
    let last = world.events.iter().rev().find_map(|r| match &r.event {
        Event::WaitStarted { because: Some(because), .. } => Some(because.clone()),
        _ => None,
    });
    assert_eq!(last.as_deref(), Some("work usually arrives 09:00-17:00 on weekdays"));
}

fn earlier(days: u64) -> BTreeMap<NodeName, Arrivals> {
    let mut world = office(learning(|_| {}));
    world.drive(Drive::Until(Dur::from_millis(days * DAY)));
    let learned = world.run().view().nodes[0].learned.clone().expect("learned");
    BTreeMap::from([(NodeName::new("loop"), learned.arrivals)])
}

#[test]
fn a_history_is_recorded_at_the_start_and_used_from_the_first_wait() {
    let known = earlier(28);
    let state = known.values().next().expect("a state").recorded();
    let mut world = office(learning(|_| {})).knowing(known);
    world.drive(Drive::Until(Dur::from_hours(12)));
    let recorded = world.events.iter().find_map(|r| match &r.event {
        Event::IdleLearned { state, .. } => Some((r.seq, state.clone())),
        _ => None,
    });
    assert_eq!(recorded, Some((2, state)));
    // It is Sunday evening, and no work is expected before Monday.
    let most = world.waits().into_iter().take(8).max().expect("waits");
    assert!(most > 600_000, "the longest of the first waits is {most} ms");
}

fn probes(events: &[Recorded], hours: u64) -> usize {
    let until = EPOCH + (hours * 3_600_000) as i64;
    let probe = |r: &&Recorded| matches!(&r.event, Event::WaitEnded { .. }) && r.at.0 < until;
    events.iter().filter(probe).count()
}

#[test]
fn probes_follow_the_history_too() {
    let count = |known: BTreeMap<NodeName, Arrivals>| {
        let runs = Rc::new(Cell::new(0));
        let counter = Rc::clone(&runs);
        let plan = learning(|settings| {
            settings.wake_on =
                WakePolicy { probe: Some("false".to_owned()), every: Dur::from_mins(1), paths: Vec::new() };
        });
        let mut world = World::new(plan, move |job| match job.kind {
            JobKind::Session => Act { lasts: Some(Dur::ZERO), ..Act::idles("no_pending_tasks") },
            _ => {
                counter.set(counter.get() + 1);
                Act { lasts: Some(Dur::ZERO), ..Act::fails() }
            }
        })
        .knowing(known)
        .at(Dur::ZERO, Input::ZoneSeen { utc_offset_s: OFFSET_S });
        world.drive(Drive::Until(Dur::from_hours(8)));
        assert!(probes(&world.events, 8) > 0);
        runs.get()
    };
    let learned = count(earlier(28));
    let plain = {
        let mut only = earlier(1);
        only.values_mut().for_each(|state| *state = Arrivals::default());
        count(only)
    };
    assert!(learned > 0 && learned * 2 < plain, "{learned} probes with a history, {plain} without");
}

#[test]
fn a_bad_state_in_the_record_means_plain_waits() {
    let mut world = office(learning(|_| {}));
    world.drive(Drive::Until(Dur::from_hours(1)));
    let mut events = world.events.clone();
    for recorded in &mut events {
        if let Event::IdleLearned { state, .. } = &mut recorded.event {
            state.week_x.truncate(5);
        }
    }
    assert_eq!(View::fold(&events).nodes[0].learned, View::fold(&world.events).nodes[0].learned);
    assert_eq!(world.waits()[..4], [30_000, 60_000, 120_000, 240_000]);
}

#[test]
fn clocks_and_zones_that_jump_are_harmless() {
    let mut world = office(learning(|_| {}));
    for day in 1..30u64 {
        let zone = Input::ZoneSeen { utc_offset_s: (day as i32 % 25 - 12) * 3600 };
        world = world.at(Dur::from_millis(day * DAY), zone);
    }
    world.drive(Drive::Until(Dur::from_millis(30 * DAY)));
    let longest = IdlePolicy::LONGEST.as_millis();
    assert!(world.waits().iter().all(|wait| (30_000..=longest).contains(wait)));
}
