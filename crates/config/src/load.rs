//! Loads a loop file: combines all sources into a plan, or returns all errors.

use crate::args::{self, Known};
use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::document::Span;
use crate::effective;
use crate::explain::{Setting, explain};
use crate::flags::{FlagLine, Flags};
use crate::frontmatter::{self, Shape};
use crate::keys;
use crate::layers::{FLAG_ORIGIN, Layer, Layers, Strictness};
use crate::limits::{MAX_FILE_BYTES, MAX_SET_FLAGS, MAX_SETTINGS_BYTES};
use crate::machine::{Machine, MachineCheck};
use crate::nearest::nearest;
use crate::placeholders;
use crate::toml;
use crate::yaml;
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::settings::{
    AttemptPolicy, CommandPlan, NodePlan, Plan, ReaderName, Settings, WatchPolicy,
};
use dogwatch_core::time::dur::Dur;
use std::collections::BTreeSet;

/// The inputs of [`load`] and [`load_graph`](crate::load_graph). The caller reads the files; this crate does no I/O.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The loop or graph file.
    pub file: Source<'a>,
    /// The user's `dogwatch.toml`.
    pub user: Option<Source<'a>>,
    /// The project's `dogwatch.toml`.
    pub project: Option<Source<'a>>,
    /// The flags of the command line.
    pub flags: &'a Flags,
    /// The arguments after `--` on the command line.
    pub args: &'a [String],
    /// Chooses the reader for an agent's command line if the `reader` key is not set.
    pub detect: &'a dyn Fn(&[String]) -> ReaderName,
    /// Answers questions about the machine. Without it only the files are checked.
    pub machine: Option<&'a dyn Machine>,
}

impl<'a> Sources<'a> {
    /// Returns the sources of a file that is loaded without other files, arguments and a machine.
    pub fn of_file(
        file: Source<'a>,
        flags: &'a Flags,
        detect: &'a dyn Fn(&[String]) -> ReaderName,
    ) -> Sources<'a> {
        Sources { file, user: None, project: None, flags, args: &[], detect, machine: None }
    }
}

/// A validated loop or graph that is ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The plan; a loop has one node, a graph its nodes in the order of the file.
    pub plan: Plan,
    /// The prompt of a loop with its placeholders. `frontmatter::body` reads it again before every iteration.
    pub body: String,
    /// Problems that do not prevent a run.
    pub warnings: Vec<Diagnostic>,
    /// Reasons why the plan cannot run on this machine, although its files are valid.
    pub faults: Vec<Diagnostic>,
    /// All settings with their values and origins. For a graph, those of nodes that override nothing, if requested.
    pub explain: Vec<Setting>,
    /// The settings that differ in each of the first [`MAX_EXPLAINED`](crate::limits::MAX_EXPLAINED) nodes of a graph.
    pub explain_nodes: Vec<(NodeName, Vec<Setting>)>,
    /// The notices of the machine about learned limits.
    pub limit_notices: Vec<String>,
}

impl Loaded {
    /// Returns the keys that flags set.
    pub fn flags(&self) -> Vec<String> {
        let set = self.explain.iter().filter(|setting| setting.origin.starts_with(FLAG_ORIGIN));
        set.map(|setting| setting.key.to_owned()).collect()
    }

    /// Returns the faults if this machine cannot run the plan.
    pub fn runs_here(&self) -> Result<(), Vec<Diagnostic>> {
        if self.faults.is_empty() { Ok(()) } else { Err(self.faults.clone()) }
    }
}

