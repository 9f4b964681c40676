//! The work and the limits of a run: validated, complete, and the same in the record as in memory.
//!
//! `dogwatch-config` builds these types from files and flags; `run_started` records them; resume reads them back.
//! Every default is filled in: an `Option` means "no limit" or "not requested".

use crate::record::event::words;
use crate::record::ids::NodeName;
use crate::record::notification::NotifyPolicy;
use crate::record::windows::WindowBudget;
use crate::time::dur::Dur;
use crate::watch::limits::Estimate;
use serde::{Deserialize, Serialize};
use std::fmt;

mod idle;
mod mcp;
mod order;
mod sandbox;
mod watchdog;
mod written;

pub use idle::{AfterStop, IdlePolicy, NO_PENDING_TASKS, StopAfter, Strategy};
pub use mcp::{McpPlace, McpPolicy, McpServer};
pub use sandbox::{SandboxMode, SandboxPolicy};
pub use watchdog::{Profile, Ttl, WatchPolicy};

/// The complete plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "written::Written", try_from = "written::Written")]
pub struct Plan {
    /// The nodes of the run.
    pub nodes: Vec<NodePlan>,
    /// End the run at the first failed iteration (`--stop-on-error`).
    pub stop_on_error: bool,
    /// Take a snapshot of the work tree after every session; the work tree is a git work tree.
    pub snapshots: bool,
    /// Set if the nodes come from a graph file. A loop has one node, and the run ends with that node.
    pub graph: Option<GraphPlan>,
}

/// The settings of a graph as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphPlan {
    /// The number of nodes that may run at once.
    pub max_parallel: u32,
    /// The budget of all nodes together.
    #[serde(default)]
    pub budget: Budget,
}

impl GraphPlan {
    /// The default of `max_parallel`.
    pub const DEFAULT_PARALLEL: u32 = 4;
}

impl Plan {
    /// Returns the day budgets of the graph and of all nodes.
    pub fn days(&self) -> impl Iterator<Item = &DayBudget> {
        let nodes = self.nodes.iter().map(|node| &node.settings.budget.day);
        self.graph.iter().map(|graph| &graph.budget.day).chain(nodes)
    }

    /// Returns a copy that is safe to record and show: secrets in command lines, URLs and headers are replaced.
    pub fn redacted(&self) -> Plan {
        let mut plan = self.clone();
        for node in &mut plan.nodes {
            node.settings.agent = crate::text::redact::argv(&node.settings.agent);
            for other in &mut node.settings.recovery.agents {
                other.agent = crate::text::redact::argv(&other.agent);
            }
            node.settings.notify = node.settings.notify.redacted();
            for server in &mut node.settings.mcp.servers {
                server.place = match &server.place {
                    McpPlace::Command(argv) => McpPlace::Command(crate::text::redact::argv(argv)),
                    McpPlace::Url(url) => McpPlace::Url(crate::text::redact::url(url)),
                };
                for (_, value) in &mut server.headers {
                    crate::text::redact::HIDDEN.clone_into(value);
                }
            }
        }
        plan
    }
}

/// The plan of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// The node's name.
    pub name: NodeName,
    /// Nodes that must be done before this node starts.
    pub depends_on: Vec<NodeName>,
    /// Globs of the files that the node works on. Nodes whose globs overlap do not run at once.
    pub touches: Vec<String>,
    /// The node may run in parallel with others.
    pub parallel_safe: bool,
    /// The source of the prompt.
    pub prompt: PromptSource,
    /// The settings of the node.
    pub settings: Settings,
}

impl NodePlan {
    /// Returns the only node of a loop file.
    pub fn alone(name: NodeName, settings: Settings) -> NodePlan {
        NodePlan {
            name,
            depends_on: Vec::new(),
            touches: Vec::new(),
            parallel_safe: true,
            prompt: PromptSource::LoopFile,
            settings,
        }
    }
}

fn yes() -> bool {
    true
}

/// The source of a node's prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptSource {
    /// The body of the loop file, read again for every iteration.
    #[default]
    LoopFile,
    /// Text in the graph file itself.
    Text(String),
    /// A separate file, relative to the graph file's directory, read again for every iteration.
    File(String),
}

impl PromptSource {
    fn is_loop_file(&self) -> bool {
        *self == PromptSource::LoopFile
    }
}

