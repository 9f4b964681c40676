//! What a run does and within which limits: validated, complete, the same in the record as in memory.
//!
//! `dogwatch-config` makes these from files and flags; `run_started` holds them; resume reads them back.
//! Nothing in here is optional because it was forgotten: an `Option` means "no limit" or "not asked for".

use crate::record::ids::NodeName;
use crate::record::notification::NotifyPolicy;
use crate::time::dur::{Dur, Limit};
use serde::{Deserialize, Serialize};
use std::fmt;

mod written;

/// Everything a run was told to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "written::Written", try_from = "written::Written")]
pub struct Plan {
    pub nodes: Vec<NodePlan>,
    /// End the run at the first failed iteration (`--stop-on-error`).
    pub stop_on_error: bool,
    /// Keep the work tree after every session: it is one that git knows.
    pub snapshots: bool,
    /// The nodes come from a graph file; without it there is one node, and its end is the run's.
    pub graph: Option<GraphPlan>,
}

/// What holds for a graph as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphPlan {
    /// So many nodes may be under way at once.
    pub max_parallel: u32,
    /// All nodes together.
    #[serde(default)]
    pub budget: Budget,
}

impl GraphPlan {
    pub const DEFAULT_PARALLEL: u32 = 4;
}

impl Plan {
    /// The limits of a day that somebody in it asks for.
    pub fn days(&self) -> impl Iterator<Item = &DayBudget> {
        let nodes = self.nodes.iter().map(|node| &node.settings.budget.day);
        self.graph.iter().map(|graph| &graph.budget.day).chain(nodes)
    }

    /// As it may be written down and shown: secrets in command lines replaced.
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

/// One piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    pub name: NodeName,
    /// Nodes that must be done before it begins.
    pub depends_on: Vec<NodeName>,
    /// Globs of the files it works on; nodes that touch the same do not run at once.
    pub touches: Vec<String>,
    /// It may run beside others.
    pub parallel_safe: bool,
    pub prompt: PromptSource,
    pub settings: Settings,
}

impl NodePlan {
    /// The one node of a loop file.
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

/// Where a node's prompt comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptSource {
    /// The body of the loop file, read afresh for every iteration.
    #[default]
    LoopFile,
    /// In the graph file itself.
    Text(String),
    /// A file of its own, read afresh for every iteration; relative to the graph file's directory.
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
    /// The agent's command line, as words.
    pub agent: Vec<String>,
    /// How its output is read.
    pub reader: ReaderName,
    pub commands: Vec<CommandPlan>,
    /// Declared argument names with the values given on the command line (empty when not given).
    pub args: Vec<(String, String)>,
    /// Ask the agent to credit dogwatch in its commits.
    pub credit: bool,
    /// Between iterations, not after the last.
    pub delay: Dur,
    pub profile: Profile,
    /// `-n`: the loop ends after so many iterations.
    pub max_iterations: Option<u64>,
    pub watchdog: WatchPolicy,
    pub errors: ErrorPolicy,
    pub budget: Budget,
    #[serde(default)]
    pub limits: LimitPolicy,
    /// Without it an idle marker changes no wait and ends nothing.
    pub idle: Option<IdlePolicy>,
    pub wake_on: WakePolicy,
    /// A gate before any agent is paid: exit 0 is work, 1 is none.
    pub work_when: Option<String>,
    /// What decides that the work is done.
    #[serde(default)]
    pub checks: CheckPolicy,
    #[serde(default)]
    pub recovery: RecoveryPolicy,
    /// Work in a git worktree of its own.
    #[serde(default)]
    pub worktree: bool,
    /// Who is told, and of what. The first node's is the run's.
    #[serde(default)]
    pub notify: NotifyPolicy,
    /// What the agent may say beside its output, and its servers that we stand before.
    #[serde(default)]
    pub mcp: McpPolicy,
}

