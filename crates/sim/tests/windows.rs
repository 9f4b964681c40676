//! `budget.window` and the operator's limit in virtual time: no agent is called while its window is used up, the run
//! continues by itself after the reset, and the next agent of the chain works meanwhile.

use dogwatch_core::record::event::{Event, Outcome, WaitEndedBy};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::record::status::Status;
use dogwatch_core::record::windows::{Percent, Window, WindowBudget, WindowName, WindowsUsed};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::{AgentPlan, Plan, ReaderName, Settings};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Moment, Wall};
use dogwatch_sim::plan::plan;
use dogwatch_sim::{Act, Drive, World};

/// The start of the simulation.
const NOW: i64 = 1_794_773_733_000;
const MINUTE: Dur = Dur::from_mins(1);
const HOUR_S: u64 = 3_600;

fn at(s: u64) -> Wall {
    Wall(NOW).plus(Dur::from_secs(s))
}

fn percent(n: f64) -> Percent {
    Percent::new(n).expect("a percentage")
}

fn limited(change: impl FnOnce(&mut Settings)) -> Plan {
    plan(|s| {
        s.budget.window = WindowBudget { five_hour: Some(percent(80.0)), seven_day: Some(percent(90.0)) };
        s.max_iterations = Some(3);
        change(s);
    })
}

/// Reports the five-hour window in the session of an iteration.
fn used(iteration: u64, percent_used: f64, resets_s: u64) -> Input {
    let job = Job { node: NodeIx(0), iteration: Iteration(iteration), kind: JobKind::Session };
    let window = Window {
        window: WindowName::FiveHour,
        used_percent: percent(percent_used),
        resets_at: Some(at(resets_s)),
    };
    Input::WindowsSeen { job, seen_at: at(0), windows: vec![window] }
}

fn sessions_s(world: &World) -> Vec<u64> {
    world.sessions.iter().map(|ms| ms / 1_000).collect()
}

fn reasons(world: &World) -> Vec<String> {
    let because = |e: &Event| match e {
        Event::WaitStarted { because: Some(because), .. } => Some(because.clone()),
        _ => None,
    };
    world.events.iter().filter_map(|r| because(&r.event)).collect()
}

/// Returns the agent of the chain that each session used.
fn agents(world: &World) -> Vec<u32> {
    let agent = |e: &Event| match e {
        Event::SessionStarted { agent, .. } => Some(*agent),
        _ => None,
    };
    world.events.iter().filter_map(|r| agent(&r.event)).collect()
}

#[test]
fn a_used_window_is_waited_for_and_the_run_continues_by_itself() {
    let mut world =
        World::new(limited(|_| {}), |_| Act::works(MINUTE)).at(Dur::from_secs(10), used(1, 83.0, 2 * HOUR_S));
    let end = world.end();
    assert_eq!((end.outcome, end.completed), (Outcome::Clean, 3));
    // The session may finish; the next one starts 15 s after the reset.
    assert_eq!(sessions_s(&world), [0, 2 * HOUR_S + 15, 2 * HOUR_S + 75]);
    let story = world.story();
    assert!(story.contains(&"wait_started rate_limit 1h59m15s".to_owned()), "{story:?}");
    let because = reasons(&world);
    let wanted = "83% of the five_hour window of plain agent is used (budget.window.five_hour: 80%); resets at 2026-11-15T22:15:33.000Z";
    assert_eq!(because, [wanted]);
    let notices = world
        .events
        .iter()
        .filter(|r| matches!(&r.event, Event::Notice { kind, .. } if kind == "window_reached"));
    assert_eq!(notices.count(), 1, "said once, while the session goes on");
}

#[test]
fn below_the_limit_or_unknown_nothing_waits() {
    let mut unknown = World::new(limited(|_| {}), |_| Act::works(MINUTE));
    unknown.end();
    assert_eq!(sessions_s(&unknown), [0, 60, 120]);
    let status = Status::of(unknown.run().view(), None);
    assert_eq!(status.windows.len(), 2);
    assert!(status.windows.iter().all(|w| w.used_percent.is_none() && w.limit_percent.is_some()));
    let mut below =
        World::new(limited(|_| {}), |_| Act::works(MINUTE)).at(Dur::from_secs(10), used(1, 79.0, HOUR_S));
    below.end();
    assert_eq!(sessions_s(&below), [0, 60, 120]);
}

#[test]
fn a_window_reported_at_the_very_end_of_a_session_counts() {
    let mut world = World::new(limited(|s| s.max_iterations = Some(2)), |job| {
        let mut act = Act::works(MINUTE);
        if job.iteration.0 == 1 {
            let full = Window {
                window: WindowName::SevenDay,
                used_percent: percent(95.0),
                resets_at: Some(at(HOUR_S)),
            };
            act.report.totals.windows = Some((None, vec![full]));
        }
        act
    });
    world.end();
    assert_eq!(sessions_s(&world), [0, HOUR_S + 15]);
}

#[test]
fn a_wake_gets_one_iteration_and_then_the_wait_continues() {
    let mut world = World::new(limited(|_| {}), |_| Act::works(MINUTE))
        .at(Dur::from_secs(10), used(1, 83.0, 2 * HOUR_S))
        .at(Dur::from_secs(600), Input::WakeAsked(WaitEndedBy::Api));
    world.end();
    assert_eq!(sessions_s(&world), [0, 600, 2 * HOUR_S + 15]);
}

