//! Proposes limits from past sessions, which are replayed under several limits.
//!
//! A *good* session ended by itself, and its iteration was completed or idle. The watchdog stopped a *stuck* session. A
//! limit is judged by the good sessions that it would have stopped, and by how much sooner it would have stopped the
//! stuck ones. A limit that the good sessions hardly exercised gets no proposal. The module is pure: the caller replays
//! the journals.

use crate::settings::WatchPolicy;
use crate::time::dur::{Dur, Limit};
use crate::watch::replay::{Replayed, Summary};
use serde::Serialize;

/// The fewest good sessions for any proposal.
pub const MIN_GOOD: usize = 20;
/// The fewest gaps in good sessions for a proposal for `idle`.
pub const MIN_GAPS: u64 = 1_000;
/// The fewest times that good sessions exercised a limit for a proposal, except for `idle`.
pub const MIN_CALLS: u64 = 100;
/// A proposal is at least this many times the limit that spares all good sessions.
const HEADROOM: u64 = 2;
/// The tightest proposal. Context compaction alone can take more than three minutes.
const FLOOR: Dur = Dur::from_mins(4);
/// A proposal is at most this percentage of the current limit; a smaller change is not worthwhile.
const WORTH_PERCENT: u64 = 75;
/// The number of limits shown that would have stopped good sessions.
const COSTLY_SHOWN: usize = 2;

/// The limits that are tried, in seconds. They are the values that people use.
const LADDER: [u64; 26] = [
    5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600, 5400,
    7200, 10_800, 14_400, 21_600, 28_800,
];

/// A limit that can be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// `watchdog.idle`.
    Idle,
    /// `watchdog.start`.
    Start,
    /// `watchdog.tool`.
    Tool,
    /// `watchdog.children`.
    Children,
    /// `watchdog.session`.
    Session,
}

impl Key {
    /// All limits.
    pub const ALL: [Key; 5] = [Key::Idle, Key::Start, Key::Tool, Key::Children, Key::Session];

    /// Returns the name of the key under `watchdog`.
    pub fn as_str(self) -> &'static str {
        match self {
            Key::Idle => "idle",
            Key::Start => "start",
            Key::Tool => "tool",
            Key::Children => "children",
            Key::Session => "session",
        }
    }

    /// Returns how often the good sessions exercised this limit.
    pub fn samples(self, own: &[Replayed]) -> Samples {
        let good = own.iter().filter(|session| Kind::of(&session.summary) == Kind::Good);
        let exercised = good.map(|session| {
            let seen = session.exercised;
            match self {
                Key::Idle => seen.gaps,
                Key::Start => u64::from(seen.started),
                Key::Tool => seen.calls,
                Key::Children => seen.delegations,
                Key::Session => 1,
            }
        });
        let (unit, needed) = match self {
            Key::Idle => ("gaps", MIN_GAPS),
            Key::Start => ("starts", MIN_CALLS),
            Key::Tool => ("calls", MIN_CALLS),
            Key::Children => ("delegated calls", MIN_CALLS),
            Key::Session => ("sessions", MIN_CALLS),
        };
        Samples { unit, seen: exercised.sum(), needed }
    }

    /// Returns the value of this limit in a policy.
    pub fn of(self, policy: &WatchPolicy) -> Limit {
        match self {
            Key::Idle => policy.idle,
            Key::Start => policy.start,
            Key::Tool => policy.tool,
            Key::Children => policy.children,
            Key::Session => policy.session,
        }
    }

    /// Sets this limit in a policy.
    pub fn set(self, policy: &mut WatchPolicy, limit: Limit) {
        *match self {
            Key::Idle => &mut policy.idle,
            Key::Start => &mut policy.start,
            Key::Tool => &mut policy.tool,
            Key::Children => &mut policy.children,
            Key::Session => &mut policy.session,
        } = limit;
    }
}

/// How often good sessions exercised a limit, and how often a proposal requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Samples {
    /// The unit that is counted, for people.
    pub unit: &'static str,
    /// The number in good sessions.
    pub seen: u64,
    /// The number that a proposal requires.
    pub needed: u64,
}

