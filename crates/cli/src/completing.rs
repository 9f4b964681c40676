//! What the shell completes beyond commands and options: runs, loops, keys and their values. `dogwatch completions SHELL`
//! prints the script that asks for it.

use crate::loading::LOOP_FILES;
use crate::runs::{registered, runs_in, state_dir};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use dogwatch_config::keys::{KEYS, Key, Kind};
use dogwatch_core::settings::ReaderName;
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

/// Completes a run or any file.
pub fn runs_and_files() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut found = matching_runs(current);
        found.extend(PathCompleter::any().complete(current));
        found
    })
}

/// Completes a loop or graph file, or its directory.
pub fn loops() -> ArgValueCompleter {
    ArgValueCompleter::new(matching_loops)
}

/// Completes `KEY=VALUE` of `--set`, for the keys that start with `block`.
pub fn keys(block: &'static str) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| matching_keys(block, current))
}

/// Completes one of these words.
pub fn words(words: &[&'static str]) -> ArgValueCandidates {
    let words = words.to_vec();
    ArgValueCandidates::new(move || words.iter().map(CompletionCandidate::new).collect())
}

/// Completes the name of a known agent. Other commands are valid agents, too.
pub fn agents() -> ArgValueCandidates {
    ArgValueCandidates::new(|| agent_names().map(CompletionCandidate::new).collect())
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

/// Offers loops first, then other directories, then loop and graph files.
fn matching_loops(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    let (dir, typed) = text.split_at(text.rfind('/').map_or(0, |slash| slash + 1));
    let base = match dir.strip_prefix("~/") {
        Some(rest) => std::env::home_dir().unwrap_or_default().join(rest),
        None => Path::new(if dir.is_empty() { "." } else { dir }).to_owned(),
    };
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let mut found: Vec<(u8, String)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| name.starts_with(typed))?;
            let path = entry.path();
            let hidden = typed.is_empty() && name.starts_with('.');
            if LOOP_FILES.iter().any(|file| path.join(file).is_file()) {
                Some((0, format!("{dir}{name}")))
            } else if path.is_dir() && !hidden {
                Some((1, format!("{dir}{name}/")))
            } else {
                LOOP_FILES.contains(&name.as_str()).then(|| (2, format!("{dir}{name}")))
            }
        })
        .collect();
    found.sort();
    if found.is_empty() {
        return PathCompleter::any().complete(current);
    }
    found.into_iter().map(|(_, path)| CompletionCandidate::new(path)).collect()
}

fn matching_keys(block: &str, current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let keys = KEYS.iter().filter(|key| key.path.starts_with(block));
    if let Some((path, typed)) = current.split_once('=') {
        let values = keys.filter(|key| key.path == path).flat_map(values);
        let fits = values.filter(|value| value.starts_with(typed));
        return fits.map(|value| CompletionCandidate::new(format!("{path}={value}"))).collect();
    }
    let fits = keys.filter(|key| key.path.starts_with(current));
    fits.map(|key| CompletionCandidate::new(format!("{}=", key.path)).help(Some(key.doc.into()))).collect()
}

/// Returns the words that a key accepts, if there are few.
fn values(key: &Key) -> Vec<&'static str> {
    if let Kind::OneOf(words) = key.kind {
        words.to_vec()
    } else if matches!(key.kind, Kind::Flag | Kind::Mcp) {
        vec!["true", "false"]
    } else if key.kind == Kind::CommandLine {
        agent_names().collect()
    } else {
        Vec::new()
    }
}

fn agent_names() -> impl Iterator<Item = &'static str> {
    ReaderName::NAMES.iter().copied().filter(|name| *name != ReaderName::Plain.as_str())
}
