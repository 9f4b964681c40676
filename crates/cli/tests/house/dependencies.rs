//! What is depended on: exactly what was decided on, under licences that allow it, each once.

use crate::{assert_none, read, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The pure crates, and all that they may depend on. A longer list is a decision: see docs/dependencies.md.
const PURE: [(&str, &[&str]); 3] = [
    ("dogwatch-core", &["jiff", "serde"]),
    ("dogwatch-agents", &["dogwatch-core", "memchr"]),
    ("dogwatch-config", &["annotate-snippets", "dogwatch-core", "serde", "serde-saphyr", "toml"]),
];

const LICENCES: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that may be there in two versions, and why.
const TWICE: [(&str, &str); 0] = [];

struct Metadata(Value);

impl Metadata {
    fn read() -> Metadata {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let rustc = Command::new("rustc").arg("-vV").output().expect("rustc is there").stdout;
        let rustc = String::from_utf8(rustc).expect("rustc speaks UTF-8");
        let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
        let out = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--filter-platform", host])
            .current_dir(root())
            .output()
            .expect("cargo is there");
        assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
        Metadata(serde_json::from_slice(&out.stdout).expect("cargo writes JSON"))
    }

    fn packages(&self) -> impl Iterator<Item = &Value> {
        self.0["packages"].as_array().expect("a list of packages").iter()
    }

    /// The packages that are really built, ours included: what the members reach, by any kind of dependency.
    fn built(&self) -> Vec<&Value> {
        let nodes = self.0["resolve"]["nodes"].as_array().expect("a list of nodes");
        let below: BTreeMap<&str, Vec<&str>> = nodes.iter().map(|node| (text(&node["id"]), deps(node))).collect();
        let mut open: Vec<&str> = self.0["workspace_members"].as_array().expect("members").iter().map(text).collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                open.extend(&below[id]);
            }
        }
        self.packages().filter(|package| seen.contains(text(&package["id"]))).collect()
    }
}

fn deps(node: &Value) -> Vec<&str> {
    node["deps"].as_array().expect("a list").iter().map(|dep| text(&dep["pkg"])).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn the_pure_crates_depend_on_what_was_decided_and_nothing_else() {
    let metadata = Metadata::read();
    for (name, allowed) in PURE {
        let package = metadata.packages().find(|p| p["name"] == name).expect("it is a member");
        let all = package["dependencies"].as_array().expect("a list");
        // Tests may read JSON; what is built into the crate may not grow.
        let normal = all.iter().filter(|dep| dep["kind"] != "dev").map(|dep| text(&dep["name"]));
        assert_eq!(normal.collect::<BTreeSet<_>>(), allowed.iter().copied().collect(), "{name}");
    }
}

#[test]
fn every_licence_is_one_that_we_may_pass_on() {
    let metadata = Metadata::read();
    let bad = metadata.built().into_iter().filter_map(|package| {
        let licence = package["license"].as_str().unwrap_or("none");
        (!is_allowed(licence)).then(|| format!("{}: {licence}", text(&package["name"])))
    });
    assert_none("licences", &bad.collect::<Vec<_>>());
}

#[test]
fn no_crate_is_built_in_two_versions() {
    let metadata = Metadata::read();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in metadata.built() {
        versions.entry(text(&package["name"])).or_default().push(text(&package["version"]));
    }
    let twice = versions.iter().filter(|(name, all)| all.len() > 1 && !TWICE.iter().any(|(known, _)| known == *name));
    assert_none("in two versions", &twice.map(|(name, all)| format!("{name}: {}", all.join(", "))).collect::<Vec<_>>());
    let stale = TWICE.iter().filter(|(name, _)| versions.get(name).is_none_or(|all| all.len() < 2));
    assert_none("no longer in two versions", &stale.map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>());
}

#[test]
fn every_direct_dependency_is_explained() {
    let document = read(&root().join("docs/dependencies.md"));
    let metadata = Metadata::read();
    let ours = metadata.packages().filter(|package| package["source"].is_null());
    let names = ours.flat_map(|package| package["dependencies"].as_array().expect("a list"));
    let names: BTreeSet<&str> = names.map(|dep| text(&dep["name"])).filter(|name| !name.starts_with("dogwatch")).collect();
    let missing = names.iter().filter(|name| !document.contains(&format!("| `{name}` |")));
    assert_none("not in docs/dependencies.md", &missing.map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let stale = rows.map(|(name, _)| name).filter(|name| !names.contains(name));
    assert_none("in docs/dependencies.md and not used", &stale.map(str::to_owned).collect::<Vec<_>>());
}

/// Reads an SPDX expression: `OR` binds less than `AND`; `A/B` is how it used to be written.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let mut depth = 0_i32;
    // Splits at an operator outside of brackets.
    let mut split = |operator: &str| -> Option<(String, String)> {
        let words: Vec<&str> = expression.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            depth += i32::try_from(word.matches('(').count()).expect("few") - i32::try_from(word.matches(')').count()).expect("few");
            if depth == 0 && *word == operator {
                return Some((words[..at].join(" "), words[at + 1..].join(" ")));
            }
        }
        None
    };
    if let Some((left, right)) = split("OR") {
        return is_allowed(&left) || is_allowed(&right);
    }
    if let Some((left, right)) = split("AND") {
        return is_allowed(&left) && is_allowed(&right);
    }
    match expression.trim().strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_allowed(inner),
        None => LICENCES.contains(&expression.trim()),
    }
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    for good in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-3.0) AND Unicode-3.0", "Apache-2.0 WITH LLVM-exception OR MIT"] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in ["", "none", "GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR LGPL-2.1) AND MIT", "Apache-2.0 WITH other"] {
        assert!(!is_allowed(bad), "{bad}");
    }
}