/// Parses and checks a loop file. Its node gets the name of its directory. Returns all errors at once, followed by the
/// warnings.
pub fn load(sources: &Sources<'_>, node_name: &str) -> Result<Loaded, Vec<Diagnostic>> {
    let mut diagnostics = Diagnostics::default();
    let lines = sources.flags.lines();
    let mut layers = Layers::default();
    let readable = apply_all(sources, &lines, &mut layers, &mut diagnostics);
    let body = frontmatter::body(bounded(sources.file.text));
    let settings = if readable { settings(sources, &layers, &body, &mut diagnostics) } else { None };
    let mut machine_check = MachineCheck::new(sources.machine, sources.file);
    if let Some(settings) = &settings {
        machine_check.settings(settings, &layers);
    }
    let Some(settings) = settings.filter(|_| !diagnostics.has_errors()) else {
        diagnostics.append(machine_check.faults);
        return Err(diagnostics.into_vec());
    };
    warn_graph_keys(&layers, &mut diagnostics);
    warn_external_keys(&layers, &mut diagnostics);
    Ok(Loaded {
        explain: explain(&settings, None, &layers),
        faults: machine_check.faults.into_vec(),
        plan: Plan {
            nodes: vec![NodePlan::alone(NodeName::new(node_name), settings)],
            stop_on_error: sources.flags.stop_on_error,
            snapshots: false,
            graph: None,
        },
        body,
        explain_nodes: Vec::new(),
        limit_notices: sources.machine.map_or_else(Vec::new, Machine::take_notices),
        warnings: diagnostics.into_vec(),
    })
}

/// Warns about keys that only apply to graphs. `dogwatch.toml` may set them, because it applies to graphs too.
fn warn_graph_keys(layers: &Layers<'_>, diagnostics: &mut Diagnostics) {
    let Some(assigned) = layers.get("max_parallel") else { return };
    let origin = &assigned.origin;
    if !origin.source.name.ends_with(".toml") {
        let message = "`max_parallel` has no effect in a loop: a loop has one node";
        diagnostics.warning(origin.source, origin.span.clone(), message).help("set it in a graph file");
    }
}

/// Warns about keys for external agents. `dogwatch serve` watches those, and it reads `dogwatch.toml` only.
pub fn warn_external_keys(layers: &Layers<'_>, diagnostics: &mut Diagnostics) {
    for key in keys::keys_in("external") {
        let Some(assigned) = layers.get(key.path) else { continue };
        let origin = &assigned.origin;
        if !origin.source.name.ends_with("dogwatch.toml") {
            let message = format!("`{}` has no effect here: a run has no external agents", key.path);
            diagnostics
                .warning(origin.source, origin.span.clone(), message)
                .help("`dogwatch serve` reads it from dogwatch.toml");
        }
    }
}

/// Reads the limits for external agents from the user's and the project's `dogwatch.toml`. Other keys in these files are
/// validated too, so that `serve` and `run` reject the same files.
pub fn load_external(
    user: Option<Source<'_>>,
    project: Option<Source<'_>>,
) -> Result<WatchPolicy, Vec<Diagnostic>> {
    let (mut layers, mut diagnostics) = (Layers::default(), Diagnostics::default());
    for source in [user, project].into_iter().flatten() {
        apply_toml(source, &mut layers, &mut diagnostics);
    }
    if diagnostics.has_errors() { Err(diagnostics.into_vec()) } else { Ok(effective::external(&layers)) }
}

/// Returns the text, or an empty text if the file is too large to be parsed.
fn bounded(text: &str) -> &str {
    if text.len() > MAX_FILE_BYTES { "" } else { text }
}

/// Applies all sources in ascending precedence. Returns false if a file could not be parsed; then no key can be
/// reported as missing.
fn apply_all<'s>(
    sources: &Sources<'s>,
    lines: &'s [FlagLine],
    layers: &mut Layers<'s>,
    diagnostics: &mut Diagnostics,
) -> bool {
    let mut readable = true;
    for source in [sources.user, sources.project].into_iter().flatten() {
        readable &= apply_toml(source, layers, diagnostics);
    }
    readable &= apply_loop_file(sources.file, layers, diagnostics);
    apply_flags(sources.flags, lines, layers, diagnostics);
    readable
}

