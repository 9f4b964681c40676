//! The status of subscription windows.

use crate::record::view::View;
use crate::record::windows::{Percent, WindowBudget, WindowName};
use crate::run::gate::account;
use crate::text::figures::length;
use crate::time::dur::Dur;
use crate::time::moment::{Moment, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How much of a window is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WindowStatus {
    /// The account.
    pub account: String,
    /// The window.
    pub window: WindowName,
    /// How much of it is used, in percent. Null if that is unknown: it was not reported, or the window has reset since.
    pub used_percent: Option<Percent>,
    /// The share at which the account's agents are no longer called. Null without a limit.
    pub limit_percent: Option<Percent>,
    /// When the window resets. Null if that is unknown.
    pub resets_at: Option<Wall>,
    /// When the service reported it. Null if it did not.
    pub seen_at: Option<Wall>,
    /// The age of the report in seconds, or null.
    pub age_s: Option<Dur>,
}

/// Returns the windows that were reported and those that have a limit.
pub(super) fn of(view: &View, now: Option<Moment>) -> Vec<WindowStatus> {
    let at = now.unwrap_or(view.last).wall;
    let budgets = budgets(view);
    let mut accounts: Vec<&String> = budgets.keys().chain(view.windows.keys()).collect();
    accounts.sort_unstable();
    accounts.dedup();
    let names = accounts.into_iter().flat_map(|a| WindowName::ALL.iter().map(move |name| (a, *name)));
    names
        .filter_map(|(account, window)| {
            let limit_percent = budgets.get(account).and_then(|budget| budget.of(window));
            let seen = view.windows.get(account).and_then(|known| known.get(window));
            (limit_percent.is_some() || seen.is_some()).then_some(())?;
            let current = seen.filter(|(w, _)| w.resets_at.is_none_or(|reset| reset > at));
            let since = |seen_at: Wall| Dur::from_millis(u64::try_from(at.0 - seen_at.0).unwrap_or(0));
            Some(WindowStatus {
                account: account.clone(),
                window,
                used_percent: current.map(|(w, _)| w.used_percent),
                limit_percent,
                resets_at: current.and_then(|(w, _)| w.resets_at),
                seen_at: seen.map(|(_, seen_at)| seen_at),
                age_s: seen.filter(|_| now.is_some()).map(|(_, seen_at)| since(seen_at)),
            })
        })
        .collect()
}

/// Returns the lowest limits of each account that the plan's agents use.
fn budgets(view: &View) -> BTreeMap<String, WindowBudget> {
    let mut budgets: BTreeMap<String, WindowBudget> = BTreeMap::new();
    let Some(plan) = view.started.as_ref().map(|started| &started.settings) else { return budgets };
    let graph = plan.graph.as_ref().map(|graph| graph.budget.window).unwrap_or_default();
    for node in &plan.nodes {
        let own = node.settings.budget.window.and(&graph);
        for (agent, reader) in node.settings.agents().filter(|_| !own.is_none()) {
            let known = budgets.entry(account(agent, reader)).or_default();
            *known = known.and(&own);
        }
    }
    budgets
}

impl WindowStatus {
    /// Describes the window: `five_hour window of claude: 24% used (limit 80%), resets at …, reported 2m 00s ago`.
    pub fn describe(&self) -> String {
        let mut text = format!("{} window of {}: ", self.window, self.account);
        let _ = match self.used_percent {
            Some(used) => write!(text, "{used} used"),
            None => write!(text, "unknown"),
        };
        if let Some(limit) = self.limit_percent {
            let _ = write!(text, " (limit {limit})");
        }
        if let Some(at) = self.resets_at {
            let _ = write!(text, ", resets at {at}");
        }
        if let Some(age) = self.age_s {
            let _ = write!(text, ", reported {} ago", length(age));
        }
        text
    }
}
