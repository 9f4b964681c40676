//! The rules of the house, held by tests: what the pure crates may use, what may be depended on, how the tree
//! of files looks, and that every example does what it says.

mod dependencies;
mod documents;
mod examples;
mod files;
mod purity;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the crate lies in crates/cli")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every file that is tracked or about to be, relative to the repository.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git is there");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("names are UTF-8");
    // A file that was deleted and not committed yet is still listed.
    names.split_terminator('\0').filter(|name| root().join(name).is_file()).map(str::to_owned).collect()
}

/// The Rust sources below a folder.
fn sources(below: &str) -> Vec<String> {
    files().into_iter().filter(|name| name.starts_with(below) && name.ends_with(".rs")).collect()
}

/// What was found, or nothing: a test of the house names every place at once.
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}
