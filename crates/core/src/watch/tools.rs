//! Tools in flight, and whom the agent waits for.

use super::fact::ToolStarted;
use crate::time::dur::{Dur, Limit};
use crate::time::moment::Awake;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// A declared timeout is the tool's own affair; it gets this much more before it is ours.
const BEYOND_DECLARED: Dur = Dur::from_secs(60);
/// Calls and subagents that may be open at once; more are not tracked.
const MAX_OPEN: usize = 10_000;

#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub name: String,
    pub call: u64,
    pub since: Awake,
    /// Its place in the order of starts and ends.
    pub began: u64,
    timeout: Option<Dur>,
    pub delegates: bool,
    pub mcp: bool,
}

impl InFlight {
    /// How long it may be in flight.
    pub fn cap(&self, tool: Limit) -> Option<Dur> {
        let tool = tool.duration()?;
        Some(self.timeout.map_or(tool, |declared| declared.saturating_add(BEYOND_DECLARED)))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    open: BTreeMap<String, InFlight>,
    subagents: BTreeSet<String>,
    /// Children alive in the last sample.
    children: u32,
    /// Counts starts and ends, to know which calls overlap. Times do not tell: calls of one chunk share one.
    steps: u64,
}

impl Tools {
    /// A second start with the same id is the same call, told better.
    pub fn started(&mut self, at: Awake, tool: &ToolStarted) {
        self.steps += 1;
        let known = self.open.get(&tool.id).map(|open| (open.since, open.began));
        let (since, began) = known.unwrap_or((at, self.steps));
        if self.open.len() < MAX_OPEN || known.is_some() {
            let call = InFlight {
                name: tool.name.clone(),
                call: tool.call,
                since,
                began,
                timeout: tool.timeout,
                delegates: tool.delegates,
                mcp: tool.mcp,
            };
            self.open.insert(tool.id.clone(), call);
        }
    }

    /// An end without a start tells nothing about a call.
    pub fn ended(&mut self, id: &str) -> Option<InFlight> {
        self.steps += 1;
        self.open.remove(id)
    }

    /// The number of starts and ends so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn subagent_started(&mut self, id: &str) {
        if self.subagents.len() < MAX_OPEN {
            self.subagents.insert(id.to_owned());
        }
    }

    pub fn subagent_ended(&mut self, id: &str) {
        self.subagents.remove(id);
    }

    pub fn sampled(&mut self, children: u32) {
        self.children = children;
    }

    /// Calls that work, as opposed to calls that wait for somebody who does.
    pub fn ordinary(&self) -> impl Iterator<Item = &InFlight> {
        self.open.values().filter(|t| !t.delegates)
    }

    pub fn any_ordinary(&self) -> bool {
        self.ordinary().next().is_some()
    }

    /// A delegating call or a subagent is open, so that the parent cannot speak.
    pub fn delegating(&self) -> bool {
        self.open.values().any(|t| t.delegates) || !self.subagents.is_empty()
    }

    pub fn waiting_on_children(&self) -> bool {
        self.delegating() || (self.children > 0 && !self.any_ordinary())
    }
}
