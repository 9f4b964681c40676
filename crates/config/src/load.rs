//! Everything together: texts in, a plan out, or all that is wrong with them.

use crate::args::{self, Known};
use crate::diagnostic::{Diagnostic, Findings, Source};
use crate::effective;
use crate::explain::{Setting, explain};
use crate::flags::{FlagLine, Flags};
use crate::frontmatter::{self, Shape};
use crate::keys;
use crate::layers::{Layer, Layers, Strictness};
use crate::limits::{MAX_FILE_BYTES, MAX_SET_FLAGS, MAX_SETTINGS_BYTES};
use crate::machine::{Inquiry, Machine};
use crate::placeholders;
use crate::{toml, yaml};
use dogwatch_core::dur::Dur;
use dogwatch_core::ids::NodeName;
use dogwatch_core::settings::{NodePlan, Plan, ReaderName, Settings, WatchPolicy};

/// What a run is made from. The caller has read the files; this crate touches none.
pub struct Sources<'a> {
    pub loop_file: Source<'a>,
    /// The user's `dogwatch.toml`.
    pub user: Option<Source<'a>>,
    /// The project's `dogwatch.toml`.
    pub project: Option<Source<'a>>,
    pub flags: &'a Flags,
    /// What follows `--` on the command line.
    pub args: &'a [String],
    /// The loop file's directory, by name.
    pub node_name: &'a str,
    /// Which reader fits an agent's command line, when no key says so.
    pub detect: &'a dyn Fn(&[String]) -> ReaderName,
    /// Where the loop would run. Without it only the files are looked at.
    pub machine: Option<&'a dyn Machine>,
}

/// A loop, ready to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub plan: Plan,
    /// The prompt, before placeholders are filled in. Read afresh by `frontmatter::body` every iteration.
    pub body: String,
    /// The settings as written; compare with `frontmatter::settings` to see whether they changed.
    pub frontmatter: String,
    pub warnings: Vec<Diagnostic>,
    /// Why it could not run on the machine that was asked, whatever the files say.
    pub faults: Vec<Diagnostic>,
    pub explain: Vec<Setting>,
}

/// Reads and checks everything. All errors are reported at once, with the warnings after them.
pub fn load(sources: &Sources<'_>) -> Result<Loaded, Vec<Diagnostic>> {
    let mut findings = Findings::default();
    let lines = sources.flags.lines();
    let mut layers = Layers::default();
    let readable = lay(sources, &lines, &mut layers, &mut findings);
    let body = frontmatter::body(bounded(sources.loop_file.text));
    let settings = if readable { settings(sources, &layers, &body, &mut findings) } else { None };
    let Some(settings) = settings.filter(|_| !findings.has_errors()) else {
        return Err(findings.into_vec());
    };
    no_graph(&layers, &mut findings);
    only_for_serve(&layers, &mut findings);
    let mut inquiry = Inquiry::new(sources.machine, sources.loop_file);
    inquiry.settings(&settings, &layers);
    Ok(Loaded {
        explain: explain(&settings, None, &layers),
        faults: inquiry.faults.into_vec(),
        plan: Plan {
            nodes: vec![NodePlan::alone(NodeName::new(sources.node_name), settings)],
            stop_on_error: sources.flags.stop_on_error,
            snapshots: false,
            graph: None,
        },
        body,
        frontmatter: frontmatter::settings(bounded(sources.loop_file.text)),
        warnings: findings.into_vec(),
    })
}

/// A loop is one node. Said only to who means this very loop: `dogwatch.toml` is for graphs too.
fn no_graph(layers: &Layers<'_>, findings: &mut Findings) {
    let Some(assigned) = layers.get("max_parallel") else { return };
    let origin = &assigned.origin;
    if !origin.source.name.ends_with(".toml") {
        let message = "`max_parallel` has no effect here: a loop is one node";
        findings.warning(origin.source, origin.span.clone(), message).help("it belongs into a graph file");
    }
}

/// External agents are watched by `dogwatch serve`, which reads `dogwatch.toml` and no loop or graph file.
pub fn only_for_serve(layers: &Layers<'_>, findings: &mut Findings) {
    for key in keys::inside("external") {
        let Some(assigned) = layers.get(key.path) else { continue };
        let origin = &assigned.origin;
        if !origin.source.name.ends_with("dogwatch.toml") {
            let message = format!("`{}` has no effect here: a run has no external agents", key.path);
            findings
                .warning(origin.source, origin.span.clone(), message)
                .help("`dogwatch serve` reads it from dogwatch.toml");
        }
    }
}

/// Reads the limits for external agents from the user's and the project's `dogwatch.toml`. What else the files hold is
/// checked too, so that `serve` and `run` refuse the same files.
pub fn load_external(
    user: Option<Source<'_>>,
    project: Option<Source<'_>>,
) -> Result<WatchPolicy, Vec<Diagnostic>> {
    let (mut layers, mut findings) = (Layers::default(), Findings::default());
    for source in [user, project].into_iter().flatten() {
        lay_toml(source, &mut layers, &mut findings);
    }
    if findings.has_errors() { Err(findings.into_vec()) } else { Ok(effective::external(&layers)) }
}

