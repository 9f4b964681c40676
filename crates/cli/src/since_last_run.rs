//! Lists what changed in the settings and the checks of a loop since its last run.
//!
//! An agent can write a `dogwatch.toml`, or edit a check between two runs. The operator learns about it before the next
//! run starts. The user's registry knows the last run of the loop that the operator started. Its record must be as dogwatch
//! wrote it: an agent may have removed it or changed it.

use crate::error::{CliError, print_line};
use crate::loading::LoopFile;
use crate::secrets;
use dogwatch_config::Loaded;
use dogwatch_config::changes::{Change, changes as differing};
use dogwatch_core::record::event::{Event, Pin, RunStarted};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::Plan;
use dogwatch_core::text::{one_line, printable, without_error_numbers};
use dogwatch_core::time::dur::Limit;
use dogwatch_host::fs::pins;
use dogwatch_host::process::caller::is_supervised;
use dogwatch_host::store::fleet_job;
use dogwatch_host::store::journal::{self, Chain, Integrity, Tail};
use dogwatch_host::store::registry::{self, LastRun, Registry};
use serde::Deserialize;
use std::borrow::Cow;
use std::io;
use std::path::Path;

/// The most changes that are listed.
const MAX_LISTED: usize = 20;
/// The most of a value that is shown, in bytes.
const MAX_VALUE: usize = 100;

/// The kind of the notice about changes.
const KIND: &str = "settings_changed";
/// How the notice about changes begins; the id of the last run follows.
const HEAD: &str = "changed since the last run (";

/// The files that a node pinned.
type Pinned = (NodeName, Vec<Pin>);

/// The differences to the last run.
pub struct Changed {
    run: String,
    lines: Vec<String>,
}

/// Returns what changed since the last run of this loop. `None` without an earlier run or a change.
pub fn changes(file: &LoopFile, loaded: &Loaded) -> Option<Changed> {
    let registry = Registry::of_user();
    let last = registry.last(&file.work_dir, &file.path)?;
    let mut lines = Vec::new();
    match read(&registry, &last) {
        Err(error) => {
            let dir = last.run_dir.display();
            let why = format!("the record cannot be read, so nothing can be compared: {dir}: {error}");
            lines.push(without_error_numbers(&why));
        }
        Ok((started, pins, integrity)) => {
            lines.extend(integrity.problem());
            let given: Vec<String> = started.flags.iter().cloned().chain(loaded.flags()).collect();
            let now = without_learned(as_recorded(&started, &loaded.plan));
            let before = without_learned(started.settings);
            lines.extend(differing(&before, &now, &given).iter().map(shown));
            lines.extend(changed_files(&loaded.plan, &pins, &file.work_dir));
        }
    }
    (!lines.is_empty()).then(|| Changed { run: last.run.to_string(), lines })
}

/// Notes a run that the operator starts as the last one of its loop. The checkout of a fleet's job has only one run.
pub fn note(file: &LoopFile, last: &LastRun, notices: &mut Vec<Input>) {
    if is_supervised() || fleet_job::of_tree(&file.work_dir).is_some() {
        return;
    }
    if let Err(error) = Registry::of_user().note_last(&file.work_dir, &file.path, last) {
        let detail = format!("the next run cannot list changed settings: {error}");
        notices.push(Input::TroubleMet { kind: "last_run_not_noted", detail });
    }
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
    let head = format!("{HEAD}{run})");
    print_line(&printable(&format!("warning: {head}:")));
    listed.iter().for_each(|line| print_line(&printable(&format!("  {line}"))));
    if strict {
        return Err(CliError::with_help(
            "settings, checks or the record changed since the last run, and --strict is given",
            "restore them, or start the run once without --strict to accept them",
        ));
    }
    let message = format!("{head}: {}", listed.join("; "));
    Ok(Some(Input::Noticed { kind: KIND, message }))
}

/// Returns whether [`report`] printed this event already. It prints to stderr, one change per line, also with `--quiet`,
/// `--json` and `--strict`, which do not show the notice. So the lines of a run leave the notice out.
pub fn is_reported(event: &Event) -> bool {
    // `resume` and a changed loop file have notices of the same kind, which nothing else prints.
    matches!(event, Event::Notice { kind, message } if kind == KIND && message.starts_with(HEAD))
}

/// The parts of a line of the journal that are read of every event.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    prev: Cow<'a, str>,
}

/// Reads how a run started and the files that its nodes pinned, and compares the record with its head.
fn read(registry: &Registry, last: &LastRun) -> io::Result<(RunStarted, Vec<Pinned>, Integrity)> {
    // The head comes first: it must not be newer than the lines that are compared with it.
    let (head, missing) = match registry.known_head(&last.run, &last.run_dir) {
        Ok(Some(head)) => (Some(head), None),
        Ok(None) => (None, Some("its head is not known".to_owned())),
        Err(why) => (None, Some(why)),
    };
    let mut lines = Tail::up_to_now(&last.run_dir.join(journal::FILE))?.in_large_pieces();
    let (mut chain, mut started, mut pinned) = (Chain::new(head), None, Vec::new());
    while let Some(line) = lines.next_line()? {
        let read: Line = serde_json::from_slice(line)?;
        chain.add(line, &read.prev);
        if !matches!(&*read.event, "run_started" | "checks_pinned") {
            continue;
        }
        let event = dogwatch_codec::read(line)?.event;
        if let Event::ChecksPinned { node, files, .. } = event {
            pinned.push((node, files));
        } else if let Event::RunStarted(start) = event {
            started = Some(*start);
        }
    }
    chain.note_torn(!lines.torn()?.is_empty());
    let started = started.ok_or_else(|| io::Error::other("it has no beginning"))?;
    Ok((started, pinned, registry::judge(&chain, &last.run_dir, missing)))
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