/// Applies the flags of the command line.
pub fn apply_flags<'s>(
    flags: &Flags,
    lines: &'s [FlagLine],
    layers: &mut Layers<'s>,
    diagnostics: &mut Diagnostics,
) {
    if flags.set.len() > MAX_SET_FLAGS {
        let source = Source { name: crate::flags::COMMAND_LINE, text: "" };
        diagnostics.error_in(source, format!("too many `--set` flags: at most {MAX_SET_FLAGS} are allowed"));
    }
    for line in lines {
        line.apply(layers, diagnostics);
    }
}

/// Applies a `dogwatch.toml`. Returns false if it could not be parsed.
pub fn apply_toml<'s>(source: Source<'s>, layers: &mut Layers<'s>, diagnostics: &mut Diagnostics) -> bool {
    if is_too_long(source, source.text, MAX_SETTINGS_BYTES, diagnostics) {
        return false;
    }
    match toml::parse(source.text) {
        Ok(tree) => Layer::of_file(source, Strictness::Strict, layers, diagnostics).document(&tree),
        Err(bad) => {
            diagnostics.syntax_errors(source, "TOML", 0, bad);
            false
        }
    }
}

fn apply_loop_file<'s>(source: Source<'s>, layers: &mut Layers<'s>, diagnostics: &mut Diagnostics) -> bool {
    let split = frontmatter::split(source.text);
    if is_too_long(source, source.text, MAX_FILE_BYTES, diagnostics)
        || is_too_long(source, split.yaml, MAX_SETTINGS_BYTES, diagnostics)
    {
        return false;
    }
    match yaml::parse(split.yaml, split.offset) {
        Ok(tree) => Layer::of_file(source, Strictness::Lenient, layers, diagnostics).document(&tree),
        Err(bad) => {
            diagnostics.syntax_errors(source, "YAML in the frontmatter", split.offset, [bad]);
            false
        }
    }
}

/// Reports an error if `part`, the whole file or its settings, is too large.
pub fn is_too_long(source: Source<'_>, part: &str, max: usize, diagnostics: &mut Diagnostics) -> bool {
    let too_long = part.len() > max;
    if too_long {
        let what = if part.len() < source.text.len() { "the settings are" } else { "the file is" };
        let message = format!("{what} too large: {} bytes", part.len());
        diagnostics.error_in(source, message).help(format!("at most {max} bytes are allowed"));
    }
    too_long
}

fn missing_agent(source: Source<'_>, diagnostics: &mut Diagnostics) {
    let help = match frontmatter::split(source.text).shape {
        Shape::Fenced => "name the agent to run, for example `agent: claude`",
        Shape::NoFence => {
            "start the file with the lines `---`, `agent: claude`, `---`, or pass `--agent claude`"
        }
        Shape::NeverClosed => "the frontmatter is not closed; end it with a `---` line",
        Shape::NotAtStart => "the opening `---` must be the first line, with no whitespace before it",
    };
    diagnostics
        .error(source, 0..source.text.lines().next().unwrap_or("").len(), "`agent` is missing")
        .help(help);
}

fn settings(
    sources: &Sources<'_>,
    layers: &Layers<'_>,
    body: &str,
    diagnostics: &mut Diagnostics,
) -> Option<Settings> {
    let declared = layers.texts("args");
    let referenced = referenced_args(body, layers.commands().iter().map(|c| c.run.as_str()));
    let args = if layers.is_invalid("args") {
        Vec::new()
    } else {
        args::assign(sources.args, &Known { declared: &declared, referenced: &referenced }, diagnostics)
    };
    check_prompt(sources.file, layers, body, diagnostics);
    let settings = complete(layers, args, AttemptPolicy::Progress, *sources, diagnostics);
    if settings.is_none() && !layers.is_invalid("agent") {
        missing_agent(sources.file, diagnostics);
    }
    settings
}

