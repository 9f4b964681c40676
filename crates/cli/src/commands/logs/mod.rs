use crate::error::CliError;
use crate::local;
use crate::runs::{FoundRun, Which};
use crate::screen::{ShownLine, Tone, words};
use dogwatch_core::text::printable;
use out::{Out, Stop};
use record::{IterationRecord, Look, Wanted};

mod follow;
mod out;
mod record;
mod source;

pub use source::Source;

/// Show the output of the agent
///
/// Shows the last iteration that called the agent, unless -i selects another. The JSON output of Claude Code, Codex,
/// OpenCode and Gemini is made readable: messages as text, `→ Bash: make test` for a tool call, `✓` or `✗` with the
/// first line of its result, errors, and tokens and cost. The output of other agents is shown as it is, without
/// control characters.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Print new output as it arrives, until the run ends
    #[arg(long, short, conflicts_with = "iteration")]
    follow: bool,
    /// Iteration to show [default: the last one that called the agent]
    #[arg(long, short, value_name = "N")]
    iteration: Option<u64>,
    /// Node, if the run has several [default: the one that worked last]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Copy the output byte for byte (not to a terminal)
    #[arg(long)]
    raw: bool,
    /// Print each line as a JSON object with node, iteration, tone and text
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Show stderr instead of stdout
    #[arg(long)]
    stderr: bool,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch logs -f            follow the live run of this project
  dogwatch logs k3f9 -i 12    show iteration 12 of run k3f9
  dogwatch logs --node api    show the last iteration of one node of a graph
  dogwatch logs --raw | jq .  print the agent's JSON output

The prompt of an iteration is in prompt.md, next to its output.";

/// Runs `dogwatch logs` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find()?;
    found.check_record();
    let mut out = Out::choose(args.raw, args.json)?;
    let shown = match args.follow && found.is_live() {
        true => follow::follow(&found, args.node.as_deref(), args.stderr, &mut out),
        false => show(&found, args, &mut out),
    };
    match shown {
        // A closed pipe (`| head`) is not an error.
        Ok(()) | Err(Stop::Closed) => Ok(0),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

fn show(found: &FoundRun, args: &Args, out: &mut Out) -> Result<(), Stop> {
    let wanted = record::Wanted { iteration: args.iteration, node: args.node.as_deref() };
    let look = record::look(found, wanted)?;
    let Some(seen) = &look.seen else { return Err(no_such(found, wanted, &look)?.into()) };
    out.begin(seen);
    out.line(&head(seen, look.has_several_nodes()))?;
    let mut source = look.source(&found.dir, seen, args.stderr);
    source.drain(out)?;
    source.finish(out)?;
    if let Some(note) = source.note().filter(|_| seen.called) {
        out.line(&note)?;
    }
    if !seen.called {
        out.line(&ShownLine { tone: Tone::Quiet, text: "  (the agent was not called)".to_owned() })?;
    }
    match &seen.end {
        Some(end) => out.line(end),
        None => Ok(()),
    }
}

/// Returns the title of an iteration: `iteration 3  2026-11-15 20:15:33 CET`, in a graph after the name of its node.
fn head(seen: &IterationRecord, of_several: bool) -> ShownLine {
    let node = if of_several { format!("{}  ", seen.node) } else { String::new() };
    let text = format!("{node}iteration {}  {}", seen.iteration, local::full(seen.at));
    ShownLine { tone: Tone::Head, text: printable(&text).into_owned() }
}

fn no_such(found: &FoundRun, wanted: Wanted<'_>, look: &Look) -> Result<CliError, CliError> {
    if let Some(unknown) = wanted.node.filter(|node| !look.has_node(node)) {
        return Ok(found.has_no_node(unknown));
    }
    if let Some(node) = wanted.node.filter(|_| look.iterations == 0) {
        let view = found.view()?;
        let reason = view.nodes.iter().find(|n| n.name.as_str() == node).and_then(|n| n.reason.as_deref());
        let started = if view.is_over() { "never started" } else { "has not started" };
        return Ok(CliError::with_help(
            format!("run {} {started} the node {node}{}", found.id, words::because(reason)),
            format!("`dogwatch status {}` shows its state", found.id),
        ));
    }
    Ok(match wanted.iteration {
        Some(n) => CliError::with_help(
            format!("run {} has no iteration {n}", found.id),
            format!("the run has {}", words::count(look.iterations, "iteration")),
        ),
        None => CliError::with_help(
            format!("run {} has not started its first iteration", found.id),
            format!("`dogwatch status {}` shows its state", found.id),
        ),
    })
}