/// The keys of a loop file, with every default filled in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The agent's command line, split into words.
    pub agent: Vec<String>,
    /// The reader of the agent's output.
    pub reader: ReaderName,
    /// The commands whose output goes into the prompt.
    pub commands: Vec<CommandPlan>,
    /// Declared argument names with the values given on the command line (empty when not given).
    pub args: Vec<(String, String)>,
    /// Ask the agent to credit dogwatch in its commits.
    pub credit: bool,
    /// The pause between iterations. No pause follows the last one.
    pub delay: Dur,
    /// The profile of watchdog limits.
    pub profile: Profile,
    /// `-n`: the number of iterations after which the loop ends.
    pub max_iterations: Option<u64>,
    /// The limits of the watchdog.
    pub watchdog: WatchPolicy,
    /// The limits on repeated crashes.
    pub errors: ErrorPolicy,
    /// The budget of the node or run.
    pub budget: Budget,
    /// The waits for a service that refuses.
    #[serde(default)]
    pub limits: LimitPolicy,
    /// The idle policy. Without one, an idle marker neither changes a wait nor ends the loop.
    pub idle: Option<IdlePolicy>,
    /// The causes that end a wait early.
    pub wake_on: WakePolicy,
    /// A gate command that runs before each session: exit code 0 means work, 1 means none.
    pub work_when: Option<String>,
    /// The checks that decide whether the work is done.
    #[serde(default)]
    pub checks: CheckPolicy,
    /// The reaction to hard stops.
    #[serde(default)]
    pub recovery: RecoveryPolicy,
    /// The node works in its own git worktree.
    #[serde(default)]
    pub worktree: bool,
    /// Shell commands that run once in a new worktree, in order.
    #[serde(default)]
    pub setup: Vec<String>,
    /// The reaction to conflicts between the dependencies of a node with its own worktree.
    #[serde(default)]
    pub merge: MergePolicy,
    /// The notification settings. Those of the first node apply to the run.
    #[serde(default)]
    pub notify: NotifyPolicy,
    /// The MCP server that the agent can call, and the user's servers that dogwatch proxies.
    #[serde(default)]
    pub mcp: McpPolicy,
    /// Further environment variables whose values must not be recorded.
    #[serde(default)]
    pub redact: Vec<String>,
    /// The files and hosts that sessions may access.
    #[serde(default)]
    pub sandbox: SandboxPolicy,
    /// The watchdog limits that follow from recorded sessions, with `profile: learned`, and what they are based on.
    #[serde(default)]
    pub learned: Vec<Estimate>,
}

impl Settings {
    /// Returns the built-in settings for an agent.
    pub fn of(agent: Vec<String>, reader: ReaderName) -> Settings {
        let watchdog = WatchPolicy::for_reader(Profile::Standard, reader);
        Settings { agent, reader, watchdog, ..Settings::default() }
    }

    /// Returns the chain of agents: the configured one, then its fallbacks.
    pub fn agents(&self) -> impl Iterator<Item = (&[String], ReaderName)> {
        let first = (self.agent.as_slice(), self.reader);
        std::iter::once(first).chain(self.recovery.agents.iter().map(|a| (a.agent.as_slice(), a.reader)))
    }
}

/// The user's checks. The work is done only if all of them exit 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckPolicy {
    /// `done_when`: shell commands in the order in which they run.
    pub commands: Vec<String>,
    /// The timeout of each check.
    pub timeout: Dur,
    /// The reaction to a changed pinned file.
    pub tampered: Tampered,
    /// How often a failed check is run again on the same tree.
    pub recheck: u32,
    /// Globs of the files that the checks depend on.
    pub pin: Vec<String>,
    /// Which attempts are charged.
    pub attempts: AttemptPolicy,
    /// The number of attempts in a row without progress that ends the node. `None` is no such limit.
    pub max_stalled: Option<u64>,
}

impl Default for CheckPolicy {
    fn default() -> Self {
        CheckPolicy {
            commands: Vec::new(),
            timeout: Dur::from_mins(10),
            tampered: Tampered::Fail,
            recheck: 0,
            pin: Vec::new(),
            attempts: AttemptPolicy::Seed,
            max_stalled: None,
        }
    }
}

impl CheckPolicy {
    /// The default number of attempts of a node with checks. With `attempts: progress` it limits attempts in a row
    /// without progress.
    pub const DEFAULT_ATTEMPTS: u64 = 6;

    /// Returns whether there is any check.
    pub fn any(&self) -> bool {
        !self.commands.is_empty()
    }
}

words! {
    /// Which attempts are charged, wait for a backoff, and make a node flaky.
    #[derive(Default)]
    AttemptPolicy {
        /// Every failed attempt is charged and followed by a backoff. A node that passes after one is flaky.
        #[default]
        Seed = "seed",
        /// Only attempts without progress are charged. A node is flaky if a check passed on a tree that it failed on.
        Progress = "progress",
    }
}

