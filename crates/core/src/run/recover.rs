//! Applies the table of `recovery` to a bad ending. The plan is recorded first; the next steps are derived from the
//! record.

use super::Run;
use super::over::{End, NodeEnd};
use crate::record::event::{Event, Outcome, RecoveryPlanned};
use crate::record::ids::NodeIx;
use crate::run::ending::Ending;
use crate::run::recovery::{Action, Class};
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use crate::watch::StopReason;

/// How long an agent rests if its service keeps refusing without a reset time.
const OVERLOAD_REST: Dur = Dur::from_mins(10);
/// The number of consecutive identical hard stops without progress after which dogwatch gives up.
const ALIKE: u32 = 2;

impl Run {
    /// Records a recovery plan for the ending of the current iteration, unless it needs none or already has one.
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
        let because = node.last.end.as_ref().map(|e| e.because.clone()).unwrap_or_default();
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
            // Rejected credentials and missing programs do not fix themselves, so a retry with this agent is pointless.
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

    /// Returns the class of an ending, which selects the row of the table.
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
                StopReason::SessionCeilingExceeded
                | StopReason::ChildrenPersistTooLong
                | StopReason::ToolCeilingExceeded
                | StopReason::NoOutputAtStart
                | StopReason::NoOutputDeadline
                | StopReason::HumanDeadlineExceeded => Some(Class::Stuck),
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

    /// Returns the status with which a service had refused, if the last hard stop was of an agent that waited for that
    /// service.
    pub(super) fn refused(&self, ix: NodeIx) -> Option<u16> {
        self.cx.view.node(ix).recovery.last.as_ref()?.refused
    }

    fn never_started(&self, ix: NodeIx) -> bool {
        let node = self.cx.view.node(ix);
        node.last.session.as_ref().is_none_or(|s| s.iteration != node.iteration)
    }

    /// Returns whether recovery applies. A loop with a fixed number of iterations and without checks simply continues.
    pub(super) fn recovers(&self, ix: NodeIx) -> bool {
        let settings = self.cx.settings(ix);
        settings.checks.any() || settings.max_iterations.is_none()
    }

    /// Returns the reason to give up if a retry with the same agent is pointless.
    fn give_up(&self, ix: NodeIx) -> Option<String> {
        let recovery = &self.cx.view.node(ix).recovery;
        let reason = recovery.last.as_ref()?.reason;
        (recovery.alike >= ALIKE)
            .then(|| format!("{} hard stops alike ({reason}) without progress between them", recovery.alike))
    }

    /// Plans a rest for the current agent if another agent can work. With an `until` it rests in any case, because other
    /// nodes share the limit. Returns whether another agent can work.
    fn send_to_rest(&self, ix: NodeIx, plan: &mut RecoveryPlanned, until: Option<Wall>) -> bool {
        let present = self.cx.agent_label(ix, self.nodes[ix.0].agent);
        let next = self.cx.free_agents(ix).find(|(_, label)| *label != present);
        if next.is_some() || until.is_some() {
            (plan.agent, plan.until) = (Some(present), until);
        }
        plan.next_agent = next.map(|(_, label)| label);
        plan.next_agent.is_some()
    }

    /// Returns the node's end if the recovery budget is used up or identical hard stops repeat.
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

    /// Returns the agent's own session to resume: only after a `stuck` stop, and only if the agent supports it and the
    /// policy allows it.
    pub(super) fn session_to_resume(&self, ix: NodeIx, agent: u32) -> Option<String> {
        let (node, settings) = (self.cx.view.node(ix), self.cx.settings(ix));
        let wanted = settings.recovery.resume && node.recovery.due == Some(Class::Stuck);
        let same = node.session.agent == agent && self.cx.agent(ix, agent).1.is_structured();
        node.last.session.as_ref().filter(|_| wanted && same)?.session.clone()
    }
}
