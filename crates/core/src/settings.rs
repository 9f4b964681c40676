//! The work and the limits of a run: validated, complete, and the same in the record as in memory.
//!
//! `dogwatch-config` builds these types from files and flags; `run_started` records them; resume reads them back.
//! Every default is filled in: an `Option` means "no limit" or "not requested".

use crate::record::ids::NodeName;
use crate::record::notification::NotifyPolicy;
use crate::time::dur::{Dur, Limit};
use serde::{Deserialize, Serialize};
use std::fmt;

mod sandbox;
mod written;

pub use sandbox::{SandboxMode, SandboxPolicy};

/// The complete plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "written::Written", try_from = "written::Written")]
pub struct Plan {
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
    pub name: NodeName,
    /// Nodes that must be done before this node starts.
    pub depends_on: Vec<NodeName>,
    /// Globs of the files that the node works on. Nodes whose globs overlap do not run at once.
    pub touches: Vec<String>,
    /// The node may run in parallel with others.
    pub parallel_safe: bool,
    pub prompt: PromptSource,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The agent's command line, split into words.
    pub agent: Vec<String>,
    /// The reader of the agent's output.
    pub reader: ReaderName,
    pub commands: Vec<CommandPlan>,
    /// Declared argument names with the values given on the command line (empty when not given).
    pub args: Vec<(String, String)>,
    /// Ask the agent to credit dogwatch in its commits.
    pub credit: bool,
    /// The pause between iterations. No pause follows the last one.
    pub delay: Dur,
    pub profile: Profile,
    /// `-n`: the number of iterations after which the loop ends.
    pub max_iterations: Option<u64>,
    pub watchdog: WatchPolicy,
    pub errors: ErrorPolicy,
    pub budget: Budget,
    #[serde(default)]
    pub limits: LimitPolicy,
    /// The idle policy. Without one, an idle marker neither changes a wait nor ends the loop.
    pub idle: Option<IdlePolicy>,
    pub wake_on: WakePolicy,
    /// A gate command that runs before each session: exit code 0 means work, 1 means none.
    pub work_when: Option<String>,
    /// The checks that decide whether the work is done.
    #[serde(default)]
    pub checks: CheckPolicy,
    #[serde(default)]
    pub recovery: RecoveryPolicy,
    /// The node works in its own git worktree.
    #[serde(default)]
    pub worktree: bool,
    /// The notification settings. Those of the first node apply to the run.
    #[serde(default)]
    pub notify: NotifyPolicy,
    /// The MCP server that the agent can call, and the user's servers that dogwatch proxies.
    #[serde(default)]
    pub mcp: McpPolicy,
    /// Further environment variables whose values must not be recorded.
    #[serde(default)]
    pub redact: Vec<String>,
    /// What sessions may touch.
    #[serde(default)]
    pub sandbox: SandboxPolicy,
}

impl Settings {
    /// Returns the built-in settings for an agent.
    pub fn of(agent: Vec<String>, reader: ReaderName) -> Settings {
        Settings {
            agent,
            reader,
            commands: Vec::new(),
            args: Vec::new(),
            credit: false,
            delay: Dur::ZERO,
            profile: Profile::Standard,
            max_iterations: None,
            watchdog: WatchPolicy::for_reader(Profile::Standard, reader),
            errors: ErrorPolicy::default(),
            budget: Budget::default(),
            limits: LimitPolicy::default(),
            idle: None,
            wake_on: WakePolicy::default(),
            work_when: None,
            checks: CheckPolicy::default(),
            recovery: RecoveryPolicy::default(),
            worktree: false,
            notify: NotifyPolicy::default(),
            mcp: McpPolicy::default(),
            redact: Vec::new(),
            sandbox: SandboxPolicy::default(),
        }
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
}

impl Default for CheckPolicy {
    fn default() -> Self {
        CheckPolicy {
            commands: Vec::new(),
            timeout: Dur::from_mins(10),
            tampered: Tampered::Fail,
            recheck: 0,
            pin: Vec::new(),
        }
    }
}

impl CheckPolicy {
    /// The default number of attempts of a node with checks.
    pub const DEFAULT_ATTEMPTS: u64 = 6;

    /// Returns whether there is any check.
    pub fn any(&self) -> bool {
        !self.commands.is_empty()
    }
}

/// The reaction to a changed pinned file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tampered {
    /// The attempt fails without running the checks.
    #[default]
    Fail,
    /// The change is recorded and the checks run.
    Warn,
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
    pub agent: Vec<String>,
    pub reader: ReaderName,
}

/// The reader that turns an agent's output into signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReaderName {
    Plain,
    Claude,
    Codex,
    Opencode,
    Gemini,
}

impl ReaderName {
    /// All readers.
    pub const ALL: [ReaderName; 5] =
        [ReaderName::Plain, ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini];

