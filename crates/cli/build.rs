//! Passes what the compiler knows about this build to `dogwatch --version`: the commit, the profile and the features.
//!
//! The same sources and the same commit give the same values; no time and no path of the machine is included.

use std::path::Path;
use std::process::Command;

/// Overrides the commit, for builds from an archive without a repository.
const COMMIT_VAR: &str = "DOGWATCH_COMMIT";

fn main() {
    println!("cargo:rerun-if-env-changed={COMMIT_VAR}");
    println!("cargo:rerun-if-changed=build.rs");
    let profile = profile();
    println!("cargo:rustc-env=DOGWATCH_BUILD_PROFILE={profile}");
    println!("cargo:rustc-env=DOGWATCH_BUILD_FEATURES={}", features());
    println!(
        "cargo:rustc-env=DOGWATCH_BUILD_COMMIT={}",
        commit(&profile).unwrap_or_else(|| "unknown".to_owned())
    );
}

/// Returns the name of the profile: the directory in `target` that contains this build.
fn profile() -> String {
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let build = Path::new(&out).ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "build"));
    let profile = build.and_then(Path::parent).and_then(Path::file_name);
    profile.map_or_else(|| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn features() -> String {
    let mut names: Vec<String> = std::env::vars()
        .filter_map(|(name, _)| {
            name.strip_prefix("CARGO_FEATURE_").map(|name| name.to_lowercase().replace('_', "-"))
        })
        .filter(|name| name != "default")
        .collect();
    names.sort();
    names.join(",")
}

/// Returns the commit. A debug build does not ask git: it would be compiled again after every commit.
fn commit(profile: &str) -> Option<String> {
    if let Some(given) = std::env::var(COMMIT_VAR).ok().filter(|given| is_commit(given)) {
        return Some(given);
    }
    if profile == "debug" {
        return None;
    }
    // The files that change with the commit: HEAD, and the log of its moves.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"]).filter(|commit| is_commit(commit))
}

/// Accepts the marks of scripts/package and of Nix for a work tree with changes.
fn is_commit(text: &str) -> bool {
    let text = text.strip_suffix("-modified").or(text.strip_suffix("-dirty")).unwrap_or(text);
    (7..=40).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
