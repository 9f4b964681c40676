//! The status in the terms of an orchestrator that ticks.

use super::{rank, state_of};
use crate::record::view::{NodeView, View};
use crate::settings::{NO_PENDING_TASKS, Settings, StopAfter};
use crate::time::moment::Moment;
use serde::{Deserialize, Serialize};

/// The status in the terms of an orchestrator that ticks: an iteration is a tick, times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OrchestratorStatus {
    /// Whether the run is supervised, not ended and not asleep.
    pub running: bool,
    /// The number of iterations that count.
    pub tick_count: u64,
    /// The number of failed and timed-out iterations.
    pub error_count: u64,
    /// The number of failures since the last success within the error window.
    pub recent_errors: u64,
    /// The number of consecutive idle iterations.
    pub consecutive_idle_ticks: u64,
    /// The current wait between iterations, in milliseconds.
    pub current_tick_interval: Option<u64>,
    /// The reason of the last idle iteration, during an idle streak.
    pub last_idle_reason: Option<String>,
    /// The settings.
    pub config: OrchestratorConfig,
}

/// The settings in the terms of an orchestrator that ticks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OrchestratorConfig {
    /// Always false.
    pub dry_run: bool,
    /// The configured wait between idle iterations, in milliseconds.
    pub tick_interval: Option<u64>,
    /// The number of idle iterations without pending tasks after which the run stops. Null means never.
    pub max_idle_ticks_before_stop: Option<u32>,
    /// The number of errors after which the run ends.
    pub max_errors: Option<u32>,
    /// The time window in which errors are counted, in milliseconds.
    pub error_window: Option<u64>,
    /// Always true.
    pub enable_telemetry: bool,
}

impl OrchestratorStatus {
    /// Returns the status of a run. `now` is as for [`Status::of`]. Counts are summed over all nodes; the other values
    /// are those of the busiest node.
    pub fn of(view: &View, now: Option<Moment>) -> OrchestratorStatus {
        let totals = view.totals();
        let (node, settings) = busiest(view);
        let at = now.unwrap_or(view.last).boot;
        let config = settings.map(OrchestratorConfig::of).unwrap_or_default();
        OrchestratorStatus {
            running: now.is_some() && !view.is_over() && !view.is_asleep(),
            tick_count: totals.iterations,
            error_count: totals.failed + totals.timed_out,
            recent_errors: match (node, settings) {
                (Some(node), Some(settings)) => node.failures.within(settings.errors.window, at),
                (None, _) | (_, None) => 0,
            },
            consecutive_idle_ticks: node.map_or(0, |n| n.idle_streak.count),
            current_tick_interval: node.and_then(idle_wait).or(config.tick_interval),
            last_idle_reason: node.filter(|n| n.idle_streak.count > 0).map(|n| n.idle_streak.reason.clone()),
            config: OrchestratorConfig { enable_telemetry: true, ..config },
        }
    }
}

fn busiest(view: &View) -> (Option<&NodeView>, Option<&Settings>) {
    // Reversed so that `max_by_key` returns the first of equals.
    let Some(node) = view.nodes.iter().rev().max_by_key(|n| rank(state_of(n))) else {
        return (None, None);
    };
    let plan = view.started.as_ref().map(|s| &s.settings);
    let plan = plan.and_then(|p| p.nodes.iter().find(|n| n.name == node.name));
    (Some(node), plan.map(|n| &n.settings))
}

/// Returns the last wait of the idle streak in milliseconds, if there was one.
fn idle_wait(node: &NodeView) -> Option<u64> {
    let wait = node.idle_streak.last_delay.as_millis();
    (node.idle_streak.count > 0 && wait > 0).then_some(wait)
}

impl OrchestratorConfig {
    fn of(settings: &Settings) -> OrchestratorConfig {
        let interval = settings.idle.as_ref().map_or(settings.delay, |idle| idle.delay);
        OrchestratorConfig {
            dry_run: false,
            tick_interval: Some(interval.as_millis()),
            max_idle_ticks_before_stop: settings.idle.as_ref().and_then(|idle| stop_after(&idle.stop_after)),
            max_errors: Some(settings.errors.max),
            error_window: Some(settings.errors.window.as_millis()),
            enable_telemetry: true,
        }
    }
}

fn stop_after(limit: &StopAfter) -> Option<u32> {
    match limit {
        StopAfter::Never => None,
        StopAfter::Count(n) => Some(*n),
        StopAfter::PerReason(limits) => limits.iter().find(|(r, _)| r == NO_PENDING_TASKS).map(|(_, n)| *n),
    }
}
