//! Which limits would have served: what sessions have shown, replayed under one limit after the other.
//!
//! A *good* session ended by itself and its iteration was completed or idle; a *stuck* one was ended by the watchdog.
//! A limit is judged by the good sessions it would have ended, and by how much sooner it would have ended the stuck
//! ones. Pure: whoever asks replays the journals.

use crate::dur::{Dur, Limit};
use crate::replay::Summary;
use crate::settings::WatchPolicy;
use serde::Serialize;

/// Fewer good sessions than this say nothing about the next one.
pub const MIN_GOOD: usize = 20;
/// What is proposed lies above all that good sessions have needed, by a half.
const HEADROOM_PERCENT: u64 = 150;
/// A limit that is tighter by less than a quarter is not worth a change.
const WORTH_PERCENT: u64 = 75;
/// So many limits that would have ended good sessions are shown, to see where it begins to cost.
const COSTLY_SHOWN: usize = 2;

/// The limits that are tried, in seconds: steps that people use.
const LADDER: [u64; 26] = [
    5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600, 5400,
    7200, 10_800, 14_400, 21_600, 28_800,
];

/// A limit that can be read off the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Idle,
    Start,
    Tool,
    Children,
    Session,
}

impl Key {
    pub const ALL: [Key; 5] = [Key::Idle, Key::Start, Key::Tool, Key::Children, Key::Session];

    /// As it stands below `watchdog`.
    pub fn as_str(self) -> &'static str {
        match self {
            Key::Idle => "idle",
            Key::Start => "start",
            Key::Tool => "tool",
            Key::Children => "children",
            Key::Session => "session",
        }
    }

    pub fn of(self, policy: &WatchPolicy) -> Limit {
        match self {
            Key::Idle => policy.idle,
            Key::Start => policy.start,
            Key::Tool => policy.tool,
            Key::Children => policy.children,
            Key::Session => policy.session,
        }
    }

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

/// What a session says about limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Good,
    Stuck,
    /// It failed, was interrupted, met a limit of its service: nobody knows whether it was well.
    Unclear,
}

impl Kind {
    pub fn of(summary: &Summary) -> Kind {
        match (summary.verdict, summary.outcome) {
            ("hard_stop", _) => Kind::Stuck,
            (_, Some("completed" | "idle")) => Kind::Good,
            _ => Kind::Unclear,
        }
    }
}

/// What one limit would have done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    pub limit_s: Dur,
    /// Good sessions that it would have ended.
    pub good_ended: usize,
    /// Stuck ones that it would have ended sooner, and by how much in all.
    pub sooner: usize,
    pub sooner_s: Dur,
}

/// What there is to say about one limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub key: &'static str,
    /// The limit in force, in the newest of the runs; null is none.
    pub now_s: Option<Dur>,
    /// The tightest of those tried that spares every good session.
    pub spares_all_s: Option<Dur>,
    /// What to set, if a change is worth it.
    pub proposed_s: Option<Dur>,
    pub why: String,
    /// From tight to loose.
    pub trials: Vec<Trial>,
}

/// The advice for one key. `own` tells how the sessions went; `replay` answers how they would have gone with this limit
/// for all of them, in the same order.
pub fn advise(key: Key, now: Limit, own: &[Summary], mut replay: impl FnMut(Dur) -> Vec<Summary>) -> Advice {
    let good = own.iter().filter(|s| Kind::of(s) == Kind::Good).count();
    let now_s = now.duration();
    let nothing = |why: String| Advice {
        key: key.as_str(),
        now_s,
        spares_all_s: None,
        proposed_s: None,
        why,
        trials: vec![],
    };
    if good < MIN_GOOD {
        return nothing(format!("too few good sessions to tell: {good}, and it takes {MIN_GOOD}"));
    }
    let ladder = below(now_s);
    let mut trials: Vec<Option<Trial>> = vec![None; ladder.len()];
    let mut look =
        |at: usize| trials[at].get_or_insert_with(|| trial(ladder[at], own, &replay(ladder[at]))).clone();
    // The looser a limit, the fewer it ends: the first that ends none lies between two that have been tried.
    let (mut costs, mut spares) = (0, ladder.len());
    while costs < spares {
        let middle = usize::midpoint(costs, spares);
        if look(middle).good_ended == 0 { spares = middle } else { costs = middle + 1 }
    }
    for at in spares.saturating_sub(COSTLY_SHOWN)..spares {
        look(at);
    }
    let spares_all_s = ladder.get(spares).copied();
    let wanted = spares_all_s.map(|tight| tight.percent(HEADROOM_PERCENT));
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
        trials: trials.into_iter().flatten().collect(),
    }
}

