//! `/metrics`: the runs of this machine in the Prometheus text format.

use super::routes::{Machine, MachineState, run_blocking};
use super::runs::{RUNS_LISTED, RunEntry, RunsQuery};
use crate::routes::{HandlerResult, answer};
use axum::extract::State;
use axum::http::StatusCode;
use dogwatch_core::record::status::{State as RunState, Status, WindowStatus};
use dogwatch_core::time::moment::Wall;
use std::collections::BTreeMap;
use std::fmt::Write;

const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn metrics(State(machine): MachineState) -> HandlerResult {
    let text = run_blocking(&machine, tell).await?;
    Ok(answer(StatusCode::OK, KIND, text.into()))
}

fn tell(machine: &Machine) -> String {
    let runs = machine.runs.list(&RunsQuery::default(), RUNS_LISTED);
    let mut page = Page::default();
    page.states(&runs);
    for (name, kind, help, value) in PER_RUN {
        page.head(name, kind, help);
        for run in &runs {
            let Some(status) = &run.status else { continue };
            if let Some(value) = value(status) {
                page.line(name, &labels(run, ""), value);
            }
        }
    }
    page.iterations(&runs);
    page.windows(&runs);
    page.head("dogwatch_agents", "gauge", "External agents by state.");
    for (state, count) in machine.agents.counts() {
        page.line("dogwatch_agents", &format!("{{state=\"{state}\"}}"), count as f64);
    }
    page.text
}

type Value = fn(&Status) -> Option<f64>;

/// The metrics with one line for each run, omitted without a value.
const PER_RUN: [(&str, &str, &str, Value); 9] = [
    ("dogwatch_run_alive", "gauge", "Whether a dogwatch process supervises the run now.", |s| {
        Some(f64::from(u8::from(s.live)))
    }),
    ("dogwatch_run_supervised_seconds", "gauge", "The time the run has been supervised.", |s| {
        Some(s.supervised_s.as_secs_f64())
    }),
    ("dogwatch_run_troubles_total", "counter", "Troubles met.", |s| Some(s.troubles.count as f64)),
    ("dogwatch_run_failures_in_row", "gauge", "Failed iterations in a row.", |s| {
        s.nodes.iter().map(|n| f64::from(n.failures_in_row)).reduce(f64::max)
    }),
    ("dogwatch_run_idle_in_row", "gauge", "Idle iterations in a row.", |s| {
        s.nodes
            .iter()
            .map(|n| n.idle_streak.as_ref().map_or(0.0, |idle_streak| idle_streak.count as f64))
            .reduce(f64::max)
    }),
    ("dogwatch_run_tokens_total", "counter", "Tokens used, as reported by the agents.", |s| {
        Some(s.spent.tokens as f64)
    }),
    ("dogwatch_run_cost_usd_total", "counter", "Cost in US dollars, as reported by the agents.", |s| {
        Some(s.spent.cost_usd)
    }),
    (
        "dogwatch_run_sessions_of_unknown_cost_total",
        "counter",
        "Sessions whose agent did not report its cost.",
        |s| Some(s.spent.unknown_cost as f64),
    ),
    ("dogwatch_run_last_event_timestamp_seconds", "gauge", "When the last event was recorded.", |s| {
        s.last_event.map(|e| seconds(e.at))
    }),
];

fn seconds(at: Wall) -> f64 {
    at.0 as f64 / 1000.0
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    fn states(&mut self, runs: &[RunEntry]) {
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for run in runs {
            *states.entry(run.state.map_or("unreadable", RunState::as_str)).or_default() += 1;
        }
        self.head("dogwatch_runs", "gauge", "Listed runs by state.");
        for (state, count) in states {
            self.line("dogwatch_runs", &format!("{{state=\"{state}\"}}"), count as f64);
        }
    }

    fn iterations(&mut self, runs: &[RunEntry]) {
        let name = "dogwatch_run_iterations_total";
        self.head(name, "counter", "Iterations by ending.");
        for run in runs {
            let Some(counts) = run.status.as_ref().map(|s| s.counts) else { continue };
            let kinds = [
                // The status counts idle iterations as completed as well; the metric counts each iteration once.
                ("completed", counts.completed.saturating_sub(counts.idle)),
                ("idle", counts.idle),
                ("failed", counts.failed),
                ("timed_out", counts.timed_out),
                ("interrupted", counts.interrupted),
            ];
            for (ending, count) in kinds {
                self.line(name, &labels(run, &format!(",ending=\"{ending}\"")), count as f64);
            }
        }
    }
}

impl Page {
    /// Lists the subscription windows with a known figure. An unknown figure has no line.
    fn windows(&mut self, runs: &[RunEntry]) {
        type Figure = fn(&WindowStatus) -> Option<f64>;
        const METRICS: [(&str, &str, Figure); 3] = [
            ("dogwatch_run_window_used_percent", "How much of a subscription window is used.", |w| {
                w.used_percent.map(f64::from)
            }),
            ("dogwatch_run_window_resets_timestamp_seconds", "When a subscription window resets.", |w| {
                w.resets_at.map(seconds)
            }),
            ("dogwatch_run_window_seen_timestamp_seconds", "When a window was last reported.", |w| {
                w.seen_at.map(seconds)
            }),
        ];
        for (name, help, figure) in METRICS {
            self.head(name, "gauge", help);
            for run in runs {
                for window in run.status.iter().flat_map(|status| &status.windows) {
                    let Some(value) = figure(window) else { continue };
                    let (account, window) = (escaped(&window.account), window.window);
                    let more = format!(",account=\"{account}\",window=\"{window}\"");
                    self.line(name, &labels(run, &more), value);
                }
            }
        }
    }
}

fn labels(run: &RunEntry, more: &str) -> String {
    format!("{{run=\"{}\",project=\"{}\"{more}}}", run.run, escaped(&run.project))
}

/// Escapes a label value, so that no directory name can break the line.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
