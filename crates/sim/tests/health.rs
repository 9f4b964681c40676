//! Session health in virtual time: an agent that waits for a person, one that retries, one with an unknown format.

use dogwatch_core::record::event::{Event, Observation, Outcome};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::record::status::{DoingStatus, State, Status};
use dogwatch_core::run::input::{Input, NodeInput};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::{Plan, ReaderName};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::health::HealthIssue;
use dogwatch_core::watch::{Channel, Fact, ToolStarted};
use dogwatch_sim::plan::plan;
use dogwatch_sim::{Act, Drive, World};

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

fn job(iteration: u64) -> Job {
    Job { node: NodeIx(0), iteration: Iteration(iteration), kind: JobKind::Session }
}

fn asks(iteration: u64, what: &str) -> Input {
    Input::Job(job(iteration), NodeInput::Noted(Fact::NeedsHuman { what: what.to_owned() }))
}

fn says(at_s: u64) -> Input {
    // The awake clock of the world starts at one second.
    let at = Awake(at_s * 1000 + 1000);
    Input::Job(job(1), NodeInput::Observed(Observation::single(Channel::Stdout, at)))
}

fn retries() -> Input {
    let issue = HealthIssue::Retrying { status: Some(529), delay: Some(secs(30)) };
    Input::Job(job(1), NodeInput::HealthIssueFound(issue))
}

fn quick() -> Plan {
    plan(|s| {
        s.max_iterations = Some(1);
        s.reader = ReaderName::Claude;
        s.watchdog.idle = Limit::At(secs(120));
        s.watchdog.human = Limit::At(secs(300));
    })
}

fn doing(world: &World) -> (State, DoingStatus) {
    let view = world.run().view();
    let status = Status::of(view, Some(view.last));
    (status.state, status.nodes[0].doing.clone())
}

#[test]
fn an_agent_that_asks_for_a_person_is_not_blamed_for_its_silence_until_the_deadline() {
    let mut world = World::new(quick(), |_| Act::hangs())
        .at(secs(5), says(5))
        .at(secs(10), asks(1, "may I delete it?"))
        .at(secs(20), asks(1, "may I?"));
    world.drive(Drive::Until(secs(309)));
    let (state, doing) = doing(&world);
    assert_eq!(state, State::NeedsHuman);
    let DoingStatus::Working { needs_human: Some(asks), .. } = doing else { panic!("{doing:?}") };
    assert_eq!(asks.what, "may I delete it?", "the session waits for the first question");
    assert_eq!(asks.until.map(|at| at.0), Some(1_794_773_733_000 + 310_000));

    let end = world.end();
    let story = world.story();
    let from = story.iter().position(|e| e.starts_with("needs_human")).expect("it asked");
    let wanted = [
        "needs_human may I delete it?",
        "needs_human_ended deadline",
        "hard_stop HUMAN_DEADLINE_EXCEEDED",
        "session_signalled interrupt",
        "session_ended by watchdog",
        "iteration_timed_out",
    ];
    assert_eq!(story[from..from + wanted.len()], wanted);
    assert_eq!(world.elapsed(), 310_000, "ended at its deadline, not before");
    assert_eq!(end.outcome, Outcome::Catastrophic);
    let stop = world.events.iter().find_map(|r| match &r.event {
        Event::HardStop { message, recoverable, .. } => Some((message.clone(), *recoverable)),
        _ => None,
    });
    let message = "Needs human: no answer for 300.0s (limit 300s): may I delete it?".to_owned();
    assert_eq!(stop, Some((message, true)), "the next prompt reports the missing answer");
}

#[test]
fn an_unanswered_question_does_not_count_for_the_circuit() {
    let plan = plan(|s| {
        s.max_iterations = Some(8);
        s.errors.max = 3;
        s.watchdog.human = Limit::At(secs(2));
    });
    let mut world = World::new(plan, |_| Act::hangs());
    for n in 1..=8 {
        world = world.at(secs(n * 4 - 3).saturating_add(Dur::from_millis(n)), asks(n, "a key"));
        // By then the previous session has ended: each lasts until two seconds after its question.
    }
    world.drive(Drive::Until(secs(20)));
    assert_eq!(world.run().view().nodes[0].counts.timed_out, 5);
    assert_eq!(world.run().view().nodes[0].failures.in_row, 0);
    assert!(world.run().view().ended.is_none());
}

