//! One run of the history, and the totals of a project, computed from the folded records.

use crate::error::CliError;
use crate::runs::FoundRun;
use dogwatch_core::record::event::Outcome;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::status::{State, Status};
use dogwatch_core::record::view::{Counts, Used, View};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::clock;
use serde::Serialize;
use std::collections::BTreeMap;

/// One run of the history.
#[derive(Serialize)]
pub struct Past {
    pub run: RunId,
    /// The work directory.
    pub project: Option<String>,
    /// The loop file.
    pub path: Option<String>,
    /// The name of the run for people.
    pub name: String,
    pub nodes: Vec<String>,
    pub state: State,
    pub outcome: Option<Outcome>,
    pub reason: Option<String>,
    pub exit_code: Option<u8>,
    pub verified: Option<bool>,
    pub started_at: Option<Wall>,
    /// How long the run was supervised.
    pub duration_s: Dur,
    #[serde(flatten)]
    pub sums: Sums,
}

/// The figures that can be added up over runs.
#[derive(Clone, Default, Serialize)]
pub struct Sums {
    pub counts: Counts,
    /// The iterations that were open when the supervisor was lost.
    pub unfinished: u64,
    /// Counted for runs that have ended.
    pub flake_retries: u64,
    #[serde(flatten)]
    pub used: Figures,
}

/// Tokens and cost, where null means that no session reported them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The tokens that sessions reported; null if no session did.
    pub tokens: Option<u64>,
    /// The number of sessions that did not report tokens.
    pub tokens_unknown_sessions: u64,
    /// The cost that sessions reported; null if no session did.
    pub cost_usd: Option<f64>,
    /// The number of sessions whose cost is not known.
    pub cost_unknown_sessions: u64,
    /// How much of the cost was computed from list prices.
    pub cost_computed_usd: f64,
}

impl Figures {
    /// Returns the figures for this usage.
    pub fn of(used: &Used) -> Figures {
        Figures {
            tokens: (used.tokens > 0 || used.unknown_tokens == 0).then_some(used.tokens),
            tokens_unknown_sessions: used.unknown_tokens,
            cost_usd: (used.cost_usd > 0.0 || used.unknown_cost == 0).then_some(used.cost_usd),
            cost_unknown_sessions: used.unknown_cost,
            cost_computed_usd: used.computed_usd,
        }
    }

    /// Returns the usage for display.
    pub fn used(&self) -> Used {
        Used {
            tokens: self.tokens.unwrap_or(0),
            cost_usd: self.cost_usd.unwrap_or(0.0),
            unknown_tokens: self.tokens_unknown_sessions,
            unknown_cost: self.cost_unknown_sessions,
            computed_usd: self.cost_computed_usd,
        }
    }

    /// Adds other figures. A sum is unknown only if both figures are.
    pub fn add(&mut self, other: &Figures) {
        let (tokens, cost) = (self.tokens.unwrap_or(0), self.cost_usd.unwrap_or(0.0));
        self.tokens = other.tokens.map(|more| tokens.saturating_add(more)).or(self.tokens);
        self.tokens_unknown_sessions += other.tokens_unknown_sessions;
        self.cost_usd = other.cost_usd.map(|more| cost + more).or(self.cost_usd);
        self.cost_unknown_sessions += other.cost_unknown_sessions;
        self.cost_computed_usd += other.cost_computed_usd;
    }
}

impl Past {
    /// Summarizes a run from its view.
    pub fn of(view: &View, found: &FoundRun) -> Past {
        let status = Status::of(view, found.is_live().then(clock::now));
        let ended = view.ended.as_ref();
        Past {
            run: found.id.clone(),
            project: status.work_dir,
            path: status.path,
            name: view.started.as_ref().map_or("?", |started| started.name()).to_owned(),
            nodes: view.nodes.iter().map(|n| n.name.to_string()).collect(),
            state: status.state,
            outcome: ended.map(|e| e.outcome),
            reason: ended.map(|e| e.reason.clone()),
            exit_code: ended.map(|e| e.exit_code),
            verified: ended.map(|e| e.verified),
            started_at: status.started_at,
            duration_s: status.supervised_s,
            sums: Sums {
                counts: status.counts,
                unfinished: status.unfinished,
                flake_retries: ended.map_or(0, |e| e.flake_retries),
                used: Figures::of(&status.spent),
            },
        }
    }
}

/// The totals of one work directory.
#[derive(Serialize)]
pub struct Project {
    pub project: String,
    pub runs: u64,
    /// The number of runs per outcome. Runs without an outcome are counted by their state, such as `lost`.
    pub outcomes: BTreeMap<&'static str, u64>,
    pub duration_s: Dur,
    #[serde(flatten)]
    pub sums: Sums,
}

impl Project {
    /// Adds up the runs of each project.
    pub fn sums(runs: &[Past]) -> Vec<Project> {
        let mut by_name: BTreeMap<&str, Project> = BTreeMap::new();
        for run in runs {
            let name = run.project.as_deref().unwrap_or("?");
            let project = by_name.entry(name).or_insert_with(|| Project {
                project: name.to_owned(),
                runs: 0,
                outcomes: BTreeMap::new(),
                duration_s: Dur::ZERO,
                sums: Sums::default(),
            });
            project.runs += 1;
            let how = run.outcome.map_or(run.state.as_str(), Outcome::as_str);
            *project.outcomes.entry(how).or_insert(0) += 1;
            project.duration_s = project.duration_s.saturating_add(run.duration_s);
            project.sums.counts = project.sums.counts.plus(run.sums.counts);
            project.sums.unfinished += run.sums.unfinished;
            project.sums.flake_retries += run.sums.flake_retries;
            project.sums.used.add(&run.sums.used);
        }
        by_name.into_values().collect()
    }
}

/// A run whose record cannot be read.
#[derive(Serialize)]
pub struct Unreadable {
    pub run: RunId,
    pub why: String,
}

impl Unreadable {
    /// Describes why the record of a run cannot be read.
    pub fn of(found: &FoundRun, failure: &CliError) -> Unreadable {
        Unreadable { run: found.id.clone(), why: failure.message() }
    }
}
