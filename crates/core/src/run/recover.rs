//! What is done about an end that was no good one: the table of `recovery`, applied. What is decided is written
//! down first; what follows is read from the record.

use super::Run;
use super::over::{End, NodeEnd};
use crate::record::event::{Event, Outcome, RecoveryPlanned};
use crate::record::ids::NodeIx;
use crate::run::ending::Ending;
use crate::run::recovery::{Action, Class};
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use crate::watch::StopReason;

/// An agent whose service keeps refusing without saying for how long rests that long.
const OVERLOAD_REST: Dur = Dur::from_mins(10);
/// The same hard stop so often in a row without progress between them is the last.
const ALIKE: u32 = 2;

impl Run {
    /// Makes a plan for the end of the present iteration, if there is something to plan and nobody has yet.
    pub(super) fn plan_recovery(&mut self, ix: NodeIx, ending: &Ending) {
        let node = self.cx.view.node(ix);
        if node.recovery.planned == Some(node.iteration) {
            return;
        }
        if let Some(plan) = self.plan_for(ix, ending) {
            self.cx.record(Event::RecoveryPlanned(plan));
        }
    }

    fn plan_for(&self, ix: NodeIx, ending: &Ending) -> Option<RecoveryPlanned> {
        let (node, settings) = (self.cx.view.node(ix), self.cx.settings(ix));
        let class = self.class(ix, ending)?;
        let because = node.last_end.as_ref().map(|e| e.because.clone()).unwrap_or_default();
        let mut plan = RecoveryPlanned {
            node: self.cx.name(ix),
            iteration: node.iteration,
            class,
            action: Action::Wait,
            because,
            used: 0,
            budget: 0,
            agent: None,
            until: None,
            next_agent: None,
        };
        let others = !settings.recovery.agents.is_empty();
        match class {
            Class::Stuck | Class::ErrorLoop => {
                plan.because = node.recovery.last.as_ref().map(|s| s.message.clone()).unwrap_or(plan.because);
                (plan.used, plan.budget) = (node.recovery.used, settings.recovery.budget);
                plan.action = match self.give_up(ix) {
                    _ if node.recovery.used > settings.recovery.budget => Action::Stop,
                    Some(_) if self.send_to_rest(ix, &mut plan, None) => Action::NextAgent,
                    Some(_) => Action::Stop,
                    None => Action::Retry,
                };
            }
            // Whom the service does not know, or who is not there, will not be so the next time either.
            Class::Authentication | Class::MissingProgram if others => {
                plan.action =
                    if self.send_to_rest(ix, &mut plan, None) { Action::NextAgent } else { Action::Stop };
            }
            Class::Crash if others => {
                node.failures.open_circuit(&settings.errors, self.cx.now.boot)?;
                plan.action =
                    if self.send_to_rest(ix, &mut plan, None) { Action::NextAgent } else { Action::Stop };
            }
            Class::RateLimit if others || self.cx.plan.graph.is_some() => {
                let until = Some(self.cx.now.wall.plus(self.limit_delay(ix, ending)));
                if self.send_to_rest(ix, &mut plan, until) {
                    plan.action = Action::NextAgent;
                }
            }
            Class::Overload if others && node.refusals > settings.limits.overload_retries => {
                let until = Some(self.cx.now.wall.plus(OVERLOAD_REST));
                plan.action =
                    if self.send_to_rest(ix, &mut plan, until) { Action::NextAgent } else { Action::Stop };
            }
            Class::Configuration => plan.action = Action::Stop,
            Class::Authentication
            | Class::MissingProgram
            | Class::Crash
            | Class::RateLimit
            | Class::Overload
            | Class::CheckFailure => return None,
        }
        Some(plan)
    }

    /// Which row of the table it is.
    fn class(&self, ix: NodeIx, ending: &Ending) -> Option<Class> {
        let node = self.cx.view.node(ix);
        match ending {
            Ending::TimedOut if self.refused(ix).is_some() => Some(Class::Overload),
            Ending::TimedOut => match node.recovery.last.as_ref()?.reason {
                StopReason::NodeCeilingExceeded | StopReason::RunCeilingExceeded => {
                    Some(Class::Configuration)
                }
                _ if !self.recovers(ix) => None,
                StopReason::ErrorLoop | StopReason::Repetition => Some(Class::ErrorLoop),
                _ => Some(Class::Stuck),
            },
            Ending::Failed if self.never_started(ix) => Some(Class::MissingProgram),
            Ending::Failed => Some(Class::Crash),
            Ending::RateLimited { resets_at: Some(_), .. } => Some(Class::RateLimit),
            Ending::RateLimited { resets_at: None, .. } => Some(Class::Overload),
            Ending::AuthFailed => Some(Class::Authentication),
            Ending::Completed if node.attempts.just_failed => Some(Class::CheckFailure),
            Ending::Completed | Ending::Idle { .. } | Ending::Interrupted { .. } => None,
        }
    }

