//! The agent channel in virtual time: calls are evidence, heartbeats are not.

use dogwatch_core::record::event::Event;
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::record::view::NodeView;
use dogwatch_core::run::agent_channel::{AgentChannel, AgentResponse, Handled, Phase, RequestBody};
use dogwatch_core::run::input::{Input, NodeInput};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::StopReason;
use dogwatch_core::watch::feed::Feed;
use dogwatch_sim::{Act, Drive, World, plan};

const JOB: Job = Job { node: NodeIx(0), iteration: Iteration(1), kind: JobKind::Session };
const IDLE: Dur = Dur::from_mins(5);

/// Creates a world whose single session lasts an hour, prints nothing, and sends a request every 40 s.
fn speaking(mut say: impl FnMut(u64) -> RequestBody) -> World {
    let plan = plan::plan(|settings| {
        settings.max_iterations = Some(1);
        settings.watchdog.idle = Limit::At(IDLE);
        settings.watchdog.session = Limit::Off;
    });
    let lasts = Dur::from_mins(58);
    let mut world = World::new(plan, move |_| Act::works(lasts));
    let (mut channel, mut feed) = (AgentChannel::new(JOB), Feed::new(true));
    let node = node();
    for n in 1..85 {
        let at = Dur::from_secs(40 * n);
        for input in handle_at(&mut channel, Awake(1_000 + at.as_millis()), &node, &say(n), &mut feed).inputs
        {
            world = world.at(at, input);
        }
    }
    world
}

/// Returns a node that has started and has no history.
fn node() -> NodeView {
    let once = plan::plan(|settings| settings.max_iterations = Some(1));
    let mut world = World::new(once, |_| Act::works(Dur::from_secs(1)));
    world.drive(Drive::Until(Dur::from_millis(10)));
    world.run().view().nodes[0].clone()
}

fn stops(world: &World) -> Vec<(StopReason, u64)> {
    let stop = |e: &dogwatch_core::record::event::Recorded| match &e.event {
        Event::HardStop { reason, .. } => Some((*reason, e.awake_ms.0 - 1_000)),
        _ => None,
    };
    world.events.iter().filter_map(stop).collect()
}

#[test]
fn origin_1_a_silent_agent_that_makes_calls_is_not_ended() {
    let mut world = speaking(|n| RequestBody::Progress {
        message: format!("file {n} is ported"),
        done: Some(n),
        total: None,
    });
    let end = world.end();
    assert_eq!(stops(&world), []);
    assert_eq!((end.completed, end.exit_code), (1, 0));
    let deferred = world.story().iter().filter(|word| *word == "watchdog_continue mcp_tool").count();
    assert!(deferred > 0, "the verdict names what kept it from ending the session");
}

#[test]
fn origin_1_calls_through_the_proxy_are_evidence() {
    let mut world = speaking(|n| RequestBody::Call {
        server: "files".into(),
        tool: "search".into(),
        phase: if n % 2 == 0 { Phase::Start } else { Phase::End },
    });
    world.end();
    assert_eq!(stops(&world), []);
}

#[test]
fn origin_1_an_agent_that_only_sends_heartbeats_is_ended_at_the_limit() {
    let mut world = speaking(|_| RequestBody::Heartbeat);
    world.end();
    assert_eq!(stops(&world), [(StopReason::NoOutputDeadline, IDLE.as_millis())]);
}

#[test]
fn a_repeated_note_is_a_heartbeat_even_with_a_new_time() {
    let mut world = speaking(|n| RequestBody::Progress {
        message: format!("still working at 2026-11-15T21:{:02}:10Z", n % 60),
        done: None,
        total: None,
    });
    world.end();
    // The first of them was new.
    let at = stops(&world)[0].1;
    assert!(at <= 40_000 + IDLE.as_millis(), "{at}");
    assert_eq!(stops(&world)[0].0, StopReason::NoOutputDeadline);
}

/// Returns the result of a request, including the inputs from the session's feed.
fn handle_at(
    channel: &mut AgentChannel,
    at: Awake,
    node: &NodeView,
    body: &RequestBody,
    feed: &mut Feed,
) -> Handled {
    let mut result = channel.handle(at, node, body, feed);
    let mut facts = Vec::new();
    feed.take_items(&mut facts);
    result.inputs.extend(facts.into_iter().map(|fact| Input::from_feed(JOB, fact)));
    result
}

fn handle(channel: &mut AgentChannel, at_s: u64, body: &RequestBody) -> Handled {
    handle_at(channel, Awake(at_s * 1_000), &node(), body, &mut Feed::new(true))
}

fn progress(text: &str) -> RequestBody {
    RequestBody::Progress { message: text.to_owned(), done: None, total: None }
}