#[test]
fn an_agent_that_continues_after_its_question_is_subject_to_the_silence_limit() {
    let tool = ToolStarted {
        id: "t".into(),
        name: "Bash".into(),
        subject: String::new(),
        call: 1,
        timeout: None,
        delegates: false,
        mcp: false,
        heartbeat: false,
    };
    let started = Input::Job(job(1), NodeInput::Noted(Fact::ToolStarted(tool)));
    let mut world = World::new(quick(), |_| Act::hangs())
        .at(secs(5), started)
        .at(secs(10), asks(1, "may I?"))
        .at(secs(100), says(100));
    world.drive(Drive::Until(secs(101)));
    let (state, doing) = doing(&world);
    assert_eq!(state, State::Working);
    assert!(matches!(doing, DoingStatus::Working { needs_human: None, .. }), "{doing:?}");
    assert!(world.story().contains(&"needs_human_ended progress".to_owned()));
    world.end();
    assert!(world.story().contains(&"hard_stop TOOL_CEILING_EXCEEDED".to_owned()), "{:?}", world.story());
}

#[test]
fn a_session_that_ends_clears_its_question() {
    let mut world = World::new(quick(), |_| Act::works(secs(30))).at(secs(10), asks(1, "may I?"));
    world.end();
    assert!(world.story().contains(&"needs_human_ended session".to_owned()), "{:?}", world.story());
    assert!(!world.story().iter().any(|e| e.starts_with("hard_stop")));
}

#[test]
fn without_a_deadline_the_session_ceiling_ends_it() {
    let mut plan = quick();
    plan.nodes[0].settings.watchdog.human = Limit::Off;
    let mut world = World::new(plan, |_| Act::hangs()).at(secs(10), asks(1, "may I?"));
    world.end();
    assert!(world.story().contains(&"hard_stop SESSION_CEILING_EXCEEDED".to_owned()), "{:?}", world.story());
    assert!(world.story().contains(&"needs_human_ended session".to_owned()));
}

#[test]
fn retrying_is_recorded_once_until_there_is_progress() {
    let mut world = World::new(quick(), |_| Act::hangs())
        .at(secs(5), says(5))
        .at(secs(10), retries())
        .at(secs(40), retries())
        .at(secs(50), says(50))
        .at(secs(60), retries());
    world.drive(Drive::Until(secs(45)));
    let (state, at) = doing(&world);
    assert_eq!(state, State::Working);
    let DoingStatus::Working { retrying: Some(retrying), .. } = at else { panic!("{at:?}") };
    assert_eq!((retrying.status, retrying.delay_s), (Some(529), Some(secs(30))));
    world.drive(Drive::Until(secs(55)));
    assert!(matches!(doing(&world).1, DoingStatus::Working { retrying: None, .. }));
    world.end();
    assert_eq!(world.story().iter().filter(|e| *e == "agent_retrying").count(), 2);
    assert_eq!(world.elapsed(), 170_000, "a retry is not progress: ended 120 s after the last progress");
}

#[test]
fn drift_is_recorded_once_and_stays_for_the_session() {
    let drift = Input::Job(job(1), NodeInput::HealthIssueFound(HealthIssue::Drifted));
    let mut world = World::new(quick(), |_| Act::hangs())
        .at(secs(5), drift.clone())
        .at(secs(6), says(6))
        .at(secs(7), drift);
    world.drive(Drive::Until(secs(8)));
    assert!(matches!(doing(&world).1, DoingStatus::Working { drifted: true, .. }));
    assert_eq!(world.story().iter().filter(|e| *e == "agent_drifted").count(), 1);
}

#[test]
fn a_silent_agent_whose_children_work_gets_the_time_that_effort_buys_and_no_more() {
    let limits = || {
        plan(|s| {
            s.watchdog.idle = Limit::At(secs(300));
            s.watchdog.tool = Limit::At(secs(600));
        })
    };
    let stopped = |world: &World| {
        let stop = |r: &dogwatch_core::record::event::Recorded| match &r.event {
            Event::HardStop { .. } => Some(r.awake_ms.0 / 1000 - 1),
            _ => None,
        };
        world.events.iter().find_map(stop)
    };
    let busy = |lasts| Act { is_busy: true, lasts, ..Act::hangs() };
    let mut world = World::new(limits(), move |_| busy(Some(secs(700))));
    world.drive(Drive::Until(secs(701)));
    assert_eq!(stopped(&world), None, "{:#?}", world.story());
    let mut world = World::new(limits(), move |_| busy(None));
    world.drive(Drive::Until(secs(1000)));
    assert_eq!(stopped(&world), Some(900), "{:#?}", world.story());
    let mut world = World::new(limits(), |_| Act::hangs());
    world.drive(Drive::Until(secs(1000)));
    assert_eq!(stopped(&world), Some(300), "{:#?}", world.story());
}