#[test]
fn the_next_agent_works_until_the_reset() {
    let chain = |s: &mut Settings| {
        s.delay = Dur::from_mins(20);
        s.max_iterations = Some(5);
        s.recovery.agents = vec![AgentPlan { agent: vec!["other".to_owned()], reader: ReaderName::Plain }];
    };
    let mut world =
        World::new(limited(chain), |_| Act::works(MINUTE)).at(Dur::from_secs(10), used(1, 83.0, HOUR_S));
    world.end();
    assert_eq!(agents(&world), [0, 1, 1, 0, 0]);
    assert!(reasons(&world).is_empty(), "no wait for an agent");
}

#[test]
fn agents_of_one_account_share_its_windows() {
    let chain = |s: &mut Settings| {
        (s.agent, s.reader) = (vec!["claude".to_owned()], ReaderName::Claude);
        let other = ["claude", "--model", "small"].map(str::to_owned).to_vec();
        s.recovery.agents = vec![AgentPlan { agent: other, reader: ReaderName::Claude }];
        s.max_iterations = Some(2);
    };
    let mut world =
        World::new(limited(chain), |_| Act::works(MINUTE)).at(Dur::from_secs(10), used(1, 80.0, HOUR_S));
    world.drive(Drive::Until(Dur::from_hours(2)));
    assert_eq!((agents(&world), sessions_s(&world)[1]), (vec![0, 0], HOUR_S + 15));
}

#[test]
fn the_windows_and_the_wait_survive_a_crash() {
    let mut world =
        World::new(limited(|_| {}), |_| Act::works(MINUTE)).at(Dur::from_secs(10), used(1, 83.0, 2 * HOUR_S));
    world.drive(Drive::Until(Dur::from_mins(30)));
    assert_eq!(world.crash(0, Dur::from_mins(10), false), Ok(true));
    let view = world.run().view();
    let now = Moment { wall: at(30 * 60), ..view.last };
    let status = Status::of(view, Some(now));
    let window = &status.windows[0];
    assert_eq!((window.used_percent, window.age_s), (Some(percent(83.0)), Some(Dur::from_mins(30))));
    world.end();
    // The last event before the crash was the start of the wait, so the simulated clock went back to it.
    assert_eq!(sessions_s(&world)[1], 2 * HOUR_S + 15);
    // After the reset the figure is unknown again.
    let later = Moment { wall: at(3 * HOUR_S), ..world.run().view().last };
    assert_eq!(Status::of(world.run().view(), Some(later)).windows[0].used_percent, None);
}

#[test]
fn an_operators_limit_parks_the_run_until_its_time() {
    let limit = |s: u64| Input::LimitAsked { until: at(s), account: None };
    let mut world = World::new(limited(|_| {}), |_| Act::works(MINUTE)).at(Dur::from_secs(30), limit(HOUR_S));
    world.end();
    assert_eq!(sessions_s(&world), [0, HOUR_S, HOUR_S + 60]);
    assert_eq!(reasons(&world), ["a limit is set until 2026-11-15T21:15:33.000Z"]);
    // A later limit extends the wait, a past one lifts it.
    let mut extended = World::new(limited(|_| {}), |_| Act::works(MINUTE))
        .at(Dur::from_secs(30), limit(HOUR_S))
        .at(Dur::from_secs(120), limit(2 * HOUR_S));
    extended.end();
    assert_eq!(sessions_s(&extended)[1], 2 * HOUR_S);
    let mut lifted = World::new(limited(|_| {}), |_| Act::works(MINUTE))
        .at(Dur::from_secs(30), limit(HOUR_S))
        .at(Dur::from_secs(120), limit(0));
    lifted.end();
    assert_eq!(sessions_s(&lifted)[1], 120);
}

#[test]
fn a_limit_never_shortens_the_wait_for_a_service_that_refused() {
    let resets = at(2 * HOUR_S);
    let mut world = World::new(limited(|s| s.max_iterations = Some(1)), move |job| match job.iteration.0 {
        1 => Act::limited(Some(resets)),
        _ => Act::works(MINUTE),
    })
    .at(Dur::from_secs(600), Input::LimitAsked { until: at(HOUR_S), account: None });
    world.end();
    assert_eq!(sessions_s(&world)[1], 2 * HOUR_S + 15);
}

#[test]
fn the_limit_of_an_account_leaves_the_other_agents_free() {
    let chain = |s: &mut Settings| {
        s.recovery.agents = vec![AgentPlan { agent: vec!["other".to_owned()], reader: ReaderName::Plain }];
    };
    let mut world = World::new(limited(chain), |_| Act::works(MINUTE)).at(
        Dur::from_secs(30),
        Input::LimitAsked { until: at(HOUR_S), account: Some("plain agent".to_owned()) },
    );
    world.end();
    assert_eq!((agents(&world), sessions_s(&world)), (vec![0, 1, 1], vec![0, 60, 120]));
}

#[test]
fn a_new_run_knows_what_another_run_learned() {
    let windows = vec![Window {
        window: WindowName::FiveHour,
        used_percent: percent(97.0),
        resets_at: Some(at(HOUR_S)),
    }];
    let known = WindowsUsed { account: "plain agent".to_owned(), seen_at: at(0), windows };
    let mut world = World::new(limited(|s| s.max_iterations = Some(1)), |_| Act::works(MINUTE))
        .knowing_windows(vec![known]);
    world.end();
    assert_eq!(sessions_s(&world), [HOUR_S + 15], "no session only to find out");
}
