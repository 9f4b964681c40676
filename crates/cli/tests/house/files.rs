//! Checks the files of the repository.

use crate::{assert_none, files, read, root, sources};
use std::process::Command;

/// The longest source file, in lines. Split a longer one.
const MAX_LINES: usize = 700;

#[test]
fn no_source_file_exceeds_the_line_limit() {
    let long = sources("").into_iter().filter_map(|name| {
        let lines = read(&root().join(&name)).lines().count();
        (lines > MAX_LINES).then(|| format!("{name}: {lines} lines"))
    });
    assert_none("longer than 700 lines", &long.collect::<Vec<_>>());
}

/// Cargo compiles only the tests that are listed if it does not look for them itself.
#[test]
fn every_test_file_is_listed() {
    let mut missing = Vec::new();
    for main in sources("crates/").into_iter().filter(|name| name.ends_with("/tests/main.rs")) {
        let dir = main.strip_suffix("main.rs").expect("the suffix");
        let manifest = read(&root().join(dir).join("../Cargo.toml"));
        let listed = read(&root().join(&main));
        missing.extend(sources(dir).into_iter().filter(|name| {
            let Some(stem) = name[dir.len()..].strip_suffix(".rs").filter(|stem| !stem.contains('/')) else {
                return false;
            };
            let module = listed.lines().any(|line| line == format!("mod {stem};"));
            let program = manifest.lines().any(|line| line == format!("name = \"{stem}\""));
            stem != "main" && !module && !program
        }));
    }
    assert_none("test files that nothing compiles", &missing);
}

/// Cargo compiles no unit tests of a library with `test = false`.
#[test]
fn a_library_whose_tests_are_not_compiled_has_none() {
    let manifests = files().into_iter().filter(|name| name.ends_with("/Cargo.toml"));
    let untested =
        manifests.filter(|name| read(&root().join(name)).lines().any(|line| line == "test = false"));
    let dirs: Vec<String> = untested.map(|name| name.replace("Cargo.toml", "src/")).collect();
    assert!(dirs.iter().any(|dir| dir == "crates/codec/src/"), "{dirs:?}");
    let has_test = |name: &String| read(&root().join(name)).contains("#[test]");
    let found = dirs.iter().flat_map(|dir| sources(dir)).filter(has_test);
    assert_none("unit tests that nothing compiles", &found.collect::<Vec<_>>());
}

#[test]
fn unsafe_code_lives_in_one_place() {
    let word = ["unsafe", "{"].join(" ");
    let allow = ["allow(unsafe", "code)"].join("_");
    // The start of the keeper makes two calls whose soundness depends on the caller.
    let places = ["crates/host/src/sys/", "crates/host/src/process/keeper/process.rs"];
    let found = sources("crates/").into_iter().filter(|name| !places.iter().any(|p| name.starts_with(p)));
    let found = found.filter(|name| {
        let text = read(&root().join(name));
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        text.lines().filter(is_code).any(|line| line.contains(&word) || line.contains(&allow))
    });
    assert_none("unsafe outside of crates/host/src/sys", &found.collect::<Vec<_>>());
}

#[test]
fn every_crate_is_held_to_the_lints_about_unsafe_code() {
    let shared = read(&root().join("Cargo.toml"));
    for lint in ["unsafe_code = \"deny\"", "undocumented_unsafe_blocks = \"deny\""] {
        assert!(shared.lines().any(|line| line == lint), "{lint} in Cargo.toml");
    }
    let manifests: Vec<String> = files()
        .into_iter()
        .filter(|name| name.starts_with("crates/") && name.ends_with("/Cargo.toml"))
        .collect();
    assert!(manifests.len() > 5, "{manifests:?}");
    let free = manifests
        .into_iter()
        .filter(|name| !read(&root().join(name)).contains("\n[lints]\nworkspace = true\n"));
    assert_none("without the lints of the workspace", &free.collect::<Vec<_>>());
}

