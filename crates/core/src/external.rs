//! Agents that are not our children: sub-agents inside another framework, watched by what they report.
//!
//! A report with a message count that has grown is progress; one without is presence and buys nothing. The
//! same watchdog judges them. An end is an end: what is reported afterwards changes nothing.

use crate::dur::Dur;
use crate::event::Observation;
use crate::fingerprint::fingerprint;
use crate::moment::Awake;
use crate::settings::WatchPolicy;
use crate::text::clip;
use crate::watch::{Answer, Channel, Fact, Session, StopReason, Verdict, Watch};
use std::collections::BTreeMap;

/// How many are watched at once; the next is refused.
pub const MAX_AGENTS: usize = 10_000;
/// The longest name.
pub const MAX_NAME: usize = 200;

/// All agents that have registered.
#[derive(Clone, Debug)]
pub struct ExternalAgents {
    policy: WatchPolicy,
    agents: BTreeMap<String, Agent>,
}

#[derive(Clone, Debug)]
struct Agent {
    watch: Watch,
    messages: u64,
    since: Awake,
    ended: Option<Awake>,
}

/// An agent as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub id: String,
    pub messages: u64,
    /// Since it registered; of one that has ended, until then.
    pub lasted: Dur,
    pub ended: bool,
    /// As of now; of one that has ended, of then.
    pub answer: Answer,
}

/// Why a report was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    TooMany,
    /// Nobody of that name is registered.
    Unknown,
    /// It has ended.
    Ended,
    /// It is registered and has not ended.
    Taken,
    BadName,
}

/// An agent over a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Hung {
    pub id: String,
    pub reason: StopReason,
    pub message: String,
    pub answer: Answer,
}

impl ExternalAgents {
    pub fn new(policy: WatchPolicy) -> ExternalAgents {
        ExternalAgents { policy, agents: BTreeMap::new() }
    }

    /// A new agent, or a new life under the name of one that has ended.
    pub fn register(&mut self, now: Awake, id: &str) -> Result<(), Refused> {
        self.register_under(now, id, self.policy.clone())
    }

    /// The same, with limits of its own.
    pub fn register_under(&mut self, now: Awake, id: &str, policy: WatchPolicy) -> Result<(), Refused> {
        if id.is_empty() || clip(id, MAX_NAME).len() < id.len() || id.chars().any(char::is_control) {
            return Err(Refused::BadName);
        }
        match self.agents.get(id) {
            Some(agent) if agent.ended.is_none() => return Err(Refused::Taken),
            None if self.agents.len() >= MAX_AGENTS => self.forget_one()?,
            Some(_) | None => {}
        }
        let watch = Watch::new(policy, Session::new(now, false));
        self.agents.insert(id.to_owned(), Agent { watch, messages: 0, since: now, ended: None });
        Ok(())
    }

    /// Who ended first is forgotten first; who has not ended never is.
    fn forget_one(&mut self) -> Result<(), Refused> {
        let ended = self.agents.iter().filter_map(|(id, agent)| Some((agent.ended?, id)));
        let oldest = ended.min().map(|(_, id)| id.clone()).ok_or(Refused::TooMany)?;
        self.agents.remove(&oldest);
        Ok(())
    }

    /// It is alive; with a message count that has grown, it is at work.
    pub fn activity(&mut self, now: Awake, id: &str, messages: Option<u64>) -> Result<(), Refused> {
        let agent = self.living(id)?;
        let new = messages.unwrap_or(0).saturating_sub(agent.messages);
        if new > 0 {
            agent.messages += new;
            let seen = Observation { count: new, messages: new, ..Observation::single(Channel::Stdout, now) };
            agent.watch.take(now, &Fact::Observed(seen));
        }
        Ok(())
    }

    pub fn error(&mut self, now: Awake, id: &str, text: &str) -> Result<(), Refused> {
        let agent = self.living(id)?;
        agent.watch.take(now, &Fact::Error { fingerprint: fingerprint(text) });
        Ok(())
    }

    pub fn done(&mut self, now: Awake, id: &str) -> Result<(), Refused> {
        self.living(id)?.ended = Some(now);
        Ok(())
    }

    /// All of them. Looking changes nothing.
    pub fn list(&self, now: Awake) -> Vec<Seen> {
        let seen = |(id, agent): (&String, &Agent)| {
            let at = agent.ended.unwrap_or(now);
            Seen {
                id: id.clone(),
                messages: agent.messages,
                lasted: at.since(agent.since),
                ended: agent.ended.is_some(),
                answer: agent.watch.clone().evaluate(at),
            }
        };
        self.agents.iter().map(seen).collect()
    }

