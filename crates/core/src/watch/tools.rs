//! Tool calls in flight, and whether the agent waits on children.

use super::fact::ToolStarted;
use crate::settings::WatchPolicy;
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// The extra time that a call with a declared timeout gets, so that the tool can enforce the timeout itself.
const BEYOND_DECLARED: Dur = Dur::from_secs(60);
/// The most calls and subagents that are tracked at once.
const MAX_OPEN: usize = 10_000;

/// A tool call in flight.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub name: String,
    pub call: u64,
    pub since: Awake,
    /// Its position in the order of starts and ends.
    pub began: u64,
    timeout: Option<Dur>,
    pub delegates: bool,
    pub mcp: bool,
}

impl InFlight {
    /// Returns how long the call may be in flight. A declared timeout counts, else the limit of its tool.
    pub fn cap(&self, policy: &WatchPolicy) -> Option<Dur> {
        let limit = match self.timeout {
            Some(_) => policy.tool,
            None => policy.tools.get(&self.name).copied().unwrap_or(policy.tool),
        };
        let limit = limit.duration()?;
        Some(self.timeout.map_or(limit, |declared| declared.saturating_add(BEYOND_DECLARED)))
    }

    /// Returns whether the call declares a timeout.
    pub fn has_timeout(&self) -> bool {
        self.timeout.is_some()
    }
}

/// The tool calls and subagents of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    open: BTreeMap<String, InFlight>,
    subagents: BTreeSet<String>,
    /// The number of live children in the last sample.
    children: u32,
    /// The number of starts and ends, to detect calls that overlap. Times are not enough, because calls of one chunk of
    /// output have the same time.
    steps: u64,
}

impl Tools {
    /// Notes the start of a call. A second start with the same id is the same call with better data.
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

    /// Notes the end of a call and returns it. Returns `None` for an end without a start.
    pub fn ended(&mut self, id: &str) -> Option<InFlight> {
        self.steps += 1;
        self.open.remove(id)
    }

    /// Returns the number of starts and ends so far.
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

    /// Returns the calls that do not delegate to a subagent.
    pub fn ordinary(&self) -> impl Iterator<Item = &InFlight> {
        self.open.values().filter(|t| !t.delegates)
    }

    pub fn any_ordinary(&self) -> bool {
        self.ordinary().next().is_some()
    }

    /// Returns whether a delegating call or a subagent is open, so that the parent agent cannot print.
    pub fn delegating(&self) -> bool {
        self.open.values().any(|t| t.delegates) || !self.subagents.is_empty()
    }

    pub fn waiting_on_children(&self) -> bool {
        self.delegating() || (self.children > 0 && !self.any_ordinary())
    }
}
