//! The content of the status document, whose ages are computed at the moment it is read.

use dogwatch_core::record::event::{
    Cause, EndedBy, Event, IterationEnd, NodeCounts, Outcome, Recorded, RunEnded, SessionEnded, Usage,
    WaitEndedBy, WaitWhy,
};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::status::{DoingStatus, OrchestratorStatus, State, Status};
use dogwatch_core::record::view::View;
use dogwatch_core::run::caller::Source;
use dogwatch_core::settings::{IdlePolicy, Settings, StopAfter};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Boot, Moment, Wall};
use dogwatch_core::watch::{Channel, Fact};
use dogwatch_sim::plan;
use serde_json::{Value, json};

const BEGAN: Moment = Moment { awake: Awake(1_000), boot: Boot(5_000), wall: Wall(1_794_773_733_000) };

/// Feeds events to a view; time advances only on request.
struct Story {
    view: View,
    now: Moment,
}

impl Story {
    fn of(change: impl FnOnce(&mut Settings)) -> Story {
        let mut story = Story { view: View::default(), now: BEGAN };
        story.tell(Event::RunStarted(Box::new(plan::started(plan::plan(change)))));
        story
    }

    fn idling() -> Story {
        Story::of(|s| s.idle = Some(IdlePolicy::default()))
    }

    fn tell(&mut self, event: Event) -> &mut Story {
        self.view.apply(&Recorded::new(self.view.seq + 1, self.now, event));
        self
    }

    fn pass(&mut self, seconds: u64) -> &mut Story {
        self.now = self.now.plus(Dur::from_secs(seconds));
        self
    }

    fn begin(&mut self, n: u64) -> &mut Story {
        self.tell(Event::IterationStarted { node: node(), iteration: Iteration(n), cause: Cause::Next })
    }

    fn idle(&mut self, n: u64, reason: &str) -> &mut Story {
        self.begin(n).tell(Event::IterationIdle {
            end: end(n),
            reason: reason.into(),
            consecutive: n,
            streak_s: Dur::ZERO,
            skipped: false,
        })
    }

    fn wait(&mut self, why: WaitWhy, seconds: u64) -> &mut Story {
        let delay = Dur::from_secs(seconds);
        let until = self.now.wall.plus(delay);
        self.tell(Event::WaitStarted {
            node: node(),
            why,
            delay_s: Some(delay),
            until: Some(until),
            utc_offset_s: None,
            because: None,
        })
    }

    fn wake(&mut self) -> &mut Story {
        self.tell(Event::WaitEnded { node: node(), by: WaitEndedBy::Timer })
    }

    fn ended(&mut self, outcome: Outcome, exit_code: u8) -> &mut Story {
        self.tell(Event::RunEnded(RunEnded {
            outcome,
            reason: "no pending tasks".into(),
            verified: false,
            iterations: 8,
            completed: 8,
            failed: 0,
            idle: 8,
            nodes: NodeCounts::default(),
            flake_retries: 0,
            total_duration_s: Dur::ZERO,
            exit_code,
        }))
    }

    fn status(&self) -> Status {
        Status::of(&self.view, Some(self.now))
    }

    fn doing(&self) -> DoingStatus {
        self.status().nodes[0].doing.clone()
    }

    fn document(&self) -> Value {
        serde_json::to_value(OrchestratorStatus::of(&self.view, Some(self.now))).expect("serializes")
    }
}

fn node() -> NodeName {
    NodeName::new("loop")
}

fn end(n: u64) -> IterationEnd {
    IterationEnd {
        node: node(),
        iteration: Iteration(n),
        duration_s: Dur::ZERO,
        because: "exit code 1".into(),
        fingerprint: Some("exit 1".into()),
    }
}

#[test]
fn the_age_of_evidence_is_computed_when_the_status_is_read() {
    let mut story = Story::of(|_| {});
    story.begin(1).tell(Event::SessionStarted {
        node: node(),
        iteration: Iteration(1),
        pid: 77,
        argv: Vec::new(),
        agent: 0,
        resumes: None,
    });
    story.pass(10);
    let at = story.now.awake;
    // Built from JSON, because an observation gains fields that do not matter here.
    let seen = json!({
        "event": "observed", "node": "loop", "iteration": 1, "channel": "stdout",
        "first_ms": at, "last_ms": at, "count": 3, "messages": 2, "max_gap_ms": 0,
    });
    story.tell(serde_json::from_value(seen).expect("is an event"));
    for (wait, age) in [(0, 0), (5, 5), (60, 65)] {
        story.pass(wait);
        let DoingStatus::Working { pid: 77, working_s, messages: 2, last_evidence: Some(last), .. } =
            story.doing()
        else {
            panic!("{:?}", story.doing())
        };
        assert_eq!(working_s, Some(Dur::from_secs(10 + age)));
        assert_eq!(last.age_s, Some(Dur::from_secs(age)));
    }
    assert_eq!(story.status().state, State::Working);
    assert_eq!(story.status().supervised_s, Dur::from_secs(75));
}

