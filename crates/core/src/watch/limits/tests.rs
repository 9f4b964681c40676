use super::*;
use crate::watch::StopReason;
use crate::watch::replay::Summary;

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

fn sample(place: &str, silence: u64) -> Sample {
    let needs = Needs { silence_s: secs(silence), session_s: secs(600), ..Needs::default() };
    Sample { agent: ReaderName::Claude, place: place.to_owned(), kind: Kind::Good, needs }
}

/// Returns sessions whose longest silences are 1, 2, 3 … seconds.
fn samples(place: &str, n: u64) -> Vec<Sample> {
    (1..=n).map(|silence| sample(place, silence)).collect()
}

fn idle(samples: &[Sample], now: Dur) -> Estimate {
    let base = WatchPolicy { idle: Limit::At(now), ..WatchPolicy::default() };
    History::of(samples, ReaderName::Claude, Some("/here")).estimate(&Key::Idle, &base)
}

#[test]
fn thirty_sessions_loosen_and_three_hundred_tighten() {
    let mut few = samples("/here", 29);
    few[28].needs.silence_s = secs(900);
    let kept = idle(&few, secs(480));
    assert_eq!((kept.limit_s, kept.why.as_str()), (None, "29 of 30 good sessions needed"));
    few.push(sample("/here", 1));
    let loose = idle(&few, secs(480));
    assert_eq!((loose.limit_s, loose.why.as_str()), (Some(secs(1080)), "a good session needed 15m"));

    let enough = samples("/here", 100);
    let kept = idle(&enough, secs(480));
    assert_eq!(kept.limit_s, None);
    assert!(kept.why.ends_with("would do, but 100 of 300 good sessions needed"), "{}", kept.why);
    // The sessions of other projects show how heavy the tail is, and that the agent is well known.
    let both = [samples("/here", 100), samples("/there", 199)].concat();
    assert_eq!(idle(&both, secs(480)).limit_s, None);
    let both = [samples("/here", 100), samples("/there", 200)].concat();
    let tight = idle(&both, secs(480));
    assert_eq!((tight.limit_s, tight.sessions, tight.agent_sessions), (Some(secs(240)), 100, 300));
    assert_eq!(tight.why, "good sessions needed at most 1m40s");
}

#[test]
fn sessions_of_other_projects_alone_change_nothing() {
    let others = [samples("/there", 400), samples("/hereafter", 400)].concat();
    assert_eq!(idle(&others, secs(480)).why, "0 of 30 good sessions needed");
    let below = samples("/here/crates/core", 30);
    assert_eq!(idle(&below, secs(480)).sessions, 30);
}

#[test]
fn a_learned_limit_stays_within_its_bounds() {
    let mut long = samples("/here", 300);
    long[0].needs.silence_s = Dur::from_hours(5);
    assert_eq!(idle(&long, secs(480)).limit_s, Some(Dur::from_hours(1)));
    let short: Vec<Sample> = (0..300).map(|_| sample("/here", 2)).collect();
    assert_eq!(idle(&short, secs(480)).limit_s, Some(Dur::from_mins(4)));
    assert_eq!(idle(&short, secs(300)).limit_s, Some(Dur::from_mins(4)));
    assert_eq!(History::of(&short, ReaderName::Codex, None).good.len(), 0);
    let off = WatchPolicy { idle: Limit::Off, ..WatchPolicy::default() };
    let history = History::of(&short, ReaderName::Claude, None);
    assert_eq!(history.estimate(&Key::Idle, &off).limit_s, None);
}

#[test]
fn a_stop_counts_only_if_it_is_labeled_wrong() {
    let mut all = samples("/here", 300);
    all.push(Sample { kind: Kind::Stopped, ..sample("/here", 480) });
    all.push(Sample { kind: Kind::Unclear, ..sample("/here", 480) });
    let tight = idle(&all, secs(480));
    assert_eq!((tight.sessions, tight.longest_s), (300, secs(300)));
    all.push(Sample { kind: Kind::WronglyStopped, ..sample("/here", 480) });
    let loose = idle(&all, secs(480));
    assert_eq!((loose.sessions, loose.limit_s), (301, Some(secs(580))));
}

