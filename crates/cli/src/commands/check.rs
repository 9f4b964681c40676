use crate::drawing;
use crate::error::{Failure, print_findings};
use crate::loading::{LoopFile, Planned, SettingFlags};
use dogwatch_config::explain;
use dogwatch_core::text::printable;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Validate a loop or graph file and say what it would do
///
/// Reads the same files as `run` and starts nothing. Exit code 0 if it would start, 2 if not. A graph is drawn level by
/// level: what stands on one level may run together, `←` says what a node waits for.
#[derive(clap::Args)]
pub struct Args {
    /// A directory with RALPH.md or graph.*, or such a file
    path: PathBuf,
    /// Show every setting with its value and where it comes from
    #[arg(long)]
    explain: bool,
    /// Print the graph as a Mermaid flowchart, and nothing else
    #[arg(long, conflicts_with = "explain")]
    mermaid: bool,
    #[command(flatten)]
    settings: SettingFlags,
    /// Values for the declared arguments
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let file = LoopFile::find(&args.path)?;
    let planned = file.load(&args.settings.flags(), &args.args, args.explain)?;
    print_findings(&planned.warnings);
    if args.mermaid {
        planned.runs_here()?;
        return super::print(drawing::mermaid(&planned.plan).as_bytes());
    }
    if args.explain {
        super::print(explained(&planned).as_bytes())?;
    }
    planned.runs_here()?;
    let summary = match &planned.plan.graph {
        None => of_loop(&file, &planned),
        Some(graph) => {
            let count = match planned.plan.nodes.len() {
                1 => "1 node".to_owned(),
                n => format!("{n} nodes"),
            };
            let checked = planned.plan.nodes.iter().filter(|node| node.settings.checks.any()).count();
            format!(
                "{}: ok ({count}, {checked} with checks, at most {} at once)\n{}",
                file.shown(),
                graph.max_parallel,
                drawing::terminal(&planned.plan),
            )
        }
    };
    super::print(printable(&summary).as_bytes())
}

fn of_loop(file: &LoopFile, planned: &Planned) -> String {
    let settings = &planned.plan.nodes[0].settings;
    let checks = match settings.checks.commands.len() {
        0 => String::new(),
        1 => "1 check, ".to_owned(),
        n => format!("{n} checks, "),
    };
    format!(
        "{}: ok ({} reads `{}`, {} commands, {checks}prompt of {} bytes)\n",
        file.shown(),
        settings.reader,
        dogwatch_core::redact::argv(&settings.agent).join(" "),
        settings.commands.len(),
        planned.prompt_bytes,
    )
}

/// What holds for all, then what each node says otherwise.
fn explained(planned: &Planned) -> String {
    let mut out = explain::table(&planned.explain);
    for (node, settings) in planned.explain_nodes.iter().filter(|(_, settings)| !settings.is_empty()) {
        let _ = writeln!(out, "\nnode {node}:\n{}", explain::table(settings).trim_end());
    }
    let rest = planned.plan.nodes.len().saturating_sub(planned.explain_nodes.len());
    if planned.plan.graph.is_some() && rest > 0 {
        let _ = writeln!(out, "\n… and {rest} more nodes");
    }
    out
}
