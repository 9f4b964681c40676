//! The rules for external agents, in virtual time.

use super::*;
use crate::settings::Profile;

fn at(minutes: u64, seconds: u64) -> Awake {
    Awake((minutes * 60 + seconds) * 1000)
}

/// Registers one agent with limits of 5 minutes idle, 15 minutes in all, and 5 errors.
fn one() -> ExternalAgents {
    let mut agents = ExternalAgents::new(WatchPolicy::of(Profile::Quick));
    agents.register(at(0, 0), "a").expect("there is room");
    agents
}

fn hung(agents: &ExternalAgents, now: Awake) -> Option<(StopReason, String)> {
    agents.hung(now).into_iter().next().map(|h| (h.reason, h.message))
}

#[test]
fn origin_4_scenario_1_a_slow_web_search_completes() {
    let mut a = one();
    for (m, s, count) in [(0, 30, 5), (1, 0, 12), (2, 0, 23), (4, 30, 45), (5, 0, 117)] {
        assert_eq!(hung(&a, at(m, s)), None);
        a.activity(at(m, s), "a", Some(count)).expect("the agent is live");
    }
    a.done(at(60, 0), "a").expect("the agent is live");
    assert_eq!(hung(&a, at(60, 0)), None);
}

#[test]
fn origin_4_scenario_2_a_loop_of_errors_ends_by_silence_or_by_the_fifth_error() {
    let mut silent = one();
    for (s, count) in [(10, 0), (20, 2), (30, 2), (40, 4), (50, 4), (55, 6)] {
        if s % 20 == 10 {
            silent.error(at(0, s), "a", "Invalid JSON at line 5").expect("the agent is live");
        }
        silent.activity(at(0, s), "a", Some(count)).expect("the agent is live");
    }
    assert_eq!(hung(&silent, at(5, 54)), None);
    assert_eq!(hung(&silent, at(5, 55)).map(|h| h.0), Some(StopReason::NoOutputDeadline));
    let mut looping = one();
    for s in 1..=5 {
        assert_eq!(hung(&looping, at(0, s)), None);
        looping.error(at(0, s), "a", "ValueError: Invalid JSON").expect("the agent is live");
    }
    let expected = "Loop detected: 5 errors, last: ValueError: Invalid JSON";
    assert_eq!(hung(&looping, at(0, 6)), Some((StopReason::ErrorLoop, expected.to_owned())));
}

#[test]
fn origin_4_scenario_3_twelve_minutes_of_analysis_complete() {
    let mut a = one();
    for minute in [2, 4, 6, 8, 10, 12] {
        assert_eq!(hung(&a, at(minute, 0)), None);
        a.activity(at(minute, 0), "a", Some(minute * 17)).expect("the agent is live");
    }
    assert_eq!(hung(&a, at(12, 1)), None);
}

#[test]
fn origin_4_scenario_4_a_runaway_ends_at_fifteen_minutes_whatever_it_does() {
    let mut a = one();
    for second in (5..=895).step_by(5) {
        a.activity(at(0, second), "a", Some(second)).expect("the agent is live");
    }
    assert_eq!(hung(&a, Awake(899_999)), None);
    let (reason, message) = hung(&a, at(15, 0)).expect("it is over");
    assert_eq!(reason, StopReason::SessionCeilingExceeded);
    assert_eq!(message, "Total timeout: exceeded 900s limit (ran 900.0s, 895 messages)");
}

#[test]
fn origin_4_a_heartbeat_without_a_count_or_with_the_same_one_does_not_reset_the_idle_timer() {
    let mut a = one();
    a.activity(at(0, 1), "a", Some(23)).expect("the agent is live");
    for second in (10..=300).step_by(10) {
        a.activity(at(0, second), "a", if second % 20 == 0 { None } else { Some(23) })
            .expect("the agent is live");
    }
    let (_, message) = hung(&a, Awake(306_100)).expect("it hangs");
    assert_eq!(message, "Idle timeout: no progress for 305.1s (limit 300s, 23 messages)");
}