    /// The last hard stop was of an agent that waited for a service that had refused: by which status.
    pub(super) fn refused(&self, ix: NodeIx) -> Option<u16> {
        self.cx.view.node(ix).recovery.last.as_ref()?.refused
    }

    fn never_started(&self, ix: NodeIx) -> bool {
        let node = self.cx.view.node(ix);
        node.last_session.as_ref().is_none_or(|s| s.iteration != node.iteration)
    }

    /// A loop that was told how often to go on goes on; its checks, if it has any, are another matter.
    pub(super) fn recovers(&self, ix: NodeIx) -> bool {
        let settings = self.cx.settings(ix);
        settings.checks.any() || settings.max_iterations.is_none()
    }

    /// Why there is no sense in trying the same again.
    fn give_up(&self, ix: NodeIx) -> Option<String> {
        let recovery = &self.cx.view.node(ix).recovery;
        let reason = recovery.last.as_ref()?.reason;
        (recovery.alike >= ALIKE)
            .then(|| format!("{} hard stops alike ({reason}) without progress between them", recovery.alike))
    }

    /// Sends the present agent to rest if another can work. For a limit that others share it rests anyway.
    fn send_to_rest(&self, ix: NodeIx, plan: &mut RecoveryPlanned, until: Option<Wall>) -> bool {
        let present = self.cx.agent_label(ix, self.nodes[ix.0].agent);
        let next = self.free_agents(ix).find(|(_, label)| *label != present);
        if next.is_some() || until.is_some() {
            (plan.agent, plan.until) = (Some(present), until);
        }
        plan.next_agent = next.map(|(_, label)| label);
        plan.next_agent.is_some()
    }

    fn free_agents(&self, ix: NodeIx) -> impl Iterator<Item = (u32, String)> {
        let count = 1 + self.cx.settings(ix).recovery.agents.len();
        let now = self.cx.now.wall;
        (0..count)
            .filter_map(|n| u32::try_from(n).ok())
            .map(move |n| (n, self.cx.agent_label(ix, n)))
            .filter(move |(_, label)| self.cx.view.rests(label, now).is_none())
    }

    /// The agent that works next: the first of the chain that does not rest.
    pub(super) fn free_agent(&self, ix: NodeIx) -> Option<u32> {
        self.free_agents(ix).next().map(|(n, _)| n)
    }

    /// When the first of the chain has rested enough, if any ever has.
    pub(super) fn rested_at(&self, ix: NodeIx) -> Option<Wall> {
        let chain = 0..=self.cx.settings(ix).recovery.agents.len();
        let labels = chain.filter_map(|n| u32::try_from(n).ok()).map(|n| self.cx.agent_label(ix, n));
        labels.filter_map(|l| self.cx.view.rests(&l, self.cx.now.wall).flatten()).min()
    }

    /// A hard stop too many, or two alike.
    pub(super) fn end_by_recovery(&self, ix: NodeIx, ending: &Ending) -> Option<NodeEnd> {
        if *ending != Ending::TimedOut {
            return None;
        }
        let (recovery, budget) = (&self.cx.view.node(ix).recovery, self.cx.settings(ix).recovery.budget);
        let stopped = recovery.last.as_ref()?;
        if !self.recovers(ix) || stopped.refused.is_some() {
            return None;
        }
        if recovery.used > budget {
            let why = format!("recovery.budget: {budget} of {budget} used, then {}", stopped.message);
            return Some(NodeEnd::failed("budget_exceeded", End::new(Outcome::BudgetExceeded, 3, why)));
        }
        let why = self.give_up(ix)?;
        Some(NodeEnd::failed("hard_stops_alike", End::new(Outcome::ErrorLimit, 1, why)))
    }

    /// The agent's own session to go on with: after it got stuck, where it can and the policy says so.
    pub(super) fn session_to_resume(&self, ix: NodeIx, agent: u32) -> Option<String> {
        let (node, settings) = (self.cx.view.node(ix), self.cx.settings(ix));
        let wanted = settings.recovery.resume && node.recovery.due == Some(Class::Stuck);
        let same = node.agent == agent && self.cx.agent(ix, agent).1.is_structured();
        node.last_session.as_ref().filter(|_| wanted && same)?.session.clone()
    }
}