#[test]
fn a_wait_shows_its_reason_and_remaining_time() {
    let mut story = Story::idling();
    story.idle(1, "no_pending_tasks").wait(WaitWhy::Idle, 30);
    let until = story.now.wall.plus(Dur::from_secs(30));
    for (pass, left) in [(0, 30), (29, 1), (1, 0), (100, 0)] {
        story.pass(pass);
        assert_eq!(
            story.doing(),
            DoingStatus::Waiting {
                why: WaitWhy::Idle,
                delay_s: Some(Dur::from_secs(30)),
                until: Some(until),
                left_s: Some(Dur::from_secs(left)),
                because: None,
            }
        );
    }
    let status = story.status();
    assert_eq!(status.state, State::Waiting);
    let idle_streak = status.nodes[0].idle_streak.clone().expect("is idle");
    assert_eq!(
        (idle_streak.count, idle_streak.reason.as_str(), idle_streak.lasted_s),
        (1, "no_pending_tasks", Dur::from_secs(130))
    );
}

#[test]
fn a_pause_has_no_length_and_no_end() {
    let mut story = Story::of(|_| {});
    story
        .tell(Event::Paused {})
        .tell(Event::MessageReceived { text: "mind the tests".into(), from: Source::Operator });
    story.tell(Event::WaitStarted {
        node: node(),
        why: WaitWhy::Paused,
        delay_s: None,
        until: None,
        utc_offset_s: None,
        because: None,
    });
    let status = serde_json::to_value(story.status()).expect("serializes");
    assert_eq!(status["state"], "paused");
    assert_eq!(status["paused"], true);
    assert_eq!(status["told"], json!(["mind the tests"]));
    let expected =
        json!({"what": "waiting", "why": "paused", "delay_s": null, "until": null, "left_s": null});
    assert_eq!(status["nodes"][0]["doing"], expected);
}

#[test]
fn a_pause_requested_during_a_session_leaves_the_run_working() {
    let mut story = Story::of(|_| {});
    story.begin(1).tell(session(1)).tell(Event::Paused {});
    assert_eq!((story.status().state, story.status().paused), (State::Working, true));
}

#[test]
fn without_a_supervisor_nothing_ages() {
    let mut story = Story::idling();
    story.idle(1, "blocked").pass(7).wait(WaitWhy::Idle, 30);
    let status = Status::of(&story.view, None);
    assert_eq!((status.state, status.live), (State::Lost, false));
    assert_eq!(status.supervised_s, Dur::from_secs(7));
    assert_eq!(status.nodes[0].idle_streak.as_ref().map(|s| s.lasted_s), Some(Dur::from_secs(7)));
    let DoingStatus::Waiting { until: Some(_), left_s: None, .. } = status.nodes[0].doing else {
        panic!("{:?}", status.nodes[0].doing)
    };
    assert!(!OrchestratorStatus::of(&story.view, None).running);
}

fn session(n: u64) -> Event {
    Event::SessionStarted {
        node: node(),
        iteration: Iteration(n),
        pid: 7,
        argv: Vec::new(),
        agent: 0,
        resumes: None,
    }
}

#[test]
fn a_lost_run_counts_its_open_iteration_and_the_time_until_the_loss() {
    let mut story = Story::of(|_| {});
    story.begin(1).tell(session(1));
    let open = Status::of(&story.view, None);
    assert_eq!((open.supervised_s, open.unfinished), (Dur::ZERO, 1), "only the events are known");
    story.view.note_loss(story.now.wall.plus(Dur::from_secs(6)));
    let lost = Status::of(&story.view, None);
    assert_eq!(lost.supervised_s, Dur::from_secs(6), "the agent was silent and worked");
    story.view.note_loss(story.now.wall.plus(Dur::from_secs(1)));
    let again = Status::of(&story.view, None);
    assert_eq!(again.supervised_s, lost.supervised_s, "the keeper had not noticed it yet");
    assert_eq!((lost.spent.unknown_tokens, lost.spent.unknown_cost), (1, 1));
    let live = story.pass(2).status();
    assert_eq!((live.unfinished, live.spent.unknown_cost, live.supervised_s), (0, 0, Dur::from_secs(2)));
    story.tell(Event::RunResumed(plan::resumed()));
    assert_eq!(story.status().spent.unknown_cost, 1, "the cost of the interrupted session remains unknown");
}

