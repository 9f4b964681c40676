use crate::drawing;
use crate::error::{CliError, print_diagnostics};
use crate::loading::{LoopFile, SettingFlags};
use crate::pinning;
use crate::runs::note;
use crate::screen::words;
use crate::secrets;
use dogwatch_agents::{EnvChange, McpBridge, inject};
use dogwatch_config::Loaded;
use dogwatch_config::diagnostic::Diagnostic;
use dogwatch_config::explain::{self, Setting};
use dogwatch_config::limits::MAX_EXPLAINED;
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::text::{printable, shell};
use dogwatch_host::store::secrets::{hide, install};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Validate a loop or graph file without running it
///
/// Reads the same files as `run`. The exit code is 0 if the run could start and 2 if not. A graph is drawn level by
/// level: nodes of one level may run in parallel, and `←` points to the dependencies of a node.
#[derive(clap::Args)]
pub struct Args {
    /// Directory with RALPH.md or graph.*, or such a file
    #[arg(default_value = ".", add = crate::completing::loops())]
    path: PathBuf,
    /// Show every effective setting with its value and origin
    #[arg(long)]
    explain: bool,
    /// Print only the graph, as a Mermaid flowchart
    #[arg(long, conflicts_with = "explain")]
    mermaid: bool,
    /// Print the diagnostics and every effective setting as JSON
    #[arg(long, conflicts_with_all = ["explain", "mermaid"])]
    json: bool,
    #[command(flatten)]
    settings: SettingFlags,
    /// Values for the declared arguments: --name value, --name=value, or in order
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

/// Runs `dogwatch check` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let file = LoopFile::find(&args.path)?;
    if args.json {
        return print_json(args, &file);
    }
    let planned = load(args, &file, args.explain)?;
    print_diagnostics(&planned.warnings);
    planned.limit_notices.iter().for_each(|notice| note(notice));
    if args.mermaid {
        planned.runs_here()?;
        return print(&drawing::mermaid(&planned.plan));
    }
    if args.explain {
        print(&explained(&planned))?;
        print(&printable(&command_lines(&planned)))?;
    }
    let faults = planned.runs_here().map_err(CliError::from);
    let pins = pinning::refuse_empty(&planned.plan, &file.work_dir);
    if let (Err(faults), Err(_)) = (&faults, &pins) {
        faults.print();
    }
    pins?;
    faults?;
    pinning::warn(&planned.plan, &file.work_dir);
    let summary = match &planned.plan.graph {
        None => loop_summary(&file, &planned),
        Some(graph) => {
            let count = words::count(planned.plan.nodes.len() as u64, "node");
            let checked = planned.plan.nodes.iter().filter(|node| node.settings.checks.any()).count();
            format!(
                "{}: ok ({count}, {checked} with checks, at most {} in parallel)\n{}",
                file.shown(),
                graph.max_parallel,
                drawing::terminal(&planned.plan),
            )
        }
    };
    print(&printable(&summary))
}

/// Loads the file, and notes the secrets of the environment so that nothing that is printed contains them.
fn load(args: &Args, file: &LoopFile, explain: bool) -> Result<Loaded, CliError> {
    let loaded = file.load(&args.settings.flags(), &args.args, explain);
    match &loaded {
        Ok(planned) => secrets::of(&planned.plan),
        Err(_) => install(&[]),
    };
    loaded
}

fn print(text: &str) -> Result<u8, CliError> {
    super::print_text(&hide(text))
}

/// The result of a check, for programs.
#[derive(Serialize)]
struct Checked<'a> {
    file: String,
    /// Whether the run could start.
    ok: bool,
    nodes: Vec<&'a NodeName>,
    /// Errors first, then warnings.
    diagnostics: Vec<Diagnostic>,
    /// Every effective setting. For a graph, the settings that its nodes share.
    settings: &'a [Setting],
    /// For the first nodes of a graph, the settings that differ from the shared ones.
    node_settings: BTreeMap<&'a NodeName, &'a [Setting]>,
}