/// `std::thread::spawn` panics where the system has no room for another thread; the builder returns an error.
#[test]
fn threads_are_started_by_a_builder() {
    let call = ["thread::spawn", "("].concat();
    let programs = sources("crates/").into_iter().filter(|name| name.contains("/src/"));
    let found = programs.filter(|name| {
        let text = read(&root().join(name));
        text.split("#[cfg(test)]").next().is_some_and(|code| code.contains(&call))
    });
    assert_none("threads whose start may panic", &found.collect::<Vec<_>>());
}

#[test]
fn no_file_contains_a_path_of_one_machine() {
    let places: Vec<String> = ["work", "root", "farm", "home"].map(|dir| format!("/{dir}/")).into();
    let mut found = Vec::new();
    for name in files() {
        // The recordings use a made-up home directory, and their test searches for the same paths as this one.
        if name.starts_with("fixtures/") || name == "crates/agents/tests/recordings.rs" {
            continue;
        }
        let text =
            String::from_utf8_lossy(&std::fs::read(root().join(&name)).expect("it is listed")).into_owned();
        for (at, line) in text.lines().enumerate() {
            // A machine path starts after a blank or a quote. `crates/x/home/y` and `~/work/` are not machine paths.
            let begins = |at: usize| line[..at].chars().next_back().is_none_or(|c| " \t\"'`(=:[".contains(c));
            if places.iter().any(|place| line.match_indices(place.as_str()).any(|(at, _)| begins(at))) {
                found.push(format!("{name}:{}", at + 1));
            }
        }
    }
    assert_none("paths of one machine", &found);
}

#[test]
fn all_dependencies_come_from_the_public_registry() {
    let lock = read(&root().join("Cargo.lock"));
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    let foreign = sources.filter(|s| *s != "\"registry+https://github.com/rust-lang/crates.io-index\"");
    assert_none("sources", &foreign.map(str::to_owned).collect::<Vec<_>>());
    let config =
        files().into_iter().filter(|name| name.contains(".cargo/") && !name.starts_with("fixtures/"));
    assert_none("settings of cargo", &config.collect::<Vec<_>>());
}

#[test]
fn the_benchmark_prints_its_help_and_refuses_unknown_options_without_a_build() {
    // A cargo that fails: a build would show in the exit code.
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("cargo"), "#!/bin/sh\nexit 9\n").expect("writes");
    let call = format!("chmod +x {0}/cargo; PATH={0}:$PATH exec scripts/bench \"$@\"", dir.path().display());
    for (args, code, wanted) in [
        (&["--help"][..], 0, "scripts/bench --peers "),
        (&["-h"], 0, "scripts/bench --peers "),
        (&["--peers", "--help"], 0, "scripts/bench --peers "),
        (&["--hepl"], 2, "error: unknown option --hepl"),
        (&["--fleet", "-x"], 2, "error: unknown option -x"),
    ] {
        let done = Command::new("sh").args(["-c", &call, "sh"]).args(args).current_dir(root()).output();
        let done = done.expect("sh is installed");
        let text = if code == 0 { &done.stdout } else { &done.stderr };
        let text = String::from_utf8_lossy(text);
        assert_eq!(done.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(wanted), "{args:?}: {text}");
    }
}

#[test]
fn scripts_stop_at_the_first_error() {
    let mut found = Vec::new();
    for name in files().into_iter().filter(|name| name.starts_with("scripts/") || name.starts_with(".ci/")) {
        let text = read(&root().join(&name));
        if text.starts_with("#!/usr/bin/env bash") && !text.contains("\nset -euo pipefail\n") {
            found.push(name);
        }
    }
    assert_none("without `set -euo pipefail`", &found);
}

/// Checks that every relative link points to a file of the repository.
#[test]
fn links_between_documents_have_existing_targets() {
    let mut found = Vec::new();
    for name in files().into_iter().filter(|name| name.ends_with(".md") && !name.starts_with("fixtures/")) {
        let path = root().join(&name);
        for target in read(&path).split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let local = !target.is_empty() && !target.contains("://");
            if local && !path.parent().expect("a file has a folder").join(target).exists() {
                found.push(format!("{name}: {target}"));
            }
        }
    }
    assert_none("links to nothing", &found);
}
