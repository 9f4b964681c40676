//! The inputs that mutation starts from: kept findings, recordings of agents, examples, and a golden journal.

use std::path::{Path, PathBuf};

/// The most bytes of one file.
const MAX_FILE: u64 = 256 * 1024;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the directory with the kept inputs of a target.
pub fn dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Returns the kept inputs of a target.
pub fn kept(target: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    collect(&dir(target), &mut found);
    found
}

/// Returns the inputs to start from.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let shared: &[&str] = match target {
        "journal" => &["crates/host/tests/golden"],
        "loop_file" | "graph" | "redactor" => &["examples"],
        "keeper_wire" => &[],
        _ => &["fixtures", "examples"],
    };
    let mut found = kept(target);
    shared.iter().for_each(|place| collect(&root().join(place), &mut found));
    if found.is_empty() {
        found.push(Vec::new());
    }
    found
}

fn collect(dir: &Path, found: &mut Vec<Vec<u8>>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, found);
        } else if path.metadata().is_ok_and(|meta| meta.len() <= MAX_FILE) {
            found.extend(std::fs::read(&path));
        }
    }
}
