//! `history --by`: sessions, hours, tokens and cost by day, agent, model or loop.

use super::past::Figures;
use crate::runs::FoundRun;
use crate::screen::{ShownLine, Tone, words};
use dogwatch_core::record::event::{Event, Recorded, RunStarted};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::record::sessions::{Session, Sessions};
use dogwatch_core::record::view::Used;
use dogwatch_core::run::gate::account;
use dogwatch_core::settings::{Plan, ReaderName};
use dogwatch_core::text::one_line;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::clock;
use serde::Serialize;
use std::collections::BTreeMap;

/// The longest name to show, in bytes.
const MAX_NAME: usize = 48;

/// What to group the sessions by.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The local day on which a session ended
    Day,
    /// The agent and its account
    Agent,
    /// The model, where the agent reports it
    Model,
    /// The loop file
    Loop,
}

impl By {
    /// Returns the name of the group of a session.
    fn name(self, run: &RunStarted, session: &Session) -> String {
        match self {
            By::Day => day(session.at),
            By::Agent => agent_of(&run.settings, &session.node, session.agent),
            By::Model => session.model.clone().unwrap_or_else(|| "unknown".to_owned()),
            By::Loop => run.path.clone(),
        }
    }
}

/// The sums of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Group {
    /// The day, agent, model or loop.
    pub name: String,
    pub sessions: u64,
    pub hours: f64,
    #[serde(flatten)]
    pub used: Figures,
    /// The dates of the price tables that costs were computed with.
    pub prices: Vec<String>,
}

/// The JSON output.
#[derive(Serialize)]
pub struct Grouped {
    pub by: By,
    pub groups: Vec<Group>,
    pub total: Group,
    /// The number of runs whose record cannot be read.
    pub unreadable: usize,
}

impl Grouped {
    /// Adds up the sessions of these runs. Days are listed newest first, others by cost.
    pub fn read(runs: &[FoundRun], by: By) -> Grouped {
        let (mut groups, mut total) =
            (BTreeMap::new(), Group { name: "total".to_owned(), ..Group::default() });
        let mut unreadable = 0;
        for found in runs {
            match found.record() {
                Ok(loaded) => {
                    let started = loaded.events.first().map(|first| &first.event);
                    let Some(Event::RunStarted(run)) = started else { continue };
                    for (used, session) in sessions(&loaded.events, found) {
                        let name = by.name(run, &session);
                        let new = || Group { name: name.clone(), ..Group::default() };
                        groups.entry(name.clone()).or_insert_with(new).add(&session, &used);
                        total.add(&session, &used);
                    }
                }
                Err(_) => unreadable += 1,
            }
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        match by {
            By::Day => groups.reverse(),
            By::Agent | By::Model | By::Loop => groups.sort_by(|a, b| {
                let key = |g: &Group| (g.used.cost_usd.unwrap_or(0.0), g.used.tokens.unwrap_or(0) as f64);
                key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal)
            }),
        }
        Grouped { by, groups, total, unreadable }
    }

    /// Formats the groups as a table.
    pub fn lines(&self) -> Vec<ShownLine> {
        if self.groups.is_empty() {
            return vec![ShownLine { tone: Tone::Plain, text: "no sessions yet".to_owned() }];
        }
        let head = match self.by {
            By::Day => "day",
            By::Agent => "agent",
            By::Model => "model",
            By::Loop => "loop",
        };
        let wide = self.groups.iter().map(|g| one_line(&g.name, MAX_NAME).len()).max().unwrap_or(0).max(5);
        let title = format!("{head:wide$}  {:>8}  {:>8}  {:>14}  cost", "sessions", "hours", "tokens");
        let mut lines = vec![ShownLine { tone: Tone::Head, text: title }];
        for group in self.groups.iter().chain([&self.total]) {
            let name = one_line(&group.name, MAX_NAME);
            let tokens = group.used.tokens.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
            let cost = words::cost(&group.used.used());
            let (sessions, hours) = (group.sessions, group.hours);
            let text = format!("{name:wide$}  {sessions:>8}  {hours:>8.2}  {tokens:>14}  {cost}");
            lines.push(ShownLine { tone: Tone::Plain, text });
        }
        if !self.total.prices.is_empty() {
            let text = format!(
                "computed costs: list prices of {}; see `dogwatch prices`",
                self.total.prices.join(", ")
            );
            lines.push(ShownLine { tone: Tone::Quiet, text });
        }
        if self.unreadable > 0 {
            let text = format!("{} cannot be read", words::count(self.unreadable as u64, "record"));
            lines.push(ShownLine { tone: Tone::Bad, text });
        }
        lines
    }
}

impl Group {
    fn add(&mut self, session: &Session, used: &Used) {
        self.sessions += 1;
        self.hours += session.lasted.as_secs_f64() / Dur::from_hours(1).as_secs_f64();
        self.used.add(&Figures::of(used));
        if let Some(date) = session.prices.as_ref().filter(|date| !self.prices.contains(date)) {
            self.prices.push(date.clone());
        }
    }
}

/// Returns every session of a run with its usage, as `history` counts it.
fn sessions(events: &[Recorded], found: &FoundRun) -> Vec<(Used, Session)> {
    let mut sessions = Sessions::default();
    let over = events.iter().flat_map(|recorded| sessions.apply(recorded));
    let mut all: Vec<_> = over.map(|session| (Used::of(&session.usage), session)).collect();
    if sessions.open().next().is_some() {
        let last = events.iter().rfind(|e| matches!(e.event, Event::RunEnded(_) | Event::RunResumed(_)));
        let is_over = last.is_some_and(|e| matches!(e.event, Event::RunEnded(_)));
        // No report follows from a session that lost its supervisor.
        let used = if is_over || found.is_live() { Used::so_far } else { Used::of };
        all.extend(sessions.open().map(|session| (used(&session.usage), session.clone())));
    }
    all
}

/// Returns the local day, `2026-11-15`.
fn day(at: Wall) -> String {
    let local = at.0 + i64::from(clock::utc_offset_s(at)) * 1_000;
    Wall(local).to_string().get(..10).unwrap_or("?").to_owned()
}

/// Returns the name of an agent in the chain of a node.
fn agent_of(plan: &Plan, node: &NodeName, agent: u32) -> String {
    let node = plan.nodes.iter().find(|known| known.name == *node);
    let nth = usize::try_from(agent).unwrap_or(usize::MAX);
    let found = node.and_then(|node| node.settings.agents().nth(nth));
    match found {
        Some((argv, ReaderName::Plain)) => argv.first().cloned().unwrap_or_default(),
        Some((argv, reader)) => account(argv, reader),
        None => "?".to_owned(),
    }
}
