//! Counts what occurred in simulations. Something that never occurs is not tested.

use super::{Actor, Fault, Scenario};
use crate::world::World;
use dogwatch_core::record::event::{Cause, EndedBy, Event, Outcome, Recorded, WaitEndedBy, WaitWhy};
use dogwatch_core::run::recovery::{Action, Class};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::StopReason;
use std::collections::BTreeMap;

/// How often each thing occurred, by category and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(BTreeMap<(&'static str, String), u64>);

impl Seen {
    /// Adds what another simulation has seen.
    pub fn add(&mut self, other: &Seen) {
        for (what, count) in &other.0 {
            *self.0.entry(what.clone()).or_default() += count;
        }
    }

    /// Returns how often something occurred.
    pub fn count(&self, category: &'static str, name: &str) -> u64 {
        self.0.get(&(category, name.to_owned())).copied().unwrap_or(0)
    }

    /// Returns what was expected and never occurred. `kinds` are the kinds of events.
    pub fn missing<'k>(&self, kinds: impl Iterator<Item = &'k str>) -> Vec<String> {
        let mut wanted: Vec<(&'static str, String)> = kinds.map(|kind| (EVENT, kind.to_owned())).collect();
        let words = |category: &'static str, names: Vec<&str>| {
            names.into_iter().map(move |name| (category, name.to_owned())).collect::<Vec<_>>()
        };
        wanted.extend(words(STOP, StopReason::ALL.iter().map(|w| w.as_str()).collect()));
        wanted.extend(words(CLASS, Class::ALL.iter().map(|w| w.as_str()).collect()));
        wanted.extend(words(ACTION, Action::ALL.iter().map(|w| w.as_str()).collect()));
        wanted.extend(words(WAIT, WaitWhy::ALL.iter().map(|w| w.as_str()).collect()));
        wanted.extend(words(WAKE, WaitEndedBy::ALL.iter().map(|w| w.as_str()).collect()));
        wanted.extend(words(CAUSE, Cause::ALL.iter().map(|w| w.as_str()).collect()));
        wanted.extend(words(ENDED_BY, EndedBy::ALL.iter().map(|w| w.as_str()).collect()));
        wanted.extend(words(OUTCOME, Outcome::ALL.iter().map(|w| w.as_str()).collect()));
        wanted.extend(words(FAULT, Fault::NAMES.to_vec()));
        wanted.extend(words(READER, ReaderName::NAMES.to_vec()));
        wanted.extend(Actor::ALL.iter().map(|actor| (ACTOR, format!("{actor:?}"))));
        let absent = |what: &(&'static str, String)| !self.0.contains_key(what);
        wanted.into_iter().filter(absent).map(|(category, name)| format!("{category} {name}")).collect()
    }

    fn saw(&mut self, category: &'static str, name: &str) {
        *self.0.entry((category, name.to_owned())).or_default() += 1;
    }

    pub(super) fn played(&mut self, actor: Option<Actor>) {
        if let Some(actor) = actor {
            self.saw(ACTOR, &format!("{actor:?}"));
        }
    }

    /// Adds what occurred in a run that lasted this many milliseconds until its faults ended.
    pub(super) fn look_at(&mut self, world: &World, scenario: &Scenario, lasted: u64) {
        let disk = world.disk.borrow();
        for line in disk.lines(disk.len()) {
            if let Some(kind) = kind_of(line) {
                self.saw(EVENT, kind);
            }
        }
        world.events.iter().for_each(|event| self.look(event));
        for (_, fault) in scenario.faults.iter().filter(|(at, _)| at.as_millis() < lasted) {
            self.saw(FAULT, &fault.name());
        }
        for node in &scenario.plan.nodes {
            self.saw(READER, node.settings.reader.as_str());
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    fn look(&mut self, recorded: &Recorded) {
        match &recorded.event {
            Event::HardStop { reason, .. } => self.saw(STOP, reason.as_str()),
            Event::RecoveryPlanned(plan) => {
                self.saw(CLASS, plan.class.as_str());
                self.saw(ACTION, plan.action.as_str());
            }
            Event::WaitStarted { why, .. } => self.saw(WAIT, why.as_str()),
            Event::WaitEnded { by, .. } => self.saw(WAKE, by.as_str()),
            Event::IterationStarted { cause, .. } => self.saw(CAUSE, cause.as_str()),
            Event::SessionEnded(end) => self.saw(ENDED_BY, end.ended_by.as_str()),
            Event::RunEnded(end) => self.saw(OUTCOME, end.outcome.as_str()),
            Event::Trouble { kind, .. } => self.saw("trouble", kind),
            _ => {}
        }
    }
}

const EVENT: &str = "event";
const STOP: &str = "verdict";
const CLASS: &str = "recovery class";
const ACTION: &str = "recovery action";
const WAIT: &str = "wait";
const WAKE: &str = "wake";
const CAUSE: &str = "cause";
const ENDED_BY: &str = "session ended by";
const OUTCOME: &str = "outcome";
const FAULT: &str = "fault";
const READER: &str = "reader";
const ACTOR: &str = "actor";

/// Returns the kind of the event in a line of the journal.
fn kind_of(line: &[u8]) -> Option<&str> {
    const FIELD: &[u8] = b"\"event\":\"";
    let at = line.windows(FIELD.len()).position(|bytes| bytes == FIELD)? + FIELD.len();
    let kind = line[at..].split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(kind).ok()
}