#[test]
fn figures_of_an_interrupted_session_are_shown_as_far_as_they_are_recorded() {
    let mut story = Story::of(|_| {});
    let usage = Usage { tokens: Some(70), ..Usage::default() };
    story.begin(1).tell(session(1)).tell(Event::Used { node: node(), iteration: Iteration(1), usage });
    let spent = Status::of(&story.view, None).spent;
    assert_eq!((spent.tokens, spent.unknown_tokens, spent.unknown_cost), (70, 0, 1));
    // The usage of the next session comes on top.
    story.tell(Event::RunResumed(plan::resumed())).begin(2).tell(session(2));
    story.tell(Event::Used { node: node(), iteration: Iteration(2), usage });
    let spent = story.status().spent;
    assert_eq!((spent.tokens, spent.unknown_tokens, spent.unknown_cost), (140, 0, 1));
}

#[test]
fn an_ended_run_shows_its_outcome_and_exit_code() {
    let mut story = Story::idling();
    story.ended(Outcome::Idle, 0);
    let status = Status::of(&story.view, None);
    assert_eq!(status.state, State::Ended);
    let ended = status.ended.expect("it ended");
    assert_eq!(
        (ended.outcome, ended.reason.as_str(), ended.exit_code),
        (Outcome::Idle, "no pending tasks", 0)
    );
    assert_eq!(status.last_event.map(|e| e.seq), Some(2));
}

#[test]
fn problems_are_counted_and_the_last_one_is_shown() {
    let mut story = Story::of(|_| {});
    for detail in ["first", "second"] {
        story.tell(Event::Trouble { kind: "disk_full".into(), detail: detail.into() });
    }
    let status = serde_json::to_value(story.status()).expect("serializes");
    assert_eq!(status["troubles"], json!({"count": 2, "last": {"kind": "disk_full", "detail": "second"}}));
}

#[test]
fn a_run_without_events_has_a_status() {
    let status = Status::of(&View::default(), None);
    assert_eq!((status.run, status.started_at, status.last_event), (None, None, None));
    assert_eq!(status.supervised_s, Dur::ZERO);
}

#[test]
fn a_status_is_read_back_as_it_was_written() {
    let mut story = Story::idling();
    story.idle(1, "blocked").wait(WaitWhy::Idle, 30).pass(1);
    let text = serde_json::to_string(&story.status()).expect("serializes");
    assert_eq!(serde_json::from_str::<Status>(&text).expect("reads back"), story.status());
}

// The table of the specification says 300000 at the fifth tick, and so does its formula.
#[test]
fn origin_3_the_status_document_during_backoff() {
    let mut story = Story::idling();
    for (n, wait) in [(1, 30), (2, 60), (3, 120), (4, 240)] {
        story.idle(n, "no_pending_tasks").wait(WaitWhy::Idle, wait).pass(wait).wake();
    }
    story.idle(5, "no_pending_tasks").wait(WaitWhy::Idle, 300);
    let expected = json!({
        "running": true,
        "tickCount": 5,
        "errorCount": 0,
        "recentErrors": 0,
        "consecutiveIdleTicks": 5,
        "currentTickInterval": 300_000,
        "lastIdleReason": "no_pending_tasks",
        "config": {
            "dryRun": false,
            "tickInterval": 30_000,
            "maxIdleTicksBeforeStop": 8,
            "maxErrors": 5,
            "errorWindow": 300_000,
            "enableTelemetry": true
        }
    });
    assert_eq!(story.document(), expected);
}

#[test]
fn origin_3_the_status_document_after_auto_stop() {
    let mut story = Story::idling();
    for (n, wait) in [(1, 30), (2, 60), (3, 120), (4, 240), (5, 300), (6, 300), (7, 300)] {
        story.idle(n, "no_pending_tasks").wait(WaitWhy::Idle, wait).pass(wait).wake();
    }
    story.idle(8, "no_pending_tasks").ended(Outcome::Idle, 0);
    let document = story.document();
    let keys = ["running", "tickCount", "consecutiveIdleTicks", "currentTickInterval", "lastIdleReason"];
    let seen = keys.map(|key| document[key].clone());
    assert_eq!(seen, [json!(false), json!(8), json!(8), json!(300_000), json!("no_pending_tasks")]);
}

