//! The numbered cases of the watchdog, in virtual time. The session starts at 0; times are in seconds.

use crate::scene;

use Channel::{McpTool, Subagent, Workspace};
use StopReason::*;
use dogwatch_core::record::event::Observation;
use dogwatch_core::settings::{Ttl, WatchPolicy};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::{Channel, Fact, Session, StopReason, ToolStarted, Verdict, Watch};
use scene::{Scene, quick, standard};

#[test]
fn watchdog_1_an_idle_limit_that_is_off_never_fires() {
    let policy = WatchPolicy { idle: Limit::Off, session: Limit::Off, ..standard() };
    assert_eq!(Scene::new(policy, true).until(1e6).stopped(), None);
}

// promise: 12
#[test]
fn watchdog_2_silence_fires_at_the_limit_and_not_before() {
    let mut s = Scene::new(quick(), true);
    s.says(10.0);
    assert_eq!(s.watch.due(), Some(Awake(310_000)));
    assert!(matches!(s.watch.evaluate(Awake(309_999)).verdict, Verdict::Continue { .. }));
    s.until(1e6);
    assert_eq!(s.stopped(), Some((310.0, NoOutputDeadline)));
    assert_eq!(
        s.stop.as_ref().map(|s| s.2.as_str()),
        Some("Idle timeout: no progress for 300.0s (limit 300s, 1 message)")
    );
}

#[test]
fn watchdog_3_asking_twice_gives_the_same_answer_and_counts_nothing_twice() {
    let mut s = Scene::new(quick(), true);
    s.fails(1.0, "x").fails(2.0, "x");
    let first = s.watch.evaluate(Awake(5_000));
    for _ in 0..100 {
        assert_eq!(s.watch.evaluate(Awake(5_000)), first);
    }
    s.until(1e6);
    assert_eq!(s.stopped().map(|s| s.1), Some(NoOutputAtStart));
}

// promise: 12
#[test]
fn watchdog_7_a_suspend_freezes_the_clocks() {
    let mut s = Scene::new(quick(), true);
    s.says(10.0);
    // dogwatch could not run for half an hour; the fact arrives at the end of the span.
    s.now = Awake(1_900_000);
    s.watch.take(s.now, &Fact::Suspended { for_ms: 1_800_000 });
    s.look();
    assert_eq!(s.stopped(), None);
    s.until(1e6);
    assert_eq!(s.stopped(), Some((310.0 + 1_800.0, NoOutputDeadline)));
}

// promise: 12
#[test]
fn watchdog_8_activity_every_second_ends_exactly_at_the_session_ceiling() {
    let mut s = Scene::new(quick(), true);
    for second in 1..1_000 {
        s.says(f64::from(second));
    }
    assert_eq!(s.stopped(), Some((900.0, SessionCeilingExceeded)));
    assert_eq!(
        s.stop.as_ref().map(|s| s.2.as_str()),
        Some("Total timeout: exceeded 900s limit (ran 900.0s, 899 messages)")
    );
}

#[test]
fn watchdog_9_the_session_ceiling_wins_over_everything() {
    let policy = WatchPolicy { session: Limit::At(Dur::from_secs(300)), ..quick() };
    let mut s = Scene::new(policy, true);
    for n in 0..4 {
        s.fails(f64::from(n), "x");
    }
    s.watch.take(Awake(300_000), &Fact::Error { fingerprint: "x".into() });
    s.now = Awake(300_000);
    s.look();
    assert_eq!(s.stopped().map(|s| s.1), Some(SessionCeilingExceeded));
}

// promise: 11
#[test]
fn watchdog_12_fresh_evidence_at_the_deadline_defers_and_is_named() {
    for channel in [McpTool, Subagent, Workspace] {
        let mut s = Scene::new(quick(), true);
        s.says(1.0).seen(290.0, channel).until(300.9);
        assert_eq!(s.stopped(), None);
        s.until(301.0);
        assert_eq!(s.deferred, [(301_000, channel)]);
        s.until(1e6);
        assert_eq!(s.stopped(), Some((320.0, NoOutputDeadline)));
    }
}

#[test]
fn watchdog_13_evidence_older_than_its_ttl_does_not_defer() {
    let mut s = Scene::new(quick(), true);
    s.says(1.0).seen(271.0, Workspace).until(1e6);
    assert_eq!(s.stopped(), Some((301.0, NoOutputDeadline)));
}

