//! Each limit of a session holds to the tick and never early, against an oracle that was written from the table alone.

use super::Truth;
use crate::oracle::{Oracle, OracleVerdict};
use dogwatch_core::record::event::{EndStep, Event, Observation, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::settings::{Plan, WatchPolicy};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::{Fact, StopReason};
use std::collections::BTreeMap;

/// The longest history that is judged: the oracle is slow on purpose.
const MAX_FACTS: usize = 24;
/// One in this many sessions without a hard stop is judged.
const SAMPLED: u64 = 8;
/// How late a verdict may be after dogwatch was starved: shorter gaps do not count as absence.
const LATE_MS: u64 = 1_000;

/// A session and what is known about it.
struct Session<'p> {
    iteration: Iteration,
    started: Awake,
    policy: &'p WatchPolicy,
    structured: bool,
    facts: Vec<(u64, Fact)>,
    /// When the last suspend ended. The oracle does not know progress from before the suspend that is reported after it.
    suspended: Awake,
    /// Whether the oracle can judge it exactly.
    fits: bool,
}

/// Asserts that the verdicts in the record are those of the oracle.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
pub(super) fn hold(events: &[Recorded], plan: &Plan, truth: &Truth) {
    let mut open: BTreeMap<&NodeName, Session<'_>> = BTreeMap::new();
    for recorded in events {
        let at = recorded.awake_ms;
        match &recorded.event {
            Event::SessionStarted { node, iteration, agent, .. } => {
                let settings = &plan.nodes.iter().find(|n| n.name == *node).expect("a node").settings;
                let reader = settings.agents().nth(*agent as usize).map(|(_, reader)| reader);
                let structured = reader.is_some_and(|reader| reader.is_structured());
                let (policy, facts) = (&settings.watchdog, Vec::new());
                let session = Session {
                    iteration: *iteration,
                    started: at,
                    policy,
                    structured,
                    facts,
                    suspended: at,
                    fits: true,
                };
                open.insert(node, session);
            }
            Event::Observed { node, iteration, seen } => {
                take(&mut open, node, *iteration, at, &Fact::Observed(*seen));
            }
            Event::Fact { node, iteration, fact } => take(&mut open, node, *iteration, at, fact),
            Event::NeedsHuman { node, iteration, what, .. } => {
                take(&mut open, node, *iteration, at, &Fact::NeedsHuman { what: what.clone() });
            }
            Event::HardStop { node, reason, .. } => {
                if let Some(session) = open.remove(node).filter(|session| session.fits) {
                    session.was_stopped(at, *reason, truth.punctual);
                }
            }
            Event::SessionSignalled { node, step: EndStep::Interrupt, .. } => {
                close(open.remove(node), recorded, at);
            }
            // An agent that has exited is no longer judged, however long its tree takes to end.
            Event::SessionEnded(end) => {
                let session = open.remove(&end.node);
                if let Some(exited) = truth.exit_of(&end.node, end.iteration) {
                    close(session, recorded, exited.min(at));
                }
            }
            Event::RunResumed(_) => open.clear(),
            _ => {}
        }
    }
}

fn take(
    open: &mut BTreeMap<&NodeName, Session<'_>>,
    node: &NodeName,
    iteration: Iteration,
    at: Awake,
    fact: &Fact,
) {
    if let Some(session) = open.get_mut(node).filter(|session| session.iteration == iteration) {
        session.take(at, fact);
    }
}

/// Asserts that a session that no limit stopped until then had not reached one.
fn close(session: Option<Session<'_>>, recorded: &Recorded, until: Awake) {
    let sampled = recorded.seq.is_multiple_of(SAMPLED);
    if let Some(session) = session.filter(|session| sampled && session.fits) {
        let before = session.since(until).saturating_sub(LATE_MS + 1);
        // Time in which dogwatch could not run is known only after it.
        let unknown = |(at, fact): &(u64, Fact)| *at > before && matches!(fact, Fact::Suspended { .. });
        if session.facts.iter().any(unknown) {
            return;
        }
        let verdict = session.verdict(before);
        assert!(
            !matches!(verdict, OracleVerdict::Stop(_)),
            "a limit was missed: {verdict:?} before {recorded:?}"
        );
    }
}

impl Session<'_> {
    fn take(&mut self, at: Awake, fact: &Fact) {
        // Waiting on children is counted on a coarse grid, so such histories are left to the tests of the oracle.
        let on_the_grid = match fact {
            Fact::Sampled { children, .. } => *children > 0,
            Fact::ToolStarted(tool) => tool.delegates,
            Fact::SubagentStarted { .. } => true,
            Fact::Observed(seen) => seen.first_ms < self.started.max(self.suspended),
            Fact::Printed
            | Fact::Repeated
            | Fact::ToolEnded { .. }
            | Fact::Error { .. }
            | Fact::SubagentEnded { .. }
            | Fact::NeedsHuman { .. }
            | Fact::Suspended { .. } => false,
        };
        self.fits &= !on_the_grid && self.facts.len() < MAX_FACTS;
        if matches!(fact, Fact::Suspended { .. }) {
            self.suspended = at;
        }
        if self.fits {
            self.facts.push((self.since(at), self.moved(fact)));
        }
    }

    fn since(&self, at: Awake) -> u64 {
        at.since(self.started).as_millis()
    }

    /// Returns a fact with times since the start of the session.
    fn moved(&self, fact: &Fact) -> Fact {
        let Fact::Observed(seen) = fact else { return fact.clone() };
        Fact::Observed(Observation {
            first_ms: Awake(self.since(seen.first_ms)),
            last_ms: Awake(self.since(seen.last_ms)),
            ..*seen
        })
    }

    /// Returns the oracle's verdict from the facts known by then.
    fn verdict(&self, at: u64) -> OracleVerdict {
        let by_then = self.facts.iter().take_while(|(known, _)| *known <= at).count();
        Oracle { policy: self.policy, structured: self.structured, facts: &self.facts[..by_then] }.verdict(at)
    }

    fn was_stopped(&self, at: Awake, reason: StopReason, punctual: bool) {
        if matches!(reason, StopReason::NodeCeilingExceeded | StopReason::RunCeilingExceeded) {
            return;
        }
        let at = self.since(at);
        let verdict = self.verdict(at);
        assert_eq!(
            verdict,
            OracleVerdict::Stop(reason),
            "a limit was enforced too early or wrongly, after {at} ms"
        );
        let just_now = self.facts.iter().any(|(known, _)| *known == at);
        if punctual && !just_now && at > 0 {
            let before = self.verdict(at - 1);
            assert!(
                !matches!(before, OracleVerdict::Stop(_)),
                "a limit was enforced late, after {at} ms: {reason}"
            );
        }
    }
}