/// Never look into a file that is too long, whatever else is wrong.
fn bounded(text: &str) -> &str {
    if text.len() > MAX_FILE_BYTES { "" } else { text }
}

/// Lays all sources on, weakest first. False if a file could not be read at all: then what it did not
/// say is unknown, and nothing must be concluded from it.
fn lay<'s>(
    sources: &Sources<'s>,
    lines: &'s [FlagLine],
    layers: &mut Layers<'s>,
    findings: &mut Findings,
) -> bool {
    let mut readable = true;
    for source in [sources.user, sources.project].into_iter().flatten() {
        readable &= lay_toml(source, layers, findings);
    }
    readable &= lay_loop_file(sources.loop_file, layers, findings);
    lay_flags(sources.flags, lines, layers, findings);
    readable
}

pub fn lay_flags<'s>(flags: &Flags, lines: &'s [FlagLine], layers: &mut Layers<'s>, findings: &mut Findings) {
    if flags.set.len() > MAX_SET_FLAGS {
        let source = Source { name: crate::flags::COMMAND_LINE, text: "" };
        findings.error_in(source, format!("more than {MAX_SET_FLAGS} `--set` flags"));
    }
    for line in lines {
        line.lay(layers, findings);
    }
}

pub fn lay_toml<'s>(source: Source<'s>, layers: &mut Layers<'s>, findings: &mut Findings) -> bool {
    if is_too_long(source, source.text, MAX_SETTINGS_BYTES, findings) {
        return false;
    }
    match toml::parse(source.text) {
        Ok(tree) => Layer::of_file(source, Strictness::Ours, layers, findings).document(&tree),
        Err(all) => {
            for bad in all {
                findings.error(
                    source,
                    bad.span.unwrap_or(0..0),
                    format!("this is not TOML: {}", bad.message),
                );
            }
            false
        }
    }
}

fn lay_loop_file<'s>(source: Source<'s>, layers: &mut Layers<'s>, findings: &mut Findings) -> bool {
    let split = frontmatter::split(source.text);
    if is_too_long(source, source.text, MAX_FILE_BYTES, findings)
        || is_too_long(source, split.yaml, MAX_SETTINGS_BYTES, findings)
    {
        return false;
    }
    match yaml::parse(split.yaml, split.offset) {
        Ok(tree) => Layer::of_file(source, Strictness::LoopFile, layers, findings).document(&tree),
        Err(bad) => {
            let span = bad.span.unwrap_or(split.offset..split.offset);
            let found = findings.error(source, span, format!("the frontmatter is not YAML: {}", bad.message));
            if let Some(help) = bad.help {
                found.help(help);
            }
            false
        }
    }
}

/// `part` is the whole text or the settings in it.
pub fn is_too_long(source: Source<'_>, part: &str, max: usize, findings: &mut Findings) -> bool {
    let too_long = part.len() > max;
    if too_long {
        let what = if part.len() < source.text.len() { "settings" } else { "file" };
        let message = format!("{} bytes are too many for the {what}", part.len());
        findings.error_in(source, message).help(format!("at most {max} are read"));
    }
    too_long
}

fn missing_agent(source: Source<'_>, findings: &mut Findings) {
    let help = match frontmatter::split(source.text).shape {
        Shape::Fenced => "say which agent to run, e.g. `agent: claude`",
        Shape::NoFence => "begin the file with `---`, `agent: claude`, `---`",
        Shape::NeverClosed => "the frontmatter is never closed; end it with a line of `---`",
        Shape::NotAtStart => "the opening `---` must be the first line, without blanks before it",
    };
    findings
        .error(source, 0..source.text.lines().next().unwrap_or("").len(), "`agent` is missing")
        .help(help);
}

fn settings(
    sources: &Sources<'_>,
    layers: &Layers<'_>,
    body: &str,
    findings: &mut Findings,
) -> Option<Settings> {
    let declared = layers.texts("args");
    let asked = asked(body, layers.commands().iter().map(|c| c.run.as_str()));
    let args = if layers.is_wrong("args") {
        Vec::new()
    } else {
        args::assign(sources.args, &Known { declared: &declared, asked: &asked }, findings)
    };
    let settings = complete(layers, args, sources.detect, findings);
    if settings.is_none() && !layers.is_wrong("agent") {
        missing_agent(sources.loop_file, findings);
    }
    settings
}

/// Everything filled in; none without an agent.
pub fn complete(
    layers: &Layers<'_>,
    args: Vec<(String, String)>,
    detect: &dyn Fn(&[String]) -> ReaderName,
    findings: &mut Findings,
) -> Option<Settings> {
    let idle = effective::idle(layers, findings);
    let notify = effective::notify(layers, findings);
    let agent = layers.words("agent")?;
    let checks = effective::checks(layers);
    let reader = layers.reader().unwrap_or_else(|| detect(&agent));
    Some(Settings {
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
        notify,
        mcp: effective::mcp(layers),
    })
}

/// The arguments that prompt and commands mention.
pub fn asked<'t>(body: &str, runs: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut asked = placeholders::args_in(body);
    asked.extend(runs.flat_map(placeholders::args_in));
    asked.sort();
    asked.dedup();
    asked
}
