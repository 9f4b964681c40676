//! What the shell completes beyond commands and options: runs, loops and keys. `dogwatch completions SHELL` prints the script
//! that asks for it.

use crate::runs::{registered, runs_in, state_dir};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use dogwatch_config::keys::KEYS;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

/// The variable with which the script asks for completions.
pub const VARIABLE: &str = "DOGWATCH_COMPLETE";

/// The most runs that are offered.
const MAX_RUNS: usize = 50;
/// The most entries of a directory that are searched for loops.
const MAX_ENTRIES: usize = 2_000;

/// Completes a run: the name of its loop, the end of its id, or the whole id.
pub fn runs() -> ArgValueCompleter {
    ArgValueCompleter::new(matching_runs)
}

/// Completes a loop or graph file, or its directory.
pub fn loops() -> ArgValueCompleter {
    ArgValueCompleter::new(matching_loops)
}

/// Completes a key of `--set`.
pub fn keys() -> ArgValueCompleter {
    ArgValueCompleter::new(matching_keys)
}

fn matching_runs(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let here = runs_in(&state_dir(None).runs());
    let local = !here.is_empty();
    let all: Vec<_> = if here.is_empty() { registered().take(MAX_RUNS).collect() } else { here };
    let mut found = Vec::new();
    let names: BTreeSet<String> =
        all.iter().take(MAX_RUNS).filter_map(|run| Some(run.started()?.name().to_owned())).collect();
    let names = names.into_iter().filter(|name| local && name.starts_with(current));
    found.extend(names.map(|name| CompletionCandidate::new(name).help(Some("the run of this loop".into()))));
    for run in all.iter().take(MAX_RUNS) {
        let id = run.id.as_str();
        let started =
            format!("started {}-{}-{} {}:{}", &id[..4], &id[4..6], &id[6..8], &id[9..11], &id[11..13]);
        // The end is shorter, the whole id is what other commands print.
        let whole = id.starts_with(current) && !current.is_empty();
        let word = if whole { id } else { run.tail() };
        if whole || word.starts_with(current) {
            found.push(CompletionCandidate::new(word).help(Some(started.into())));
        }
    }
    found
}

fn matching_loops(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    let (dir, _) = text.rsplit_once('/').map_or(("", text.as_ref()), |(dir, rest)| (dir, rest));
    let base = if dir.is_empty() { Path::new(".") } else { Path::new(dir) };
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let mut loops: Vec<String> = entries
        .filter(|entry| crate::loading::LOOP_FILES.iter().any(|file| entry.path().join(file).is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| if dir.is_empty() { name } else { format!("{dir}/{name}") })
        .filter(|path| path.starts_with(text.as_ref()))
        .collect();
    loops.sort();
    if loops.is_empty() {
        return PathCompleter::any().complete(current);
    }
    loops.into_iter().map(CompletionCandidate::new).collect()
}

fn matching_keys(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let fits = KEYS.iter().filter(|key| key.path.starts_with(current));
    fits.map(|key| CompletionCandidate::new(format!("{}=", key.path)).help(Some(key.doc.into()))).collect()
}
