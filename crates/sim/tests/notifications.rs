//! Notifications in virtual time: which events notify, each once and without delaying the run.

use dogwatch_core::record::event::{Observation, Outcome};
use dogwatch_core::record::notification::{
    How, MAX_PENDING_NOTIFICATIONS, NotificationKind, NotifyPolicy, Webhook,
};
use dogwatch_core::run::input::{EndSignal, Input, NodeInput};
use dogwatch_core::settings::{Plan, Settings};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::watch::sign::{Limit as Refusal, LimitKind};
use dogwatch_core::watch::{Channel, Fact};
use dogwatch_sim::plan::plan;
use dogwatch_sim::{Act, Drive, World};

const MINUTE: Dur = Dur::from_mins(1);

fn telling(change: impl FnOnce(&mut Settings)) -> Plan {
    plan(|s| {
        s.notify = NotifyPolicy {
            on: NotificationKind::ALL.to_vec(),
            command: Some("tell".to_owned()),
            webhook: None,
            ..NotifyPolicy::default()
        };
        change(s);
    })
}

fn keys(world: &World) -> Vec<String> {
    world.notifications.iter().map(|(_, d)| format!("{} {}", d.notification.key, d.how)).collect()
}

fn story(world: &World) -> Vec<String> {
    let notification = ["notified", "run_ended", "trouble"];
    world.story().into_iter().filter(|line| notification.iter().any(|word| line.starts_with(word))).collect()
}

/// Lets two sessions hang until their limit; later ones work.
fn hangs_twice(s: &mut Settings) {
    s.watchdog.session = Limit::At(MINUTE);
    s.max_iterations = Some(3);
}

fn twice(job: dogwatch_core::run::job::Job) -> Act {
    if job.iteration.0 <= 2 { Act::hangs() } else { Act::works(MINUTE) }
}

#[test]
fn hard_stops_and_the_end_notify_once_and_the_end_before_it_is_recorded() {
    let mut world = World::new(telling(hangs_twice), twice);
    let end = world.end();
    assert_eq!(end.outcome, Outcome::Clean);
    assert_eq!(keys(&world), ["hard_stop:loop:1 command", "hard_stop:loop:2 command", "ended:1 command"]);
    assert_eq!(
        story(&world),
        [
            "notified hard_stop:loop:1 command",
            "notified hard_stop:loop:2 command",
            "notified ended:1 command",
            "run_ended clean 0",
        ]
    );
    let (_, last) = world.notifications.last().expect("three");
    let ended = last.notification.ended.as_ref().expect("it tells how");
    assert_eq!((ended.outcome, ended.exit_code, ended.iterations), (Outcome::Clean, 0, 3));
    assert!(
        last.notification.text.starts_with("the run ended: clean (not verified): "),
        "{}",
        last.notification.text
    );
    let stop = world.notifications[0].1.notification.hard_stop.as_ref().expect("it tells why");
    assert_eq!(stop.evidence_summary.len(), 4);
}

#[test]
fn only_selected_events_notify_and_each_target_is_tracked_separately() {
    let plan = telling(|s| {
        hangs_twice(s);
        s.notify.on = vec![NotificationKind::Ended];
        s.notify.webhook = Webhook::parse("https://example.com/x").ok();
    });
    let mut world = World::new(plan, twice);
    world.end();
    assert_eq!(keys(&world), ["ended:1 command", "ended:1 webhook"]);
    assert_eq!(world.notifications[1].1.how, How::Webhook);
    let mut world = World::new(plan_without(), twice);
    world.end();
    assert_eq!(keys(&world), [""; 0]);
}

fn plan_without() -> Plan {
    plan(hangs_twice)
}

#[test]
fn a_failed_notification_is_only_recorded_as_trouble() {
    let mut world = World::new(telling(hangs_twice), twice);
    world.notification_fails = true;
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Clean, 0));
    assert_eq!(
        story(&world),
        [
            "notified hard_stop:loop:1 command failed",
            "trouble notify",
            "notified hard_stop:loop:2 command failed",
            "trouble notify",
            "notified ended:1 command failed",
            "trouble notify",
            "run_ended clean 0",
        ]
    );
}

#[test]
fn a_hanging_notification_delays_no_iteration_and_the_end_by_twelve_seconds() {
    let mut quick = World::new(telling(hangs_twice), twice);
    quick.end();
    let mut slow = World::new(telling(hangs_twice), twice);
    slow.notification_takes = None;
    slow.end();
    assert_eq!(slow.sessions, quick.sessions);
    assert_eq!(slow.elapsed(), quick.elapsed() + 12_000);
    let unsaid = story(&slow).iter().filter(|line| line.ends_with("failed")).count();
    assert_eq!(unsaid, 3, "failed notifications are recorded: {:?}", story(&slow));
}

#[test]
fn a_signal_ends_the_wait_for_the_last_notification() {
    let plan = telling(|s| s.max_iterations = Some(1));
    let mut world = World::new(plan, |_| Act::works(MINUTE))
        .at(Dur::from_secs(63), Input::EndAsked(EndSignal::Terminate));
    world.notification_takes = None;
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code, world.elapsed()), (Outcome::Clean, 0, 63_000));
}