#[test]
fn activity_after_an_end_never_resurrects() {
    let mut a = one();
    a.done(at(1, 0), "a").expect("the agent is live");
    assert_eq!(a.activity(at(1, 0), "a", Some(9)), Err(ExternalError::Ended));
    assert_eq!(a.error(at(1, 0), "a", "x").err(), Some(ExternalError::Ended));
    assert_eq!(a.done(at(1, 0), "a"), Err(ExternalError::Ended));
    assert_eq!((a.hung(at(99, 0)), a.due()), (vec![], None));
    assert_eq!(a.activity(at(1, 0), "b", None), Err(ExternalError::Unknown));
}

#[test]
fn names_and_numbers_are_bounded() {
    let mut a = ExternalAgents::new(WatchPolicy::of(Profile::Quick));
    assert_eq!(a.register(at(0, 0), ""), Err(ExternalError::BadName));
    assert_eq!(a.register(at(0, 0), &"x".repeat(MAX_NAME + 1)), Err(ExternalError::BadName));
    for n in 0..MAX_AGENTS {
        assert_eq!(a.register(at(0, 0), &n.to_string()), Ok(()));
    }
    assert_eq!(a.register(at(0, 0), "one more"), Err(ExternalError::TooMany));
    assert_eq!(a.register(at(0, 0), "7"), Err(ExternalError::Taken));
    a.done(at(1, 0), "7").expect("the agent is live");
    assert_eq!(a.register(at(0, 0), "7"), Ok(()));
    assert_eq!(a.register(at(0, 0), "a\nb"), Err(ExternalError::BadName));
}

#[test]
fn a_full_set_removes_the_agent_that_ended_first_and_never_a_live_one() {
    let mut a = ExternalAgents::new(WatchPolicy::of(Profile::Quick));
    for n in 0..MAX_AGENTS {
        a.register(at(0, 0), &n.to_string()).expect("there is room");
    }
    a.done(at(2, 0), "5").expect("the agent is live");
    a.done(at(1, 0), "6").expect("the agent is live");
    assert_eq!(a.register(at(3, 0), "new"), Ok(()));
    assert_eq!(
        (a.done(at(3, 0), "6"), a.done(at(3, 0), "5")),
        (Err(ExternalError::Unknown), Err(ExternalError::Ended))
    );
    assert_eq!(a.register(at(3, 0), "newer"), Ok(()));
    assert_eq!(a.register(at(3, 0), "newest"), Err(ExternalError::TooMany));
}

#[test]
fn the_list_shows_all_agents_and_the_age_of_ended_ones_is_fixed() {
    let mut a = one();
    a.register_under(at(1, 0), "b", Some(WatchPolicy::of(Profile::Deep)), RequestedLimits::default())
        .expect("there is room");
    a.activity(at(2, 0), "a", Some(3)).expect("the agent is live");
    a.done(at(3, 0), "a").expect("the agent is live");
    let seen = a.list(at(10, 0));
    let short: Vec<_> = seen.iter().map(|s| (s.id.as_str(), s.messages, s.lasted, s.ended)).collect();
    assert_eq!(short, [("a", 3, Dur::from_mins(3), true), ("b", 0, Dur::from_mins(9), false)]);
    assert_eq!(seen[0].answer.evidence_summary[0].age_seconds, Some(60.0));
    // Its own limits allow ten minutes of silence.
    assert_eq!(a.hung(at(11, 0)), []);
    assert_eq!(a.due_after(at(11, 0)), Some(at(16, 0)));
    assert_eq!(a.hung(at(16, 0)).len(), 1);
}

#[test]
fn origin_4_each_agent_may_have_its_own_limits() {
    let mut a = ExternalAgents::new(WatchPolicy::of(Profile::Quick));
    let asked = RequestedLimits {
        idle: Some(Dur::from_secs(600)),
        total: Some(Dur::from_secs(1800)),
        errors: Some(10),
    };
    a.register_under(at(0, 0), "slow", None, asked).expect("there is room");
    a.register(at(0, 0), "usual").expect("there is room");
    for _ in 0..9 {
        a.error(at(0, 1), "slow", "flaky network").expect("the agent is live");
    }
    let hung = |a: &ExternalAgents, now| a.hung(now).into_iter().map(|h| h.id).collect::<Vec<_>>();
    assert_eq!(hung(&a, at(5, 0)), ["usual"]);
    assert_eq!(hung(&a, at(9, 59)), ["usual"]);
    assert_eq!(hung(&a, at(10, 0)), ["slow", "usual"]);
    a.activity(at(10, 0), "slow", Some(1)).expect("the agent is live");
    a.error(at(10, 0), "slow", "flaky network").expect("the agent is live");
    let seen = a.get(at(10, 0), "slow").expect("it is known");
    assert_eq!(seen.stop(), Some((StopReason::ErrorLoop, "Loop detected: 10 errors, last: flaky network")));
    let limits = Limits { idle: Some(Dur::from_mins(10)), total: Some(Dur::from_mins(30)), errors: Some(10) };
    assert_eq!(seen.limits, limits);
}

