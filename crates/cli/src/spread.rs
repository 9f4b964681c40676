//! The two sides of a graph whose nodes are jobs of a fleet: the run that holds the graph, and the run of one node.

use crate::error::CliError;
use crate::loading::{self, LoopFile};
use dogwatch_config::Flags;
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::record::notification::NotificationKind;
use dogwatch_core::settings::{
    CheckPolicy, CommandPlan, McpPolicy, NodePlan, Plan, PromptSource, ReaderName, RecoveryPolicy,
    SandboxPolicy,
};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_host::prompt;
use std::path::{Path, PathBuf};

/// The agent of every node: a program of ours that passes the session on to the worker. The variable differs from machine to
/// machine, and the record must not.
const SESSION: &str = "sh -c 'exec \"$DOGWATCH_GRAPH_PROGRAM\" fleet session \"$@\"' sh";
/// The longest prompt of a node, in bytes.
const MAX_PROMPT: usize = dogwatch_fleet::record::MAX_NODE;
/// How long one setup command may take.
const SETUP: Dur = Dur::from_mins(30);

/// The flags with which a worker starts such runs.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SpreadFlags {
    /// Run every session as a job of the fleet
    #[arg(long, hide = true)]
    spread: bool,
    /// Run one session of this node
    #[arg(long, hide = true, value_name = "NODE", requires = "prompt")]
    only: Option<String>,
    /// The prompt of the node
    #[arg(long, hide = true, value_name = "FILE", requires = "only")]
    prompt: Option<PathBuf>,
}

impl SpreadFlags {
    /// Returns the flags for the loader of settings.
    pub fn of(&self, flags: Flags) -> Flags {
        match self.spread {
            true => Flags { agent: Some(SESSION.to_owned()), timeout: None, ..flags },
            false => flags,
        }
    }

    /// Returns whether the agents of all nodes must be installed here.
    pub fn needs_agents(&self) -> bool {
        self.only.is_none()
    }

    /// Changes the plan for this side.
    pub fn apply(&self, plan: &mut Plan, file: &LoopFile) -> Result<(), CliError> {
        if self.spread {
            hold(plan)?;
        }
        if let (Some(node), Some(prompt)) = (&self.only, &self.prompt) {
            let text = prompt::read_at_most(prompt, MAX_PROMPT)
                .map_err(|e| CliError::usage(format!("cannot read {}: {e}", prompt.display())))?;
            only(plan, node, text)?;
            agent_is_here(plan, &file.work_dir)?;
        }
        Ok(())
    }
}

/// Returns an error if the agent of the node is not installed.
fn agent_is_here(plan: &Plan, work_dir: &Path) -> Result<(), CliError> {
    let program = plan.nodes.iter().find_map(|node| node.settings.agent.first());
    match program.filter(|program| !loading::program_exists(program, work_dir)) {
        Some(program) => Err(CliError::with_help(
            format!("the agent `{program}` is not installed"),
            "install it on this worker, or let only workers run the job that have it (`submit --need LABEL`)",
        )),
        None => Ok(()),
    }
}

/// Changes the plan of the run that holds the graph. Agents work elsewhere, and their own runs watch over them: here the
/// watchdog would stop sessions that wait for a worker.
pub fn hold(plan: &mut Plan) -> Result<(), CliError> {
    let shared = plan.nodes.iter().find(|node| !node.settings.worktree);
    if plan.graph.is_none() {
        return Err(CliError::with_help(
            "a loop has no nodes to spread over workers",
            "submit it without --spread",
        ));
    }
    if let Some(node) = shared {
        return Err(CliError::with_help(
            format!("node `{}` cannot run on another worker: it has no worktree of its own", node.name),
            "set `worktree: true` for every node, or submit the graph without --spread",
        ));
    }
    for NodePlan { settings, .. } in &mut plan.nodes {
        settings.reader = ReaderName::Claude;
        let named = settings.redact.iter().flat_map(|name| ["--redact".to_owned(), name.clone()]);
        settings.agent.extend(named);
        settings.recovery = RecoveryPolicy { agents: Vec::new(), resume: false, ..settings.recovery.clone() };
        settings.sandbox = SandboxPolicy::default();
        settings.mcp = McpPolicy { enabled: false, servers: Vec::new() };
        settings.budget.window = Default::default();
        let watch = &mut settings.watchdog;
        let waits = [&mut watch.session, &mut watch.children, &mut watch.poll, &mut watch.tool];
        waits.into_iter().for_each(|limit| *limit = Limit::Off);
        (watch.start, watch.idle, watch.human) = (Limit::Off, Limit::Off, Limit::Off);
        (watch.errors, watch.cycles) = (None, None);
        watch.tools.clear();
    }
    Ok(())
}

/// Reduces the plan to one session of a node with a prompt that is complete. Whether the node is done is decided where its
/// graph is held, and so is what happens next.
fn only(plan: &mut Plan, node: &str, prompt: String) -> Result<(), CliError> {
    let name = NodeName::new(node);
    let mut node = plan.nodes.iter().find(|node| node.name == name).cloned().ok_or_else(|| {
        CliError::with_help(
            format!("the graph has no node `{name}`"),
            "the commit from which the node starts has another graph than the one that was submitted",
        )
    })?;
    node.depends_on.clear();
    node.touches.clear();
    // A value is inserted as it is, so nothing in the prompt is expanded again.
    node.prompt = PromptSource::Text("{{ args.prompt }}".to_owned());
    let settings = &mut node.settings;
    settings.args = vec![("prompt".to_owned(), prompt)];
    let setup = settings.setup.drain(..).enumerate();
    settings.commands = setup
        .map(|(at, run)| CommandPlan { name: format!("setup-{}", at + 1), run, timeout: SETUP, shell: true })
        .collect();
    settings.worktree = false;
    settings.credit = false;
    settings.idle = None;
    settings.work_when = None;
    settings.checks = CheckPolicy::default();
    settings.max_iterations = Some(1);
    settings.notify.on.retain(|kind| *kind != NotificationKind::Ended);
    *plan = Plan { nodes: vec![node], graph: None, ..plan.clone() };
    Ok(())
}
