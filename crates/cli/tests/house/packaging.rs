//! Checks what the packages say about dogwatch.

use crate::{read, root};
use std::process::Command;

#[test]
fn every_package_has_the_description_of_the_help() {
    let [about, long] = ["-h", "--help"].map(|flag| {
        let help = Command::new(env!("CARGO_BIN_EXE_dogwatch")).arg(flag).output().expect("it runs");
        String::from_utf8_lossy(&help.stdout).lines().next().expect("a first line").to_owned()
    });
    assert_eq!(about, long);
    for (file, name) in [
        ("crates/cli/Cargo.toml", "description = "),
        ("flake.nix", "description = "),
        ("packaging/homebrew/dogwatch.rb", "desc "),
    ] {
        let line = format!("{name}\"{about}\"");
        assert!(read(&root().join(file)).contains(&line), "{file} has no {line}");
    }
}

#[test]
fn the_commit_of_a_build_may_be_marked_as_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("build");
    let built = Command::new("rustc")
        .args(["--edition", "2024", "-o"])
        .arg(&script)
        .arg(root().join("crates/cli/build.rs"))
        .status()
        .expect("rustc is installed");
    assert!(built.success());
    for (given, wanted) in [
        ("0123abcdef", "0123abcdef"),
        ("0123abcdef-modified", "0123abcdef-modified"),
        ("0123abc-dirty", "0123abc-dirty"),
        ("0123abcdef-mine", "unknown"),
        ("-modified", "unknown"),
    ] {
        let out = dir.path().join("debug/build/x");
        let done = Command::new(&script).env("DOGWATCH_COMMIT", given).env("OUT_DIR", out).output();
        let text = String::from_utf8(done.expect("it runs").stdout).expect("UTF-8");
        let line = format!("cargo:rustc-env=DOGWATCH_BUILD_COMMIT={wanted}");
        assert!(text.lines().any(|found| found == line), "{given}: {text}");
    }
}