    /// Returns the name of the reader.
    pub fn as_str(self) -> &'static str {
        match self {
            ReaderName::Plain => "plain",
            ReaderName::Claude => "claude",
            ReaderName::Codex => "codex",
            ReaderName::Opencode => "opencode",
            ReaderName::Gemini => "gemini",
        }
    }

    /// Returns whether the agent's output is structured. Structured agents end with a result event; without one, the
    /// exit code proves nothing.
    pub fn is_structured(self) -> bool {
        match self {
            ReaderName::Plain => false,
            ReaderName::Claude | ReaderName::Codex | ReaderName::Opencode | ReaderName::Gemini => true,
        }
    }
}

impl fmt::Display for ReaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A command whose output goes into the prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandPlan {
    pub name: String,
    pub run: String,
    pub timeout: Dur,
    /// Run the command with `sh -c` instead of splitting it into words.
    pub shell: bool,
}

impl CommandPlan {
    /// The timeout of commands, gates and probes that set none.
    pub const DEFAULT_TIMEOUT: Dur = Dur::from_secs(60);
}

/// A named set of watchdog limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    Quick,
    Standard,
    Deep,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 3] = [Profile::Quick, Profile::Standard, Profile::Deep];

    /// Returns the name of the profile.
    pub fn as_str(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Standard => "standard",
            Profile::Deep => "deep",
        }
    }

    /// Returns how long an agent may be silent. Real turns of structured agents pause for up to 8 minutes; a plain
    /// agent shows less of its work, so `standard` allows it more.
    pub fn idle(self, reader: ReaderName) -> Limit {
        Limit::At(Dur::from_mins(match (self, reader.is_structured()) {
            (Profile::Quick, _) => 5,
            (Profile::Standard, true) => 8,
            (Profile::Standard, false) => 11,
            (Profile::Deep, _) => 15,
        }))
    }
}

/// The watchdog's limits: one key for each row of its table (docs/guide/watchdog.md), and the times that apply after a
/// verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchPolicy {
    /// Row 1: how long a session may last.
    pub session: Limit,
    /// Row 2: how long an agent may wait on children without progress.
    pub children: Limit,
    /// Row 3: how long a node may last.
    pub node: Limit,
    /// Row 3: how long the run may last.
    pub run: Limit,
    /// Row 4: the number of consecutive errors with the same fingerprint.
    pub errors: Option<u32>,
    /// Row 5: the number of full cycles of the same calls with the same results.
    pub cycles: Option<u32>,
    /// Row 5: how long polling may return the same ok result.
    pub poll: Limit,
    /// Row 6: how long one tool call may be in flight.
    pub tool: Limit,
    /// Row 7: how long a structured agent may take to print anything.
    pub start: Limit,
    /// Row 8: how long the agent may be silent.
    pub idle: Limit,
    /// How long evidence on other channels defers row 8.
    pub evidence_ttl: Ttl,
    /// Row 9: how long the agent may wait for a human answer.
    pub human: Limit,
    /// The grace between interrupt and TERM, and between TERM and KILL.
    pub grace: Dur,
    /// How long a process may hold the agent's pipes open after the agent's exit.
    pub leak: Dur,
    /// How long an agent may keep running after its final result.
    pub result_grace: Dur,
}

/// How long evidence stays fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ttl {
    /// Derived from the gaps observed on the channel.
    Auto,
    /// A fixed time.
    Fixed(Dur),
}

impl Default for WatchPolicy {
    fn default() -> Self {
        WatchPolicy::of(Profile::Standard)
    }
}

impl WatchPolicy {
    /// Returns the limits of a profile for an agent with this reader.
    pub fn for_reader(profile: Profile, reader: ReaderName) -> WatchPolicy {
        WatchPolicy { idle: profile.idle(reader), ..WatchPolicy::of(profile) }
    }

    /// Returns the limits of a profile for a structured agent.
    pub fn of(profile: Profile) -> WatchPolicy {
        let mins = |quick, standard, deep| {
            Limit::At(Dur::from_mins(match profile {
                Profile::Quick => quick,
                Profile::Standard => standard,
                Profile::Deep => deep,
            }))
        };
        WatchPolicy {
            session: mins(15, 60, 240),
            children: mins(10, 30, 60),
            node: Limit::Off,
            run: Limit::Off,
            errors: Some(5),
            cycles: Some(5),
            poll: Limit::At(Dur::from_mins(10)),
            tool: mins(10, 15, 60),
            start: mins(3, 6, 10),
            idle: profile.idle(ReaderName::Claude),
            evidence_ttl: Ttl::Auto,
            human: Limit::At(Dur::from_mins(10)),
            grace: Dur::from_secs(10),
            leak: Dur::from_secs(2),
            result_grace: Dur::from_secs(10),
        }
    }
}