words! {
    /// The reaction to a changed pinned file.
    #[derive(Default)]
    Tampered {
        /// The attempt fails, and no check counts.
        #[default]
        Fail = "fail",
        /// The change is recorded and the checks run.
        Warn = "warn",
    }
}

words! {
    /// The reaction to conflicts when the branches of a node's dependencies are merged.
    #[derive(Default)]
    MergePolicy {
        /// The node starts with conflict markers in its files, and its agent resolves them.
        #[default]
        Agent = "agent",
        /// The node fails.
        Fail = "fail",
    }
}

/// The reaction to sessions that the watchdog stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryPolicy {
    /// The number of hard stops allowed without a completed iteration between them.
    pub budget: u32,
    /// A template file for the prompt after a hard stop.
    pub template: Option<String>,
    /// Resume the agent's own session if its CLI supports it.
    pub resume: bool,
    /// Fallback agents for when the first cannot work, in order.
    pub agents: Vec<AgentPlan>,
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        RecoveryPolicy { budget: 3, template: None, resume: false, agents: Vec::new() }
    }
}

/// A fallback agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentPlan {
    /// The command line of the agent.
    pub agent: Vec<String>,
    /// The reader of the agent's output.
    pub reader: ReaderName,
}

words! {
    /// The reader that turns an agent's output into signs.
    #[derive(Default)]
    ReaderName {
        /// Any program that prints text.
        #[default]
        Plain = "plain",
        /// Claude Code.
        Claude = "claude",
        /// Codex.
        Codex = "codex",
        /// opencode.
        Opencode = "opencode",
        /// Gemini CLI.
        Gemini = "gemini",
    }
}

impl ReaderName {
    /// Returns whether the agent's output is structured. Structured agents end with a result event; without one, the
    /// exit code proves nothing.
    pub fn is_structured(self) -> bool {
        match self {
            ReaderName::Plain => false,
            ReaderName::Claude | ReaderName::Codex | ReaderName::Opencode | ReaderName::Gemini => true,
        }
    }
}

/// A command whose output goes into the prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandPlan {
    /// The name in the loop file.
    pub name: String,
    /// The command line.
    pub run: String,
    /// How long the command may run.
    pub timeout: Dur,
    /// Run the command with `sh -c` instead of splitting it into words.
    pub shell: bool,
}

impl CommandPlan {
    /// The timeout of commands, gates and probes that set none.
    pub const DEFAULT_TIMEOUT: Dur = Dur::from_secs(60);
}

/// The limit on crash loops: `max` failures within `window` that are identical or instant end the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorPolicy {
    /// The number of failures that opens the circuit.
    pub max: u32,
    /// The time within which they count.
    pub window: Dur,
}

impl Default for ErrorPolicy {
    fn default() -> Self {
        ErrorPolicy { max: 5, window: Dur::from_mins(5) }
    }
}

/// The budget of a run or a node. `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The number of iterations.
    pub iterations: Option<u64>,
    /// The supervised time.
    pub time: Option<Dur>,
    /// The number of tokens.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// The cost in US dollars.
    #[serde(default)]
    pub cost_usd: Option<f64>,
    /// The budget of a calendar day for all runs of the project.
    #[serde(default)]
    pub day: DayBudget,
    /// The share of the subscription's windows that may be used.
    #[serde(default, skip_serializing_if = "WindowBudget::is_none")]
    pub window: WindowBudget,
}

/// The budget of a calendar day for all runs of a project together. `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DayBudget {
    /// The number of tokens per day.
    pub tokens: Option<u64>,
    /// The cost per day in US dollars.
    pub cost_usd: Option<f64>,
}

/// The reaction to a service that refuses requests temporarily.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitPolicy {
    /// The longest wait for a rate limit to reset.
    pub max_wait: Dur,
    /// How often in a row a service may refuse without giving a reset time.
    pub overload_retries: u32,
}

impl Default for LimitPolicy {
    fn default() -> Self {
        LimitPolicy { max_wait: Dur::from_hours(6), overload_retries: 10 }
    }
}

/// The conditions that end a wait early.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakePolicy {
    /// Patterns of files whose change ends a wait.
    pub paths: Vec<String>,
    /// A command that looks for work during a wait.
    pub probe: Option<String>,
    /// How often the probe runs.
    pub every: Dur,
}

impl WakePolicy {
    /// The default interval of the probe.
    pub const DEFAULT_EVERY: Dur = Dur::from_mins(1);
}