#[test]
fn the_last_reported_state_counts_like_a_marker() {
    let mut channel = AgentChannel::new(JOB);
    let state = |state: &str, reason: Option<&str>| RequestBody::State {
        state: state.to_owned(),
        reason: reason.map(str::to_owned),
    };
    handle(&mut channel, 1, &state("done", None));
    assert_eq!(channel.marker().map(|m| m.state.as_str()), Some("done"));
    handle(&mut channel, 2, &state("idle", Some("no_pending_tasks")));
    let marker = channel.marker().expect("it was named");
    assert_eq!((marker.state.as_str(), marker.attr("reason")), ("idle", Some("no_pending_tasks")));
    for bad in ["", "two words", "a=b", "-->", &"x".repeat(65)] {
        let refused = handle(&mut channel, 3, &state(bad, None)).answer;
        assert!(matches!(refused, AgentResponse::Refused { .. }), "{bad:?}");
    }
    assert_eq!(channel.marker().map(|m| m.state.as_str()), Some("idle"), "a refused request changes nothing");
}

#[test]
fn a_flood_of_reports_is_counted_and_not_recorded() {
    let mut channel = AgentChannel::new(JOB);
    let reports = |inputs: &[Input]| {
        inputs.iter().filter(|i| matches!(i, Input::Job(_, NodeInput::Reported(_)))).count()
    };
    let written: usize =
        (0..1_000).map(|n| reports(&handle(&mut channel, 1, &progress(&format!("step {n}"))).inputs)).sum();
    assert_eq!(written, 20);
    let later = handle(&mut channel, 2, &progress("one more")).inputs;
    let withheld = later.iter().find_map(|i| match i {
        Input::Job(_, NodeInput::Reported(report)) => Some(report.withheld),
        _ => None,
    });
    assert_eq!(withheld, Some(980));
}

#[test]
fn a_repeated_error_is_not_evidence_but_counts_as_an_error() {
    let mut channel = AgentChannel::new(JOB);
    let error = RequestBody::Error { text: "permission denied".into() };
    assert_eq!(handle(&mut channel, 1, &error).answer, AgentResponse::Noted { evidence: true });
    let again = handle(&mut channel, 20, &error);
    assert_eq!(again.answer, AgentResponse::Noted { evidence: false });
    assert!(
        again.inputs.iter().any(|i| matches!(i, Input::Job(_, NodeInput::Noted(_)))),
        "{:?}",
        again.inputs
    );
    assert!(!again.inputs.iter().any(|i| matches!(i, Input::Job(_, NodeInput::Observed(_)))));
}

#[test]
fn artifacts_have_names_sizes_and_a_number() {
    let mut channel = AgentChannel::new(JOB);
    let artifact =
        |name: &str, bytes| RequestBody::Artifact { name: name.to_owned(), bytes, sha256: "ab".into() };
    for bad in ["", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a\\b", "a\0", "é", &"x".repeat(101)]
    {
        let refused = handle(&mut channel, 1, &artifact(bad, 1)).answer;
        assert!(matches!(refused, AgentResponse::Refused { .. }), "{bad:?}");
    }
    assert!(matches!(
        handle(&mut channel, 1, &artifact("a", 1024 * 1024 + 1)).answer,
        AgentResponse::Refused { .. }
    ));
    for n in 0..100 {
        assert_eq!(
            handle(&mut channel, 1, &artifact(&format!("a{n}"), 1024 * 1024)).answer,
            AgentResponse::Granted
        );
    }
    assert!(matches!(
        handle(&mut channel, 1, &artifact("one-more", 1)).answer,
        AgentResponse::Refused { .. }
    ));
    assert_eq!(
        handle(&mut channel, 1, &artifact("a7", 1)).answer,
        AgentResponse::Granted,
        "an existing artifact is replaced"
    );
}

#[test]
fn an_agent_can_run_the_checks_at_most_every_half_minute() {
    let mut channel = AgentChannel::new(JOB);
    assert_eq!(handle(&mut channel, 10, &RequestBody::CheckDone).answer, AgentResponse::Granted);
    let refused = handle(&mut channel, 39, &RequestBody::CheckDone).answer;
    assert_eq!(
        refused,
        AgentResponse::Refused { why: "the checks ran 29 s ago; keep working and retry in 1 s".into() }
    );
    assert_eq!(handle(&mut channel, 40, &RequestBody::CheckDone).answer, AgentResponse::Granted);
}

#[test]
fn a_node_without_history_has_not_failed() {
    let said = handle(&mut AgentChannel::new(JOB), 1, &RequestBody::WhatFailed).answer;
    let AgentResponse::Failed { text } = said else { panic!("{said:?}") };
    assert!(text.starts_with("Nothing has failed"), "{text}");
}