#[test]
fn watchdog_14_a_ttl_of_zero_means_stdout_only() {
    let policy = WatchPolicy { evidence_ttl: Ttl::Fixed(Dur::ZERO), ..quick() };
    let mut s = Scene::new(policy, true);
    s.says(1.0);
    for second in 2..302 {
        s.seen(f64::from(second), Workspace);
    }
    assert_eq!(s.stopped(), Some((301.0, NoOutputDeadline)));
}

#[test]
fn watchdog_15_steady_evidence_every_40_s_does_not_fire_although_the_floor_is_30() {
    let policy = WatchPolicy { session: Limit::Off, ..quick() };
    let mut s = Scene::new(policy, true);
    s.says(1.0);
    for n in 1..100 {
        s.seen(f64::from(n) * 40.0, Workspace);
    }
    assert_eq!(s.stopped(), None);
    // The evidence expires three gaps after the last piece.
    s.until(1e6);
    assert_eq!(s.stopped(), Some((99.0 * 40.0 + 120.0, NoOutputDeadline)));
    let fixed = WatchPolicy { evidence_ttl: Ttl::Fixed(Dur::from_secs(30)), session: Limit::Off, ..quick() };
    let mut s = Scene::new(fixed, true);
    s.says(1.0);
    for n in 1..100 {
        s.seen(f64::from(n) * 40.0, Workspace);
    }
    assert_eq!(s.stopped(), Some((310.0, NoOutputDeadline)));
}

#[test]
fn a_ttl_from_gaps_is_bounded_by_the_idle_limit() {
    let policy = WatchPolicy { session: Limit::Off, ..quick() };
    let mut s = Scene::new(policy, true);
    s.says(1.0).seen(10.0, Workspace).seen(210.0, Workspace).until(1e6);
    assert_eq!(s.stopped(), Some((510.0, NoOutputDeadline)));
}

#[test]
fn watchdog_20_a_tool_in_flight_suspends_the_silence_clock_and_its_end_restarts_it() {
    let mut s = Scene::new(standard(), true);
    s.says(1.0).starts(10.0, "t", 1).until(890.0);
    assert_eq!(s.stopped(), None);
    s.ends(890.0, "t", true, 1).until(1e6);
    let idle = standard().idle.duration().expect("it is on").as_secs_f64();
    assert_eq!(s.stopped(), Some((890.0 + idle, NoOutputDeadline)));
}

#[test]
fn watchdog_21_past_its_cap_it_fires_and_names_the_tool() {
    let mut s = Scene::new(standard(), true);
    s.says(1.0).starts(10.0, "t", 1).until(1e6);
    assert_eq!(s.stopped(), Some((910.0, ToolCeilingExceeded)));
    assert!(
        s.stop.as_ref().is_some_and(|s| s.2.contains("`Bash` in flight for 900.0s (limit 900s")),
        "{:?}",
        s.stop
    );
}

#[test]
fn watchdog_20_a_declared_timeout_and_a_minute_replace_the_cap() {
    let mut s = Scene::new(standard(), true);
    let timeout = Some(Dur::from_secs(120));
    let tool = ToolStarted {
        id: "t".into(),
        name: "Bash".into(),
        subject: String::new(),
        call: 1,
        timeout,
        delegates: false,
        mcp: false,
        heartbeat: false,
    };
    s.fact(10.0, &Fact::ToolStarted(tool)).until(1e6);
    assert_eq!(s.stopped(), Some((190.0, ToolCeilingExceeded)));
}

#[test]
fn watchdog_22_a_silence_below_210_s_after_a_tool_is_normal() {
    for policy in [quick(), standard()] {
        let mut s = Scene::new(policy, true);
        s.says(1.0).calls(2.0, 1, true, 1).says(213.0).until(214.0);
        assert_eq!(s.stopped(), None);
    }
}

#[test]
fn watchdog_24_a_silent_structured_agent_fires_at_the_start_limit() {
    assert_eq!(Scene::new(standard(), true).until(1e6).stopped(), Some((360.0, NoOutputAtStart)));
    assert_eq!(Scene::new(quick(), true).until(1e6).stopped(), Some((180.0, NoOutputAtStart)));
    let short = WatchPolicy { idle: Limit::At(Dur::from_secs(60)), ..standard() };
    assert_eq!(Scene::new(short, true).until(1e6).stopped(), Some((60.0, NoOutputAtStart)));
    assert_eq!(Scene::new(quick(), false).until(1e6).stopped(), Some((300.0, NoOutputDeadline)));
}

