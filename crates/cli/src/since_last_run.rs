//! Lists what changed in the settings and the checks of a loop since its last run.
//!
//! An agent can write a `dogwatch.toml`, or edit a check between two runs. The operator learns about it before the next
//! run starts. The last run is the newest one that this user's registry knows, so an agent cannot make one up.

use crate::error::{CliError, print_line};
use crate::loading::LoopFile;
use crate::runs::runs_in;
use crate::secrets;
use dogwatch_config::Loaded;
use dogwatch_config::changes::{Change, changes as differing};
use dogwatch_core::record::event::{Event, Pin, Recorded, RunStarted};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::Plan;
use dogwatch_core::text::{one_line, printable};
use dogwatch_core::time::dur::Limit;
use dogwatch_host::fs::pins;
use dogwatch_host::store::home::StateDir;
use dogwatch_host::store::journal::{self, Tail};
use dogwatch_host::store::registry::Registry;
use std::path::Path;

/// The most runs among which the last one of this loop is searched.
const MAX_SEARCHED: usize = 50;
/// The most changes that are listed.
const MAX_LISTED: usize = 20;
/// The most of a value that is shown, in bytes.
const MAX_VALUE: usize = 100;

/// The files that a node pinned.
type Pinned = (NodeName, Vec<Pin>);

/// The differences to the last run.
pub struct Changed {
    run: String,
    lines: Vec<String>,
}

/// Returns what changed since the last run of this loop. `None` without an earlier run or a change.
pub fn changes(state: &StateDir, file: &LoopFile, loaded: &Loaded) -> Option<Changed> {
    let registry = Registry::of_user();
    let known = runs_in(&state.runs()).into_iter().take(MAX_SEARCHED);
    let mut known = known.filter(|run| registry.knows(&run.id, &run.dir));
    let (run, started, pins) = known.find_map(|run| {
        let (started, pins) = read(&run.dir)?;
        let same = Path::new(&started.path) == file.path && Path::new(&started.work_dir) == file.work_dir;
        same.then_some((run, started, pins))
    })?;
    let given: Vec<String> = started.flags.iter().cloned().chain(loaded.flags()).collect();
    let now = without_learned(as_recorded(&started, &loaded.plan));
    let before = without_learned(started.settings);
    let mut lines: Vec<String> = differing(&before, &now, &given).iter().map(shown).collect();
    lines.extend(changed_files(&loaded.plan, &pins, &file.work_dir));
    (!lines.is_empty()).then(|| Changed { run: run.id.to_string(), lines })
}

/// Returns the plan with the limits before recorded sessions changed them. These follow the sessions, so they differ from
/// run to run.
fn without_learned(mut plan: Plan) -> Plan {
    for node in &mut plan.nodes {
        for estimate in std::mem::take(&mut node.settings.learned) {
            match estimate.key.strip_prefix("watchdog.tools.") {
                Some(tool) => drop(node.settings.watchdog.tools.remove(tool)),
                None => node.settings.watchdog.idle = estimate.now_s.map_or(Limit::Off, Limit::At),
            }
        }
    }
    plan
}

/// Prints the changes, before the run starts. Returns the notice for the record; with `strict`, an error.
pub fn report(changed: Option<Changed>, strict: bool) -> Result<Option<Input>, CliError> {
    let Some(Changed { run, lines }) = changed else { return Ok(None) };
    let count = lines.len();
    let mut listed: Vec<String> = lines.into_iter().take(MAX_LISTED).collect();
    if count > MAX_LISTED {
        listed.push(format!("… and {} more", count - MAX_LISTED));
    }
    let head = format!("changed since the last run ({run})");
    print_line(&printable(&format!("warning: {head}:")));
    listed.iter().for_each(|line| print_line(&printable(&format!("  {line}"))));
    if strict {
        return Err(CliError::with_help(
            "settings or checks changed since the last run, and --strict is given",
            "restore them, or start the run once without --strict to accept them",
        ));
    }
    let message = format!("{head}: {}", listed.join("; "));
    Ok(Some(Input::Noticed { kind: "settings_changed", message }))
}

/// Reads how a run started, and the files that its nodes pinned.
fn read(run_dir: &Path) -> Option<(RunStarted, Vec<Pinned>)> {
    let mut lines = Tail::up_to_now(&run_dir.join(journal::FILE)).ok()?.in_large_pieces();
    let (mut started, mut pinned) = (None, Vec::new());
    while let Some(line) = lines.next_line().ok()? {
        let kind = journal::head(line)?.event;
        if !matches!(&*kind, "run_started" | "checks_pinned") {
            continue;
        }
        let event = serde_json::from_slice::<Recorded>(line).ok()?.event;
        if let Event::ChecksPinned { node, files, .. } = event {
            pinned.push((node, files));
        } else if let Event::RunStarted(start) = event {
            started = Some(*start);
        }
    }
    Some((started?, pinned))
}

/// Returns the plan as the record of the new run will show it, with secrets replaced.
fn as_recorded(started: &RunStarted, plan: &Plan) -> Plan {
    let event = Event::RunStarted(Box::new(RunStarted { settings: plan.redacted(), ..started.clone() }));
    let hidden = secrets::of(plan).hide_in(event);
    if let Event::RunStarted(hidden) = hidden { hidden.settings } else { plan.redacted() }
}

fn shown(change: &Change) -> String {
    let value = |text: &str| one_line(text, MAX_VALUE);
    let nodes = match change.nodes.as_slice() {
        [] => String::new(),
        [first] => format!("node {first}: "),
        [first, rest @ ..] => format!("node {first} and {} more: ", rest.len()),
    };
    format!("{nodes}{}: {} → {}", change.key, value(&change.old), value(&change.new))
}

/// Returns the pinned files whose content changed. Nodes with a worktree are skipped: their files come from a
/// commit.
fn changed_files(plan: &Plan, pinned: &[Pinned], work_dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for (node, before) in pinned {
        let here = plan.nodes.iter().find(|n| n.name == *node).filter(|n| !n.settings.worktree);
        let Some(_) = here else { continue };
        let request = pins::Request {
            work_dir: work_dir.to_owned(),
            globs: Vec::new(),
            checks: Vec::new(),
            known: before.iter().map(|pin| pin.path.clone()).collect(),
            state_dirs: Vec::new(),
            tree: false,
        };
        // A file that cannot be read now is reported when the node starts.
        let Ok(now) = pins::hash(&request, &pins::Limits::default()) else { continue };
        for pin in before {
            let line = match now.iter().find(|n| n.path == pin.path).and_then(|n| n.sha256.as_ref()) {
                same if same == pin.sha256.as_ref() => continue,
                None => format!("{}: removed; a check depends on it", pin.path),
                Some(_) if pin.sha256.is_none() => format!("{}: added; a check depends on it", pin.path),
                Some(_) => format!("{}: content changed; a check depends on it", pin.path),
            };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}
