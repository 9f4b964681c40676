//! The measured need of a session is exact: a millisecond more spares the session, and a millisecond less stops it.

use dogwatch_core::record::event::Observation;
use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::replay::{Finish, Looks, Player, Replayed};
use dogwatch_core::watch::{Channel, Fact, MAX_TOOLS, Needs, Session, StopReason, ToolStarted};

const MS: Dur = Dur::from_millis(1);

type Story = Vec<(u64, Fact)>;

/// Returns a policy in which only silence and tool calls can stop a session.
fn policy(idle: Limit, tool: Limit) -> WatchPolicy {
    let off = WatchPolicy { idle, tool, start: Limit::Off, ..WatchPolicy::default().ceilings_only() };
    WatchPolicy { session: Limit::Off, errors: None, ..off }
}

fn play(story: &Story, policy: WatchPolicy) -> Replayed {
    let session = Session::new(Awake(0), true);
    let mut player = Player::new(policy, session, None, Looks::EveryDue).measuring(true);
    for (at, fact) in story {
        player.fact(Awake(*at), fact);
    }
    let end = story.last().map_or(0, |(at, _)| *at);
    player.finish(Awake(end), &Finish::Known("completed"))
}

fn needs(story: &Story) -> Needs {
    play(story, policy(Limit::Off, Limit::Off)).needs.expect("the replay measures")
}

fn seen(at: u64, channel: Channel) -> (u64, Fact) {
    (at, Fact::Observed(Observation::single(channel, Awake(at))))
}

fn started(at: u64, id: u64, name: &str, delegates: bool, timeout: Option<Dur>) -> (u64, Fact) {
    let tool = ToolStarted {
        id: id.to_string(),
        name: name.to_owned(),
        subject: String::new(),
        call: id,
        timeout,
        delegates,
        mcp: false,
        heartbeat: false,
    };
    (at, Fact::ToolStarted(tool))
}

fn ended(at: u64, id: u64) -> (u64, Fact) {
    let (id, error) = (id.to_string(), String::new());
    (at, Fact::ToolEnded { id, ok: true, result: at, error, heartbeat: false, canceled: false })
}

/// A random number generator, so that every run tests the same stories.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn story(seed: u64) -> Story {
    let mut dice = Dice(seed);
    let (mut at, mut open, mut story) = (0, Vec::new(), Vec::new());
    for id in 0..40 {
        at += match dice.below(4) {
            0 => dice.below(200_000),
            _ => 1 + dice.below(20_000),
        };
        story.push(match dice.below(8) {
            0 | 1 => seen(at, Channel::Stdout),
            2 => seen(at, Channel::Workspace),
            3 => seen(at, Channel::Subagent),
            4 => {
                open.push(id);
                started(at, id, ["Bash", "Read"][id as usize % 2], dice.below(3) == 0, None)
            }
            5 => (at, Fact::Printed),
            _ if open.is_empty() => seen(at, Channel::McpTool),
            _ => ended(at, open.swap_remove(dice.below(open.len() as u64) as usize)),
        });
    }
    story
}

#[test]
fn the_silence_that_a_session_needs_is_exactly_the_limit_that_spares_it() {
    for seed in 0..500 {
        let story = story(seed);
        let need = needs(&story).silence_s;
        let stop = |limit: Dur| play(&story, policy(Limit::At(limit), Limit::Off)).summary.reason;
        assert_eq!(stop(need.saturating_add(MS)), None, "seed {seed}, {need}");
        let less = need.saturating_sub(MS);
        let silence = [Some(StopReason::NoOutputDeadline), Some(StopReason::NoOutputAtStart)];
        assert!(less.is_zero() || silence.contains(&stop(less)), "seed {seed}, {need}");
    }
}

#[test]
fn the_call_that_a_session_needs_is_exactly_the_limit_that_spares_it() {
    for seed in 0..500 {
        let story = story(seed);
        let need = needs(&story).tools.values().map(|calls| calls.longest_s).max().unwrap_or(Dur::ZERO);
        let stop = |limit: Dur| play(&story, policy(Limit::Off, Limit::At(limit))).summary.reason;
        assert_eq!(stop(need.saturating_add(MS)), None, "seed {seed}, {need}");
        let less = need.saturating_sub(MS);
        let ceiling = Some(StopReason::ToolCeilingExceeded);
        assert!(less.is_zero() || stop(less) == ceiling, "seed {seed}, {need}");
    }
}

#[test]
fn suspended_time_and_declared_timeouts_are_not_needed() {
    let mut story = vec![(0, Fact::Printed), seen(1_000, Channel::Stdout)];
    story.push((601_000, Fact::Suspended { for_ms: 590_000 }));
    story.push(seen(603_000, Channel::Stdout));
    story.push(started(603_000, 1, "Bash", false, Some(Dur::from_mins(20))));
    story.push(ended(903_000, 1));
    story.push(started(903_000, 2, "Bash", false, None));
    story.push(ended(905_000, 2));
    let needs = needs(&story);
    assert_eq!(needs.silence_s, Dur::from_secs(12));
    let bash = needs.tools["Bash"];
    assert_eq!((bash.calls, bash.longest_s), (1, Dur::from_secs(2)));
    assert_eq!(needs.session_s, Dur::from_secs(905 - 590));
}

#[test]
fn the_limit_of_a_tool_replaces_the_limit_of_all_tools() {
    let mut story = vec![(0, Fact::Printed), started(0, 1, "Bash", false, None)];
    story.push(ended(200_000, 1));
    story.push(started(200_000, 2, "Read", false, None));
    story.push(ended(400_000, 2));
    story.push(started(400_000, 3, "Bash", false, Some(Dur::from_mins(5))));
    story.push(ended(600_000, 3));
    let stopped_at = |tools: &[(&str, Limit)]| {
        let mut policy = policy(Limit::Off, Limit::At(Dur::from_mins(10)));
        policy.tools = tools.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect();
        let summary = play(&story, policy).summary;
        summary.reason.map(|_| summary.ended_at_s)
    };
    let minute = Limit::At(Dur::from_mins(1));
    assert_eq!(stopped_at(&[]), None);
    assert_eq!(stopped_at(&[("Bash", minute)]), Some(60.0));
    assert_eq!(stopped_at(&[("Read", minute)]), Some(260.0));
    assert_eq!(stopped_at(&[("Write", minute)]), None);
    assert_eq!(stopped_at(&[("Bash", Limit::Off), ("Read", Limit::Off)]), None, "a declared timeout counts");
}

#[test]
fn a_stopped_session_needed_at_least_its_limit() {
    let story = vec![(0, Fact::Printed), seen(1_000, Channel::Stdout), seen(900_000, Channel::Stdout)];
    let replayed = play(&story, policy(Limit::At(Dur::from_mins(5)), Limit::Off));
    assert_eq!(replayed.summary.reason, Some(StopReason::NoOutputDeadline));
    assert_eq!(replayed.needs.expect("measured").silence_s, Dur::from_mins(5));
}

#[test]
fn at_most_a_bounded_number_of_tools_is_measured() {
    let count = |n: u64| {
        let calls = (0..n).flat_map(|id| [started(id, id, &format!("tool{id}"), false, None), ended(id, id)]);
        needs(&calls.collect()).tools.len()
    };
    let max = MAX_TOOLS as u64;
    assert_eq!([count(max - 1), count(max), count(max + 1)], [MAX_TOOLS - 1, MAX_TOOLS, MAX_TOOLS]);
}