#[test]
fn evidence_defers_the_start_row_as_it_does_silence() {
    let mut s = Scene::new(quick(), true);
    s.seen(170.0, Workspace).until(1e6);
    assert_eq!(s.stopped(), Some((200.0, NoOutputAtStart)));
}

#[test]
fn watchdog_26_the_fifth_error_of_one_fingerprint_fires_with_a_notice_at_three() {
    let mut s = Scene::new(standard(), true);
    for n in 1..=5 {
        s.fails(f64::from(n) * 10.0, "Invalid JSON").says(f64::from(n) * 10.0 + 1.0);
    }
    assert_eq!(s.stopped(), Some((50.0, ErrorLoop)));
    assert_eq!(s.notices, ["3 similar errors, last: Invalid JSON"]);
    assert_eq!(s.stop.as_ref().map(|s| s.2.as_str()), Some("Loop detected: 5 errors, last: Invalid JSON"));
}

#[test]
fn watchdog_26_a_workspace_change_or_a_new_ok_result_clears_the_streak() {
    for clear in [true, false] {
        let mut s = Scene::new(standard(), true);
        for n in 0..50u32 {
            s.fails(f64::from(n) * 10.0, "x");
            if n % 4 == 3 {
                let at = f64::from(n) * 10.0 + 2.0;
                if clear {
                    s.seen(at, Workspace)
                } else {
                    s.calls(at, 9, true, u64::from(n))
                };
            }
        }
        assert_eq!(s.stopped(), None);
    }
}

#[test]
fn an_old_state_of_the_work_tree_clears_nothing() {
    let mut s = Scene::new(standard(), true);
    for n in 0..6u32 {
        let at = f64::from(n) * 10.0;
        let mut seen = Observation::single(Workspace, Awake((at * 1000.0) as u64 + 1));
        seen.digest = Some(u64::from(n % 2));
        s.fact(at + 0.5, &Fact::Observed(seen)).fails(at + 1.0, "x");
    }
    // Only the first two states are new, so the errors after them add up.
    assert_eq!(s.stopped().map(|s| s.1), Some(ErrorLoop));
}

#[test]
fn watchdog_28_cycles_of_any_period_up_to_eight_are_found() {
    for period in 1..=8u64 {
        let mut s =
            Scene::new(WatchPolicy { session: Limit::Off, poll: Limit::At(Dur::ZERO), ..standard() }, true);
        for n in 0..200u64 {
            s.calls(n as f64 * 2.0, n % period, true, n % period);
        }
        // Counting starts at the last new result, which is that of call number `period`.
        let last = period - 1 + period * 5;
        assert_eq!(s.stopped(), Some((last as f64 * 2.0 - 1.0, Repetition)), "period {period}");
    }
    let mut s = Scene::new(WatchPolicy { session: Limit::Off, ..standard() }, true);
    for n in 0..200u64 {
        s.calls(n as f64 * 2.0, n % 9, true, n % 9);
    }
    assert_eq!(s.stopped(), None);
}

#[test]
fn watchdog_29_eight_distinct_calls_are_nothing() {
    let mut s = Scene::new(standard(), true);
    for n in 0..8u64 {
        s.calls(n as f64 * 2.0, n, true, 7);
    }
    assert_eq!(s.stopped(), None);
}

#[test]
fn watchdog_30_a_failing_test_with_file_changes_in_between_is_work() {
    let mut s = Scene::new(standard(), true);
    for n in 0..40u32 {
        let at = f64::from(n) * 20.0;
        s.calls(at, 1, false, 1).seen(at + 5.0, Workspace);
    }
    assert_eq!(s.stopped(), None);
}

#[test]
fn watchdog_31_polling_needs_five_times_and_ten_minutes_without_a_change() {
    let mut s = Scene::new(WatchPolicy { session: Limit::Off, ..standard() }, true);
    for n in 0..100u32 {
        s.calls(f64::from(n) * 30.0, 1, true, 1);
    }
    // Ten minutes after the first of the equal results, which arrived at 1 s.
    assert_eq!(s.stopped(), Some((601.0, Repetition)));
    let mut changing = Scene::new(WatchPolicy { session: Limit::Off, ..standard() }, true);
    for n in 0..100u32 {
        changing.calls(f64::from(n) * 30.0, 1, true, u64::from(n));
    }
    assert_eq!(changing.stopped(), None);
}

