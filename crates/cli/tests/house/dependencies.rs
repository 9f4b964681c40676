//! Checks the dependencies: only approved ones, with compatible licenses, each in one version.

use crate::{assert_none, read, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The pure crates and their allowed dependencies. Discuss an addition first: see docs/internals/dependencies.md.
const PURE: [(&str, &[&str]); 3] = [
    ("dogwatch-core", &["jiff", "schemars", "serde"]),
    ("dogwatch-agents", &["dogwatch-core", "memchr", "serde_json"]),
    ("dogwatch-config", &["annotate-snippets", "dogwatch-core", "serde", "serde-saphyr", "toml"]),
];

const ALLOWED_LICENSES: [&str; 10] = [
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

/// Crates that may be present in two versions, and why.
const ALLOWED_DUPLICATES: [(&str, &str); 2] = [
    ("getrandom", "ring, which does the cryptography of TLS, has not moved to the newer one"),
    (
        "syn",
        "built for macros only: those of ratatui, landlock, async-nats and tracing have not moved to the newer one",
    ),
];

struct Metadata(Value);

impl Metadata {
    fn read() -> Metadata {
        let out = cargo(&["metadata", "--format-version", "1", "--no-deps"]);
        Metadata(serde_json::from_str(&out).expect("cargo writes JSON"))
    }

    fn packages(&self) -> impl Iterator<Item = &Value> {
        self.0["packages"].as_array().expect("a list of packages").iter()
    }
}

/// A package built into dogwatch or its tests, from `cargo tree`. `cargo metadata` lists more than is built.
struct Built {
    name: String,
    version: String,
    license: String,
}

fn built() -> Vec<Built> {
    let tree = cargo(&["tree", "--workspace", "--prefix", "none", "--no-dedupe", "--format", "{p}\t{l}"]);
    let lines: BTreeSet<&str> = tree.lines().filter(|line| !line.trim().is_empty()).collect();
    let all = lines.into_iter().map(|line| {
        let (package, license) = line.split_once('\t').expect("the format has a tab");
        let mut words = package.split(' ');
        let [name, version] =
            [words.next(), words.next()].map(|word| word.expect("a name and a version").to_owned());
        Built { name, version, license: license.trim_end_matches(" (*)").to_owned() }
    });
    all.collect()
}

fn cargo(args: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo).args(args).current_dir(root()).output().expect("cargo is installed");
    assert!(out.status.success(), "cargo {}: {}", args[0], String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("cargo writes UTF-8")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn the_pure_crates_have_only_approved_dependencies() {
    let metadata = Metadata::read();
    for (name, allowed) in PURE {
        let package = metadata.packages().find(|p| p["name"] == name).expect("it is a member");
        let all = package["dependencies"].as_array().expect("a list");
        // Tests may use a JSON parser. The crate itself must not gain dependencies.
        let normal = all.iter().filter(|dep| dep["kind"] != "dev").map(|dep| text(&dep["name"]));
        assert_eq!(normal.collect::<BTreeSet<_>>(), allowed.iter().copied().collect(), "{name}");
    }
}

#[test]
fn every_license_is_on_the_allowed_list() {
    let built = built();
    assert!(built.len() > 20, "cargo tree names {} packages", built.len());
    let bad = built.iter().filter(|package| !is_allowed(&package.license));
    assert_none(
        "licenses",
        &bad.map(|package| format!("{}: {}", package.name, package.license)).collect::<Vec<_>>(),
    );
}

#[test]
fn no_crate_is_built_in_two_versions() {
    let built = built();
    // A crate that its own dev-dependency uses is listed twice, in the same version.
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &built {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    versions.retain(|_, all| all.len() > 1);
    let unknown =
        versions.iter().filter(|(name, _)| !ALLOWED_DUPLICATES.iter().any(|(known, _)| known == *name));
    assert_none(
        "in two versions",
        &unknown.map(|(name, all)| format!("{name}: {all:?}")).collect::<Vec<_>>(),
    );
    let stale = ALLOWED_DUPLICATES.iter().filter(|(name, _)| !versions.contains_key(name));
    assert_none("no longer in two versions", &stale.map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>());
}

#[test]
fn every_dependency_comes_from_one_registry_with_a_checksum() {
    let lock = read(&root().join("Cargo.lock"));
    let field = |package: &str, name: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        line.and_then(|value| value.strip_suffix('"')).map(str::to_owned)
    };
    let packages: Vec<&str> = lock.split("[[package]]").skip(1).collect();
    let (foreign, ours): (Vec<&str>, Vec<&str>) =
        packages.into_iter().partition(|package| field(package, "source").is_some());
    let sources: BTreeSet<String> = foreign.iter().filter_map(|package| field(package, "source")).collect();
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert!(sources.iter().all(|source| source.starts_with("registry+https://")), "{sources:?}");
    let unchecked =
        foreign.iter().filter(|package| field(package, "checksum").is_none_or(|sum| sum.len() != 64));
    let names = unchecked.filter_map(|package| field(package, "name"));
    assert_none("without a checksum", &names.collect::<Vec<_>>());
    // A package without a source is part of this repository.
    let strange = ours.iter().filter_map(|package| field(package, "name"));
    let strange = strange.filter(|name| !name.starts_with("dogwatch"));
    assert_none("from an unknown place", &strange.collect::<Vec<_>>());
}

#[test]
fn every_direct_dependency_is_explained() {
    let document = read(&root().join("docs/internals/dependencies.md"));
    let metadata = Metadata::read();
    let ours = metadata.packages().filter(|package| package["source"].is_null());
    let names = ours.flat_map(|package| package["dependencies"].as_array().expect("a list"));
    let names: BTreeSet<&str> =
        names.map(|dep| text(&dep["name"])).filter(|name| !name.starts_with("dogwatch")).collect();
    let missing = names.iter().filter(|name| !document.contains(&format!("| `{name}` |")));
    assert_none(
        "not in docs/internals/dependencies.md",
        &missing.map(|name| (*name).to_owned()).collect::<Vec<_>>(),
    );
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let stale = rows.map(|(name, _)| name).filter(|name| !names.contains(name));
    assert_none(
        "in docs/internals/dependencies.md and not used",
        &stale.map(str::to_owned).collect::<Vec<_>>(),
    );
}

/// Evaluates an SPDX expression. `OR` binds less tightly than `AND`; `A/B` is the old notation for `OR`.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let mut depth = 0_i32;
    // Splits at an operator outside parentheses.
    let mut split = |operator: &str| -> Option<(String, String)> {
        let words: Vec<&str> = expression.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            depth += i32::try_from(word.matches('(').count()).expect("few")
                - i32::try_from(word.matches(')').count()).expect("few");
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
        None => ALLOWED_LICENSES.contains(&expression.trim()),
    }
}

#[test]
fn license_expressions_are_parsed() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR MIT",
    ] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in
        ["", "none", "GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR LGPL-2.1) AND MIT", "Apache-2.0 WITH other"]
    {
        assert!(!is_allowed(bad), "{bad}");
    }
}
