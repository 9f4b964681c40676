use crate::error::CliError;
use crate::runs::{registered, state_dir};
use crate::screen::words;
use dogwatch_core::record::event::Outcome;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::text::printable;
use dogwatch_core::time::dur::Dur;
use dogwatch_host::clock;
use plan::{Plan, Retention};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

mod carry_out;
mod plan;

/// Remove the records and snapshots of old runs
///
/// A run is removed if it has ended, is older than --older-than and is not among the newest --keep runs. Runs that
/// are live or can be resumed, that have uncommitted work in a worktree, or that were undone recently are kept.
/// Branches and the work tree are not changed. The command lists what it would remove and asks for confirmation.
#[derive(clap::Args)]
pub struct Args {
    /// Number of runs to keep per project, whatever their age
    #[arg(long, value_name = "N", default_value_t = KEPT_RUNS)]
    keep: u64,
    /// Remove only runs older than this
    #[arg(long, value_name = "DURATION", default_value = KEPT_FOR)]
    older_than: Dur,
    /// Clean up all your projects on this machine
    #[arg(long, short)]
    all: bool,
    /// List what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print what is removed and kept as JSON; removes nothing without --yes
    #[arg(long)]
    json: bool,
    /// Do not ask for confirmation
    #[arg(long, short, conflicts_with = "dry_run")]
    yes: bool,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    state_dir: Option<PathBuf>,
}

impl Args {
    /// Returns whether the command removes nothing, whatever the user answers.
    pub fn only_lists(&self) -> bool {
        self.dry_run || (self.json && !self.yes)
    }
}

/// The default number of runs to keep per project, whatever their age.
const KEPT_RUNS: u64 = 20;
/// The default age below which runs are kept, whatever their number.
const KEPT_FOR: &str = "30d";
/// The most runs to list; the rest is only counted.
const MAX_SHOWN: usize = 50;

/// Runs `dogwatch gc` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let retention = Retention { keep: args.keep, older_than: args.older_than, now: clock::now().wall };
    let mut states: BTreeSet<PathBuf> = if args.all {
        registered().map(|run| run.state_dir()).collect()
    } else {
        BTreeSet::from([state_dir(args.state_dir.as_deref()).path().to_owned()])
    };
    if args.all {
        // One project must not keep the others from being cleaned up.
        states.retain(|state| refuse_links_outside(state, false).inspect_err(CliError::print).is_ok());
    } else {
        states.iter().try_for_each(|state| refuse_links_outside(state, args.state_dir.is_none()))?;
    }
    let plan = Plan::make(&states, &retention);
    if args.json {
        let listed = Listed::of(&plan);
        let done = args.yes.then(|| carry_out::carry_out(plan));
        let failed = done.as_ref().is_some_and(|done| !done.failed.is_empty());
        super::print_json(&Cleanup { listed, done })?;
        return Ok(u8::from(failed));
    }
    super::print_text(&printable(&list(&plan)))?;
    if plan.gone.is_empty() && plan.strays.is_empty() {
        let (keep, age) = (args.keep, args.older_than);
        let newest = words::count(keep, "run");
        let text =
            format!("nothing to remove (keeping the newest {newest} and all runs of the last {age})\n");
        return super::print_text(&text);
    }
    if args.dry_run || !(args.yes || confirm()) {
        let text = format!("nothing was removed; `{}` removes it\n", command(args));
        return super::print_text(&printable(&text));
    }
    let done = carry_out::carry_out(plan);
    let mut text = format!(
        "removed {}: {} and {}\n",
        words::count(done.runs, "run"),
        words::size(done.bytes),
        words::count(done.snapshots, "snapshot"),
    );
    if done.snapshots > 0 {
        text.push_str("git frees the space of the snapshots at its next cleanup (`git gc`)\n");
    }
    for failed in &done.failed {
        let _ = writeln!(text, "not removed: {failed}");
    }
    super::print_text(&printable(&text))?;
    Ok(u8::from(!done.failed.is_empty()))
}

/// Returns an error if the runs of a project are behind a link that leads outside of it: they are the runs of another
/// project. A state directory that the user names may be anywhere.
fn refuse_links_outside(state: &Path, is_default: bool) -> Result<(), CliError> {
    let real = |path: &Path| path.canonicalize().ok();
    let project = state.parent().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    let around = if is_default { project.and_then(real) } else { real(state) };
    let runs = state_dir(Some(state)).runs();
    let (Some(around), Some(to)) = (around, real(&runs)) else { return Ok(()) };
    if to.starts_with(&around) {
        return Ok(());
    }
    let of = to.parent().unwrap_or(&to).display();
    Err(CliError::with_help(
        format!("{} leads outside of {}, to {}", runs.display(), around.display(), to.display()),
        format!("to remove those runs, name their state directory: `--state-dir '{of}'`"),
    ))
}

