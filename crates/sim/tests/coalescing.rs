//! The coalescer makes few records of many pieces of progress. No verdict comes early because of it. With a ttl of at
//! least the coalescer's period, no verdict comes late either.

use crate::histories;

use dogwatch_core::record::event::Observation;
use dogwatch_core::settings::{Ttl, WatchPolicy};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::coalesce::PERIOD;
use dogwatch_core::watch::feed::Input;
use dogwatch_core::watch::replay::{Finish, Looks, Player};
use dogwatch_core::watch::sign::Sign;
use dogwatch_core::watch::{Channel, Fact, Session, StopReason, ToolStarted, Verdict, Watch};
use histories::{Drawn, policies, starts};

/// A piece of progress or a single fact.
#[derive(Clone, Debug)]
enum Happened {
    Piece(Channel),
    Delegated,
    /// A sample with this number of live children.
    Sampled(u32),
    Suspended(u64),
}

type Timeline = Vec<(u64, Happened)>;
type End = Option<(u64, StopReason)>;

fn delegates() -> ToolStarted {
    ToolStarted { delegates: true, ..starts("d", 1) }
}

/// Passes every piece to the watch by itself, at its own moment.
fn pass_singly(policy: &WatchPolicy, timeline: &Timeline, end: u64) -> End {
    let mut watch = Watch::new(policy.clone(), Session::new(Awake(0), false));
    let stop = |watch: &mut Watch, at: u64| match watch.evaluate(Awake(at)).verdict {
        Verdict::HardStop { reason, .. } => Some((at, reason)),
        Verdict::Continue { .. } | Verdict::Notice { .. } => None,
    };
    for (at, happened) in timeline.iter().chain([&(end, Happened::Sampled(0))]) {
        let from = match happened {
            Happened::Suspended(for_ms) => at - for_ms,
            Happened::Piece(_) | Happened::Delegated | Happened::Sampled(_) => *at,
        };
        let mut looked = None;
        while let Some(due) = watch.due().map(|due| due.0).filter(|due| *due < from && Some(*due) > looked) {
            looked = Some(due);
            if let Some(end) = stop(&mut watch, due) {
                return Some(end);
            }
        }
        watch.take(
            Awake(*at),
            &match happened {
                Happened::Piece(channel) => Fact::Observed(Observation::single(*channel, Awake(*at))),
                Happened::Delegated => Fact::ToolStarted(delegates()),
                Happened::Sampled(children) => Fact::Sampled { children: *children, cpu_ms: 0 },
                Happened::Suspended(for_ms) => Fact::Suspended { for_ms: *for_ms },
            },
        );
        if let Some(end) = stop(&mut watch, *at).filter(|_| !matches!(happened, Happened::Piece(_))) {
            return Some(end);
        }
    }
    None
}

/// Passes the same pieces through the coalescers, as a live session and a replay do.
fn pass_in_records(policy: &WatchPolicy, timeline: &Timeline, end: u64) -> End {
    let session = Session::new(Awake(0), false);
    let mut player = Player::new(policy.clone(), session, None, Looks::EveryDue);
    for (at, happened) in timeline {
        let input = match happened {
            Happened::Piece(Channel::Stdout) => Input::Message { count: None },
            Happened::Piece(Channel::McpTool) => Input::McpCall { heartbeat: false },
            Happened::Piece(Channel::Subagent) => Input::Sign(Sign::SubagentProgress { id: "s".to_owned() }),
            Happened::Piece(Channel::Workspace) => Input::Workspace { path: None, digest: None },
            Happened::Delegated => Input::Sign(Sign::ToolStarted(delegates())),
            Happened::Sampled(live) => Input::Children { live: *live, cpu_ms: Some(0) },
            Happened::Suspended(for_ms) => Input::Suspended { for_ms: *for_ms },
        };
        player.input(Awake(*at), input);
    }
    player.input(Awake(end), Input::Children { live: 0, cpu_ms: Some(0) });
    let summary = player.finish(Awake(end), &Finish::Looked).summary;
    Some(((summary.ended_at_s * 1000.0).round() as u64, summary.reason?))
}