impl WatchPolicy {
    /// Returns the policy with only its ceilings, for sessions without the evidence that the other rows need.
    pub fn ceilings_only(&self) -> WatchPolicy {
        WatchPolicy {
            children: Limit::Off,
            errors: None,
            cycles: None,
            tool: Limit::Off,
            start: Limit::Off,
            idle: Limit::Off,
            human: Limit::Off,
            ..self.clone()
        }
    }
}

/// The limit on crash loops: `max` failures within `window` that are identical or instant end the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorPolicy {
    pub max: u32,
    pub window: Dur,
}

impl Default for ErrorPolicy {
    fn default() -> Self {
        ErrorPolicy { max: 5, window: Dur::from_mins(5) }
    }
}

/// The budget of a run or a node. `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    pub iterations: Option<u64>,
    pub time: Option<Dur>,
    #[serde(default)]
    pub tokens: Option<u64>,
    #[serde(default)]
    pub cost_usd: Option<f64>,
    /// The budget of a calendar day for all runs of the project.
    #[serde(default)]
    pub day: DayBudget,
}

/// The budget of a calendar day for all runs of a project together. `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DayBudget {
    pub tokens: Option<u64>,
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

/// How long to wait when there is nothing to do, and when to stop waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdlePolicy {
    pub delay: Dur,
    pub backoff: f64,
    pub max_delay: Dur,
    /// The length of an idle streak that ends the loop.
    pub max: Option<Dur>,
    pub stop_after: StopAfter,
    pub strategy: Strategy,
    /// Do not start the agent while the prompt and the work tree are unchanged since its last idle answer.
    pub skip_unchanged: bool,
    /// Explain the idle marker to the agent at the end of the prompt.
    pub instruct: bool,
    /// What the process does after an idle limit has stopped the loop.
    #[serde(default)]
    pub after_stop: AfterStop,
}

/// What the process does after an idle stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterStop {
    /// The run ends with outcome `idle`.
    #[default]
    Exit,
    /// The run sleeps, without an agent and without a timer, until it is woken.
    Watch,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        IdlePolicy {
            delay: Dur::from_secs(30),
            backoff: 2.0,
            max_delay: Dur::from_mins(5),
            max: None,
            stop_after: StopAfter::PerReason(vec![(NO_PENDING_TASKS.to_owned(), 8)]),
            strategy: Strategy::Exponential,
            skip_unchanged: false,
            instruct: true,
            after_stop: AfterStop::Exit,
        }
    }
}

/// The idle reason for "all tasks are done".
pub const NO_PENDING_TASKS: &str = "no_pending_tasks";

/// The number of consecutive idle iterations after which the loop ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopAfter {
    Never,
    Count(u32),
    /// One limit per reason, which counts only consecutive iterations with that reason.
    PerReason(Vec<(String, u32)>),
}

/// How idle waits grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    Exponential,
    Fixed,
    Fibonacci,
    Decorrelated,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 4] =
        [Strategy::Exponential, Strategy::Fixed, Strategy::Fibonacci, Strategy::Decorrelated];

    /// Returns the name of the strategy.
    pub fn as_str(self) -> &'static str {
        match self {
            Strategy::Exponential => "exponential",
            Strategy::Fixed => "fixed",
            Strategy::Fibonacci => "fibonacci",
            Strategy::Decorrelated => "decorrelated",
        }
    }
}

/// The MCP server that agents can call, and the servers behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpPolicy {
    pub enabled: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub servers: Vec<McpServer>,
}

impl Default for McpPolicy {
    fn default() -> Self {
        McpPolicy { enabled: true, servers: Vec::new() }
    }
}

/// One of the user's MCP servers, called through dogwatch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpServer {
    pub name: String,
    #[serde(flatten)]
    pub place: McpPlace,
    /// Headers of every request to a URL. `${NAME}` is replaced by a variable of the session's environment.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub headers: Vec<(String, String)>,
    /// The timeout of each call.
    pub timeout: Dur,
    /// Timeouts of calls to particular tools.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tools: Vec<(String, Dur)>,
    /// The number of consecutive timeouts after which the server is restarted.
    pub restart_after: u32,
}

impl McpServer {
    /// The timeout of calls to a server that sets none.
    pub const DEFAULT_TIMEOUT: Dur = Dur::from_secs(60);
    /// The default of `restart_after`.
    pub const DEFAULT_RESTART_AFTER: u32 = 3;
}

/// The address of a server: a command to start or a URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPlace {
    Command(Vec<String>),
    Url(String),
}

/// The conditions that end a wait early.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakePolicy {
    pub paths: Vec<String>,
    pub probe: Option<String>,
    /// How often the probe runs.
    pub every: Dur,
}

impl WakePolicy {
    /// The default interval of the probe.
    pub const DEFAULT_EVERY: Dur = Dur::from_mins(1);
}
