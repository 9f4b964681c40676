//! The budgets of the run and of the nodes of a graph.

use super::Run;
use super::over::{End, NodeEnd};
use crate::record::day::DayUse;
use crate::record::event::{EndedBy, Event, Outcome, WaitEndedBy};
use crate::record::ids::NodeIx;
use crate::record::view::Used;
use crate::settings::Budget;
use crate::time::dur::Dur;
use crate::time::timer::{Deadline, Timer};

impl Run {
    pub(super) fn arm_budget(&mut self) {
        if let Some(time) = self.cx.budget().time {
            let left = time.saturating_sub(self.cx.view.supervised(self.cx.now.boot));
            self.cx.timers.set(Timer::Budget, Deadline::Boot(self.cx.now.boot.plus(left)));
        }
    }

    /// Returns the end of the run if its budget is used up. Called before each iteration.
    pub(super) fn end_by_budget(&self) -> Option<End> {
        let budget = self.cx.budget();
        let iterations = if budget.iterations.is_some() { self.cx.view.totals().iterations } else { 0 };
        let time = self.cx.view.supervised(self.cx.now.boot);
        let spent = used_up(budget, iterations, time).or_else(|| self.overspent())?;
        Some(End::new(Outcome::BudgetExceeded, 3, spent))
    }

    /// Returns the reason if the run has used up its token or cost budget.
    pub(super) fn overspent(&self) -> Option<String> {
        let budget = self.cx.budget();
        let any = budget.tokens.is_some() || budget.cost_usd.is_some();
        let run = any.then(|| self.cx.view.spent()).and_then(|spent| spent_all(budget, &spent));
        run.or_else(|| self.overspent_today())
    }

    /// Returns the reason if a day budget is used up. Day budgets cover the whole project, whichever node sets one.
    fn overspent_today(&self) -> Option<String> {
        let limits = self.cx.plan.days().filter(|day| day.is_set());
        limits.filter_map(|day| day.spent_all(&self.cx.view.spent_today(self.cx.now.wall)?)).next()
    }

    /// Handles the project's usage today. New figures are recorded, because decisions derive from the record.
    pub(super) fn day_used(&mut self, day: DayUse) {
        if !self.cx.view.knows_day(&day) {
            self.cx.record(Event::DayUsed(day));
        }
        self.stop_run_if_spent();
    }

    /// Returns the end of a graph's node if its own budget is used up. The budget of a loop applies to the run.
    pub(super) fn end_by_node_budget(&self, ix: NodeIx) -> Option<NodeEnd> {
        self.cx.plan.graph.as_ref()?;
        let (budget, node) = (&self.cx.settings(ix).budget, self.cx.view.node(ix));
        let time = node.lasted(self.cx.now.boot);
        let spent =
            used_up(budget, node.counts.iterations, time).or_else(|| spent_all(budget, &node.spent()))?;
        Some(NodeEnd::failed("budget_exceeded", End::new(Outcome::BudgetExceeded, 3, spent)))
    }

    pub(super) fn arm_node_budget(&mut self, ix: NodeIx) {
        if let (Some(_), Some(time)) = (&self.cx.plan.graph, self.cx.settings(ix).budget.time) {
            let left = time.saturating_sub(self.cx.view.node(ix).lasted(self.cx.now.boot));
            self.cx.timers.set(Timer::NodeBudget(ix), Deadline::Boot(self.cx.now.boot.plus(left)));
        }
    }

    /// Ends a node whose time budget is used up: stops its iteration or ends its wait.
    pub(super) fn node_time_is_up(&mut self, ix: NodeIx) {
        if self.nodes[ix.0].is_working() {
            self.nodes[ix.0].end(&mut self.cx, EndedBy::Budget);
        } else if self.nodes[ix.0].waiting().is_some() {
            self.leave_wait(ix, WaitEndedBy::Budget);
        }
    }

    /// Stops the run or the node if its token or cost budget is used up during a session.
    pub(super) fn stop_if_spent(&mut self, ix: NodeIx) {
        self.stop_run_if_spent();
        if self.end_by_node_budget(ix).is_some() {
            self.nodes[ix.0].end(&mut self.cx, EndedBy::Budget);
        }
    }
}

fn used_up(budget: &Budget, iterations: u64, time: Dur) -> Option<String> {
    match (budget.iterations, budget.time) {
        (Some(max), _) if iterations >= max => Some(format!("budget.iterations: {iterations} of {max} used")),
        (_, Some(max)) if time >= max => Some(format!("budget.time: {time} of {max} used")),
        _ => None,
    }
}

fn spent_all(budget: &Budget, spent: &Used) -> Option<String> {
    match (budget.tokens, budget.cost_usd) {
        (Some(max), _) if spent.tokens >= max => {
            Some(format!("budget.tokens: {} of {max} used", spent.tokens))
        }
        (_, Some(max)) if spent.cost_usd >= max => {
            Some(format!("budget.cost_usd: ${:.2} of ${max:.2} used", spent.cost_usd))
        }
        _ => None,
    }
}