/// Prints the result as JSON and returns the exit code of `check`.
fn print_json(args: &Args, file: &LoopFile) -> Result<u8, CliError> {
    let loaded = match load(args, file, true) {
        Err(CliError::Diagnostics(diagnostics)) => Err(diagnostics),
        Err(failure) => return Err(failure),
        Ok(planned) => Ok(planned),
    };
    let file = file.shown().to_string();
    let checked = match &loaded {
        Err(diagnostics) => Checked {
            file,
            ok: false,
            nodes: Vec::new(),
            diagnostics: diagnostics.clone(),
            settings: &[],
            node_settings: BTreeMap::new(),
        },
        Ok(planned) => Checked {
            file,
            ok: planned.faults.is_empty(),
            nodes: planned.plan.nodes.iter().map(|node| &node.name).collect(),
            diagnostics: planned.faults.iter().chain(&planned.warnings).cloned().collect(),
            settings: &planned.explain,
            node_settings: planned.explain_nodes.iter().map(|(n, all)| (n, all.as_slice())).collect(),
        },
    };
    super::print_json(&checked)?;
    Ok(if checked.ok { 0 } else { NOT_STARTED })
}

/// The exit code for a file that cannot run.
const NOT_STARTED: u8 = 2;

fn loop_summary(file: &LoopFile, planned: &Loaded) -> String {
    let settings = &planned.plan.nodes[0].settings;
    let checks = match settings.checks.commands.len() {
        0 => String::new(),
        n => format!("{}, ", words::count(n as u64, "check")),
    };
    format!(
        "{}: ok (agent `{}` read as {}, {}, {checks}prompt of {})\n",
        file.shown(),
        shell::command_line(&settings.agent),
        settings.reader,
        words::count(settings.commands.len() as u64, "command"),
        words::count(planned.body.len() as u64, "byte"),
    )
}

/// Lists the full command lines of all agents, with the flags that dogwatch adds and the variables that it sets. A command
/// line that several nodes share is listed once.
fn command_lines(planned: &Loaded) -> String {
    let mut out = "\nagent command lines, with the prompt on stdin:\n".to_owned();
    let mut seen = BTreeSet::new();
    for node in &planned.plan.nodes {
        let settings = &node.settings;
        for (words, reader) in settings.agents() {
            let line = command_line(words, reader, settings.mcp.enabled);
            if seen.len() < MAX_EXPLAINED && seen.insert(line.clone()) {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
    out
}

fn command_line(words: &[String], reader: ReaderName, mcp: bool) -> String {
    let as_root = rustix::process::geteuid().is_root();
    let mut launch = dogwatch_agents::launch(words, Some(reader), as_root);
    let bridge = McpBridge { program: "dogwatch", session: "SESSION_FILE", patience_s: 0, env_names: &[] };
    let mut env: Vec<String> = launch
        .env
        .iter()
        .filter_map(|(name, change)| match change {
            EnvChange::SetIfUnset(value) => Some(format!("{name}={value}")),
            EnvChange::Remove => None,
        })
        .collect();
    if let Some(injection) = inject(&launch, words, bridge).filter(|_| mcp) {
        let name = injection.merge_env.or(injection.file_env).map(|(name, _)| format!("{name}=…"));
        env.extend(name);
        // The configuration of the MCP server differs in every session.
        let flags =
            injection.words.into_iter().map(|word| if word.starts_with('-') { word } else { "…".to_owned() });
        launch.argv.splice(injection.at..injection.at, flags);
    }
    let argv = dogwatch_core::text::redact::argv(&launch.argv);
    let argv = argv.iter().map(|word| if word == "…" { word.clone() } else { shell::quote(word) });
    env.into_iter().chain(argv).collect::<Vec<_>>().join(" ")
}

/// Formats the settings that all nodes share, then the settings in which each node differs.
fn explained(planned: &Loaded) -> String {
    let mut out = explain::table(&planned.explain);
    for (node, settings) in planned.explain_nodes.iter().filter(|(_, settings)| !settings.is_empty()) {
        let _ = writeln!(out, "\nnode {node}:\n{}", explain::table(settings).trim_end());
    }
    let rest = planned.plan.nodes.len().saturating_sub(planned.explain_nodes.len());
    if planned.plan.graph.is_some() && rest > 0 {
        let _ = writeln!(out, "\n… and {}", words::count(rest as u64, "more node"));
    }
    out
}