    /// Those over a limit now. Looking changes nothing.
    pub fn hung(&self, now: Awake) -> Vec<Hung> {
        let living = self.agents.iter().filter(|(_, agent)| agent.ended.is_none());
        living
            .filter_map(|(id, agent)| {
                let answer = agent.watch.clone().evaluate(now);
                match &answer.verdict {
                    Verdict::HardStop { reason, message } => {
                        Some(Hung { id: id.clone(), reason: *reason, message: message.clone(), answer })
                    }
                    Verdict::Continue { .. } | Verdict::Notice { .. } => None,
                }
            })
            .collect()
    }

    /// When one of them may next be over a limit.
    pub fn due(&self) -> Option<Awake> {
        self.agents.values().filter(|a| a.ended.is_none()).filter_map(|a| a.watch.due()).min()
    }

    /// When the next of those that do not hang may be over a limit, if nothing more is reported.
    pub fn due_after(&self, now: Awake) -> Option<Awake> {
        let living = self.agents.values().filter(|agent| agent.ended.is_none());
        living.filter_map(|agent| agent.watch.due()).filter(|due| *due > now).min()
    }

    fn living(&mut self, id: &str) -> Result<&mut Agent, Refused> {
        match self.agents.get_mut(id) {
            Some(agent) if agent.ended.is_some() => Err(Refused::Ended),
            Some(agent) => Ok(agent),
            None => Err(Refused::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Profile;

    fn at(minutes: u64, seconds: u64) -> Awake {
        Awake((minutes * 60 + seconds) * 1000)
    }

    /// One agent under seed 004's own limits: 5 minutes idle, 15 in all, 5 errors.
    fn one() -> ExternalAgents {
        let mut agents = ExternalAgents::new(WatchPolicy::of(Profile::Quick));
        agents.register(at(0, 0), "a").expect("there is room");
        agents
    }

    fn hung(agents: &ExternalAgents, now: Awake) -> Option<(StopReason, String)> {
        agents.hung(now).into_iter().next().map(|h| (h.reason, h.message))
    }

    #[test]
    fn seed_004_scenario_1_a_slow_web_search_completes() {
        let mut a = one();
        for (m, s, count) in [(0, 30, 5), (1, 0, 12), (2, 0, 23), (4, 30, 45), (5, 0, 117)] {
            assert_eq!(hung(&a, at(m, s)), None);
            a.activity(at(m, s), "a", Some(count)).expect("it lives");
        }
        a.done(at(60, 0), "a").expect("it lives");
        assert_eq!(hung(&a, at(60, 0)), None);
    }

    #[test]
    fn seed_004_scenario_2_a_loop_of_errors_ends_by_silence_or_by_the_fifth_error() {
        let mut silent = one();
        for (s, count) in [(10, 0), (20, 2), (30, 2), (40, 4), (50, 4), (55, 6)] {
            if s % 20 == 10 {
                silent.error(at(0, s), "a", "Invalid JSON at line 5").expect("it lives");
            }
            silent.activity(at(0, s), "a", Some(count)).expect("it lives");
        }
        assert_eq!(hung(&silent, at(5, 54)), None);
        assert_eq!(hung(&silent, at(5, 55)).map(|h| h.0), Some(StopReason::NoOutputDeadline));
        let mut looping = one();
        for s in 1..=5 {
            assert_eq!(hung(&looping, at(0, s)), None);
            looping.error(at(0, s), "a", "ValueError: Invalid JSON").expect("it lives");
        }
        let expected = "Loop detected: 5 errors, last: ValueError: Invalid JSON";
        assert_eq!(hung(&looping, at(0, 6)), Some((StopReason::ErrorLoop, expected.to_owned())));
    }

    #[test]
    fn seed_004_scenario_3_twelve_minutes_of_analysis_complete() {
        let mut a = one();
        for minute in [2, 4, 6, 8, 10, 12] {
            assert_eq!(hung(&a, at(minute, 0)), None);
            a.activity(at(minute, 0), "a", Some(minute * 17)).expect("it lives");
        }
        assert_eq!(hung(&a, at(12, 1)), None);
    }

    #[test]
    fn seed_004_scenario_4_a_runaway_ends_at_fifteen_minutes_whatever_it_does() {
        let mut a = one();
        for second in (5..=895).step_by(5) {
            a.activity(at(0, second), "a", Some(second)).expect("it lives");
        }
        assert_eq!(hung(&a, Awake(899_999)), None);
        let (reason, message) = hung(&a, at(15, 0)).expect("it is over");
        assert_eq!(reason, StopReason::SessionCeilingExceeded);
        assert_eq!(message, "Total timeout: exceeded 900s limit (ran 900.0s, 895 messages)");
    }

    #[test]
    fn seed_004_a_heartbeat_without_a_count_or_with_the_same_one_does_not_reset_the_idle_timer() {
        let mut a = one();
        a.activity(at(0, 1), "a", Some(23)).expect("it lives");
        for second in (10..=300).step_by(10) {
            a.activity(at(0, second), "a", if second % 20 == 0 { None } else { Some(23) }).expect("it lives");
        }
        let (_, message) = hung(&a, Awake(306_100)).expect("it hangs");
        assert_eq!(message, "Idle timeout: no progress for 305.1s (limit 300s, 23 messages)");
    }

    #[test]
    fn activity_after_an_end_never_resurrects() {
        let mut a = one();
        a.done(at(1, 0), "a").expect("it lives");
        assert_eq!(a.activity(at(1, 0), "a", Some(9)), Err(Refused::Ended));
        assert_eq!(a.error(at(1, 0), "a", "x"), Err(Refused::Ended));
        assert_eq!(a.done(at(1, 0), "a"), Err(Refused::Ended));
        assert_eq!((a.hung(at(99, 0)), a.due()), (vec![], None));
        assert_eq!(a.activity(at(1, 0), "b", None), Err(Refused::Unknown));
    }

    #[test]
    fn names_and_numbers_are_bounded() {
        let mut a = ExternalAgents::new(WatchPolicy::of(Profile::Quick));
        assert_eq!(a.register(at(0, 0), ""), Err(Refused::BadName));
        assert_eq!(a.register(at(0, 0), &"x".repeat(MAX_NAME + 1)), Err(Refused::BadName));
        for n in 0..MAX_AGENTS {
            assert_eq!(a.register(at(0, 0), &n.to_string()), Ok(()));
        }
        assert_eq!(a.register(at(0, 0), "one more"), Err(Refused::TooMany));
        assert_eq!(a.register(at(0, 0), "7"), Err(Refused::Taken));
        a.done(at(1, 0), "7").expect("it lives");
        assert_eq!(a.register(at(0, 0), "7"), Ok(()));
        assert_eq!(a.register(at(0, 0), "a\nb"), Err(Refused::BadName));
    }

    #[test]
    fn when_there_is_no_room_who_ended_first_is_forgotten_and_nobody_who_lives() {
        let mut a = ExternalAgents::new(WatchPolicy::of(Profile::Quick));
        for n in 0..MAX_AGENTS {
            a.register(at(0, 0), &n.to_string()).expect("there is room");
        }
        a.done(at(2, 0), "5").expect("it lives");
        a.done(at(1, 0), "6").expect("it lives");
        assert_eq!(a.register(at(3, 0), "new"), Ok(()));
        assert_eq!(
            (a.done(at(3, 0), "6"), a.done(at(3, 0), "5")),
            (Err(Refused::Unknown), Err(Refused::Ended))
        );
        assert_eq!(a.register(at(3, 0), "newer"), Ok(()));
        assert_eq!(a.register(at(3, 0), "newest"), Err(Refused::TooMany));
    }

    #[test]
    fn the_list_has_all_with_their_ages_and_the_ended_grow_no_older() {
        let mut a = one();
        a.register_under(at(1, 0), "b", WatchPolicy::of(Profile::Deep)).expect("there is room");
        a.activity(at(2, 0), "a", Some(3)).expect("it lives");
        a.done(at(3, 0), "a").expect("it lives");
        let seen = a.list(at(10, 0));
        let short: Vec<_> = seen.iter().map(|s| (s.id.as_str(), s.messages, s.lasted, s.ended)).collect();
        assert_eq!(short, [("a", 3, Dur::from_mins(3), true), ("b", 0, Dur::from_mins(9), false)]);
        assert_eq!(seen[0].answer.evidence_summary[0].age_seconds, Some(60.0));
        // Ten minutes of silence are nothing under its own limits.
        assert_eq!(a.hung(at(11, 0)), []);
        assert_eq!(a.due_after(at(11, 0)), Some(at(16, 0)));
        assert_eq!(a.hung(at(16, 0)).len(), 1);
    }
}