/// The kind of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It ended by itself, and its iteration was completed or idle.
    Good,
    /// The watchdog stopped it.
    Stuck,
    /// It failed, was interrupted, or its service refused.
    Unclear,
}

impl Kind {
    /// Returns the kind of a session from its replay under its own limits.
    pub fn of(summary: &Summary) -> Kind {
        match (summary.verdict, summary.outcome) {
            ("hard_stop", _) => Kind::Stuck,
            (_, Some("completed" | "idle")) => Kind::Good,
            _ => Kind::Unclear,
        }
    }
}

/// The effect that one limit would have had.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// The limit in seconds.
    pub limit_s: Dur,
    /// The number of good sessions that it would have stopped.
    pub good_ended: usize,
    /// The number of stuck sessions that it would have stopped sooner.
    pub sooner: usize,
    /// How much sooner in all, in seconds.
    pub sooner_s: Dur,
}

/// The advice for one limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The name of the key under `watchdog`.
    pub key: &'static str,
    /// The current limit in seconds, from the newest run. Null means none.
    pub now_s: Option<Dur>,
    /// The tightest limit tried that spares every good session, in seconds.
    pub spares_all_s: Option<Dur>,
    /// The proposed limit in seconds, if a change is worthwhile.
    pub proposed_s: Option<Dur>,
    /// The reason for people.
    pub why: String,
    /// How often the good sessions exercised the limit.
    pub samples: Samples,
    /// The limits tried, from tight to loose.
    pub trials: Vec<Trial>,
}

/// Returns the advice for one limit. `own` holds the sessions under their own limits. `replay` replays all of them with
/// another value of the limit and returns their summaries in the same order.
pub fn advise(key: Key, now: Limit, own: &[Replayed], mut replay: impl FnMut(Dur) -> Vec<Summary>) -> Advice {
    let good = own.iter().filter(|s| Kind::of(&s.summary) == Kind::Good).count();
    let (now_s, samples) = (now.duration(), key.samples(own));
    let nothing = |why: String| Advice {
        key: key.as_str(),
        now_s,
        spares_all_s: None,
        proposed_s: None,
        why,
        samples,
        trials: vec![],
    };
    if good < MIN_GOOD {
        return nothing(format!("no proposal, {good} of {MIN_GOOD} good sessions needed"));
    }
    if samples.seen < samples.needed {
        let Samples { unit, seen, needed } = samples;
        return nothing(format!("no proposal, {seen} of {needed} {unit} needed"));
    }
    let ladder = below(now_s);
    let mut trials: Vec<Option<Trial>> = vec![None; ladder.len()];
    let mut look =
        |at: usize| trials[at].get_or_insert_with(|| trial(ladder[at], own, &replay(ladder[at]))).clone();
    // A looser limit stops fewer sessions, so a binary search finds the first that stops none.
    let (mut costs, mut spares) = (0, ladder.len());
    while costs < spares {
        let middle = usize::midpoint(costs, spares);
        if look(middle).good_ended == 0 { spares = middle } else { costs = middle + 1 }
    }
    for at in spares.saturating_sub(COSTLY_SHOWN)..spares {
        look(at);
    }
    let spares_all_s = ladder.get(spares).copied();
    let wanted = spares_all_s.map(|tight| tight.saturating_mul(HEADROOM).max(FLOOR));
    let proposed = wanted.and_then(|wanted| ladder.iter().position(|limit| *limit >= wanted));
    let proposed = proposed.filter(|at| now_s.is_none_or(|now| ladder[*at] <= now.percent(WORTH_PERCENT)));
    if let Some(at) = proposed {
        look(at);
    }
    let proposed_s = proposed.map(|at| ladder[at]);
    Advice {
        key: key.as_str(),
        now_s,
        spares_all_s,
        proposed_s,
        why: why(spares_all_s, proposed_s, now_s, good),
        samples,
        trials: trials.into_iter().flatten().collect(),
    }
}

/// Returns the limits to try that are tighter than the current one. The journals cannot show the effect of a looser one.
fn below(now: Option<Dur>) -> Vec<Dur> {
    LADDER.into_iter().map(Dur::from_secs).filter(|limit| now.is_none_or(|now| *limit < now)).collect()
}

