//! Everything together: texts in, a plan out, or all that is wrong with them.

use crate::args::{self, Known};
use crate::diagnostic::{Diagnostic, Findings, Severity, Source};
use crate::effective;
use crate::explain::{Setting, explain};
use crate::flags::{FlagLine, Flags};
use crate::frontmatter::{self, Shape};
use crate::layers::{Layer, Layers, Strictness};
use crate::limits::{MAX_FILE_BYTES, MAX_SET_FLAGS, MAX_SETTINGS_BYTES};
use crate::placeholders;
use crate::{toml, yaml};
use dogwatch_core::dur::Dur;
use dogwatch_core::ids::NodeName;
use dogwatch_core::settings::{CheckPolicy, NodePlan, Plan, ReaderName, RecoveryPolicy, Settings};

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
    /// What to say when the agent's program is not there. To find that out is the caller's: it needs a disk.
    pub agent_not_found: Diagnostic,
    /// Where `wake_on.paths` stands, for whoever finds fault with one: what a glob is, is the caller's too.
    pub bad_wake_path: Diagnostic,
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
    match settings {
        Some(settings) if !findings.has_errors() => Ok(Loaded {
            explain: explain(&settings, &layers),
            agent_not_found: agent_not_found(sources.loop_file, &settings.agent, &layers),
            bad_wake_path: at_key(sources.loop_file, &layers, "wake_on.paths", "a wake path is no glob"),
            plan: Plan {
                nodes: vec![NodePlan::alone(NodeName::new(sources.node_name), settings)],
                stop_on_error: sources.flags.stop_on_error,
                snapshots: false,
                graph: None,
            },
            body,
            frontmatter: frontmatter::settings(bounded(sources.loop_file.text)),
            warnings: findings.into_vec(),
        }),
        _ => Err(findings.into_vec()),
    }
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
    if sources.flags.set.len() > MAX_SET_FLAGS {
        let source = Source { name: crate::flags::COMMAND_LINE, text: "" };
        findings.error_in(source, format!("more than {MAX_SET_FLAGS} `--set` flags"));
    }
    for line in lines {
        line.lay(layers, findings);
    }
    readable
}

fn lay_toml<'s>(source: Source<'s>, layers: &mut Layers<'s>, findings: &mut Findings) -> bool {
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
fn is_too_long(source: Source<'_>, part: &str, max: usize, findings: &mut Findings) -> bool {
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

fn agent_not_found(loop_file: Source<'_>, agent: &[String], layers: &Layers<'_>) -> Diagnostic {
    let program = agent.first().map_or("", String::as_str);
    let fault = if program.contains('/') { "is not an executable file" } else { "was not found on PATH" };
    at_key(loop_file, layers, "agent", &format!("the agent's program `{program}` {fault}"))
}

/// An error that points at where a key was set.
fn at_key(loop_file: Source<'_>, layers: &Layers<'_>, key: &str, message: &str) -> Diagnostic {
    let origin = layers.get(key).map(|assigned| &assigned.origin);
    let (source, span) = origin.map_or((loop_file, 0..0), |origin| (origin.source, origin.span.clone()));
    Diagnostic::new(Severity::Error, source, Some(span), message)
}

fn settings(
    sources: &Sources<'_>,
    layers: &Layers<'_>,
    body: &str,
    findings: &mut Findings,
) -> Option<Settings> {
    let commands = layers.commands();
    let idle = effective::idle(layers, findings);
    let declared = layers.texts("args");
    let asked = asked(body, commands.iter().map(|c| c.run.as_str()));
    let args = if layers.is_wrong("args") {
        Vec::new()
    } else {
        args::assign(sources.args, &Known { declared: &declared, asked: &asked }, findings)
    };
    let agent = layers.words("agent");
    if agent.is_none() && !layers.is_wrong("agent") {
        missing_agent(sources.loop_file, findings);
    }
    let agent = agent?;
    Some(Settings {
        reader: layers.reader().unwrap_or_else(|| (sources.detect)(&agent)),
        agent,
        commands,
        args,
        credit: layers.flag("credit", false),
        delay: layers.dur("delay", Dur::ZERO),
        profile: layers.profile(),
        max_iterations: layers.count("max_iterations"),
        watchdog: effective::watchdog(layers),
        errors: effective::errors(layers),
        budget: effective::budget(layers),
        limits: effective::limits(layers),
        idle,
        wake_on: effective::wake_on(layers),
        work_when: layers.text("work_when"),
        checks: CheckPolicy::default(),
        recovery: RecoveryPolicy::default(),
        worktree: false,
    })
}

/// The arguments that prompt and commands mention.
fn asked<'t>(body: &str, runs: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut asked = placeholders::args_in(body);
    asked.extend(runs.flat_map(placeholders::args_in));
    asked.sort();
    asked.dedup();
    asked
}