#[test]
fn nothing_starts_while_the_last_notification_is_sent() {
    let plan = telling(|s| s.delay = Dur::from_secs(5));
    let mut world = World::new(plan, |_| Act::works(MINUTE)).at(Dur::from_secs(62), Input::StopAsked);
    world.notification_takes = None;
    world.now(Input::WakeAsked(dogwatch_core::record::event::WaitEndedBy::Api));
    let end = world.end();
    assert_eq!((end.outcome, end.completed), (Outcome::Stopped, 1));
    assert_eq!(world.sessions.len(), 1, "the wait of 5 s ended within the 12 s, but nothing started");
}

fn refused_for_now() -> Act {
    let mut act = Act::fails();
    act.report.totals.limit =
        Some(Refusal { kind: LimitKind::Overload, resets_at: None, text: "529".to_owned() });
    act
}

#[test]
fn consecutive_refusals_notify_once() {
    let plan = telling(|s| s.max_iterations = Some(2));
    let mut refused = 0;
    let mut world = World::new(plan, move |_| {
        refused += 1;
        match refused {
            1..=3 | 5 => refused_for_now(),
            _ => Act::works(MINUTE),
        }
    });
    world.end();
    let limited: Vec<String> = keys(&world).into_iter().filter(|k| k.starts_with("rate")).collect();
    assert_eq!(limited, ["rate_limited:loop:1 command", "rate_limited:loop:5 command"]);
}

#[test]
fn a_resumed_run_sends_missing_notifications_and_none_twice() {
    let mut world = World::new(telling(hangs_twice), twice);
    world.notification_takes = Some(Dur::from_secs(30));
    // Killed while the first notification is being sent, and again after it was sent.
    world.drive(Drive::Until(Dur::from_secs(75)));
    assert_eq!(keys(&world), ["hard_stop:loop:1 command"]);
    assert_eq!(world.crash(0, Dur::from_secs(10), false), Ok(true));
    world.drive(Drive::Until(Dur::from_secs(130)));
    assert_eq!(world.crash(0, Dur::from_secs(10), false), Ok(true));
    world.notification_takes = Some(Dur::ZERO);
    world.end();
    let sent = keys(&world);
    let first = sent.iter().filter(|k| *k == "hard_stop:loop:1 command").count();
    assert_eq!(first, 2, "once before and once after the first kill: {sent:?}");
    let done = world.story().into_iter().filter(|l| l.starts_with("notified hard_stop:loop:1")).count();
    assert_eq!(done, 1);
}

#[test]
fn pending_notifications_are_bounded() {
    let plan = telling(|s| {
        s.watchdog.session = Limit::At(MINUTE);
        s.max_iterations = Some(MAX_PENDING_NOTIFICATIONS as u64 + 2);
    });
    let mut world = World::new(plan, |_| Act::hangs());
    world.notification_takes = None;
    world.end();
    let stops = keys(&world).iter().filter(|k| k.starts_with("hard_stop")).count();
    assert_eq!(stops, MAX_PENDING_NOTIFICATIONS);
}

#[test]
fn notifications_contain_no_secrets() {
    let mut plan = telling(|_| {});
    plan.stop_on_error = true;
    let mut world = World::new(plan, |_| Act::fails().saying("denied: --token abc123 sk-0123456789abcdef"));
    world.end();
    for (_, delivery) in &world.notifications {
        let text = &delivery.notification.text;
        assert!(text.contains("--token ***") && !text.contains("abc123"), "{text}");
    }
}

#[test]
fn each_question_notifies() {
    let job = dogwatch_core::run::job::Job {
        node: dogwatch_core::record::ids::NodeIx(0),
        iteration: dogwatch_core::record::ids::Iteration(1),
        kind: dogwatch_core::run::job::JobKind::Session,
    };
    let asks = |what: &str| Input::Job(job, NodeInput::Noted(Fact::NeedsHuman { what: what.to_owned() }));
    let plan = telling(|s| {
        s.notify.on = vec![NotificationKind::NeedsHuman];
        s.max_iterations = Some(1);
    });
    let works_on = Observation::single(Channel::Stdout, dogwatch_core::time::moment::Awake(31_000));
    let mut world = World::new(plan, |_| Act::works(MINUTE))
        .at(Dur::from_secs(10), asks("may I delete it?"))
        .at(Dur::from_secs(30), Input::Job(job, NodeInput::Observed(works_on)))
        .at(Dur::from_secs(40), asks("and this?"));
    world.end();
    let texts: Vec<&str> = world.notifications.iter().map(|(_, d)| d.notification.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "loop, iteration 1: needs human input (will be stopped at 2026-11-15T20:25:43.000Z if unanswered): may I delete it?",
            "loop, iteration 1: needs human input (will be stopped at 2026-11-15T20:26:13.000Z if unanswered): and this?",
        ]
    );
    assert_ne!(world.notifications[0].1.notification.key, world.notifications[1].1.notification.key);
}