/// Reports a prompt that is empty or uses the output of a command that the file does not declare.
fn check_prompt(source: Source<'_>, layers: &Layers<'_>, body: &str, diagnostics: &mut Diagnostics) {
    if body.trim().is_empty() {
        let end = source.text.trim_end().len();
        let diagnostic = diagnostics.error(source, end..end, "the prompt is empty");
        diagnostic.help(match frontmatter::split(source.text).shape {
            Shape::Fenced => "write the prompt below the frontmatter",
            Shape::NoFence | Shape::NeverClosed | Shape::NotAtStart => "write the prompt into the file",
        });
    }
    let mut warned = BTreeSet::new();
    for (name, _, known) in
        placeholders::unknown_in(body).into_iter().filter(|(name, ..)| warned.insert(*name))
    {
        let at = placeholders::unknown_in(source.text).into_iter().rev().find(|(other, ..)| *other == name);
        let message = format!("the prompt uses `{name}`, which does not exist; the placeholder stays empty");
        let diagnostic = diagnostics.warning(source, at.map_or(0..0, |(_, at, _)| at), message);
        match nearest(name, known.iter().copied()) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.help(format!("there is `{}`", known.join("`, `"))),
        };
    }
    if layers.is_invalid("commands") {
        return;
    }
    // Comments are not part of the prompt, so the first placeholder of that name in the file may be another one.
    let (places, commands) = (placeholders::commands_in(source.text), layers.commands());
    let used: BTreeSet<&str> = placeholders::commands_in(body).into_iter().map(|(name, _)| name).collect();
    for name in used.into_iter().filter(|name| !commands.iter().any(|command| command.name == *name)) {
        let at = places.iter().rev().find(|(other, _)| *other == name).map(|(_, at)| at.clone());
        unknown_command(source, at.unwrap_or(0..0), name, &commands, diagnostics);
    }
}

/// Reports a placeholder of a command that does not exist.
pub fn unknown_command(
    source: Source<'_>,
    at: Span,
    name: &str,
    commands: &[CommandPlan],
    diagnostics: &mut Diagnostics,
) {
    let message = format!("the prompt uses the command `{name}`, which does not exist");
    let names = || commands.iter().map(|command| command.name.as_str());
    let help = match nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("add it to `commands`: `- {{name: {name}, run: …}}`"),
    };
    diagnostics.error(source, at, message).help(help);
}

/// Returns the complete settings, or `None` without an agent. `attempts` is the default of files of this kind.
pub fn complete(
    layers: &Layers<'_>,
    args: Vec<(String, String)>,
    attempts: AttemptPolicy,
    Sources { detect, machine, .. }: Sources<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Settings> {
    let idle = effective::idle(layers, diagnostics);
    let notify = effective::notify(layers, diagnostics);
    let agent = layers.words("agent")?;
    let checks = effective::checks(layers, attempts);
    let reader = layers.choice("reader", ReaderName::named).unwrap_or_else(|| detect(&agent));
    let mut settings = Settings {
        reader,
        agent,
        commands: layers.commands(),
        args,
        credit: layers.flag("credit", false),
        delay: layers.dur("delay", Dur::ZERO),
        profile: layers.profile(),
        max_iterations: effective::max_iterations(layers, &checks),
        watchdog: effective::watchdog(layers, reader),
        errors: effective::errors(layers),
        budget: effective::budget(layers),
        limits: effective::limits(layers),
        idle,
        wake_on: effective::wake_on(layers),
        work_when: layers.text("work_when"),
        checks,
        recovery: effective::recovery(layers, detect),
        worktree: layers.flag("worktree", false),
        setup: layers.texts("setup"),
        merge: effective::merge(layers),
        notify,
        mcp: effective::mcp(layers),
        redact: layers.texts("redact"),
        sandbox: effective::sandbox(layers),
        learned: Vec::new(),
    };
    if let Some(machine) = machine {
        effective::learn(&mut settings, layers, machine);
    }
    Some(settings)
}

/// Returns the arguments that the prompt and the commands refer to.
pub fn referenced_args<'t>(body: &str, runs: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut referenced = placeholders::args_in(body);
    referenced.extend(runs.flat_map(placeholders::args_in));
    referenced.sort();
    referenced.dedup();
    referenced
}