fn trial(limit: Dur, own: &[Replayed], replayed: &[Summary]) -> Trial {
    let mut trial = Trial { limit_s: limit, good_ended: 0, sooner: 0, sooner_s: Dur::ZERO };
    let own = own.iter().map(|session| &session.summary);
    for (own, other) in own.zip(replayed).filter(|(_, other)| other.verdict == "hard_stop") {
        match Kind::of(own) {
            Kind::Good => trial.good_ended += 1,
            Kind::Stuck => {
                let by =
                    Dur::from_secs_f64((own.ended_at_s - other.ended_at_s).max(0.0)).unwrap_or(Dur::ZERO);
                trial.sooner += usize::from(by > Dur::ZERO);
                trial.sooner_s = trial.sooner_s.saturating_add(by);
            }
            Kind::Unclear => {}
        }
    }
    trial
}

fn why(spares: Option<Dur>, proposed: Option<Dur>, now: Option<Dur>, good: usize) -> String {
    match (spares, proposed, now) {
        (Some(spares), Some(_), _) => {
            format!(
                "{spares} spares all {good} good sessions; the proposal is at least twice that and {FLOOR}"
            )
        }
        (Some(spares), None, Some(now)) => {
            format!(
                "no proposal, {spares} spares all {good} good sessions, and at least twice that and {FLOOR} is not much below {now}"
            )
        }
        (None, None, Some(now)) => {
            format!("no proposal, nothing tighter than {now} spares all {good} good sessions")
        }
        _ => format!("no proposal, no limit tried spares all {good} good sessions"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::replay::Exercised;

    fn session(verdict: &'static str, outcome: Option<&'static str>, ended_at_s: f64) -> Summary {
        Summary {
            session: None,
            ended_at_s,
            verdict,
            reason: None,
            messages: 1,
            tools: 0,
            errors: 0,
            outcome,
        }
    }

    fn replayed(summary: Summary, exercised: Exercised) -> Replayed {
        Replayed { lines: vec![], summary, exercised, differing: vec![] }
    }

    const BUSY: Exercised = Exercised { gaps: 40, calls: 4, delegations: 4, started: true };

    /// Returns thirty good sessions, the n-th silent for n seconds, and two stuck sessions stopped after ten minutes.
    fn own() -> Vec<Replayed> {
        let good = (1..=30).map(|_| replayed(session("continue", Some("completed"), 700.0), BUSY));
        let stuck = || replayed(session("hard_stop", Some("timed_out"), 600.0), Exercised::default());
        good.chain([stuck(), stuck()]).collect()
    }

    fn under(limit: Dur) -> Vec<Summary> {
        let limit = limit.as_secs_f64();
        let silent = (1..=30).map(f64::from).chain([600.0, 600.0]);
        let how = |silence: f64| {
            if silence >= limit {
                session("hard_stop", Some("timed_out"), limit)
            } else {
                session("continue", Some("completed"), 700.0)
            }
        };
        silent.map(how).collect()
    }

    /// The same sessions with every silence four times as long.
    fn slower(limit: Dur) -> Vec<Summary> {
        under(limit.percent(25))
    }

    fn minutes(n: u64) -> Limit {
        Limit::At(Dur::from_mins(n))
    }

    #[test]
    fn the_proposal_is_twice_what_good_sessions_needed_and_shows_its_gain() {
        let advice = advise(Key::Idle, minutes(10), &own(), slower);
        // The longest silence is 2 minutes, so 3 minutes spares all; twice that is 6 minutes.
        assert_eq!(advice.spares_all_s, Some(Dur::from_mins(3)));
        assert_eq!(advice.proposed_s, Some(Dur::from_mins(6)));
        let at = |secs: u64| {
            advice.trials.iter().find(|t| t.limit_s == Dur::from_secs(secs)).expect("it was tried")
        };
        assert_eq!((at(360).good_ended, at(360).sooner), (0, 2));
        assert_eq!(at(120).good_ended, 1);
        assert_eq!(at(90).good_ended, 8);
        assert!(advice.trials.is_sorted_by_key(|t| t.limit_s));
    }

    #[test]
    fn no_proposal_is_tighter_than_four_minutes() {
        let advice = advise(Key::Idle, minutes(10), &own(), under);
        assert_eq!(advice.spares_all_s, Some(Dur::from_secs(45)));
        assert_eq!(advice.proposed_s, Some(Dur::from_mins(4)));
    }

    #[test]
    fn few_sessions_get_no_proposal() {
        let few: Vec<Replayed> = own().into_iter().skip(11).collect();
        let advice = advise(Key::Idle, minutes(10), &few, |_| unreachable!("nothing is replayed"));
        assert_eq!((advice.proposed_s, advice.trials.len()), (None, 0));
        assert_eq!(advice.why, "no proposal, 19 of 20 good sessions needed");
    }

    #[test]
    fn a_limit_that_was_hardly_exercised_gets_no_proposal() {
        let needed = |key, exercised| {
            let mut all = own();
            all.iter_mut().for_each(|session| session.exercised = Exercised::default());
            all[0].exercised = exercised;
            // Stuck sessions do not count.
            all[31].exercised = Exercised { gaps: 5_000, calls: 500, delegations: 500, started: true };
            let advice = advise(key, minutes(10), &all, |_| unreachable!("nothing is replayed"));
            assert_eq!((advice.proposed_s, advice.trials.len()), (None, 0));
            advice.why
        };
        let seen = Exercised { gaps: 999, calls: 12, delegations: 3, started: true };
        assert_eq!(needed(Key::Idle, seen), "no proposal, 999 of 1000 gaps needed");
        assert_eq!(needed(Key::Start, seen), "no proposal, 1 of 100 starts needed");
        assert_eq!(needed(Key::Tool, seen), "no proposal, 12 of 100 calls needed");
        assert_eq!(needed(Key::Children, seen), "no proposal, 3 of 100 delegated calls needed");
        assert_eq!(needed(Key::Session, seen), "no proposal, 30 of 100 sessions needed");
        let enough = advise(Key::Tool, minutes(10), &own(), under);
        assert_eq!((enough.samples.seen, enough.proposed_s), (120, Some(Dur::from_mins(4))));
    }

    #[test]
    fn a_hardly_tighter_limit_is_not_proposed_and_a_looser_one_never_tried() {
        let advice = advise(Key::Idle, Limit::At(Dur::from_secs(300)), &own(), under);
        assert_eq!((advice.spares_all_s, advice.proposed_s), (Some(Dur::from_secs(45)), None));
        assert!(advice.trials.iter().all(|t| t.limit_s < Dur::from_secs(300)));
        // No limit below the current one spares all of them.
        let advice = advise(Key::Idle, Limit::At(Dur::from_secs(40)), &own(), under);
        assert_eq!((advice.spares_all_s, advice.proposed_s), (None, None));
        assert!(advice.why.starts_with("no proposal, nothing tighter"), "{}", advice.why);
    }

    #[test]
    fn a_limit_is_proposed_if_there_is_none_yet() {
        assert_eq!(advise(Key::Idle, Limit::Off, &own(), under).proposed_s, Some(Dur::from_mins(4)));
    }

    #[test]
    fn failed_and_interrupted_sessions_count_for_nothing() {
        let mut all = own();
        all.push(replayed(session("continue", Some("failed"), 1.0), BUSY));
        all.push(replayed(session("continue", None, 1.0), BUSY));
        let replay = |limit| [under(limit), vec![session("hard_stop", Some("timed_out"), 0.5); 2]].concat();
        let advice = advise(Key::Idle, minutes(10), &all, replay);
        assert_eq!(advice.spares_all_s, Some(Dur::from_secs(45)));
        assert_eq!(advice.samples.seen, 1_200);
    }

    #[test]
    fn every_key_reads_and_sets_its_own_limit() {
        for key in Key::ALL {
            let mut policy = WatchPolicy::default();
            key.set(&mut policy, Limit::At(Dur::from_secs(77)));
            assert_eq!(Key::ALL.iter().filter(|k| k.of(&policy) == Limit::At(Dur::from_secs(77))).count(), 1);
            assert_eq!(key.of(&policy), Limit::At(Dur::from_secs(77)));
        }
    }
}
