//! The crates core, config and agents do no I/O. Clippy enforces that with the lists in their `clippy.toml`. These
//! tests check the lists, and the parts of the standard library that the crates use.

use crate::{assert_none, read, root, sources};
use std::collections::BTreeSet;

const PURE: [&str; 3] = ["core", "config", "agents"];

/// The parts of the standard library without clocks, files, processes, threads or randomness. Clippy forbids the
/// randomly ordered maps of `collections`, and all of `time` except `Duration`.
const ALLOWED_STD: [&str; 15] = [
    "array",
    "borrow",
    "char",
    "cmp",
    "collections",
    "convert",
    "error",
    "fmt",
    "iter",
    "mem",
    "num",
    "ops",
    "str",
    "string",
    "time",
];

fn forbidden(krate: &str) -> BTreeSet<String> {
    let text = read(&root().join(format!("crates/{krate}/clippy.toml")));
    let entries = text.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
    entries.map(str::to_owned).collect()
}

#[test]
fn the_pure_crates_have_the_same_forbidden_items() {
    let mut core = forbidden("core");
    core.retain(|path| !path.starts_with("jiff::"));
    assert!(core.len() > 60, "{} entries are too few", core.len());
    for krate in PURE {
        let mut other = forbidden(krate);
        other.retain(|path| !path.starts_with("jiff::"));
        assert_eq!(other, core, "crates/{krate}/clippy.toml");
    }
}

#[test]
fn core_forbids_reading_the_wall_clock() {
    let core = forbidden("core");
    for path in ["jiff::Timestamp::now", "jiff::Zoned::now"] {
        assert!(core.contains(path), "{path}");
    }
}

#[test]
fn the_pure_crates_use_only_allowed_parts_of_std() {
    let mut found = Vec::new();
    for krate in PURE {
        for name in sources(&format!("crates/{krate}/src/")) {
            for (line, text) in read(&root().join(&name)).lines().enumerate() {
                let parts = text.split("std::").skip(1).map(|rest| {
                    let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
                    &rest[..end]
                });
                found.extend(
                    parts
                        .filter(|part| !ALLOWED_STD.contains(part))
                        .map(|part| format!("{name}:{}: std::{part}", line + 1)),
                );
            }
        }
    }
    assert_none("outside of a pure crate", &found);
}