#[test]
fn failing_results_are_an_error_loop_before_they_are_a_repetition() {
    let mut s = Scene::new(standard(), true);
    for n in 0..10u32 {
        s.calls(f64::from(n) * 3.0, 1, false, 1);
    }
    assert_eq!(s.stopped(), Some((13.0, ErrorLoop)));
}

#[test]
fn watchdog_34_waiting_on_children_does_not_reset_silence_and_its_sum_survives_going_back_and_forth() {
    let policy = WatchPolicy {
        children: Limit::At(Dur::from_secs(100)),
        session: Limit::Off,
        idle: Limit::At(Dur::from_secs(300)),
        evidence_ttl: Ttl::Fixed(Dur::from_secs(10)),
        ..standard()
    };
    let mut s = Scene::new(policy, true);
    // Each round has 60 s of delegation, and its first 10 s are fresh. Two rounds count 100 s.
    s.delegates(0.0, "a").ends(60.0, "a", true, 1);
    s.delegates(100.0, "b").until(1e6);
    assert_eq!(s.stopped(), Some((160.0, ChildrenPersistTooLong)));
    assert!(s.stop.as_ref().is_some_and(|s| s.2.contains("waited 100.0s on children")), "{:?}", s.stop);
}

#[test]
fn watchdog_35_without_children_the_agent_does_not_wait() {
    let policy = WatchPolicy { children: Limit::At(Dur::from_secs(60)), idle: Limit::Off, ..standard() };
    let mut s = Scene::new(policy, true);
    s.fact(1.0, &Fact::Sampled { children: 3, cpu_ms: 0 })
        .fact(40.0, &Fact::Sampled { children: 0, cpu_ms: 0 });
    s.until(3_000.0);
    assert_eq!(s.stopped(), None);
}

#[test]
fn subagents_count_as_children_until_they_end_and_being_alive_is_not_progress() {
    let policy = WatchPolicy { children: Limit::At(Dur::from_secs(60)), idle: Limit::Off, ..standard() };
    let mut s = Scene::new(policy.clone(), true);
    s.fact(1.0, &Fact::SubagentStarted { id: "a".into() }).until(1e4);
    assert_eq!(s.stopped(), Some((61.0, ChildrenPersistTooLong)));
    let mut working = Scene::new(policy, true);
    working.fact(1.0, &Fact::SubagentStarted { id: "a".into() });
    for n in 1..200 {
        working.seen(f64::from(n) * 10.0, Subagent);
    }
    assert_eq!(working.stopped(), None);
}

#[test]
fn effort_holds_silence_for_a_bounded_time() {
    let policy = WatchPolicy { session: Limit::Off, children: Limit::Off, ..quick() };
    let mut s = Scene::new(policy.clone(), true);
    s.says(0.0).fact(150.0, &Fact::Sampled { children: 1, cpu_ms: 0 });
    s.fact(299.0, &Fact::Sampled { children: 1, cpu_ms: 7_450 }).until(1e6);
    // 7.45 s is 5 % of 149 s, so the deadline is last progress + idle + tool.
    assert_eq!(s.stopped().map(|s| s.0), Some(900.0));
    let mut lazy = Scene::new(policy, true);
    lazy.says(0.0).fact(150.0, &Fact::Sampled { children: 1, cpu_ms: 0 });
    lazy.fact(299.0, &Fact::Sampled { children: 1, cpu_ms: 7_449 }).until(1e6);
    assert_eq!(lazy.stopped(), Some((300.0, NoOutputDeadline)));
}

#[test]
fn row_3_counts_what_node_and_run_had_lasted_before() {
    let policy =
        WatchPolicy { node: Limit::At(Dur::from_hours(1)), run: Limit::At(Dur::from_hours(2)), ..standard() };
    let session = |node: u64, run: u64| Session {
        node_before: Dur::from_mins(node),
        run_before: Dur::from_mins(run),
        ..Session::new(Awake(0), false)
    };
    let reason = |session| {
        let mut s = Scene::new(policy.clone(), false);
        s.watch = Watch::new(policy.clone(), session);
        for n in 0..600 {
            s.says(f64::from(n) * 10.0);
        }
        s.stopped()
    };
    assert_eq!(reason(session(50, 50)), Some((600.0, NodeCeilingExceeded)));
    assert_eq!(reason(session(10, 115)), Some((300.0, RunCeilingExceeded)));
    assert_eq!(reason(session(70, 0)), Some((0.0, NodeCeilingExceeded)));
}

