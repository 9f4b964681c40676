//! Parses graph files: many nodes, each with its own prompt and settings.
//!
//! The top level of the file holds `nodes` and the settings of all nodes. A node can override most of these
//! settings. `links` checks the ids and dependencies before the run starts.

mod document;
mod links;
mod node;

pub use document::Format;

use crate::args::{self, Known};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity, Source};
use crate::document::{Entry, Node, Value};
use crate::effective;
use crate::explain::{Setting, explain};
use crate::keys;
use crate::layers::{Layer, Layers, Strictness};
use crate::limits::MAX_EXPLAINED;
use crate::load::{Loaded, Sources, apply_flags, apply_toml, complete, unknown_command, warn_external_keys};
use crate::machine::{Machine, MachineCheck};
use crate::placeholders;
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::settings::{AttemptPolicy, GraphPlan, NodePlan, Plan, PromptSource, ReaderName, Settings};
use node::{NodeDraft, Nodes};
use std::collections::BTreeSet;

/// Parses and checks a graph. `explain` fills in the `explain` fields of the result. Returns all errors at once, followed
/// by the warnings.
pub fn load_graph(sources: &Sources<'_>, format: Format, explain: bool) -> Result<Loaded, Vec<Diagnostic>> {
    let mut diagnostics = Diagnostics::default();
    let lines = sources.flags.lines();
    let Some(tree) = document::read(sources.file, format, &mut diagnostics) else {
        return Err(diagnostics.into_vec());
    };
    let mut readable = true;
    let mut files = Layers::default();
    for source in [sources.user, sources.project].into_iter().flatten() {
        readable &= apply_toml(source, &mut files, &mut diagnostics);
    }
    let nodes = apply_top_level(sources.file, &tree, &mut files, &mut diagnostics);
    let mut flags = Layers::default();
    apply_flags(sources.flags, &lines, &mut flags, &mut diagnostics);
    let drafts = match nodes {
        Some(nodes) => {
            Nodes { source: sources.file, diagnostics: &mut diagnostics, foreign: BTreeSet::new() }
                .read(nodes)
        }
        None => Vec::new(),
    };
    links::check(&drafts, sources.file, &mut diagnostics);
    if !readable {
        return Err(diagnostics.into_vec());
    }
    Builder::new(sources, files, flags, diagnostics).build(drafts, explain)
}

/// Applies the top-level settings and returns the value of `nodes`. A file that is a list is a list of nodes.
fn apply_top_level<'t, 's>(
    source: Source<'s>,
    tree: &'t Node,
    files: &mut Layers<'s>,
    diagnostics: &mut Diagnostics,
) -> Option<&'t Node> {
    let entries = match &tree.value {
        Value::List(_) => return Some(tree),
        Value::Map(entries) => entries.as_slice(),
        Value::Null => &[],
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {
            let diagnostic =
                diagnostics.error(source, tree.span.clone(), "a graph must be a mapping with `nodes`");
            diagnostic.label(format!("this is {}", tree.kind()));
            return None;
        }
    };
    let mut layer = Layer::of_file(source, Strictness::Lenient, files, diagnostics);
    for entry in entries.iter().filter(|entry| entry.key != NODES) {
        layer.entry("", entry);
    }
    let nodes = entries.iter().find(|entry| entry.key == NODES && !entry.value.is_null());
    if nodes.is_none() {
        let end = source.text.lines().next().map_or(0, str::len);
        diagnostics
            .error(source, 0..end, "the graph has no nodes")
            .help("add `nodes:` with a list of `{id: …, prompt: …}`");
    }
    nodes.map(|entry: &Entry| &entry.value)
}

const NODES: &str = "nodes";

/// Builds the plan from the parsed nodes and layers.
struct Builder<'a, 's> {
    sources: &'a Sources<'s>,
    /// The layers of all files, without the run's budget.
    files: Layers<'s>,
    /// The layers of all flags, without the run's budget.
    flags: Layers<'s>,
    /// The settings of a node that overrides nothing.
    shared: Layers<'s>,
    /// The same with the run's budget.
    run: Layers<'s>,
    graph: GraphPlan,
    diagnostics: Diagnostics,
    machine_check: MachineCheck<'a, 's>,
}

