//! The limits of the watchdog and their profiles.

use super::ReaderName;
use crate::record::event::words;
use crate::time::dur::{Dur, Limit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

words! {
    /// A named set of watchdog limits.
    #[derive(Default)]
    Profile {
        /// Short limits, for small tasks.
        Quick = "quick",
        /// The default limits.
        #[default]
        Standard = "standard",
        /// Long limits, for large tasks.
        Deep = "deep",
        /// The default limits, adapted to the recorded sessions of the agent when a run starts.
        Learned = "learned",
    }
}

impl Profile {
    /// The profiles whose limits do not depend on recorded sessions.
    pub const FIXED: [Profile; 3] = [Profile::Quick, Profile::Standard, Profile::Deep];

    /// Returns how long an agent may be silent. Real turns of structured agents pause for up to 8 minutes; a plain
    /// agent shows less of its work, so `standard` allows it more.
    pub fn idle(self, reader: ReaderName) -> Limit {
        Limit::At(Dur::from_mins(match (self, reader.is_structured()) {
            (Profile::Quick, _) => 5,
            (Profile::Standard | Profile::Learned, true) => 8,
            (Profile::Standard | Profile::Learned, false) => 11,
            (Profile::Deep, _) => 15,
        }))
    }
}

/// The watchdog's limits: one key for each row of its table (docs/guide/watchdog.md), and the times that apply after a
/// verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchPolicy {
    /// Row 1: how long a session may last.
    pub session: Limit,
    /// Row 2: how long an agent may wait on children without progress.
    pub children: Limit,
    /// Row 3: how long a node may last.
    pub node: Limit,
    /// Row 3: how long the run may last.
    pub run: Limit,
    /// Row 4: the number of consecutive errors with the same fingerprint.
    pub errors: Option<u32>,
    /// Row 5: the number of full cycles of the same calls with the same results.
    pub cycles: Option<u32>,
    /// Row 5: how long polling may return the same ok result.
    pub poll: Limit,
    /// Row 6: how long one tool call may be in flight.
    pub tool: Limit,
    /// Row 6: the limits of single tools, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Limit>,
    /// Row 7: how long a structured agent may take to print anything.
    pub start: Limit,
    /// Row 8: how long the agent may be silent.
    pub idle: Limit,
    /// How long evidence on other channels defers row 8.
    pub evidence_ttl: Ttl,
    /// Row 9: how long the agent may wait for a human answer.
    pub human: Limit,
    /// The grace between interrupt and TERM, and between TERM and KILL.
    pub grace: Dur,
    /// How long a process may hold the agent's pipes open after the agent's exit.
    pub leak: Dur,
    /// How long an agent may keep running after its final result.
    pub result_grace: Dur,
}

/// How long evidence stays fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ttl {
    /// Derived from the gaps observed on the channel.
    Auto,
    /// A fixed time.
    Fixed(Dur),
}

impl Default for WatchPolicy {
    fn default() -> Self {
        WatchPolicy::of(Profile::Standard)
    }
}

impl WatchPolicy {
    /// Returns the limits of a profile for an agent with this reader.
    pub fn for_reader(profile: Profile, reader: ReaderName) -> WatchPolicy {
        WatchPolicy { idle: profile.idle(reader), ..WatchPolicy::of(profile) }
    }

    /// Returns the limits of a profile for a structured agent.
    pub fn of(profile: Profile) -> WatchPolicy {
        let mins = |quick, standard, deep| {
            Limit::At(Dur::from_mins(match profile {
                Profile::Quick => quick,
                Profile::Standard | Profile::Learned => standard,
                Profile::Deep => deep,
            }))
        };
        WatchPolicy {
            session: mins(15, 60, 240),
            children: mins(10, 30, 60),
            node: Limit::Off,
            run: Limit::Off,
            errors: Some(5),
            cycles: Some(5),
            poll: Limit::At(Dur::from_mins(10)),
            tool: mins(10, 15, 60),
            tools: BTreeMap::new(),
            start: mins(3, 6, 10),
            idle: profile.idle(ReaderName::Claude),
            evidence_ttl: Ttl::Auto,
            human: Limit::At(Dur::from_mins(10)),
            grace: Dur::from_secs(10),
            leak: Dur::from_secs(2),
            result_grace: Dur::from_secs(10),
        }
    }
}

impl WatchPolicy {
    /// Returns the policy with only its ceilings, for sessions without the evidence that the other rows need.
    pub fn ceilings_only(&self) -> WatchPolicy {
        WatchPolicy {
            children: Limit::Off,
            errors: None,
            cycles: None,
            tool: Limit::Off,
            tools: BTreeMap::new(),
            start: Limit::Off,
            idle: Limit::Off,
            human: Limit::Off,
            ..self.clone()
        }
    }
}