#[test]
fn a_tool_with_twenty_calls_gets_three_times_its_longest_call() {
    let with = |calls: u64, longest: u64| {
        let mut all = samples("/there", 300);
        let used = Calls { calls, longest_s: secs(longest) };
        all[7].needs.tools.insert("Bash".to_owned(), used);
        all[8].needs.tools.insert("Read".to_owned(), Calls { calls: 19, longest_s: secs(1) });
        let history = History::of(&all, ReaderName::Claude, Some("/here"));
        history
            .applied(&WatchPolicy::default())
            .into_iter()
            .map(|(_, e)| (e.key, e.limit_s))
            .collect::<Vec<_>>()
    };
    let idle = ("watchdog.idle".to_owned(), None);
    assert_eq!(with(19, 138).len(), 1, "too few calls");
    let bash = |limit: u64| ("watchdog.tools.Bash".to_owned(), Some(secs(limit)));
    assert_eq!(with(20, 138), [idle.clone(), bash(420)]);
    assert_eq!(with(20, 3), [idle.clone(), bash(300)]);
    assert_eq!(with(20, 7_200), [idle, bash(3_600)]);
}

#[test]
fn only_the_tools_with_the_most_calls_get_limits() {
    let mut all = samples("/here", 300);
    for n in 0..=MAX_TOOL_LIMITS as u64 {
        let calls = Calls { calls: MIN_CALLS + n, longest_s: secs(1) };
        all[0].needs.tools.insert(format!("tool{n:03}"), calls);
    }
    let tools = History::of(&all, ReaderName::Claude, None).tools();
    assert_eq!(tools.len(), MAX_TOOL_LIMITS);
    assert_eq!((tools[0].0.as_str(), tools[MAX_TOOL_LIMITS - 1].0.as_str()), ("tool064", "tool001"));
}

#[test]
fn every_key_reads_and_sets_its_own_limit() {
    let mine = Limit::At(secs(77));
    let keys = Key::WHOLE.into_iter().chain([Key::Tool("Bash".to_owned())]);
    for key in keys {
        let mut policy = WatchPolicy::default();
        key.set(&mut policy, mine);
        assert_eq!(key.of(&policy), mine);
        assert_ne!(policy, WatchPolicy::default());
        assert_eq!(Key::Tool("Read".to_owned()).of(&policy), policy.tool);
    }
}

#[test]
fn confidence_follows_the_number_of_sessions() {
    assert_eq!(confidence(0, 0), "no good session was replayed");
    assert_eq!(confidence(0, 300), "0 of 300 good sessions stopped; at most 0.89% with 95% confidence");
    assert_eq!(confidence(1, 1), "1 of 1 good session stopped; at most 100.00% with 95% confidence");
}

fn replayed(verdict: &'static str, outcome: Option<&'static str>, ended_at_s: f64) -> Replayed {
    let reason = (verdict == "hard_stop").then_some(StopReason::NoOutputDeadline);
    let summary =
        Summary { session: None, ended_at_s, verdict, reason, messages: 1, tools: 0, errors: 0, outcome };
    Replayed {
        lines: vec![],
        summary,
        needs: None,
        agent: None,
        label: None,
        agent_session: None,
        differing: vec![],
    }
}

#[test]
fn a_trial_counts_false_stops_and_saved_time() {
    let good = || replayed("continue", Some("completed"), 700.0);
    let stuck = || replayed("hard_stop", Some("timed_out"), 600.0);
    let wrong = || Replayed { label: Some(Label::Wrong), ..stuck() };
    let own = [good(), good(), stuck(), stuck(), wrong(), wrong(), replayed("continue", Some("failed"), 9.0)];
    let other =
        [good(), stuck(), replayed("hard_stop", Some("timed_out"), 240.0), stuck(), good(), stuck(), stuck()]
            .map(|replayed| replayed.summary);
    let trial = Trial::of(&own, &other, |reason| reason == StopReason::NoOutputDeadline);
    let expected = Trial {
        good: 2,
        good_stopped: 1,
        stuck: 2,
        sooner: 1,
        saved_s: secs(360),
        wrong: 2,
        wrong_spared: 1,
    };
    assert_eq!(trial, expected);
    let none = Trial::of(&own, &other, |reason| reason == StopReason::ToolCeilingExceeded);
    assert_eq!((none.good_stopped, none.sooner, none.saved_s), (0, 0, Dur::ZERO));
}