impl<'a, 's> Builder<'a, 's> {
    fn new(
        sources: &'a Sources<'s>,
        files: Layers<'s>,
        flags: Layers<'s>,
        diagnostics: Diagnostics,
    ) -> Builder<'a, 's> {
        let all = files.overlaid_with(&flags);
        // A top-level budget applies to the run, and a node's budget to that node.
        let graph =
            GraphPlan { max_parallel: effective::max_parallel(&all), budget: effective::budget(&all) };
        let (files, flags) = (files.without("budget"), flags.without("budget"));
        Builder {
            sources,
            shared: all.clone().without("budget"),
            run: all,
            files,
            flags,
            graph,
            diagnostics,
            machine_check: MachineCheck::new(sources.machine, sources.file),
        }
    }

    fn build(mut self, drafts: Vec<NodeDraft<'s>>, explain_all: bool) -> Result<Loaded, Vec<Diagnostic>> {
        let args = self.args(&drafts);
        let seed = AttemptPolicy::Seed;
        let common = complete(&self.shared, args.clone(), seed, *self.sources, &mut Diagnostics::default());
        let mut nodes = Vec::with_capacity(drafts.len());
        let mut explain_nodes = Vec::new();
        let top = if explain_all { self.explained(&common, &args) } else { Vec::new() };
        let mut without_agent = Vec::new();
        let mut shared_checked = false;
        let mut places = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let layers = self.layers(&draft);
            // Most nodes of a large graph only have a prompt, so their shared settings are computed once.
            let settings = match &common {
                Some(common) if draft.own.is_empty() && shared_checked => Some(common.clone()),
                _ => complete(&layers, args.clone(), seed, *self.sources, &mut self.diagnostics),
            };
            shared_checked |= draft.own.is_empty();
            if settings.is_none() && !layers.is_invalid("agent") {
                without_agent.push((draft.id.clone(), draft.at.clone()));
            }
            if let Some(settings) = &settings {
                self.machine_check.settings(settings, &layers);
            }
            let Some((prompt, settings)) = self.prompt(&draft).zip(settings) else { continue };
            self.check_prompt(&draft, &settings);
            if explain_all && explain_nodes.len() < MAX_EXPLAINED {
                let own = explain(&settings, Some(&self.graph), &layers);
                // A node without its own budget has only the run's budget, which is listed with the run.
                let of_run = |key: &str| keys::is_in_block(key, "budget") && draft.own.get(key).is_none();
                let different = own.into_iter().filter(|s| !top.contains(s) && !of_run(s.key)).collect();
                explain_nodes.push((NodeName::new(&draft.id), different));
            }
            places.push(draft.at.clone());
            nodes.push(plan(draft, prompt, settings));
        }
        self.warn_about_work_that_stays(&nodes, &places);
        self.missing_agent(&without_agent);
        warn_external_keys(&self.run, &mut self.diagnostics);
        if self.diagnostics.has_errors() {
            self.diagnostics.append(self.machine_check.faults);
            return Err(self.diagnostics.into_vec());
        }
        Ok(Loaded {
            plan: Plan {
                nodes,
                stop_on_error: self.sources.flags.stop_on_error,
                snapshots: false,
                graph: Some(self.graph),
            },
            body: String::new(),
            warnings: self.diagnostics.into_vec(),
            faults: self.machine_check.faults.into_vec(),
            explain: top,
            limit_notices: self.sources.machine.map_or_else(Vec::new, Machine::take_notices),
            explain_nodes,
        })
    }

    fn layers(&self, draft: &NodeDraft<'s>) -> Layers<'s> {
        if draft.own.is_empty() {
            self.shared.clone()
        } else {
            self.files.overlaid_with(&draft.own).overlaid_with(&self.flags)
        }
    }

    /// Returns the arguments that any node uses. Every node gets all of them.
    fn args(&mut self, drafts: &[NodeDraft<'s>]) -> Vec<(String, String)> {
        if self.shared.is_invalid("args") {
            return Vec::new();
        }
        let mut referenced = BTreeSet::new();
        let mut collect = |text: &str| referenced.extend(placeholders::args_in(text));
        self.shared.commands().iter().for_each(|command| collect(&command.run));
        for draft in drafts {
            draft.own.commands().iter().for_each(|command| collect(&command.run));
            match &draft.prompt {
                Some((PromptSource::Text(text), _)) => collect(text),
                // An unreadable file is reported with its node.
                Some((PromptSource::File(path), _)) => drop(self.machine_check.text(path, &mut collect)),
                Some((PromptSource::LoopFile, _)) | None => {}
            }
        }
        let (declared, referenced) = (self.shared.texts("args"), Vec::from_iter(referenced));
        args::assign(
            self.sources.args,
            &Known { declared: &declared, referenced: &referenced },
            &mut self.diagnostics,
        )
    }

    fn prompt(&mut self, draft: &NodeDraft<'s>) -> Option<PromptSource> {
        let Some((prompt, span)) = &draft.prompt else {
            if draft.has_prompt_field {
                return None;
            }
            let message = format!("node `{}` has no prompt", draft.id);
            let diagnostic = self.diagnostics.error(self.sources.file, draft.at.clone(), message);
            diagnostic.help("add a `prompt`, a `prompt_file` or a `deliverable`");
            return None;
        };
        if let PromptSource::File(path) = prompt {
            let fault = match self.machine_check.prompt_file(path) {
                Err(why) => Some((format!("cannot read the prompt file `{path}`"), why)),
                Ok(Some(file)) if file.is_empty => {
                    Some((format!("the prompt file `{path}` is empty"), "no prompt".to_owned()))
                }
                Ok(_) => None,
            };
            if let Some((message, label)) = fault {
                let diagnostic = self.machine_check.faults.error(self.sources.file, span.clone(), message);
                diagnostic.label(label);
            }
        }
        Some(prompt.clone())
    }

    /// Reports commands that the node's prompt uses and that the node does not have.
    fn check_prompt(&mut self, draft: &NodeDraft<'s>, settings: &Settings) {
        let Some((prompt, span)) = &draft.prompt else { return };
        let used: BTreeSet<String> = match prompt {
            PromptSource::Text(text) => {
                placeholders::commands_in(text).into_iter().map(|(name, _)| name.to_owned()).collect()
            }
            PromptSource::File(path) => match self.machine_check.prompt_file(path) {
                Ok(Some(file)) => file.commands,
                Ok(None) | Err(_) => BTreeSet::new(),
            },
            PromptSource::LoopFile => BTreeSet::new(),
        };
        for name in used.iter().filter(|name| !has_command(settings, name)) {
            let source = self.sources.file;
            unknown_command(source, span.clone(), name, &settings.commands, &mut self.diagnostics);
        }
    }

    /// Warns about nodes whose dependencies leave their work in the user's work tree, where a worktree does not have it.
    fn warn_about_work_that_stays(&mut self, nodes: &[NodePlan], places: &[crate::document::Span]) {
        let shared: BTreeSet<&NodeName> =
            nodes.iter().filter(|node| !node.settings.worktree).map(|node| &node.name).collect();
        for (node, at) in nodes.iter().zip(places).filter(|(node, _)| node.settings.worktree) {
            let Some(on) = node.depends_on.iter().find(|on| shared.contains(on)) else { continue };
            if !self.diagnostics.has_room(Severity::Warning) {
                return;
            }
            let message = format!("`{}` has a worktree, but its dependency `{on}` has none", node.name);
            self.diagnostics.warning(self.sources.file, at.clone(), message).help(format!(
                "set `worktree: true` for `{on}` too; otherwise `{}` starts without its work",
                node.name
            ));
        }
    }

    fn missing_agent(&mut self, nodes: &[(String, crate::document::Span)]) {
        let Some((first, at)) = nodes.first() else { return };
        let message = match nodes.len() {
            1 => format!("node `{first}` has no `agent`"),
            n => format!("node `{first}` and {} more have no `agent`", n - 1),
        };
        self.diagnostics.error(self.sources.file, at.clone(), message).help(
            "set `agent: claude` at the top level of the graph, in dogwatch.toml, or with `--set agent=claude`",
        );
    }

    /// Returns the settings that all nodes share. If every node names its own agent, the shared agent is empty.
    fn explained(&self, common: &Option<Settings>, args: &[(String, String)]) -> Vec<Setting> {
        let no_agent = Settings::of(Vec::new(), ReaderName::Plain);
        let settings = common.clone().unwrap_or(Settings { args: args.to_vec(), ..no_agent });
        let settings = Settings { budget: self.graph.budget.clone(), ..settings };
        explain(&settings, Some(&self.graph), &self.run)
    }
}

fn has_command(settings: &Settings, name: &str) -> bool {
    settings.commands.iter().any(|command| command.name == name)
}

fn plan(draft: NodeDraft<'_>, prompt: PromptSource, settings: Settings) -> NodePlan {
    NodePlan {
        name: NodeName::new(&draft.id),
        depends_on: draft.depends_on.iter().map(|(id, _)| NodeName::new(id)).collect(),
        touches: draft.touches,
        parallel_safe: draft.parallel_safe,
        prompt,
        settings,
    }
}
