//! Parallel work: subagents whose progress counts for a silent parent, and calls that overlap in time.

use crate::scene;

use dogwatch_core::settings::{Ttl, WatchPolicy};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::watch::Channel::Subagent;
use dogwatch_core::watch::Fact;
use dogwatch_core::watch::StopReason::{ErrorLoop, NoOutputDeadline, Repetition};
use scene::{Scene, quick, standard};

#[test]
fn watchdog_15_while_work_is_delegated_every_channel_stays_fresh_for_the_idle_limit() {
    let policy = WatchPolicy { session: Limit::Off, ..standard() };
    // Quick steps, then four slow ones after the parent has been silent for too long.
    let steps: Vec<f64> = (1..=70).map(|n| f64::from(n) * 10.0).chain([770.0, 840.0, 910.0, 980.0]).collect();
    let ended = |policy: WatchPolicy| {
        let mut s = Scene::new(policy, true);
        s.says(1.0).delegates(2.0, "d");
        for at in &steps {
            s.seen(*at, Subagent);
        }
        s.until(1e6).stopped()
    };
    let idle = policy.idle.duration().expect("it is on").as_secs_f64();
    assert_eq!(ended(policy.clone()), Some((980.0 + idle, NoOutputDeadline)));
    let fixed = WatchPolicy { evidence_ttl: Ttl::Fixed(Dur::from_secs(30)), ..policy };
    assert_eq!(ended(fixed), Some((730.0, NoOutputDeadline)), "a fixed ttl is used as it is");
}

#[test]
fn once_the_subagent_has_ended_the_ttl_comes_from_the_gaps_again() {
    let mut s = Scene::new(quick(), true);
    s.says(1.0).fact(2.0, &Fact::SubagentStarted { id: "a".into() }).seen(290.0, Subagent);
    s.until(310.0);
    assert_eq!((s.stopped(), s.deferred.as_slice()), (None, &[(301_000, Subagent)][..]));
    s.fact(315.0, &Fact::SubagentEnded { id: "a".into() }).until(1e6);
    assert_eq!(s.stopped(), Some((320.0, NoOutputDeadline)));
}

#[test]
fn watchdog_26_calls_that_overlap_fail_as_one() {
    let mut s = Scene::new(standard(), true);
    for batch in 0..5u32 {
        let at = f64::from(batch) * 30.0;
        let ids: Vec<String> = (0..6).map(|n| format!("{batch}/{n}")).collect();
        for (n, id) in ids.iter().enumerate() {
            s.starts(at, id, n as u64);
        }
        for id in &ids {
            s.ends(at + 1.0, id, false, 1);
        }
    }
    assert_eq!(s.stopped(), Some((121.0, ErrorLoop)), "the fifth batch, not the fifth call");
}

#[test]
fn calls_of_one_moment_that_follow_each_other_do_not_overlap() {
    let mut s = Scene::new(standard(), true);
    for n in 0..5 {
        s.starts(1.0, &format!("{n}"), n).ends(1.0, &format!("{n}"), false, 1);
    }
    assert_eq!(s.stopped(), Some((1.0, ErrorLoop)));
}

#[test]
fn a_long_call_does_not_join_the_failures_beside_it() {
    let mut s = Scene::new(standard(), true);
    s.starts(0.0, "server", 9);
    for n in 0..5u32 {
        s.calls(10.0 + f64::from(n) * 10.0, u64::from(n), false, 1);
    }
    assert_eq!(s.stopped(), Some((51.0, ErrorLoop)));
}

#[test]
fn watchdog_28_equal_calls_that_overlap_are_one_step_of_a_cycle() {
    let mut s = Scene::new(WatchPolicy { errors: None, ..standard() }, true);
    for batch in 0..5u32 {
        let at = f64::from(batch) * 30.0;
        for id in ["a", "b", "c"] {
            s.starts(at, id, 1);
        }
        for id in ["a", "b", "c"] {
            s.ends(at + 1.0, id, false, 1);
        }
    }
    assert_eq!(s.stopped(), Some((121.0, Repetition)));
}

#[test]
fn canceled_calls_are_neither_errors_nor_a_loop() {
    let mut s = Scene::new(standard(), true);
    for n in 0..20u32 {
        let id = format!("{n}");
        let ended = Fact::ToolEnded {
            id: id.clone(),
            ok: false,
            result: 1,
            error: "Sibling tool call errored".into(),
            heartbeat: false,
            canceled: true,
        };
        s.starts(f64::from(n), &id, 1).fact(f64::from(n), &ended);
    }
    assert_eq!((s.stopped(), s.notices.len()), (None, 0));
    s.until(1e6);
    let idle = standard().idle.duration().expect("it is on").as_secs_f64();
    assert_eq!(s.stopped(), Some((19.0 + idle, NoOutputDeadline)), "none of them is in flight");
}