#[test]
fn duplicate_ids_and_ends_without_starts_are_harmless() {
    let mut s = Scene::new(standard(), true);
    for n in 0..50u32 {
        s.starts(f64::from(n), "same", 1).ends(f64::from(n) + 0.5, "other", false, 3);
    }
    s.until(1e6);
    // One call is in flight, started once. The ends without a start were progress.
    assert_eq!(s.stopped(), Some((49.5 + 900.0, ToolCeilingExceeded)));
}

#[test]
fn origin_4_scenario_1_a_slow_web_search_is_allowed() {
    let mut s = Scene::new(quick(), true);
    for (at, count) in [(30.0, 5), (60.0, 7), (120.0, 11), (270.0, 22), (300.0, 72)] {
        let mut seen = Observation::single(Channel::Stdout, Awake((at * 1000.0) as u64));
        (seen.count, seen.messages) = (count, count);
        s.fact(at, &Fact::Observed(seen));
    }
    assert_eq!((s.stopped(), s.watch.messages()), (None, 117));
}

#[test]
fn origin_4_scenario_2_three_errors_and_silence_end_at_the_idle_limit_after_the_last_message() {
    let mut s = Scene::new(quick(), true);
    for at in [10.0, 30.0, 50.0] {
        s.fails(at, "Invalid JSON at line 5");
    }
    s.says(20.0).says(40.0).says(55.0).until(1e6);
    assert_eq!(s.stopped(), Some((355.0, NoOutputDeadline)));
}

#[test]
fn origin_4_scenario_3_twelve_minutes_of_progress_are_allowed() {
    let mut s = Scene::new(quick(), true);
    for minute in [2, 4, 6, 8, 10, 12] {
        s.says(f64::from(minute) * 60.0);
    }
    assert_eq!(s.stopped(), None);
}

#[test]
fn origin_4_scenario_4_progress_until_the_end_still_ends_at_fifteen_minutes() {
    let mut s = Scene::new(quick(), true);
    for n in 1..=179 {
        s.says(f64::from(n) * 5.0);
    }
    s.until(1e6);
    assert_eq!(s.stopped(), Some((900.0, SessionCeilingExceeded)));
}

#[test]
fn an_agent_that_prints_nothing_but_heartbeats_is_ended_at_the_limit() {
    let mut s = Scene::new(quick(), true);
    s.says(10.0);
    for n in 1..100u32 {
        s.beats(f64::from(n) * 20.0);
    }
    assert_eq!(s.stopped(), Some((310.0, NoOutputDeadline)));
    let summary = s.watch.evaluate(Awake(310_000)).evidence_summary;
    assert_eq!(summary.iter().map(|e| e.counter).collect::<Vec<_>>(), [1, 0, 0, 0]);
}

#[test]
fn heartbeats_between_the_polls_of_a_patient_agent_neither_end_nor_save_it() {
    let ends_at = |beats: bool| {
        let mut s = Scene::new(WatchPolicy { session: Limit::Off, ..standard() }, true);
        for n in 0..100u32 {
            let at = f64::from(n) * 30.0;
            s.calls(at, 1, true, 1);
            if beats {
                s.beats(at + 10.0);
            }
        }
        s.stopped()
    };
    assert_eq!(ends_at(true), Some((601.0, Repetition)));
    assert_eq!(ends_at(true), ends_at(false));
}

#[test]
fn a_heartbeat_that_hangs_is_not_a_tool_in_flight() {
    let mut s = Scene::new(quick(), true);
    s.says(1.0);
    let tool = ToolStarted {
        id: "h".into(),
        name: "mcp__dogwatch__heartbeat".into(),
        subject: String::new(),
        call: 7,
        timeout: None,
        delegates: false,
        mcp: true,
        heartbeat: true,
    };
    s.fact(2.0, &Fact::ToolStarted(tool)).until(1e6);
    assert_eq!(s.stopped(), Some((301.0, NoOutputDeadline)));
}
