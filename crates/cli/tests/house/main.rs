//! Tests of the project's own rules: what the pure crates may use, which dependencies are allowed, how the files are
//! laid out, and that every example works as documented.

mod dependencies;
mod documents;
mod events_page;
mod examples;
mod files;
mod packaging;
mod purity;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the crate is in crates/cli")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Lists all tracked and untracked files except ignored ones, relative to the repository.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git is installed");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("names are UTF-8");
    // git still lists a file that was deleted but not committed.
    names.split_terminator('\0').filter(|name| root().join(name).is_file()).map(str::to_owned).collect()
}

/// Lists the Rust sources below a folder.
fn sources(below: &str) -> Vec<String> {
    files().into_iter().filter(|name| name.starts_with(below) && name.ends_with(".rs")).collect()
}

/// Fails with all violations at once if there are any.
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}