/// The steps that are tighter than what is in force: what a looser one would have changed, nobody has seen.
fn below(now: Option<Dur>) -> Vec<Dur> {
    LADDER.into_iter().map(Dur::from_secs).filter(|limit| now.is_none_or(|now| *limit < now)).collect()
}

fn trial(limit: Dur, own: &[Summary], replayed: &[Summary]) -> Trial {
    let mut trial = Trial { limit_s: limit, good_ended: 0, sooner: 0, sooner_s: Dur::ZERO };
    for (own, other) in own.iter().zip(replayed).filter(|(_, other)| other.verdict == "hard_stop") {
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
            format!("{spares} spares all {good} good sessions, and a half more is left to the next one")
        }
        (Some(spares), None, Some(now)) => {
            format!(
                "{spares} would spare all {good} good sessions; {now} is not much above that and what the next one may need"
            )
        }
        (None, None, Some(now)) => format!("nothing tighter than {now} spares all {good} good sessions"),
        _ => format!("no limit that was tried spares all {good} good sessions"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Thirty good sessions, the n-th silent for n seconds; two that were stuck and ended after ten minutes.
    fn own() -> Vec<Summary> {
        let good = (1..=30).map(|_| session("continue", Some("completed"), 700.0));
        good.chain((0..2).map(|_| session("hard_stop", Some("timed_out"), 600.0))).collect()
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

    fn minutes(n: u64) -> Limit {
        Limit::At(Dur::from_mins(n))
    }

    #[test]
    fn the_proposal_spares_every_good_session_with_room_and_says_what_it_gains() {
        let advice = advise(Key::Idle, minutes(10), &own(), under);
        assert_eq!(advice.spares_all_s, Some(Dur::from_secs(45)));
        // A half more than 45 s is 67.5 s; the next step is 90 s.
        assert_eq!(advice.proposed_s, Some(Dur::from_secs(90)));
        let at = |secs: u64| {
            advice.trials.iter().find(|t| t.limit_s == Dur::from_secs(secs)).expect("it was tried")
        };
        assert_eq!((at(90).good_ended, at(90).sooner, at(90).sooner_s), (0, 2, Dur::from_secs(2 * 510)));
        assert_eq!(at(30).good_ended, 1);
        assert_eq!(at(20).good_ended, 11);
        assert!(advice.trials.is_sorted_by_key(|t| t.limit_s));
    }

    #[test]
    fn few_sessions_are_no_ground_for_advice() {
        let few: Vec<Summary> = own().into_iter().skip(11).collect();
        let advice = advise(Key::Idle, minutes(10), &few, |_| unreachable!("nothing is replayed"));
        assert_eq!((advice.proposed_s, advice.trials.len()), (None, 0));
        assert!(advice.why.contains("19, and it takes 20"), "{}", advice.why);
    }

    #[test]
    fn what_is_hardly_tighter_is_not_proposed_and_looser_is_never_tried() {
        let advice = advise(Key::Idle, Limit::At(Dur::from_secs(100)), &own(), under);
        assert_eq!((advice.spares_all_s, advice.proposed_s), (Some(Dur::from_secs(45)), None));
        assert!(advice.trials.iter().all(|t| t.limit_s < Dur::from_secs(100)));
        // Nothing below the limit in force spares all of them.
        let advice = advise(Key::Idle, Limit::At(Dur::from_secs(40)), &own(), under);
        assert_eq!((advice.spares_all_s, advice.proposed_s), (None, None));
        assert!(advice.why.starts_with("nothing tighter"), "{}", advice.why);
    }

    #[test]
    fn without_a_limit_in_force_one_is_proposed() {
        assert_eq!(advise(Key::Idle, Limit::Off, &own(), under).proposed_s, Some(Dur::from_secs(90)));
    }

    #[test]
    fn failed_and_interrupted_sessions_count_for_nothing() {
        let mut all = own();
        all.push(session("continue", Some("failed"), 1.0));
        all.push(session("continue", None, 1.0));
        let replay = |limit| [under(limit), vec![session("hard_stop", Some("timed_out"), 0.5); 2]].concat();
        let advice = advise(Key::Idle, minutes(10), &all, replay);
        assert_eq!(advice.spares_all_s, Some(Dur::from_secs(45)));
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
