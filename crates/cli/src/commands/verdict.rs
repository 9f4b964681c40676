use crate::error::CliError;
use crate::runs::{FoundRun, Which};
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::watch::limits::Label;
use dogwatch_host::clock;
use dogwatch_host::store::journal::{self, Durability, Journal};
use dogwatch_host::store::registry::{Alive, Registry};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Label a stop of the watchdog as right or wrong
///
/// A stop was wrong if the agent was working. `dogwatch tune` and `profile: learned` take a wrong stop as a session
/// that needed more than its limit. The label is an event of the run, live or ended; the newest label of a stop counts.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  dogwatch verdict k3f9 7 --wrong  iteration 7 was working, not stuck
  dogwatch verdict k3f9 7 --right  the agent was stuck")]
#[command(group(clap::ArgGroup::new("label").required(true).args(["wrong", "right"])))]
pub struct Args {
    /// Run id, the end of one, or the name of a loop
    #[arg(value_name = "RUN", add = crate::completing::runs())]
    run: String,
    /// Number of the iteration that was stopped
    #[arg(value_name = "N")]
    iteration: u64,
    /// The agent was working
    #[arg(long)]
    wrong: bool,
    /// The agent was stuck
    #[arg(long)]
    right: bool,
    /// Node, if several were stopped in an iteration with this number
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// The most stops that an error lists.
const MAX_LISTED: usize = 10;

#[derive(serde::Serialize)]
struct LabelBody<'a> {
    node: &'a NodeName,
    iteration: Iteration,
    label: Label,
}

/// Runs `dogwatch verdict` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = Which::new(Some(args.run.clone()), args.state_dir.clone()).find()?;
    let label = if args.wrong { Label::Wrong } else { Label::Right };
    let iteration = Iteration(args.iteration);
    let node = stopped(&found, iteration, args.node.as_deref())?;
    let body = LabelBody { node: &node, iteration, label };
    match found.post("verdict", &body) {
        Ok(()) => {}
        // The run has ended, or ended during the request.
        Err(_) if !found.is_live() => append(&found, Event::VerdictLabeled { node, iteration, label })?,
        Err(failure) => return Err(failure),
    }
    super::print_text(&format!("labeled the stop of iteration {iteration} of run {}: {label}\n", found.id))
}

/// Returns the node that the watchdog stopped in this iteration.
fn stopped(found: &FoundRun, wanted: Iteration, name: Option<&str>) -> Result<NodeName, CliError> {
    let mut stops: BTreeSet<(Iteration, NodeName)> = BTreeSet::new();
    for recorded in found.record()?.events {
        if let Event::HardStop { node, iteration, .. } = recorded.event {
            stops.insert((iteration, node));
        }
    }
    let is_it = |(iteration, node): &&(Iteration, NodeName)| {
        *iteration == wanted && name.is_none_or(|name| node.as_str() == name)
    };
    let nodes: Vec<&NodeName> = stops.iter().filter(is_it).map(|(_, node)| node).collect();
    match nodes.as_slice() {
        [node] => Ok((*node).clone()),
        [] => {
            let listed: Vec<String> = stops
                .iter()
                .take(MAX_LISTED)
                .map(|(iteration, node)| format!("{iteration} ({node})"))
                .collect();
            let help = match listed.as_slice() {
                [] => "the watchdog stopped no iteration of this run".to_owned(),
                listed => format!("it stopped the iterations {}", listed.join(", ")),
            };
            let of = name.map_or_else(String::new, |name| format!(" of node `{name}`"));
            Err(CliError::with_help(
                format!("the watchdog did not stop iteration {wanted}{of} of run {}", found.id),
                help,
            ))
        }
        nodes => Err(CliError::with_help(
            format!("several nodes were stopped in an iteration {wanted} of run {}", found.id),
            format!(
                "choose one with --node: {}",
                nodes.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", ")
            ),
        )),
    }
}

/// Appends an event to the record of a run that is not live. The run's lock keeps another writer away.
fn append(found: &FoundRun, event: Event) -> Result<(), CliError> {
    let cannot =
        |why: String| CliError::usage(format!("cannot append to the record of run {}: {why}", found.id));
    // The record of a live run is judged less strictly, so judge this one before its lock is taken.
    let (_, integrity) = found.judged_record()?;
    if let Some(problem) = integrity.problem().filter(|_| integrity.is_changed()) {
        return Err(CliError::with_help(
            format!("run {}: {problem}", found.id),
            "a label would hide that; look at the record first",
        ));
    }
    let _alive = Alive::hold(&found.dir).map_err(|error| cannot(error.to_string()))?;
    let (loaded, _) = found.judged_record()?;
    journal::repair(&found.dir, &loaded).map_err(|error| cannot(error.to_string()))?;
    let mut journal = Journal::reopen(&found.dir, &loaded).map_err(|error| cannot(error.to_string()))?;
    // The head outside of the record follows the label, or the label would look like a change.
    let registry = Registry::of_user();
    if let Some(head) = registry.known_head(&found.id, &found.dir).map_err(cannot)? {
        let (end, plan) = (loaded.chain.end().clone(), head.plan().map(str::to_owned));
        let head = registry
            .keep_head(&found.id, Some(end), plan, Durability::Synced)
            .map_err(|error| cannot(error.to_string()))?;
        journal = journal.keeping(head);
    }
    let seq = loaded.events.last().map_or(0, |last| last.seq) + 1;
    journal.append(&Recorded::new(seq, clock::now(), event)).map_err(cannot)?;
    journal.sync().map_err(|error| cannot(error.to_string()))
}