#[test]
fn origin_4_errors_are_counted_the_last_one_is_kept_and_the_third_warns() {
    let mut a = one();
    let first = a.error(at(0, 1), "a", "line 7: bad").expect("the agent is live");
    assert_eq!((first.errors, first.last_error.as_deref(), first.warning()), (1, Some("line 7: bad"), None));
    a.error(at(0, 2), "a", "another").expect("the agent is live");
    let third =
        a.error(at(0, 3), "a", "\u{1b}[31mline 8: bad\u{1b}[0m\nsecond line").expect("the agent is live");
    assert_eq!(third.last_error.as_deref(), Some("line 8: bad\nsecond line"));
    assert_eq!(third.warning().as_deref(), Some("3 errors, last: line 8: bad\nsecond line"));
    let long = a.error(at(0, 4), "a", &"x".repeat(MAX_LAST_ERROR + 1)).expect("the agent is live");
    assert_eq!(long.last_error.map(|e| e.chars().count()), Some(MAX_LAST_ERROR + 1));
    let key = a.error(at(0, 5), "a", &format!("401 with sk-{}", "A".repeat(24))).expect("the agent is live");
    assert!(!key.last_error.expect("is kept").contains("AAAA"));
}

#[test]
fn origin_4_message_counts_are_kept_with_the_one_before() {
    let mut a = one();
    for (count, now, before) in [(Some(5), 5, 0), (Some(12), 12, 5), (Some(12), 12, 5), (None, 12, 5)] {
        a.activity(at(0, 1), "a", count).expect("the agent is live");
        let seen = a.get(at(0, 1), "a").expect("it is known");
        assert_eq!((seen.messages, seen.last_messages), (now, before));
    }
}

#[test]
fn origin_4_after_a_cleanup_the_reason_stays_readable() {
    let mut a = one();
    a.register(at(0, 0), "fine").expect("there is room");
    let ended = a.clean_up(Awake(305_100), "a").expect("the agent is live");
    let message = "Idle timeout: no progress for 305.1s (limit 300s, 0 messages)";
    assert_eq!(ended.stop(), Some((StopReason::NoOutputDeadline, message)));
    assert!(ended.ended && a.hung(at(9, 0)).iter().all(|h| h.id != "a"));
    // An hour later its state is the same, and a second cleanup changes nothing.
    assert_eq!(a.get(at(60, 0), "a").as_ref(), Some(&ended));
    assert_eq!(a.clean_up(at(60, 0), "a").as_ref(), Ok(&ended));
    a.activity(at(4, 0), "fine", Some(1)).expect("the agent is live");
    a.done(at(5, 0), "fine").expect("the agent is live");
    assert_eq!(a.get(at(60, 0), "fine").expect("it is known").stop(), None);
    assert_eq!(a.clean_up(at(60, 0), "never").err(), Some(ExternalError::Unknown));
}

#[test]
fn the_number_of_ended_agents_is_bounded() {
    let mut a = ExternalAgents::new(WatchPolicy::of(Profile::Quick));
    for n in 0..=MAX_ENDED as u64 {
        let id = n.to_string();
        a.register(Awake(n), &id).expect("there is room");
        a.done(Awake(n), &id).expect("the agent is live");
    }
    assert_eq!(a.get(at(1, 0), "0"), None);
    assert!(a.get(at(1, 0), "1").is_some_and(|seen| seen.ended));
    assert_eq!(a.list(at(1, 0)).len(), MAX_ENDED);
}