/// Returns the command that removes exactly what was listed.
fn command(args: &Args) -> String {
    let mut text = "dogwatch gc --yes".to_owned();
    if args.keep != KEPT_RUNS {
        let _ = write!(text, " --keep {}", args.keep);
    }
    if KEPT_FOR.parse() != Ok(args.older_than) {
        let _ = write!(text, " --older-than {}", args.older_than);
    }
    if args.all {
        text.push_str(" --all");
    }
    if let Some(dir) = &args.state_dir {
        let _ = write!(text, " --state-dir '{}'", dir.display());
    }
    text
}

/// The result of `gc`, for programs.
#[derive(Serialize)]
struct Cleanup {
    #[serde(flatten)]
    listed: Listed,
    /// The result of the removal, or null if nothing was removed.
    done: Option<carry_out::Done>,
}

/// What `gc` would remove and keep.
#[derive(Serialize)]
struct Listed {
    runs: Vec<Old>,
    /// Snapshots of runs whose record no longer exists.
    without_record: Vec<Old>,
    kept: Vec<Kept>,
}

#[derive(Serialize)]
struct Old {
    run: String,
    outcome: Option<Outcome>,
    bytes: u64,
    snapshots: usize,
    worktrees: usize,
}

#[derive(Serialize)]
struct Kept {
    run: RunId,
    why: String,
}

impl Listed {
    fn of(plan: &Plan) -> Listed {
        let run = |gone: &plan::Gone| Old {
            run: gone.found.id.to_string(),
            outcome: Some(gone.outcome),
            bytes: gone.bytes,
            snapshots: gone.refs.len(),
            worktrees: gone.trees,
        };
        let stray = |stray: &plan::Stray| Old {
            run: stray.run.clone(),
            outcome: None,
            bytes: 0,
            snapshots: stray.refs.len(),
            worktrees: 0,
        };
        let kept = |(run, why): &(RunId, String)| Kept { run: run.clone(), why: why.clone() };
        Listed {
            runs: plan.gone.iter().map(run).collect(),
            without_record: plan.strays.iter().map(stray).collect(),
            kept: plan.kept.iter().map(kept).collect(),
        }
    }
}

fn list(plan: &Plan) -> String {
    let mut text = String::new();
    for gone in plan.gone.iter().take(MAX_SHOWN) {
        let snapshots = words::count(gone.refs.len() as u64, "snapshot");
        let trees = if gone.trees == 0 {
            String::new()
        } else {
            format!(", {}", words::count(gone.trees as u64, "worktree"))
        };
        let (id, size) = (&gone.found.id, words::size(gone.bytes));
        let how = words::outcome(gone.outcome, gone.verified);
        let _ = writeln!(text, "{id}  {how}  {size}, {snapshots}{trees}");
    }
    if plan.gone.len() > MAX_SHOWN {
        let _ = writeln!(text, "… and {} more", plan.gone.len() - MAX_SHOWN);
    }
    for stray in plan.strays.iter().take(MAX_SHOWN) {
        let snapshots = words::count(stray.refs.len() as u64, "snapshot");
        let _ = writeln!(text, "{}  without a record  {snapshots}", stray.run);
    }
    for (run, why) in plan.kept.iter().take(MAX_SHOWN) {
        let _ = writeln!(text, "{run}  kept: {why}");
    }
    if plan.gone.is_empty() && plan.strays.is_empty() {
        return text;
    }
    let bytes = plan.gone.iter().map(|gone| gone.bytes).sum();
    let refs = plan.gone.iter().map(|g| g.refs.len()).chain(plan.strays.iter().map(|s| s.refs.len()));
    let _ = writeln!(
        text,
        "{} to remove: {} and {}",
        words::count(plan.gone.len() as u64, "run"),
        words::size(bytes),
        words::count(refs.sum::<usize>() as u64, "snapshot"),
    );
    text
}

/// Asks for confirmation on a terminal. Without a terminal the answer is no.
fn confirm() -> bool {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return false;
    }
    let mut out = std::io::stderr();
    let _ = write!(out, "Remove them? [y/N] ").and_then(|()| out.flush());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
