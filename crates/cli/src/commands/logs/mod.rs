use crate::error::Failure;
use crate::runs::{FoundRun, Which};
use crate::screen::{Line, Tone};
use out::{Out, Stop};
use record::{Look, Seen};

mod follow;
mod out;
mod record;
mod source;

/// Show what the agent printed
///
/// Without -i it is the last iteration in which the agent was called. What Claude Code, Codex, OpenCode and
/// Gemini print for programs is shown for people: words as words, `→ Bash: make test` for a tool, `✓` or `✗`
/// with the first line of its result, errors, and what it took. Any other agent's output is shown as it is,
/// without control characters.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Go on with what comes, from iteration to iteration, until the run ends
    #[arg(long, short, conflicts_with = "iteration")]
    follow: bool,
    /// Show this iteration
    #[arg(long, short, value_name = "N")]
    iteration: Option<u64>,
    /// Copy every byte as it was printed; not to a terminal
    #[arg(long)]
    raw: bool,
    /// What it printed on stderr instead
    #[arg(long)]
    stderr: bool,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch logs -f            watch the run of this project
  dogwatch logs k3f9 -i 12    the 12th iteration of the run whose id ends in k3f9
  dogwatch logs --raw | jq .  the events as the agent printed them

What the agent was told lies beside it: prompt.md in the iteration's directory.";

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find()?;
    let mut out = Out::choose(args.raw)?;
    let shown = match args.follow && found.is_live() {
        true => follow::follow(&found, args.stderr, &mut out),
        false => show(&found, args, &mut out),
    };
    match shown {
        // Who has seen enough (`| head`) is served.
        Ok(()) | Err(Stop::NobodyReads) => Ok(0),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

fn show(found: &FoundRun, args: &Args, out: &mut Out) -> Result<(), Stop> {
    let look = record::look(found, args.iteration)?;
    let Some(seen) = &look.seen else { return Err(no_such(found, args.iteration, &look).into()) };
    out.line(&head(seen))?;
    let mut source = look.source(&found.dir, seen, args.stderr);
    source.drain(out)?;
    source.finish(out)?;
    if let Some(note) = source.note().filter(|_| seen.called) {
        out.line(&note)?;
    }
    if !seen.called {
        out.line(&Line { tone: Tone::Quiet, text: "  (the agent was not called)".to_owned() })?;
    }
    match &seen.end {
        Some(end) => out.line(end),
        None => Ok(()),
    }
}

/// `iteration 3  2026-11-15 20:15:33 UTC`
fn head(seen: &Seen) -> Line {
    let at = seen.at.to_string();
    let (day, time) = at.split_once('T').unwrap_or((&at, ""));
    let text = format!("iteration {}  {day} {} UTC", seen.iteration, time.get(..8).unwrap_or(time));
    Line { tone: Tone::Head, text }
}

fn no_such(found: &FoundRun, wanted: Option<u64>, look: &Look) -> Failure {
    match wanted {
        Some(n) => Failure::with_hint(
            format!("run {} has no iteration {n}", found.id),
            format!("it has {}", crate::screen::words::count(look.iterations, "iteration")),
        ),
        None => Failure::with_hint(
            format!("run {} has not begun its first iteration", found.id),
            format!("`dogwatch status {}` tells how it stands", found.id),
        ),
    }
}