impl Settings {
    /// The built-in settings of an agent.
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
        }
    }

    /// The chain of agents: the one asked for, then those that stand in for it.
    pub fn agents(&self) -> impl Iterator<Item = (&[String], ReaderName)> {
        let first = (self.agent.as_slice(), self.reader);
        std::iter::once(first).chain(self.recovery.agents.iter().map(|a| (a.agent.as_slice(), a.reader)))
    }
}

/// The user's own checks: all must exit 0, or the work is not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckPolicy {
    /// `done_when`: shell commands in their order.
    pub commands: Vec<String>,
    /// Of each.
    pub timeout: Dur,
    /// What a change of a pinned file does.
    pub tampered: Tampered,
    /// How often a failed check is run again on the same tree.
    pub recheck: u32,
    /// Globs of files that the checks rest on.
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
    /// So many attempts a node with checks has unless it says otherwise.
    pub const DEFAULT_ATTEMPTS: u64 = 6;

    pub fn any(&self) -> bool {
        !self.commands.is_empty()
    }
}

/// What a change of a pinned file does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tampered {
    /// The attempt has failed, whatever the checks would say.
    #[default]
    Fail,
    Warn,
}

/// What is done about sessions that had to be ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryPolicy {
    /// So many hard stops without a completed iteration between them.
    pub budget: u32,
    /// A template file for the prompt after a hard stop.
    pub template: Option<String>,
    /// Go on with the agent's own session, where its CLI can.
    pub resume: bool,
    /// Agents that stand in when the first cannot work, in their order.
    pub agents: Vec<AgentPlan>,
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        RecoveryPolicy { budget: 3, template: None, resume: false, agents: Vec::new() }
    }
}

/// An agent that stands in for another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentPlan {
    pub agent: Vec<String>,
    pub reader: ReaderName,
}

/// Which reader turns the agent's output into signs.
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
    pub const ALL: [ReaderName; 5] =
        [ReaderName::Plain, ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini];

    pub fn as_str(self) -> &'static str {
        match self {
            ReaderName::Plain => "plain",
            ReaderName::Claude => "claude",
            ReaderName::Codex => "codex",
            ReaderName::Opencode => "opencode",
            ReaderName::Gemini => "gemini",
        }
    }

    /// Structured agents end with a result event; without one an exit code proves nothing.
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
    /// Run by `sh -c` instead of by words.
    pub shell: bool,
}

impl CommandPlan {
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
    pub const ALL: [Profile; 3] = [Profile::Quick, Profile::Standard, Profile::Deep];

    pub fn as_str(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Standard => "standard",
            Profile::Deep => "deep",
        }
    }

    /// How long an agent may be silent. Real turns of structured agents pause for up to 8 minutes; a plain agent shows
    /// less of its work, so `standard` gives it more.
    pub fn idle(self, reader: ReaderName) -> Limit {
        Limit::At(Dur::from_mins(match (self, reader.is_structured()) {
            (Profile::Quick, _) => 5,
            (Profile::Standard, true) => 8,
            (Profile::Standard, false) => 11,
            (Profile::Deep, _) => 15,
        }))
    }
}

/// The watchdog's limits: one key for each row of its table (docs/guide/watchdog.md), and what follows a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchPolicy {
    /// Row 1: the session has lasted that long.
    pub session: Limit,
    /// Row 2: so much time was spent waiting on children without progress.
    pub children: Limit,
    /// Row 3: the node, the run has lasted that long.
    pub node: Limit,
    pub run: Limit,
    /// Row 4: so many errors of one fingerprint in a streak.
    pub errors: Option<u32>,
    /// Row 5: so many full cycles of the same calls with the same results.
    pub cycles: Option<u32>,
    /// Row 5: how long polling may see the same ok result.
    pub poll: Limit,
    /// Row 6: one tool call has been in flight that long.
    pub tool: Limit,
    /// Row 7: a structured agent has printed nothing at all.
    pub start: Limit,
    /// Row 8: silence.
    pub idle: Limit,
    /// How long evidence on other channels defers row 8.
    pub evidence_ttl: Ttl,
    /// Row 9: it asks for a person and none comes.
    pub human: Limit,
    /// Between interrupt and TERM, and between TERM and KILL.
    pub grace: Dur,
    /// How long a process may hold the agent's pipes open after the agent's exit.
    pub leak: Dur,
    /// How long an agent may live on after its final result.
    pub result_grace: Dur,
}