#[test]
fn origin_3_the_status_document_after_work_resumed() {
    let mut story = Story::idling();
    story.idle(1, "no_pending_tasks").wait(WaitWhy::Idle, 30).pass(30).wake();
    story.begin(2).tell(Event::IterationCompleted(end(2)));
    let document = story.document();
    let keys = ["tickCount", "consecutiveIdleTicks", "currentTickInterval", "lastIdleReason"];
    assert_eq!(keys.map(|key| document[key].clone()), [json!(2), json!(0), json!(30_000), Value::Null]);
}

#[test]
fn origin_3_errors_are_counted_in_total_and_within_the_window() {
    let mut story = Story::idling();
    for n in 1..=3 {
        story.begin(n).tell(Event::IterationFailed(end(n))).pass(200);
    }
    story.begin(4).tell(Event::IterationTimedOut(end(4)));
    let document = story.document();
    assert_eq!((&document["errorCount"], &document["recentErrors"]), (&json!(4), &json!(1)));
    assert_eq!(story.status().nodes[0].failures_in_row, 3);
}

#[test]
fn missing_settings_are_null_in_the_document() {
    for (limit, shown) in [
        (StopAfter::Never, Value::Null),
        (StopAfter::Count(3), json!(3)),
        (StopAfter::PerReason(vec![("blocked".into(), 2)]), Value::Null),
    ] {
        let idle = IdlePolicy { stop_after: limit, ..IdlePolicy::default() };
        let story = Story::of(|s| s.idle = Some(idle));
        assert_eq!(story.document()["config"]["maxIdleTicksBeforeStop"], shown);
    }
    let nothing = serde_json::to_value(OrchestratorStatus::of(&View::default(), None)).expect("serializes");
    assert_eq!(nothing["currentTickInterval"], Value::Null);
    assert_eq!(nothing["config"]["tickInterval"], Value::Null);
}

#[test]
fn the_documented_examples_match_the_responses() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/status.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let examples: Vec<Value> = page
        .split("```json\n")
        .skip(1)
        .map(|rest| serde_json::from_str(rest.split("```").next().unwrap_or("")).expect("an example is JSON"))
        .collect();
    let [own, document] = examples.as_slice() else { panic!("two examples") };
    let read: Status = serde_json::from_value(own.clone()).expect("is a status");
    assert_eq!(serde_json::to_value(read).expect("serializes"), *own);
    let read: OrchestratorStatus = serde_json::from_value(document.clone()).expect("is the document");
    assert_eq!(serde_json::to_value(read).expect("serializes"), *document);
}

#[test]
fn last_activity_and_usage_outlive_the_session() {
    let mut story = Story::idling();
    assert_eq!(Status::of(&story.view, Some(story.now)).last_evidence, None);
    story.begin(1).tell(Event::SessionStarted {
        node: node(),
        iteration: Iteration(1),
        pid: 7,
        argv: vec!["agent".into()],
        agent: 0,
        resumes: None,
    });
    story.pass(3).tell(Event::Fact {
        node: node(),
        iteration: Iteration(1),
        fact: Fact::ToolEnded {
            id: "t".into(),
            ok: true,
            result: 1,
            error: String::new(),
            heartbeat: false,
            canceled: false,
        },
    });
    let seen = story.now.wall;
    story.pass(40);
    let mut ended = session_end();
    ended.cost_usd = Some(0.25);
    story.tell(Event::SessionEnded(ended)).tell(Event::SessionEnded(session_end()));
    let status = Status::of(&story.view, Some(story.now));
    let last = status.last_evidence.expect("a tool ended");
    assert_eq!((last.channel, last.at), (Channel::Stdout, seen));
    assert_eq!((status.spent.cost_usd, status.spent.unknown_cost), (0.25, 1));
}

fn session_end() -> SessionEnded {
    SessionEnded {
        node: node(),
        iteration: Iteration(1),
        exit_code: Some(0),
        signal: None,
        ended_by: EndedBy::Itself,
        duration_s: Dur::from_secs(1),
        messages: 0,
        tools: 1,
        tokens: None,
        cost_usd: None,
        cost_source: None,
        prices: None,
        counts: None,
        is_error: None,
        said: String::new(),
        stdout_bytes: 0,
        stderr_bytes: 0,
        cut_bytes: 0,
        leftovers: 0,
        leftover_names: Vec::new(),
        session: None,
        agent_version: None,
        model: None,
    }
}