fn draw_timeline(drawn: &mut Drawn) -> Timeline {
    let mut now = 0;
    let mut timeline = vec![(0, Happened::Delegated)];
    for _ in 0..5 + drawn.below(40) {
        now += [1, 100, 700, 1_300, 2_000, 4_999, 5_000, 5_001, 9_000, 26_000][drawn.below(10)];
        let happened = match drawn.below(24) {
            0 => Happened::Sampled(u32::try_from(drawn.below(2)).expect("small")),
            1 => {
                now += 7_000;
                Happened::Suspended(7_000)
            }
            n => Happened::Piece(Channel::ALL[n % 4]),
        };
        timeline.push((now, happened));
    }
    timeline
}

/// Compares the verdicts of random timelines with and without the coalescers, under policies with these ttls.
fn compare(ttls: &[u64], check: impl Fn(End, End, &str)) {
    let mut ended = 0;
    for seed in 0..2_000 {
        let mut drawn = Drawn::new(seed);
        let timeline = draw_timeline(&mut drawn);
        let end = timeline.last().map_or(0, |(at, _)| *at) + 200_000;
        let all = policies();
        let policy = WatchPolicy {
            evidence_ttl: Ttl::Fixed(Dur::from_millis(ttls[drawn.below(ttls.len())])),
            children: Limit::At(Dur::from_millis([7_300, 30_000, 60_000][drawn.below(3)])),
            ..all[drawn.below(all.len())].clone()
        };
        let (singly, records) =
            (pass_singly(&policy, &timeline, end), pass_in_records(&policy, &timeline, end));
        ended += u64::from(singly.is_some_and(|(_, reason)| reason == StopReason::ChildrenPersistTooLong));
        check(singly, records, &format!("seed {seed}: {policy:?}\n{timeline:#?}"));
    }
    assert!(ended > 500, "only {ended} stopped for waiting on children");
}

#[test]
fn with_a_ttl_of_at_least_a_period_records_give_the_same_verdicts_as_single_pieces() {
    let period = PERIOD.as_millis();
    compare(&[period, period + 1, 20_000, 60_000], |singly, records, timeline| {
        assert_eq!(records, singly, "{timeline}");
    });
}

#[test]
fn with_a_shorter_ttl_a_verdict_may_come_later_and_never_early() {
    compare(&[0, 1, 1_000, 3_000, 4_999], |singly, records, timeline| match (singly, records) {
        (Some((then, _)), Some((now, _))) => assert!(now >= then, "{now} before {then}\n{timeline}"),
        (None, Some(early)) => panic!("{early:?} with records and none without\n{timeline}"),
        (_, None) => {}
    });
}

#[test]
fn progress_reported_after_an_unwatched_span_is_not_aged_by_the_span() {
    let idle = Limit::At(Dur::from_secs(60));
    let policy = WatchPolicy { idle, session: Limit::Off, ..policies().remove(0) };
    let mut watch = Watch::new(policy, Session::new(Awake(0), false));
    let seen = |at| Fact::Observed(Observation::single(Channel::Stdout, Awake(at)));
    watch.take(Awake(10_000), &seen(10_000));
    // dogwatch was stopped from 20 s to 50 s. Progress at 15 s was pending and is passed at the next evaluation.
    watch.take(Awake(50_000), &Fact::Suspended { for_ms: 30_000 });
    watch.take(Awake(55_000), &seen(15_000));
    assert_eq!(watch.due(), Some(Awake(105_000)));
    let summary = watch.evaluate(Awake(55_000)).evidence_summary;
    assert_eq!((summary[0].last_at, summary[0].age_seconds), (Some(15.0), Some(10.0)));
    // Progress within the unwatched span counts from its start.
    watch.take(Awake(56_000), &seen(30_000));
    assert_eq!(watch.due(), Some(Awake(110_000)));
}