/// How long evidence stays fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ttl {
    /// From the gaps the channel has shown.
    Auto,
    Fixed(Dur),
}

impl Default for WatchPolicy {
    fn default() -> Self {
        WatchPolicy::of(Profile::Standard)
    }
}

impl WatchPolicy {
    /// The limits of a profile for an agent that this reader understands.
    pub fn for_reader(profile: Profile, reader: ReaderName) -> WatchPolicy {
        WatchPolicy { idle: profile.idle(reader), ..WatchPolicy::of(profile) }
    }

    /// The limits of a profile for a structured agent.
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
    /// Without the rows that need more evidence than there is.
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

/// When a crash loop ends the run: `max` failures within `window` that are alike or instant.
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

/// What a run may use up. `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    pub iterations: Option<u64>,
    pub time: Option<Dur>,
    #[serde(default)]
    pub tokens: Option<u64>,
    #[serde(default)]
    pub cost_usd: Option<f64>,
    /// Of a calendar day, over all runs of the project.
    #[serde(default)]
    pub day: DayBudget,
}

/// What all runs of a project together may use up in a day. `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DayBudget {
    pub tokens: Option<u64>,
    pub cost_usd: Option<f64>,
}

/// What to do when the service refuses for now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitPolicy {
    /// The longest wait for a limit to end.
    pub max_wait: Dur,
    /// How often in a row a service that does not say when may refuse.
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
    /// Ends the loop once a spell has lasted that long.
    pub max: Option<Dur>,
    pub stop_after: StopAfter,
    pub strategy: Strategy,
    /// Do not call the agent while prompt and work tree are what the last idle answer saw.
    pub skip_unchanged: bool,
    /// Tell the agent about the marker at the end of the prompt.
    pub instruct: bool,
    /// What the process does once an idle limit has stopped the loop.
    #[serde(default)]
    pub after_stop: AfterStop,
}

/// What follows an idle stop.
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

/// The idle reason that says: all there was to do is done.
pub const NO_PENDING_TASKS: &str = "no_pending_tasks";

/// After how many idle iterations in a row the loop ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopAfter {
    Never,
    Count(u32),
    /// Each limit counts only iterations with that reason in a row.
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
    pub const ALL: [Strategy; 4] =
        [Strategy::Exponential, Strategy::Fixed, Strategy::Fibonacci, Strategy::Decorrelated];

    pub fn as_str(self) -> &'static str {
        match self {
            Strategy::Exponential => "exponential",
            Strategy::Fixed => "fixed",
            Strategy::Fibonacci => "fibonacci",
            Strategy::Decorrelated => "decorrelated",
        }
    }
}

/// The MCP server that agents are given, and the servers behind it.
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

/// An MCP server of the user's that is called through us.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpServer {
    pub name: String,
    #[serde(flatten)]
    pub place: McpPlace,
    /// What is sent with every request to a url; `${NAME}` stands for a variable of the session's.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub headers: Vec<(String, String)>,
    /// Of each call.
    pub timeout: Dur,
    /// Of the calls to single tools.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tools: Vec<(String, Dur)>,
    /// It is started afresh after so many timeouts in a row.
    pub restart_after: u32,
}

impl McpServer {
    pub const DEFAULT_TIMEOUT: Dur = Dur::from_secs(60);
    pub const DEFAULT_RESTART_AFTER: u32 = 3;
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPlace {
    Command(Vec<String>),
    Url(String),
}

/// What ends a wait before its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakePolicy {
    pub paths: Vec<String>,
    pub probe: Option<String>,
    /// How often the probe runs.
    pub every: Dur,
}

impl WakePolicy {
    pub const DEFAULT_EVERY: Dur = Dur::from_mins(1);
}
